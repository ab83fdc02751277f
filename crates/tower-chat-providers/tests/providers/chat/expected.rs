//! Computes the expected answer of a recorded exchange from its JSON, without the model client.

use std::collections::BTreeMap;

use serde_json::Value;
use tower_chat_core::{Answer, FinishReason, Message, Part, Usage};

/// The id, name and arguments of a call.
type Call = (Option<String>, String, String);

/// The values of an answer that tests compare.
#[derive(Debug, PartialEq)]
pub(crate) struct ExpectedAnswer {
    pub(crate) text: String,
    pub(crate) reasoning: Vec<String>,
    pub(crate) calls: Vec<Call>,
    pub(crate) finish: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
}

impl ExpectedAnswer {
    /// Returns the values of an answer that the model client has read.
    pub(crate) fn of_answer(answer: &Answer) -> Self {
        let [message] = answer.messages.as_slice() else { panic!("{answer:?}") };
        Self {
            text: message.text(),
            reasoning: reasoning(message),
            calls: message
                .calls()
                .map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone()))
                .collect(),
            finish: answer.finish.reason.as_ref().map(|reason| match reason {
                FinishReason::Stop => "stop".to_owned(),
                FinishReason::Length => "length".to_owned(),
                FinishReason::ToolCalls => "tool_calls".to_owned(),
                FinishReason::ContentFilter => "content_filter".to_owned(),
                other => format!("{other:?}"),
            }),
            model: answer.finish.model.clone(),
            usage: answer.finish.usage,
        }
    }

    /// Returns the expected values for a recorded whole answer.
    pub(crate) fn of_json(json: &Value) -> Self {
        let choice = &json["choices"][0];
        let message = &choice["message"];
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let legacy = Some(&message["function_call"]).filter(|call| call["name"] != "");
        let legacy = legacy.filter(|call| call.is_object());
        let legacy = legacy.map(|call| (None, string(&call["name"]), string(&call["arguments"])));
        let named = calls.map(|call| {
            let (kind, input) = match &call["function"] {
                Value::Null => ("custom", "input"),
                _ => ("function", "arguments"),
            };
            let id = call["id"].as_str().map(str::to_owned);
            (id, string(&call[kind]["name"]), string(&call[kind][input]))
        });
        Self {
            text: string(&message["content"]),
            reasoning: ["reasoning_content", "reasoning"]
                .iter()
                .filter_map(|field| message[field].as_str().map(str::to_owned))
                .collect(),
            calls: named.chain(legacy).collect(),
            finish: finish(choice),
            model: json["model"].as_str().map(str::to_owned),
            usage: usage(&json["usage"]),
        }
    }

    /// Returns the expected values for the events of a recorded stream.
    pub(crate) fn of_events(events: &[Value]) -> Self {
        let (mut text, mut end, mut spent) = (String::new(), None, Value::Null);
        let mut reasoning: BTreeMap<&str, String> = BTreeMap::new();
        let mut calls: Vec<(Value, Call)> = Vec::new();
        for event in events {
            let delta = &event["choices"][0]["delta"];
            text += &string(&delta["content"]);
            for field in ["reasoning_content", "reasoning"] {
                if let Some(more) = delta[field].as_str() {
                    *reasoning.entry(field).or_default() += more;
                }
            }
            for piece in delta["tool_calls"].as_array().into_iter().flatten() {
                let id = piece["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
                let name = string(&piece["function"]["name"]);
                let index = &piece["index"];
                // If pieces have no index, or all calls have the same index, a piece with a name
                // and another id begins a new call.
                let continues_call = |(own, call): &(Value, Call)| {
                    own == index && (id.is_none() || name.is_empty() || id == call.0)
                };
                let begins = index.is_null() && id.is_none() && !name.is_empty();
                let at = calls.iter().rposition(continues_call).filter(|_| !begins);
                let at = at.unwrap_or_else(|| {
                    calls.push((index.clone(), Default::default()));
                    calls.len() - 1
                });
                let call = &mut calls[at].1;
                call.0 = call.0.take().or(id);
                if call.1.is_empty() {
                    call.1 = name;
                }
                call.2 += &string(&piece["function"]["arguments"]);
            }
            end = finish(&event["choices"][0]).or(end);
            for found in [&event["usage"], &event["x_groq"]["usage"]] {
                if found.is_object() {
                    spent = found.clone();
                }
            }
        }
        let mut names = events.iter().filter_map(|event| event["model"].as_str());
        Self {
            text,
            // The fields are joined in the order in which a whole message contains them.
            reasoning: ["reasoning_content", "reasoning"]
                .iter()
                .filter_map(|field| reasoning.remove(field))
                .collect(),
            calls: calls.into_iter().map(|(_, call)| call).collect(),
            finish: end,
            model: names.rfind(|name| !name.is_empty()).map(str::to_owned),
            usage: usage(&spent),
        }
    }
}

fn reasoning(message: &Message) -> Vec<String> {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(reasoning.text.clone()),
        _ => None,
    });
    parts.collect()
}

/// Returns a string, or the joined texts of a list of content parts.
fn string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>()
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the finish reason of a choice. OpenRouter also sends the reason that it received from
/// the service of the model. If this second reason is a token limit, it is used, because
/// OpenRouter's own reason may then mean a complete answer.
fn finish(choice: &Value) -> Option<String> {
    let reason = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty())?;
    let native = choice["native_finish_reason"].as_str().unwrap_or_default().to_ascii_lowercase();
    if ["length", "max_tokens", "max_output_tokens"].contains(&native.as_str()) {
        return Some("length".to_owned());
    }
    Some(if reason == "function_call" { "tool_calls" } else { reason }.to_owned())
}

fn usage(json: &Value) -> Usage {
    let number = |value: &Value| value.as_u64();
    let mut usage = Usage::new(
        number(&json["prompt_tokens"]).unwrap_or(0),
        number(&json["completion_tokens"]).unwrap_or(0),
    );
    usage.cached_input_tokens = number(&json["prompt_tokens_details"]["cached_tokens"])
        .or(number(&json["prompt_cache_hit_tokens"]))
        .unwrap_or(0);
    usage.reasoning_tokens = number(&json["completion_tokens_details"]["reasoning_tokens"])
        .or(number(&json["reasoning_tokens"]))
        .unwrap_or(0);
    // Some services do not include the reasoning tokens in the output tokens, and report them only
    // in the total.
    if let Some(total) = number(&json["total_tokens"]) {
        let beside = total.saturating_sub(usage.input_tokens + usage.output_tokens);
        usage.output_tokens += beside;
        usage.reasoning_tokens = usage.reasoning_tokens.max(beside);
    }
    usage
}
