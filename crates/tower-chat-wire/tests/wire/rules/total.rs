//! Tests with the unusual histories that [`history`] generates, for every service. A checker that
//! shares no code with the writers must accept each body.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, Message, Part, Role};
use tower_chat_testkit::{
    Rng,
    hostile::{Service, definitions, history, texts, violations},
};
use tower_chat_wire::{
    body::BodyWire,
    rules::{ForeignRule, ServiceRules, fit},
};

use super::{all_rules, body, wire_name};

const SEED: u64 = 40;

/// Returns the numbers of the histories with which each service is tested. `TOWER_CHAT_CASE` is the
/// first number, and `TOWER_CHAT_CASES` their count. With the default count, each test takes a few
/// seconds in a debug build.
pub(super) fn cases() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("TOWER_CHAT_CASE").unwrap_or_default();
    first..first + number("TOWER_CHAT_CASES").unwrap_or(20)
}

/// Returns a request with a history that [`history`] generates.
pub(super) fn request(case: u64) -> ChatRequest {
    let mut rng = Rng::of(SEED, case);
    let messages = history(&mut rng);
    let options = ChatOptions::new().with_tools(definitions(&mut rng));
    ChatRequest::new(messages).with_options(options)
}

/// Adds the option that enables manual thinking, if the wire has this option.
pub(super) fn with_thinking(request: &ChatRequest, wire: BodyWire) -> ChatRequest {
    let mut options = ChatOptions::clone(&request.options);
    let manual = json!({"type": "enabled", "budget_tokens": 1024});
    match wire {
        BodyWire::Anthropic => drop(options.extra.insert("thinking".to_owned(), manual)),
        BodyWire::BedrockConverse => {
            let name = "additionalModelRequestFields".to_owned();
            options.extra.insert(name, json!({"thinking": manual}));
        }
        _ => {}
    }
    request.clone().with_options(options)
}

/// Calls `check` with each rule set and each case.
fn for_each_case(mut check: impl FnMut(&str, &ServiceRules, u64, &ChatRequest)) {
    let all_rules = all_rules();
    for case in cases() {
        let request = request(case);
        for (name, rules) in &all_rules {
            check(name, rules, case, &request);
        }
    }
}

fn conversation(body: &Value) -> Vec<Value> {
    let field = ["messages", "input", "contents"].into_iter().find_map(|field| body.get(field));
    field.and_then(Value::as_array).cloned().unwrap_or_default()
}

#[test]
fn every_service_accepts_every_history() {
    // For each service: the first case whose body the checker refuses.
    let mut refused = BTreeMap::new();
    let mut number = 0_u64;
    for_each_case(|name, rules, case, request| {
        let wire = wire_name(rules.wire);
        let signed = matches!(rules.foreign_calls, ForeignRule::Signature(_));
        let service = Service::new(wire, name).with_signatures(signed);
        // The model of this rule set accepts a conversation that begins with an assistant message.
        let is_new_claude =
            rules.wire == BodyWire::BedrockConverse && &*rules.issuer == "anthropic";
        let service = if is_new_claude { service.with_any_first() } else { service };
        let request = match case % 2 {
            0 => with_thinking(request, rules.wire),
            _ => request.clone(),
        };
        let body = body(&request, rules);
        let found = violations(service, &body);
        number += 1;
        if !found.is_empty() {
            let found = format!("{name} on {wire}, case {case}: {found:#?}\n{body}");
            refused.entry((wire, name.to_owned())).or_insert(found);
        }
    });
    println!("{number} bodies");
    let refused: Vec<String> = refused.into_values().collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn the_texts_of_the_user_the_model_and_the_tools_are_sent_completely() {
    for_each_case(|name, rules, case, request| {
        let sent = texts(&body(request, rules));
        for message in request.messages() {
            for text in message.parts.iter().filter_map(Part::as_text) {
                assert!(sent.contains(text), "{name} {case}: {text:?} is missing");
            }
            for text in message.results().flat_map(|it| &it.content).filter_map(Part::as_text) {
                assert!(sent.contains(text), "{name} {case}: {text:?} is missing");
            }
        }
    });
}

#[test]
fn writing_a_request_twice_gives_equal_bodies_and_fitting_it_twice_changes_nothing() {
    for_each_case(|name, rules, case, request| {
        let (fitted, written) = super::written(request, rules);
        assert_eq!(written, body(request, rules), "{name} {case}");
        let mut again = fitted.request.clone();
        again.extensions.clear();
        let again = fit(&again, rules);
        assert_eq!(again.request.messages(), fitted.request.messages(), "{name} {case}");
    });
}

#[test]
fn an_added_message_does_not_change_the_messages_before_it() {
    for_each_case(|name, rules, case, request| {
        let whole = conversation(&body(request, rules));
        for end in 1..request.messages().len() {
            let next = &request.messages().get(end).unwrap().role;
            let last = &request.messages().get(end - 1).unwrap().role;
            // The shorter request must not end between a call and its result, or between
            // consecutive assistant messages.
            if matches!(next, Role::Tool) || *next == Role::Assistant && *last == Role::Assistant {
                continue;
            }
            let mut shorter = request.clone();
            shorter.set_new_messages(request.messages().take(end));
            let begun = conversation(&body(&shorter, rules));
            // The last message of the shorter body may differ, because the next message may be
            // joined with it. On Responses, the item before it may differ too, because reasoning
            // without a next item is omitted.
            let open = if rules.wire == BodyWire::OpenAiResponses { 2 } else { 1 };
            let count = begun.len().saturating_sub(open);
            assert_eq!(begun[..count], whole[..count.min(whole.len())], "{name} {case} at {end}");
        }
    });
}

#[test]
fn an_ordinary_conversation_is_sent_as_it_is_stored() {
    let messages = vec![
        Message::system("Be brief."),
        Message::user("Is it cold?"),
        Message::tool_calls([tower_chat_core::ToolCall::new(
            "D681PevKs",
            "weather",
            r#"{"city": "Paris"}"#,
        )]),
        Message::tool_results([tower_chat_core::ToolResult::new("D681PevKs", "12 degrees")]),
        Message::assistant("It is."),
        Message::user("And in Rome?"),
    ];
    let request = ChatRequest::new(messages);
    for (name, rules) in all_rules() {
        let fitted = fit(&request, &rules);
        let adds_to_calls = match rules.foreign_calls {
            ForeignRule::Nothing => false,
            ForeignRule::Signature(_) => rules.wire == BodyWire::OpenAiChat,
            _ => true,
        };
        let needs_more = rules.definitions_with_calls || adds_to_calls;
        assert!(fitted.changes.is_empty() || needs_more, "{name}: {:?}", fitted.changes);
        assert!(fitted.names.is_empty());
    }
}
