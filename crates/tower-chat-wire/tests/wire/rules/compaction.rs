//! Tests of summaries by a service, which replace the messages before the summary.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat_core::{ChangeKind, ChatRequest, Message, Native, Part, Role, ToolCall, ToolResult};
use tower_chat_testkit::{
    Rng,
    hostile::{Service, violations},
};
use tower_chat_wire::{
    body::BodyWire,
    rules::{ForeignRule, ServiceRules},
};

use super::{
    all_rules, rules,
    total::{cases, request},
    wire_name, written,
};

const SERVICES: [(BodyWire, &str); 2] =
    [(BodyWire::Anthropic, "anthropic"), (BodyWire::OpenAiResponses, "openai")];

fn summary(wire: BodyWire, issuer: Option<&str>, text: Option<&str>) -> Part {
    let item = match wire {
        BodyWire::Anthropic => json!({"type": "compaction", "content": text}),
        _ => json!({"type": "compaction", "id": "cmp_1", "encrypted_content": text}),
    };
    let mut native = Native::new(wire_name(wire), item.to_string().parse().unwrap());
    native.issuer = issuer.map(Arc::from);
    Part::Native(native)
}

fn assistant(parts: impl IntoIterator<Item = Part>) -> Message {
    Message::new(Role::Assistant, parts.into_iter().collect())
}

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall::new(id, "look", "{}"))
}

/// Fits the messages to the rules and writes the body. Returns for each text whether the body
/// contains it, and the kinds of the changes.
fn sent(
    messages: &[Message],
    rules: &ServiceRules,
    texts: &[&str],
) -> (Vec<bool>, Vec<ChangeKind>) {
    let (fitted, body) = written(&ChatRequest::new(messages.to_vec()), rules);
    let body = body.to_string();
    let kinds = fitted.changes.iter().map(|change| change.kind).collect();
    (texts.iter().map(|text| body.contains(text)).collect(), kinds)
}

#[test]
fn only_the_service_that_created_a_summary_is_not_sent_the_summarised_messages() {
    for (wire, name) in SERVICES {
        let own = rules(wire, name);
        let other_wire = if wire == BodyWire::Anthropic {
            rules(BodyWire::OpenAiResponses, "openai")
        } else {
            rules(BodyWire::Anthropic, "anthropic")
        };
        let same_wire = ServiceRules::unknown(wire, "llm.example.com");
        let chat = rules(BodyWire::OpenAiChat, "openai");
        for (issuer, text, receiver, is_short, is_sent) in [
            (Some(name), Some("SUMMARY"), &own, true, true),
            // The compaction failed, so the item has no summary.
            (Some(name), None, &own, false, true),
            // The item has no issuer, so another service may have created it.
            (None, Some("SUMMARY"), &own, false, true),
            (Some("llm.example.com"), Some("SUMMARY"), &own, false, false),
            (Some(name), Some("SUMMARY"), &same_wire, false, false),
            (Some(name), Some("SUMMARY"), &other_wire, false, false),
            (Some(name), Some("SUMMARY"), &chat, false, false),
        ] {
            let messages = [
                Message::system("INSTRUCTION"),
                Message::user("FIRST"),
                Message::assistant("SECOND"),
                Message::user("THIRD"),
                assistant([summary(wire, issuer, text), Part::text("FOURTH")]),
                Message::user("FIFTH"),
            ];
            let texts =
                ["INSTRUCTION", "FIRST", "SECOND", "THIRD", "FOURTH", "FIFTH", "compaction"];
            let (found, changes) = sent(&messages, receiver, &texts);
            let old = !is_short;
            let expected = [true, old, old, old, true, true, is_sent];
            assert_eq!(found, expected, "{name} {issuer:?} {text:?} {}", receiver.issuer);
            if is_short {
                assert_eq!(changes, [ChangeKind::Message], "{name}");
            }
        }
    }
}

#[test]
fn the_newest_summary_replaces_all_messages_before_it_and_the_earlier_summary() {
    for (wire, name) in SERVICES {
        let own = rules(wire, name);
        let messages = [
            Message::user("FIRST"),
            assistant([
                summary(wire, Some(name), Some("EARLIER")),
                Part::text("SECOND"),
                call("c1"),
            ]),
            Message::tool_results([ToolResult::new("c1", "THIRD")]),
            assistant([summary(wire, Some(name), Some("LATER")), call("c2")]),
            Message::tool_results([ToolResult::new("c2", "FOURTH")]),
        ];
        let texts = ["FIRST", "EARLIER", "SECOND", "THIRD", "LATER", "FOURTH", "c2"];
        let (found, changes) = sent(&messages, &own, &texts);
        assert_eq!(found, [false, false, false, false, true, true, true], "{name}");
        assert_eq!(changes, [ChangeKind::Message], "{name}");
    }
}

#[test]
fn a_summary_between_a_call_and_its_late_result_is_omitted() {
    for (wire, name) in SERVICES {
        let own = rules(wire, name);
        let round = |text: &str, id: &str| assistant([Part::text(text), call(id)]);
        let messages = [
            Message::user("FIRST"),
            assistant([summary(wire, Some(name), Some("USABLE")), Part::text("SECOND")]),
            Message::user("THIRD"),
            round("FOURTH", "c1"),
            Message::user("FIFTH"),
            assistant([summary(wire, Some(name), Some("UNUSABLE")), Part::text("SIXTH")]),
            Message::tool_results([ToolResult::new("c1", "SEVENTH")]),
        ];
        let texts = ["FIRST", "USABLE", "THIRD", "FOURTH", "FIFTH", "UNUSABLE", "SIXTH", "SEVENTH"];
        let (found, changes) = sent(&messages, &own, &texts);
        assert_eq!(found, [false, true, true, true, true, false, true, true], "{name}");
        assert_eq!(changes[..2], [ChangeKind::Message, ChangeKind::Native], "{name}: {changes:?}");
    }
}

#[test]
fn a_result_after_a_summary_answers_the_later_of_two_calls_with_the_same_id() {
    for (wire, name) in SERVICES {
        let messages = [
            Message::user("FIRST"),
            assistant([Part::text("SECOND"), call("c1")]),
            Message::tool_results([ToolResult::new("c1", "THIRD")]),
            assistant([summary(wire, Some(name), Some("SUMMARY")), call("c1")]),
            Message::tool_results([ToolResult::new("c1", "FOURTH")]),
        ];
        let (found, _) = sent(&messages, &rules(wire, name), &["SECOND", "THIRD", "FOURTH"]);
        assert_eq!(found, [false, false, true], "{name}");
    }
}

#[test]
fn a_summary_at_the_beginning_of_a_request_is_its_first_block() {
    for (wire, name) in SERVICES {
        let messages = [
            Message::user("FIRST"),
            assistant([summary(wire, Some(name), Some("SUMMARY")), Part::text("SECOND")]),
            Message::user("THIRD"),
        ];
        let (_, body) = written(&ChatRequest::new(messages.to_vec()), &rules(wire, name));
        let first: &Value = match wire {
            BodyWire::Anthropic => &body["messages"][0]["content"][0],
            _ => &body["input"][0],
        };
        assert_eq!(first["type"], "compaction", "{name}: {body}");
    }
}

#[test]
fn omitting_stored_messages_does_not_change_the_new_messages() {
    for (wire, name) in SERVICES {
        let messages = vec![
            Message::user("FIRST"),
            Message::assistant("SECOND"),
            assistant([summary(wire, Some(name), Some("SUMMARY")), Part::text("THIRD")]),
            Message::user("FOURTH"),
        ];
        let mut request = ChatRequest::new(messages.clone());
        request.set_messages(messages, 3);
        let (fitted, _) = written(&request, &rules(wire, name));
        let new: Vec<_> = fitted.request.new_messages().iter().map(|it| it.text()).collect();
        assert_eq!(
            (fitted.request.messages().len(), new),
            (2, vec!["FOURTH".to_owned()]),
            "{name}"
        );
    }
}

#[test]
fn a_paused_answer_is_continued_with_all_messages_in_the_request() {
    for (wire, name) in SERVICES {
        let messages = [
            Message::user("FIRST"),
            assistant([summary(wire, Some(name), Some("EARLIER")), Part::text("SECOND")]),
            Message::user("THIRD"),
            assistant([summary(wire, Some(name), Some("SUMMARY"))]),
        ];
        let texts = ["FIRST", "EARLIER", "SECOND", "THIRD", "SUMMARY"];
        let (found, changes) = sent(&messages, &rules(wire, name), &texts);
        assert_eq!((found, changes), (vec![true; 5], vec![]), "{name}");
    }
}

/// Returns a generated request, in which some assistant messages contain a summary by the service.
fn with_summaries(case: u64, wire: BodyWire, name: &str) -> ChatRequest {
    let mut rng = Rng::of(45, case);
    let request = request(case);
    let mut messages: Vec<Message> =
        request.messages().iter().map(|message| Message::clone(message)).collect();
    for message in messages.iter_mut().filter(|message| message.role == Role::Assistant) {
        if rng.below(4) == 0 {
            let part = rng.below(message.parts.len() + 1);
            message.parts.insert(part, summary(wire, Some(name), Some("SUMMARY")));
        }
    }
    ChatRequest::new(messages).with_options(request.options.clone())
}

#[test]
fn a_service_accepts_every_history_that_contains_its_own_summaries() {
    let mut omitted = 0;
    for case in cases() {
        for (wire, name) in SERVICES {
            let request = with_summaries(case, wire, name);
            let (fitted, body) = written(&request, &rules(wire, name));
            omitted += usize::from(fitted.request.messages().len() < request.messages().len());
            // A conversation may begin with a summary, although the summary is in an assistant
            // message.
            let service = Service::new(wire_name(wire), name).with_any_first();
            let found = violations(service, &body);
            assert!(found.is_empty(), "{name} {case}: {found:#?}\n{body}");
        }
    }
    assert!(omitted > 0, "no history had a summary that is used");
}

#[test]
fn every_service_accepts_a_history_with_an_answer_that_contains_only_a_summary() {
    for (wire, issuer) in SERVICES {
        for (name, rules) in all_rules() {
            let messages = [
                Message::user("FIRST"),
                assistant([summary(wire, Some(issuer), Some("SUMMARY"))]),
                Message::user("SECOND"),
            ];
            let (_, body) = written(&ChatRequest::new(messages.to_vec()), &rules);
            let signed = matches!(rules.foreign_calls, ForeignRule::Signature(_));
            let service = Service::new(wire_name(rules.wire), name).with_signatures(signed);
            let found = violations(service.with_any_first(), &body);
            assert!(found.is_empty(), "{name} of {issuer}: {found:#?}\n{body}");
            let is_own = rules.wire == wire && *rules.issuer == *issuer;
            let text = body.to_string();
            let sent = ["FIRST", "SUMMARY", "SECOND"].map(|it| text.contains(it));
            assert_eq!(sent, [!is_own, is_own, true], "{name} of {issuer}: {body}");
        }
    }
}
