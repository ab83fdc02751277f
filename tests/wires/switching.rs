//! Tests that a conversation can continue with another provider. A wire is the JSON format of a
//! provider.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tower_chat::{message::Messages, store::format};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::openai_chat::with_mistral_ids;

use crate::wires::{
    codec::{WIRES, render},
    data,
    through_the_store::{as_stored, replay},
};

/// The texts by which reasoning and signatures of each wire are recognised.
const FOREIGN: [(Wire, &[&str]); 4] = [
    (Wire::OpenAiChat, &["\"reasoning_content\"", "\"reasoning\""]),
    (Wire::OpenAiResponses, &["\"encrypted_content\"", "\"type\":\"reasoning\""]),
    (Wire::Anthropic, &["\"signature\"", "\"redacted_thinking\""]),
    (Wire::Gemini, &["\"thoughtSignature\"", "\"thought_signature\"", "\"thought\":true"]),
];

fn text(messages: &Messages) -> Vec<String> {
    messages.iter().map(|message| format::encode(message)).collect()
}

fn sent(wire: Wire, shown: &Messages) -> String {
    render(wire, shown.iter().map(|message| &**message)).to_string()
}

/// Asserts that the history of another provider, encoded for this wire, satisfies its rules.
fn assert_accepted(source: &str, history: &Messages, to: Wire) -> Value {
    let before = text(history);
    let bytes = sent(to, &replay(history));
    assert_eq!(sent(to, &replay(history)), bytes, "{source}: not the same bytes again");
    assert_eq!(text(history), before, "{source}: the record has changed");
    let body: Value = serde_json::from_str(&bytes).unwrap();
    validate(to, &body).unwrap_or_else(|invalid| panic!("{source}: {invalid}\n{body:#}"));
    assert_nothing_asked_is_lost(source, history, to, &body);
    match to {
        Wire::OpenAiChat => assert_mistral(source, &body),
        Wire::Anthropic => assert_anthropic(source, &body),
        Wire::Gemini => assert_gemini(source, &body),
        _ => {}
    }
    body
}

fn assert_nothing_asked_is_lost(source: &str, history: &Messages, to: Wire, body: &Value) {
    let asked = replay(history).iter().flat_map(|message| message.calls()).count();
    let items = body[to.conversation_field()].as_array().unwrap();
    let inner = |name: &str| -> Vec<&Value> {
        items.iter().flat_map(|item| item[name].as_array().into_iter().flatten()).collect()
    };
    // If the service has executed the tool, the output has no call id.
    let is_output = |item: &&Value| {
        let kind = item["type"].as_str().unwrap_or_default();
        kind.ends_with("_output") && !item["call_id"].is_null()
    };
    let is_response = |part: &&&Value| {
        part.get("functionResponse").or_else(|| part.get("function_response")).is_some()
    };
    let answered = match to {
        Wire::OpenAiResponses => items.iter().filter(is_output).count(),
        Wire::Anthropic => inner("content").iter().filter(|it| it["type"] == "tool_result").count(),
        Wire::Gemini => inner("parts").iter().filter(is_response).count(),
        _ => items.iter().filter(|message| message["role"] == "tool").count(),
    };
    assert_eq!(answered, asked, "{source}\n{body:#}");
}

fn ids<'a>(list: &'a Value, message: impl Fn(&'a Value) -> Vec<&'a Value>) -> Vec<&'a str> {
    let items = list.as_array().unwrap().iter();
    items.flat_map(message).map(|id| id.as_str().expect("every call has an id")).collect()
}

/// Asserts that all ids have nine letters or digits, as Mistral requires.
fn assert_mistral(source: &str, body: &Value) {
    let messages: Vec<_> = serde_json::from_value(body["messages"].clone()).unwrap();
    let messages = serde_json::to_value(with_mistral_ids(messages)).unwrap();
    let body = json!({ "messages": messages });
    validate(Wire::OpenAiChat, &body).unwrap_or_else(|invalid| panic!("{source}: {invalid}"));
    let found = ids(&messages, |message| {
        let calls = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]);
        calls.chain(message.get("tool_call_id")).collect()
    });
    for id in found {
        let is_fit = id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(is_fit, "{source}: {id}");
    }
}

/// Asserts that all ids match `^[a-zA-Z0-9_-]+$`, as Anthropic requires.
fn assert_anthropic(source: &str, body: &Value) {
    let found = ids(&body["messages"], |message| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.filter_map(|block| block.get("id").or_else(|| block.get("tool_use_id"))).collect()
    });
    for id in found {
        let is_taken = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        assert!(!id.is_empty() && id.bytes().all(is_taken), "{source}: {id}");
    }
}

/// Asserts that the history is sent to Anthropic as alternating user and assistant turns, with a
/// separate system prompt.
fn assert_turns(source: &str, body: &Value) {
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert!(roles.iter().all(|role| **role != "system"), "{source}: {roles:?}");
    assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{source}: {roles:?}");
}

/// Asserts that the system instruction is separate, as Gemini requires.
fn assert_gemini(source: &str, body: &Value) {
    let contents = body["contents"].as_array().unwrap();
    assert!(
        contents.iter().all(|content| content["role"] == "user" || content["role"] == "model"),
        "{source}: {body:#}"
    );
}

fn assert_no_reasoning_of(source: &str, from: Wire, history: &Messages, body: &Value) {
    let (_, signs) = FOREIGN.iter().find(|(wire, _)| *wire == from).unwrap();
    let own = sent(from, &replay(history));
    let visible: String = history.iter().map(|message| message.text()).collect();
    for sign in signs.iter().filter(|sign| own.contains(**sign) && !visible.contains(**sign)) {
        assert!(!body.to_string().contains(sign), "{source}: {sign}\n{body:#}");
    }
}

#[test]
fn a_history_of_each_wire_is_written_in_a_valid_form_for_each_other_wire() {
    let bodies = data::accepted();
    let mut counts = BTreeMap::new();
    let mut with_reasoning = 0;
    for accepted in &bodies {
        let history = as_stored(accepted.wire, &accepted.body);
        let own = sent(accepted.wire, &replay(&history));
        let (_, signs) = FOREIGN.iter().find(|(wire, _)| *wire == accepted.wire).unwrap();
        with_reasoning += usize::from(signs.iter().any(|sign| own.contains(sign)));
        for to in WIRES.into_iter().filter(|to| *to != accepted.wire) {
            let source = format!("{} to {to}", accepted.id);
            let body = assert_accepted(&source, &history, to);
            assert_no_reasoning_of(&source, accepted.wire, &history, &body);
            if to == Wire::Anthropic {
                assert_turns(&source, &body);
            }
            *counts.entry((accepted.wire, to)).or_insert(0_usize) += 1;
        }
    }
    for ((from, to), count) in &counts {
        println!("{from:20} to {to:20} {count:3} histories");
    }
    println!("{with_reasoning} of {} histories have reasoning", bodies.len());
    assert!(!bodies.is_empty());
    assert_eq!(counts.values().sum::<usize>(), (WIRES.len() - 1) * bodies.len());
}

/// Joins the histories of two wires, and encodes the joined history for each wire.
#[test]
fn a_history_of_two_wires_is_written_in_a_valid_form_for_each_wire() {
    let bodies = data::accepted();
    let of = |wire| bodies.iter().filter(move |accepted| accepted.wire == wire);
    let mut count = 0;
    for first in WIRES {
        for second in WIRES.into_iter().filter(|second| *second != first) {
            for (one, two) in of(first).zip(of(second)) {
                let mut history = as_stored(first, &one.body);
                history.append(&as_stored(second, &two.body));
                for to in WIRES {
                    let source = format!("{} and {} to {to}", one.id, two.id);
                    let body = assert_accepted(&source, &history, to);
                    if to == Wire::Anthropic && first != to && second != to {
                        assert_turns(&source, &body);
                    }
                    count += 1;
                }
            }
        }
    }
    println!("{count} histories of two wires");
    let of = |wire| bodies.iter().filter(|accepted| accepted.wire == wire).count();
    let pairs = WIRES.map(|first| WIRES.map(|second| of(first).min(of(second))));
    let pairs: usize = pairs.iter().flatten().sum::<usize>() - bodies.len();
    assert_eq!(count, WIRES.len() * pairs);
}
