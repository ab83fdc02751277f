//! Tests that a sentence replaces refused content in requests to the service that refused the
//! content, and that the content is sent to other services.

use tower_chat_core::{
    ChangeKind, ChatRequest, ContentKind, Media, MediaSource, Message, MessageId, Part,
    RefusalMark, RefusalMarks, Role, RunId, ToolCall, ToolResult,
};
use tower_chat_wire::{body::BodyWire, rules::explain};

use super::{WIRES, all_rules, body, rules, wire_name, written};

const IMAGE: &str = "SU1BR0U=";
const RESULT: &str = "a poisonous result";
const QUESTION: &str = "a poisonous question";

/// Returns a conversation in which a user message and a result both contain an image and a text.
fn history() -> Vec<Message> {
    let run = RunId::new();
    let image = || Part::Media(Media::new("image/png", MediaSource::Base64(IMAGE.to_owned())));
    let mut messages = vec![
        Message::new(Role::User, vec![image(), Part::text(QUESTION)]),
        Message::tool_calls([ToolCall::new("call_1", "look", "{}")]),
        Message::tool_results([ToolResult::of_parts("call_1", vec![Part::text(RESULT), image()])]),
        Message::assistant("It is a cat."),
        Message::user("Sure?"),
    ];
    for (message, index) in messages.iter_mut().zip(0..) {
        message.id = Some(MessageId { run, index });
    }
    messages
}

fn marked(issuer: &str, index: usize, content: ContentKind) -> ChatRequest {
    let messages = history();
    let mark = RefusalMark::new(issuer, messages[index].id.unwrap(), content);
    ChatRequest::new(messages).with_extension(RefusalMarks::new([mark]))
}

#[test]
fn every_service_is_sent_a_sentence_in_place_of_content_that_it_has_refused() {
    for (_, rules) in all_rules() {
        for (index, content, refused) in [
            (0, ContentKind::Text, QUESTION),
            (2, ContentKind::Text, RESULT),
            (0, ContentKind::Image, IMAGE),
            (2, ContentKind::Image, IMAGE),
        ] {
            let name = format!("{} {} {content:?} {index}", wire_name(rules.wire), rules.issuer);
            let request = marked(&rules.issuer, index, content);
            let plain = body(&ChatRequest::new(request.messages().clone()), &rules).to_string();
            let (fitted, body) = written(&request, &rules);
            let body = body.to_string();
            let count = |text: &str| text.matches(refused).count();
            // If the service accepts no image at this position, a sentence replaces the image even
            // without a mark, and the counts are equal.
            if content == ContentKind::Text || count(&plain) == 2 {
                assert_eq!(count(&body) + 1, count(&plain), "{name}: {body}");
            }
            assert!(body.contains("the service has refused it"), "{name}: {body}");
            let changes = fitted.changes.iter().filter(|it| it.kind == ChangeKind::Refused);
            assert_eq!(changes.count(), 1, "{name}");
            assert!(body.contains("It is a cat.") && body.contains("Sure?"), "{name}");
        }
    }
}

#[test]
fn a_refusal_mark_of_another_service_does_not_change_the_body() {
    for wire in WIRES {
        let rules = rules(wire, "mine");
        let request = marked("another", 2, ContentKind::Text);
        let unmarked = ChatRequest::new(request.messages().clone());
        assert_eq!(body(&request, &rules), body(&unmarked, &rules), "{}", wire_name(wire));
    }
}

#[test]
fn the_explanation_names_content_that_the_store_marks_as_refused() {
    let rules = rules(BodyWire::Anthropic, "anthropic");
    let mut messages = history();
    let mark = RefusalMark::new("anthropic", messages[2].id.unwrap(), ContentKind::Image);
    RefusalMark::store_in(&mut messages[3], [mark]);
    let changes = explain(&messages.clone().into(), &rules);
    let refused: Vec<_> = changes.iter().filter(|it| it.kind == ChangeKind::Refused).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].message, messages[2].id);
    assert_eq!(
        refused[0].to_string(),
        "an image that the service has refused is replaced by a sentence"
    );
}
