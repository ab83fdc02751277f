//! Converts a server's answer to a call into the output of a tool.

use rmcp::model::{Annotations, CallToolResult, ContentBlock, ResourceContents, Role};
use serde_json::Value;
use tower_chat_layers::{Media, MediaSource, Part, ToolOutput};

/// Returns the output that the model receives. It is never empty, because some providers refuse
/// empty results.
///
/// Omits content whose audience is only the user (MCP specification 2025-11-25, `Annotations`:
/// `audience` "describes who the intended customer of this object or data is").
pub(crate) fn output(answer: CallToolResult) -> ToolOutput {
    let is_error = answer.is_error == Some(true);
    let (for_user, for_model): (Vec<_>, Vec<_>) = answer.content.into_iter().partition(is_for_user);
    let mut content: Vec<Part> = for_model.into_iter().map(part).collect();
    if let Some(structured) = &answer.structured_content
        && !content.iter().filter_map(Part::as_text).any(|text| is_text_of(text, structured))
    {
        content.push(Part::text(structured.to_string()));
    }
    let mut output = match (content.is_empty(), is_error) {
        (true, true) => ToolOutput::error("The tool failed without an error message."),
        (true, false) if !for_user.is_empty() => {
            let text = "The tool succeeded. Its output is for the user alone.";
            ToolOutput::new(vec![Part::text(text)])
        }
        (true, false) => ToolOutput::from(()),
        (false, _) => ToolOutput::new(content),
    };
    output.is_error = is_error;
    output
}

/// Returns whether the audience of a block does not include the model.
fn is_for_user(block: &ContentBlock) -> bool {
    let annotations: Option<&Annotations> = match block {
        ContentBlock::Text(text) => text.annotations.as_ref(),
        ContentBlock::Image(image) => image.annotations.as_ref(),
        ContentBlock::Audio(audio) => audio.annotations.as_ref(),
        ContentBlock::Resource(resource) => resource.annotations.as_ref(),
        ContentBlock::ResourceLink(link) => link.annotations.as_ref(),
        _ => None,
    };
    let audience = annotations.and_then(|annotations| annotations.audience.as_deref());
    audience.is_some_and(|roles| !roles.is_empty() && !roles.contains(&Role::Assistant))
}

/// Converts a block to a part: a text, media, or the JSON of the block as text.
fn part(block: ContentBlock) -> Part {
    match block {
        ContentBlock::Text(text) => Part::text(text.text),
        ContentBlock::Image(image) => media(image.mime_type, image.data),
        ContentBlock::Audio(audio) => media(audio.mime_type, audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            // The model may need the address of the resource in a later call.
            ResourceContents::TextResourceContents { uri, text, .. } if !uri.is_empty() => {
                Part::text(format!("{uri}:\n{text}"))
            }
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
    // All keys of a block are strings, so serialization cannot fail.
    Part::text(serde_json::to_string(block).unwrap_or_default())
}

/// Returns whether a text equals the structured content, either as a string or as JSON.
fn is_text_of(text: &str, structured: &Value) -> bool {
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
    fn texts_media_and_embedded_files_become_parts() {
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
            Part::text("file:///a:\ninside"),
            media("application/pdf"),
        ];
        assert_eq!((output.content.as_slice(), output.is_error), (&expected[..], false));
    }

    #[test]
    fn content_for_the_user_alone_is_not_sent_to_the_model() {
        let block = |kind: &str, audience: Value| {
            let mut block = match kind {
                "text" => json!({"type": "text", "text": "secret"}),
                "resource" => {
                    json!({"type": "resource", "resource": {"uri": "file:///a", "text": "secret"}})
                }
                "resource_link" => {
                    json!({"type": "resource_link", "uri": "file:///a", "name": "secret"})
                }
                kind => json!({"type": kind, "data": "aGk=", "mimeType": "x/y"}),
            };
            block["annotations"] = json!({"audience": audience});
            block
        };
        for kind in ["text", "image", "audio", "resource", "resource_link"] {
            let both = [json!({"type": "text", "text": "seen"}), block(kind, json!(["user"]))];
            assert_eq!(answered(json!({"content": both})).content, [Part::text("seen")], "{kind}");
            let alone = answered(json!({"content": [block(kind, json!(["user"]))]}));
            assert!(alone.text().contains("for the user alone") && !alone.is_error, "{kind}");
            for audience in [json!(["assistant"]), json!(["user", "assistant"]), json!([])] {
                let shown = answered(json!({"content": [block(kind, audience.clone())]}));
                assert!(!shown.text().contains("for the user"), "{kind} {audience}");
                assert_eq!(shown.content.len(), 1, "{kind} {audience}");
            }
        }
    }

    #[test]
    fn content_without_a_matching_part_is_sent_as_json() {
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
    fn structured_content_is_added_unless_a_text_contains_the_same_value() {
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
    fn an_empty_answer_becomes_a_text_that_is_not_empty() {
        let output = answered(json!({"content": []}));
        assert_eq!((output.text().is_empty(), output.is_error), (false, false));
        let output = answered(json!({"content": [], "isError": true}));
        assert_eq!((output.text().is_empty(), output.is_error), (false, true));
    }

    #[test]
    fn a_failed_result_contains_the_content_of_the_error() {
        let output = answered(json!({
            "content": [{"type": "text", "text": "no such city"}],
            "isError": true,
        }));
        assert_eq!((output.text().as_str(), output.is_error), ("no such city", true));
    }
}
