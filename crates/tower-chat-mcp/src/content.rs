//! The answer of a server as the output of a tool.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;
use tower_chat_layers::{Media, MediaSource, Part, ToolOutput};

/// What the model is shown of an answer; never nothing, which some providers refuse.
pub(crate) fn output(answer: CallToolResult) -> ToolOutput {
    let is_error = answer.is_error == Some(true);
    let mut content: Vec<Part> = answer.content.into_iter().map(part).collect();
    if let Some(structured) = &answer.structured_content
        && !content.iter().filter_map(Part::as_text).any(|text| says(text, structured))
    {
        content.push(Part::text(structured.to_string()));
    }
    let mut output = match (content.is_empty(), is_error) {
        (true, true) => ToolOutput::error("The tool failed, and did not say why."),
        (true, false) => ToolOutput::from(()),
        (false, _) => ToolOutput::new(content),
    };
    output.is_error = is_error;
    output
}

fn part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(text) => Part::text(text.text),
        ContentBlock::Image(image) => media(image.mime_type, image.data),
        ContentBlock::Audio(audio) => media(audio.mime_type, audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Part::text(text),
            ResourceContents::BlobResourceContents { mime_type: Some(kind), blob, .. } => {
                media(kind, blob)
            }
            _ => json(&ContentBlock::Resource(resource)),
        },
        block => json(&block),
    }
}

fn media(media_type: String, data: String) -> Part {
    Media::new(media_type, MediaSource::Base64(data)).into()
}

fn json(block: &ContentBlock) -> Part {
    // All keys of a block are strings, so that it always has a JSON form.
    Part::text(serde_json::to_string(block).unwrap_or_default())
}

/// Whether a text says what the structured content says.
fn says(text: &str, structured: &Value) -> bool {
    structured.as_str() == Some(text)
        || serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
}

#[cfg(test)]
mod tests {
    use rmcp::model::Resource;
    use serde_json::json;

    use super::*;

    fn answered(answer: Value) -> ToolOutput {
        output(serde_json::from_value(answer).expect("an answer"))
    }

    #[test]
    fn texts_media_and_embedded_files_have_parts() {
        let output = answered(json!({"content": [
            {"type": "text", "text": "two"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource":
                {"uri": "file:///b", "mimeType": "application/pdf", "blob": "aGk="}},
        ]}));
        let media = |kind: &str| media(kind.to_owned(), "aGk=".to_owned());
        let expected = [
            Part::text("two"),
            media("image/png"),
            media("audio/wav"),
            Part::text("inside"),
            media("application/pdf"),
        ];
        assert_eq!((output.content.as_slice(), output.is_error), (&expected[..], false));
    }

    #[test]
    fn what_has_no_part_is_shown_as_json() {
        let link = Resource::new("file:///a", "a");
        let unknown = ResourceContents::blob("aGk=", "file:///b");
        let output = output(CallToolResult::success(vec![
            ContentBlock::resource_link(link),
            ContentBlock::resource(unknown),
        ]));
        let shown: Vec<Value> = output
            .content
            .iter()
            .map(|part| serde_json::from_str(part.as_text().expect("a text")).expect("JSON"))
            .collect();
        let expected = [
            json!({"type": "resource_link", "uri": "file:///a", "name": "a"}),
            json!({"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}}),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn structured_content_is_said_once() {
        let both = json!({
            "content": [{"type": "text", "text": "{ \"degrees\": 7 }"}],
            "structuredContent": {"degrees": 7},
        });
        assert_eq!(answered(both).content, [Part::text("{ \"degrees\": 7 }")]);
        let more = json!({
            "content": [{"type": "text", "text": "Cold."}],
            "structuredContent": {"degrees": 7},
        });
        let expected = [Part::text("Cold."), Part::text(r#"{"degrees":7}"#)];
        assert_eq!(answered(more).content, expected);
        let alone = json!({"structuredContent": "cold"});
        assert_eq!(answered(alone).content, [Part::text("\"cold\"")]);
        let null = json!({"content": [], "structuredContent": null});
        assert_eq!(answered(null).content, [Part::text("null")]);
    }

    #[test]
    fn an_empty_answer_says_that_it_came() {
        let output = answered(json!({"content": []}));
        assert_eq!((output.text().is_empty(), output.is_error), (false, false));
        let output = answered(json!({"content": [], "isError": true}));
        assert_eq!((output.text().is_empty(), output.is_error), (false, true));
    }

    #[test]
    fn an_error_keeps_its_content() {
        let output = answered(json!({
            "content": [{"type": "text", "text": "no such city"}],
            "isError": true,
        }));
        assert_eq!((output.text().as_str(), output.is_error), ("no such city", true));
    }
}
