//! Tests that manual thinking is removed from a request that continues a turn whose first answer
//! does not begin with thinking. A turn consists of the answers and the results after the last user
//! message.

use serde_json::{Value, json};
use tower_chat_core::{
    ChangeKind, ChatRequest, Message, Native, Part, Reasoning, Role, ToolCall, ToolResult,
};
use tower_chat_testkit::hostile::{Service, violations};
use tower_chat_wire::{
    body::BodyWire::{self, Anthropic, BedrockConverse},
    rules::ServiceRules,
};

use super::{rules, total::with_thinking, wire_name, written};

/// Returns an answer with a call of a tool, and with this thinking block before the call, if any.
fn answer_with_call(id: &str, thought: Option<Reasoning>) -> Message {
    let call = ToolCall::new(id, "look", "{}");
    let parts = thought.map(Part::Reasoning).into_iter().chain([Part::ToolCall(call)]);
    Message::new(Role::Assistant, parts.collect())
}

fn message_with_result(id: &str) -> Message {
    Message::tool_results([ToolResult::new(id, "12 degrees")])
}

fn thinking_block(wire: BodyWire) -> Reasoning {
    let (name, item) = match wire {
        BedrockConverse => ("bedrock", json!({"reasoningText": {"signature": "c2ln"}})),
        _ => ("anthropic", json!({"type": "thinking", "signature": "c2ln"})),
    };
    let mut reasoning = Reasoning::new("Hm.");
    reasoning.native = Some(Native::new(name, item.to_string().parse().unwrap()));
    reasoning
}

/// Returns the value of the option for thinking in the body, and descriptions of the changes of the
/// options.
fn sent_thinking(messages: &[Message], rules: &ServiceRules) -> (Value, Vec<String>) {
    let request = with_thinking(&ChatRequest::new(messages.to_vec()), rules.wire);
    let (fitted, body) = written(&request, rules);
    let changes = fitted.changes.iter().filter(|change| change.kind == ChangeKind::Setting);
    let option = match rules.wire {
        BedrockConverse => &body["additionalModelRequestFields"]["thinking"],
        _ => &body["thinking"],
    };
    (option["type"].clone(), changes.map(ToString::to_string).collect())
}

fn claude() -> Vec<ServiceRules> {
    let model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let converse = ServiceRules::choose(BedrockConverse, "bedrock", "", Some(model));
    let names = ["anthropic", "vertex", "bedrock", "llm.example.com"];
    names.map(|name| rules(Anthropic, name)).into_iter().chain([converse]).collect()
}

#[test]
fn a_round_that_another_service_began_is_continued_without_thinking() {
    for rules in claude() {
        let own = || Some(thinking_block(rules.wire));
        let foreign =
            vec![Message::user("q"), answer_with_call("c1", None), message_with_result("c1")];
        let (option, changes) = sent_thinking(&foreign, &rules);
        assert_eq!((option, changes.len()), (Value::Null, 1), "{}", rules.issuer);
        assert!(changes[0].contains("does not begin with thinking"), "{}", changes[0]);
        // The checker, which shares no code with the rules, accepts this body, and refuses the same
        // body with the option.
        let request = ChatRequest::new(foreign.clone());
        let (name, body) = (wire_name(rules.wire), written(&request, &rules).1);
        let service = Service::new(name, &rules.issuer);
        assert_eq!(violations(service, &body), [""; 0], "{}", rules.issuer);
        let mut refused = body;
        for (name, value) in &with_thinking(&request, rules.wire).options.extra {
            refused[name] = value.clone();
        }
        assert_eq!(violations(service, &refused).len(), 1, "{}", rules.issuer);
        // The first answer of the turn has no thinking block, so the thinking block of the second
        // answer has no effect.
        let second =
            [&foreign[..], &[answer_with_call("c2", own()), message_with_result("c2")]].concat();
        assert_eq!(sent_thinking(&second, &rules).1.len(), 1, "{}", rules.issuer);
    }
}

#[test]
fn thinking_stays_enabled_unless_another_service_began_the_round() {
    for rules in claude() {
        let own = || Some(thinking_block(rules.wire));
        let begun =
            vec![Message::user("q"), answer_with_call("c1", own()), message_with_result("c1")];
        // Without interleaved thinking, later answers of a turn have no thinking block.
        let continued =
            [&begun[..], &[answer_with_call("c2", None), message_with_result("c2")]].concat();
        let foreign = [Message::user("q"), answer_with_call("c1", None), message_with_result("c1")];
        let ended = [&foreign[..], &[Message::assistant("12."), Message::user("and?")]].concat();
        for messages in [&begun[..1], &begun, &continued, &ended] {
            let found = sent_thinking(messages, &rules);
            assert_eq!(found, (json!("enabled"), vec![]), "{} {messages:?}", rules.issuer);
        }
    }
}

#[test]
fn a_round_whose_thinking_is_not_sent_is_continued_without_thinking() {
    let rules = rules(Anthropic, "anthropic");
    for item in [json!({"type": "thinking"}), json!({"type": "thinking", "signature": ""})] {
        let mut unsigned = Reasoning::new("Hm.");
        unsigned.native = Some(Native::new("anthropic", item.to_string().parse().unwrap()));
        let messages =
            [Message::user("q"), answer_with_call("c1", Some(unsigned)), message_with_result("c1")];
        assert_eq!(sent_thinking(&messages, &rules).0, Value::Null);
    }
    let mut foreign = thinking_block(Anthropic);
    foreign.native.as_mut().unwrap().issuer = Some("deepseek".into());
    let messages =
        [Message::user("q"), answer_with_call("c1", Some(foreign)), message_with_result("c1")];
    assert_eq!(sent_thinking(&messages, &rules).0, Value::Null);
}

#[test]
fn thinking_stays_enabled_for_deepseek_in_a_round_of_another_service() {
    let messages = [Message::user("q"), answer_with_call("c1", None), message_with_result("c1")];
    assert_eq!(sent_thinking(&messages, &rules(Anthropic, "deepseek")), (json!("enabled"), vec![]));
}

#[test]
fn without_thinking_the_edit_that_requires_it_is_omitted_and_other_options_are_sent() {
    let messages =
        vec![Message::user("q"), answer_with_call("c1", None), message_with_result("c1")];
    let mut request = with_thinking(&ChatRequest::new(messages.clone()), Anthropic);
    let options = std::sync::Arc::make_mut(&mut request.options);
    let clear = json!({"type": "clear_thinking_20251015", "keep": "all"});
    let uses = json!({"type": "clear_tool_uses_20250919"});
    options.extra.insert("context_management".to_owned(), json!({"edits": [clear, uses]}));
    let body = written(&request, &rules(Anthropic, "anthropic")).1;
    assert_eq!(body["context_management"], json!({"edits": [uses]}));
    // A request with adaptive thinking may continue any turn.
    let options = std::sync::Arc::make_mut(&mut request.options);
    options.extra.insert("thinking".to_owned(), json!({"type": "adaptive"}));
    let body = written(&request, &rules(Anthropic, "anthropic")).1;
    assert_eq!(body["thinking"]["type"], "adaptive");
    assert_eq!(body["context_management"]["edits"][0], clear);
}

#[test]
fn thinking_under_the_bedrock_option_reasoning_config_is_disabled_too() {
    let mut request = ChatRequest::new(vec![
        Message::user("q"),
        answer_with_call("c1", None),
        message_with_result("c1"),
    ]);
    let manual = json!({"type": "enabled", "budget_tokens": 1024});
    let fields = json!({"reasoning_config": manual, "top_k": 5});
    let options = std::sync::Arc::make_mut(&mut request.options);
    options.extra.insert("additionalModelRequestFields".to_owned(), fields);
    let claude = claude().pop().unwrap();
    let body = written(&request, &claude).1;
    assert_eq!(body["additionalModelRequestFields"], json!({"top_k": 5}));
}
