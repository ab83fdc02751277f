//! Computes the expected answer of a recorded exchange from its JSON, without the model client.

use serde_json::Value;
use tower_chat_core::{Answer, FinishReason, HistoryOwner, Part, Role, Usage};

use crate::cassettes::Exchange;

/// The values of an answer that tests compare.
#[derive(Debug, PartialEq)]
pub(super) struct ExpectedAnswer {
    text: String,
    reasoning: Vec<String>,
    /// The id, the name and the arguments of each call.
    calls: Vec<(Option<String>, String, String)>,
    finish: &'static str,
    model: Option<String>,
    usage: Usage,
    service_id: Option<String>,
}

impl ExpectedAnswer {
    /// Returns the values of an answer that the model client has read.
    pub(super) fn of_answer(answer: &Answer) -> Self {
        let [message] = answer.messages.as_slice() else { panic!("{answer:?}") };
        assert_eq!(message.role, Role::Assistant);
        let reasoning = message.parts.iter().filter_map(|part| match part {
            Part::Reasoning(reasoning) => Some(reasoning.text.clone()),
            _ => None,
        });
        let calls = message.calls().cloned().map(|call| (call.id, call.name, call.arguments));
        let id = answer.finish.history_owner.as_ref().and_then(HistoryOwner::service_id);
        Self {
            text: message.text(),
            reasoning: reasoning.collect(),
            calls: calls.collect(),
            finish: match answer.finish.reason {
                Some(FinishReason::Stop) => "stop",
                Some(FinishReason::Length) => "length",
                Some(FinishReason::ToolCalls) => "tool_calls",
                Some(FinishReason::ContentFilter) => "content_filter",
                _ => "?",
            },
            model: answer.finish.model.clone(),
            usage: answer.finish.usage,
            service_id: id.map(ToString::to_string),
        }
    }

    /// Returns the expected values for a recorded response. `is_stored` is whether the request has
    /// configured the service to store the response.
    pub(super) fn of_response(output: &[Value], response: &Value, is_stored: bool) -> Self {
        let of = |kind: &'static str| output.iter().filter(move |item| item["type"] == kind);
        let texts = |parts: &Value| -> Vec<String> {
            let parts = parts.as_array().into_iter().flatten();
            parts.filter_map(|part| part["text"].as_str().map(str::to_owned)).collect()
        };
        let calls: Vec<_> = of("function_call")
            .map(|call| {
                let text = |name: &str| call[name].as_str().unwrap().to_owned();
                (Some(text("call_id")), text("name"), text("arguments"))
            })
            .collect();
        let reason = response["incomplete_details"]["reason"].as_str();
        let finish = match response["status"].as_str().unwrap_or("completed") {
            "incomplete" if reason == Some("content_filter") => "content_filter",
            "incomplete" => "length",
            "completed" if calls.is_empty() => "stop",
            "completed" => "tool_calls",
            other => panic!("a response whose status is {other}"),
        };
        let number = |pointer| response.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let mut usage = Usage::new(number("/usage/input_tokens"), number("/usage/output_tokens"));
        usage.cached_input_tokens = number("/usage/input_tokens_details/cached_tokens");
        usage.reasoning_tokens = number("/usage/output_tokens_details/reasoning_tokens");
        let is_stored = is_stored && response["store"] != false;
        Self {
            text: of("message").flat_map(|item| texts(&item["content"])).collect(),
            reasoning: of("reasoning")
                .map(|item| [texts(&item["summary"]), texts(&item["content"])].concat())
                .map(|pieces| pieces.join("\n\n"))
                .collect(),
            finish,
            calls,
            model: response["model"].as_str().map(str::to_owned),
            usage,
            service_id: response["id"].as_str().filter(|_| is_stored).map(str::to_owned),
        }
    }
}

/// Returns the output items of a recorded response, and the response.
pub(super) fn response(exchange: &Exchange) -> (Vec<Value>, Value) {
    if !exchange.is_streamed() {
        let response = exchange.json().unwrap();
        return (response["output"].as_array().unwrap().clone(), response);
    }
    let events = exchange.json_events().unwrap();
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let output = done.map(|event| event["item"].clone()).collect();
    let end = events.last().unwrap();
    let is_end = end["type"] == "response.completed" || end["type"] == "response.incomplete";
    assert!(is_end, "{}: {end}", exchange.source);
    (output, end["response"].clone())
}
