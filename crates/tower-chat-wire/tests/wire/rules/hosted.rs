//! Tests of provider-executed calls without results, and of requests with the tool choice `None`.

use serde_json::{Value, json};
use tower_chat_core::{
    ChangeKind, ChatOptions, ChatRequest, Message, Native, Part, Role, ToolCall, ToolChoice,
    ToolDefinition, ToolResult,
};
use tower_chat_wire::body::BodyWire;

use super::{body, rules, wire_name, written};

fn native(wire: BodyWire, item: &Value) -> Native {
    Native::new(wire_name(wire), item.to_string().parse().unwrap())
}

/// Returns a provider-executed call and its result.
fn hosted(wire: BodyWire) -> [Part; 2] {
    if wire == BodyWire::BedrockConverse {
        let call = json!({"toolUse": {"type": "server_tool_use", "toolUseId": "hosted_1",
            "name": "grounding", "input": {}}});
        let result = json!({"toolResult": {"type": "grounding_result", "toolUseId": "hosted_1",
            "content": []}});
        return [call, result].map(|block| Part::Native(native(wire, &block)));
    }
    let item = json!({"type": "shell_call", "id": "sh_1", "status": "completed", "action": null,
        "environment": {"type": "container_auto"}});
    let mut call = ToolCall::new("hosted_1", "shell", r#"{"commands":["ls"]}"#);
    call.provider_executed = true;
    call.native = Some(native(wire, &item));
    let result = json!({"type": "shell_call_output", "call_id": "hosted_1", "output": []});
    [Part::ToolCall(call), Part::Native(native(wire, &result))]
}

#[test]
fn a_provider_executed_call_without_a_result_is_omitted_unless_client_results_follow() {
    for wire in [BodyWire::BedrockConverse, BodyWire::OpenAiResponses] {
        let rules = rules(wire, "mine");
        for (has_result, has_client_results, is_sent) in
            [(false, false, false), (true, false, true), (false, true, true), (true, true, true)]
        {
            let [call, result] = hosted(wire);
            let mut parts = vec![Part::text("Let me look."), call];
            parts.extend(has_result.then_some(result));
            let mut messages = vec![Message::user("Where?")];
            if has_client_results {
                parts.push(Part::ToolCall(ToolCall::new("c1", "look", "{}")));
                messages.push(Message::new(Role::Assistant, parts));
                messages.push(Message::tool_results([ToolResult::new("c1", "there")]));
            } else {
                messages.push(Message::new(Role::Assistant, parts));
            }
            messages.push(Message::user("Well?"));
            let name = format!("{} {has_result} {has_client_results}", wire_name(wire));
            let (fitted, body) = written(&ChatRequest::new(messages), &rules);
            let body = body.to_string();
            assert_eq!(body.contains("hosted_1"), is_sent, "{name}: {body}");
            assert!(body.contains("Let me look.") && body.contains("Well?"), "{name}: {body}");
            let changes = fitted.changes.iter().filter(|it| it.kind == ChangeKind::Native);
            assert_eq!(changes.count(), usize::from(!is_sent), "{name}: {:?}", fitted.changes);
        }
    }
}

#[test]
fn with_the_tool_choice_none_bedrock_gets_tools_only_if_the_history_has_calls() {
    let rules = rules(BodyWire::BedrockConverse, "bedrock");
    let tool = ToolDefinition::new("look", "Looks.", json!({"type": "object"}));
    let mut options = ChatOptions::new().with_tools([tool]);
    options.tool_choice = Some(ToolChoice::None);
    let asked = ChatRequest::user("hi").with_options(options.clone());
    assert_eq!(body(&asked, &rules).get("toolConfig"), None);

    let round = vec![
        Message::user("Where?"),
        Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
        Message::tool_results([ToolResult::new("c1", "there")]),
    ];
    let body = body(&ChatRequest::new(round).with_options(options), &rules);
    let config = &body["toolConfig"];
    assert_eq!(config["tools"].as_array().map(Vec::len), Some(1), "{body}");
    assert_eq!(config["tools"][0]["toolSpec"]["name"], "look");
    assert_eq!(config.get("toolChoice"), None, "{body}");
}
