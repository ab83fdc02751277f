//! Tests each rule with the smallest conversation that breaks it.

use serde_json::{Value, json};
use tower_chat_testkit::validate::{Rule, Wire, validate};

fn chat(messages: Value) -> Value {
    json!({ "messages": messages })
}

fn input(items: Value) -> Value {
    json!({ "input": items })
}

fn contents(contents: Value) -> Value {
    json!({ "contents": contents })
}

fn flat_call(ids: &[&str]) -> Value {
    let calls = ids.iter().map(|id| json!({"id": id, "function": {"name": "look"}}));
    json!({"role": "assistant", "tool_calls": calls.collect::<Value>()})
}

fn flat_result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "tool_name": "look", "content": "1"})
}

fn of_flat_wires(rule: Rule) -> Option<Value> {
    let user = || json!({"role": "user", "content": "hi"});
    Some(chat(match rule {
        Rule::Shape => json!([{"content": "hi"}]),
        Rule::KnownRole => json!([{"role": "model", "content": "hi"}]),
        Rule::ContentPresent => json!([{"role": "user"}]),
        Rule::SpeakerOfPart => json!([{"role": "user", "content": "hi", "tool_calls": [1]}]),
        Rule::CallListNotEmpty => {
            json!([user(), {"role": "assistant", "content": "hi", "tool_calls": []}])
        }
        Rule::CallIdForm => json!([flat_call(&["", "c"]), flat_result(""), flat_result("c")]),
        Rule::CallIdsDistinct => {
            json!([flat_call(&["c", "c"]), flat_result("c"), flat_result("c")])
        }
        Rule::CallsAnswered => json!([flat_call(&["c"]), user()]),
        Rule::ResultAnswersCall => json!([user(), flat_result("c")]),
        Rule::OneResultPerCall => json!([flat_call(&["c"]), flat_result("c"), flat_result("c")]),
        _ => return None,
    }))
}

fn of_responses(rule: Rule) -> Option<Value> {
    let call = |id: &str| json!({"type": "function_call", "call_id": id});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id});
    let user = || json!({"role": "user", "content": "hi"});
    Some(input(match rule {
        Rule::Shape => json!([{"content": "hi"}]),
        Rule::KnownRole => json!([{"role": "model", "content": "hi"}]),
        Rule::CallIdForm => json!([call(""), output("")]),
        Rule::CallIdsDistinct => json!([call("c"), output("c"), user(), call("c"), output("c")]),
        Rule::CallsAnswered => json!([call("c"), user()]),
        Rule::ResultsDirectlyAfterCalls => json!([call("c"), user(), output("c")]),
        Rule::ResultAnswersCall => json!([user(), output("c")]),
        Rule::OneResultPerCall => json!([call("c"), output("c"), output("c")]),
        Rule::ReasoningKeepsItem => json!([{"type": "reasoning", "id": "rs"}, user()]),
        _ => return None,
    }))
}

fn of_anthropic(rule: Rule) -> Option<Value> {
    let text = || json!({"type": "text", "text": "hi"});
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id});
    let thinking = || json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let user = |content: Value| json!({"role": "user", "content": content});
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    Some(chat(match rule {
        Rule::Shape => json!([user(json!(7))]),
        Rule::KnownRole => json!([{"role": "tool", "content": "hi"}]),
        Rule::ContentPresent => json!([user(json!([]))]),
        Rule::TextNotEmpty => json!([user(json!([{"type": "text", "text": " "}]))]),
        Rule::SpeakerOfPart => json!([user(json!([call("c")]))]),
        Rule::CallIdForm => json!([assistant(json!([call("c.1")])), user(json!([result("c.1")]))]),
        Rule::CallIdsDistinct => json!([
            assistant(json!([call("c"), call("c")])),
            user(json!([result("c"), result("c")]))
        ]),
        Rule::CallsAnswered => json!([assistant(json!([call("c")])), user(json!("hi"))]),
        Rule::ResultsDirectlyAfterCalls => {
            json!([assistant(json!([call("c")])), user(json!([text(), result("c")]))])
        }
        Rule::ResultAnswersCall => json!([user(json!([result("c")]))]),
        Rule::OneResultPerCall => {
            json!([assistant(json!([call("c")])), user(json!([result("c"), result("c")]))])
        }
        Rule::ReasoningKeepsItem => json!([assistant(json!([thinking()])), user(json!("hi"))]),
        Rule::ReasoningSigned => {
            json!([assistant(json!([{"type": "thinking", "thinking": "hm"}, text()]))])
        }
        Rule::ReasoningFirst => {
            let messages = json!([
                user(json!("hi")),
                assistant(json!([call("c")])),
                user(json!([result("c")]))
            ]);
            return Some(json!({"thinking": {"type": "enabled"}, "messages": messages}));
        }
        _ => return None,
    }))
}

fn of_bedrock_converse(rule: Rule) -> Option<Value> {
    let text = || json!({"text": "hi"});
    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "look", "input": {}}});
    let result = |id: &str| json!({"toolResult": {"toolUseId": id, "content": [text()]}});
    let user = |content: Value| json!({"role": "user", "content": content});
    let assistant = |content: Value| json!({"role": "assistant", "content": content});
    let round = |calls: Value, results: Value| {
        json!([user(json!([text()])), assistant(calls), user(results)])
    };
    Some(chat(match rule {
        Rule::Shape => json!([user(json!("hi"))]),
        Rule::KnownRole => json!([{"role": "tool", "content": [text()]}]),
        Rule::UserFirst => json!([assistant(json!([text()]))]),
        Rule::RolesAlternate => json!([user(json!([text()])), user(json!([text()]))]),
        Rule::ContentPresent => json!([user(json!([]))]),
        Rule::TextNotEmpty => json!([user(json!([{"text": "\n"}]))]),
        Rule::SpeakerOfPart => json!([user(json!([call("c")]))]),
        Rule::CallIdForm => round(json!([call("c d")]), json!([result("c d")])),
        Rule::CallIdsDistinct => {
            round(json!([call("c"), call("c")]), json!([result("c"), result("c")]))
        }
        Rule::CallsAnswered => round(json!([call("c")]), json!([text()])),
        Rule::ResultsDirectlyAfterCalls => round(json!([call("c")]), json!([text(), result("c")])),
        Rule::ResultAnswersCall => json!([user(json!([result("c")]))]),
        Rule::OneResultPerCall => round(json!([call("c")]), json!([result("c"), result("c")])),
        _ => return None,
    }))
}

fn of_gemini(rule: Rule) -> Option<Value> {
    let text = || json!({"text": "hi"});
    let call = |id: &str| json!({"functionCall": {"name": "look", "id": id}});
    let response = |id: &str| json!({"functionResponse": {"name": "look", "id": id}});
    let user = |parts: Value| json!({"role": "user", "parts": parts});
    let model = |parts: Value| json!({"role": "model", "parts": parts});
    let round = |calls: Value, responses: Value| {
        json!([user(json!([text()])), model(calls), user(responses)])
    };
    Some(contents(match rule {
        Rule::Shape => json!(["hi"]),
        Rule::KnownRole => json!([{"role": "assistant", "parts": [text()]}]),
        Rule::ContentPresent => json!([user(json!([]))]),
        Rule::SpeakerOfPart => json!([user(json!([call("c")]))]),
        Rule::CallIdForm => round(json!([call("c")]), json!([response("d")])),
        Rule::CallsAfterUser => json!([model(json!([call("c")])), user(json!([response("c")]))]),
        Rule::CallsAnswered => round(json!([call("c")]), json!([text()])),
        Rule::ResultsDirectlyAfterCalls => {
            round(json!([call("c")]), json!([text(), response("c")]))
        }
        Rule::ResultAnswersCall => json!([user(json!([response("c")]))]),
        Rule::OneResultPerCall => round(json!([call("c")]), json!([response("c"), response("c")])),
        _ => return None,
    }))
}

#[test]
fn each_rule_of_each_wire_is_broken_by_its_own_example_and_names_its_source() {
    for wire in Wire::ALL {
        for cited in wire.rules() {
            let body = match wire {
                Wire::OpenAiResponses => of_responses(cited.rule),
                Wire::Anthropic => of_anthropic(cited.rule),
                Wire::BedrockConverse => of_bedrock_converse(cited.rule),
                Wire::Gemini => of_gemini(cited.rule),
                _ => of_flat_wires(cited.rule),
            };
            let body = body.unwrap_or_else(|| panic!("{wire} {:?} has no example", cited.rule));
            let invalid = validate(wire, &body).expect_err(&format!("{wire} {body}"));
            let first = invalid.first();
            assert_eq!((first.wire, first.rule), (wire, cited.rule), "{invalid}");
            assert_eq!((first.says, first.source), (cited.says, cited.source));
            assert!(cited.source.contains("https://") || cited.source.contains("recorded in"));
        }
    }
}

#[test]
fn no_wire_states_a_rule_twice() {
    for wire in Wire::ALL {
        let mut rules: Vec<Rule> = wire.rules().iter().map(|cited| cited.rule).collect();
        rules.sort();
        rules.dedup();
        assert_eq!(rules.len(), wire.rules().len(), "{wire}");
        assert_eq!(wire.name().parse(), Ok(wire));
    }
    assert!("telegraph".parse::<Wire>().unwrap_err().to_string().contains("openai-chat"));
}

#[test]
fn an_output_may_answer_a_call_that_the_service_stores() {
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "1"});
    let reference = json!({"type": "item_reference", "id": "fc_1"});
    let held = [
        json!({"input": [output], "previous_response_id": "resp_1"}),
        json!({"input": [output], "conversation": "conv_1"}),
        json!({"input": [reference, output]}),
    ];
    for body in held {
        validate(Wire::OpenAiResponses, &body).unwrap();
    }
    let alone = json!({"input": [output], "previous_response_id": null});
    validate(Wire::OpenAiResponses, &alone).unwrap_err();
    validate(Wire::OpenAiResponses, &json!({"input": "hi"})).unwrap();
}

#[test]
fn calls_without_ids_are_valid_for_openai_chat_and_refused_for_cohere() {
    let none = chat(json!([flat_call(&["", ""]), flat_result(""), flat_result("")]));
    validate(Wire::OpenAiChat, &none).unwrap();
    let one_result_short = chat(json!([flat_call(&["", ""]), flat_result("")]));
    let invalid = validate(Wire::OpenAiChat, &one_result_short).unwrap_err();
    assert_eq!(invalid.first().rule, Rule::CallsAnswered);
    validate(Wire::Cohere, &none).unwrap_err();
}

#[test]
fn the_error_names_the_message_the_call_and_the_broken_rule() {
    let body = chat(json!([{"role": "user", "content": "hi"}, flat_call(&["a", "b"])]));
    let invalid = validate(Wire::OpenAiChat, &body).unwrap_err();
    let text = invalid.to_string();
    assert!(text.starts_with("openai-chat messages[1], call 0 (id \"a\")"), "{text}");
    assert!(text.contains("followed by tool messages responding to each tool_call_id"), "{text}");
    assert!(text.contains("https://platform.openai.com/docs/"), "{text}");
    assert!(text.ends_with("(and 1 more)"), "{text}");
}
