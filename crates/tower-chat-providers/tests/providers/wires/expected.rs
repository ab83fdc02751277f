//! Computes the expected answer of a recorded exchange from its JSON, without the model client.

use serde_json::{Value, json};
use tower_chat_core::{Answer, FinishReason, Part, Usage};

use crate::cassettes::Exchange;

/// The values of an answer that tests compare.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ExpectedAnswer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// The id, the name and the arguments of each call.
    pub(crate) calls: Vec<(Option<String>, String, Value)>,
    pub(crate) finish: String,
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
}

impl ExpectedAnswer {
    /// Returns the values of an answer that the model client has read.
    pub(crate) fn of_answer(answer: &Answer) -> Self {
        let [message] = answer.messages.as_slice() else { panic!("{answer:?}") };
        let reasoning = message.parts.iter().filter_map(|part| match part {
            Part::Reasoning(reasoning) => Some(reasoning.text.as_str()),
            _ => None,
        });
        let calls = message
            .calls()
            .map(|call| (call.id.clone(), call.name.clone(), parsed(&call.arguments)));
        let finish = match answer.finish.reason.clone().expect("a reason") {
            FinishReason::Stop => "stop".to_owned(),
            FinishReason::Length => "length".to_owned(),
            FinishReason::ToolCalls => "tools".to_owned(),
            FinishReason::ContentFilter => "filter".to_owned(),
            other => format!("{other:?}"),
        };
        Self {
            text: message.text(),
            reasoning: reasoning.collect(),
            calls: calls.collect(),
            finish,
            model: answer.finish.model.clone(),
            usage: answer.finish.usage,
        }
    }

    pub(crate) fn of_anthropic(exchange: &Exchange, is_streamed: bool) -> Self {
        let json = if is_streamed {
            anthropic_whole(&exchange.json_events().unwrap())
        } else {
            exchange.json().unwrap()
        };
        let blocks = json["content"].as_array().unwrap();
        let of = |kind: &str, field: &str| -> String {
            let found = blocks.iter().filter(|block| block["type"] == kind);
            found.map(|block| string(&block[field])).collect()
        };
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        let calls = calls
            .map(|call| (Some(string(&call["id"])), string(&call["name"]), call["input"].clone()));
        let used = &json["usage"];
        let cached = number(&used["cache_read_input_tokens"]);
        let input =
            number(&used["input_tokens"]) + number(&used["cache_creation_input_tokens"]) + cached;
        let mut usage = Usage::new(input, number(&used["output_tokens"]));
        usage.cached_input_tokens = cached;
        usage.reasoning_tokens = number(&used["output_tokens_details"]["thinking_tokens"]);
        Self {
            text: of("text", "text"),
            reasoning: of("thinking", "thinking"),
            calls: calls.collect(),
            finish: match json["stop_reason"].as_str().unwrap() {
                "end_turn" | "stop_sequence" => "stop".to_owned(),
                "max_tokens" | "model_context_window_exceeded" => "length".to_owned(),
                "tool_use" => "tools".to_owned(),
                "refusal" => "filter".to_owned(),
                other => format!("Other({other:?})"),
            },
            model: json["model"].as_str().map(str::to_owned),
            usage,
        }
    }

    pub(crate) fn of_gemini(exchange: &Exchange, is_streamed: bool) -> Self {
        let events = if is_streamed {
            exchange.json_events().unwrap()
        } else {
            vec![exchange.json().unwrap()]
        };
        let mut expected = Self::default();
        for event in &events {
            let candidate = &event["candidates"][0];
            for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                let text = string(&part["text"]);
                if part["thought"] == true {
                    expected.reasoning += &text;
                } else {
                    expected.text += &text;
                }
                if let Some(call) = part.get("functionCall") {
                    let id = call["id"].as_str().map(str::to_owned);
                    expected.calls.push((id, string(&call["name"]), call["args"].clone()));
                }
            }
            if let Some(reason) = candidate["finishReason"].as_str() {
                expected.finish = match reason {
                    "STOP" if !expected.calls.is_empty() => "tools".to_owned(),
                    "STOP" => "stop".to_owned(),
                    "MAX_TOKENS" => "length".to_owned(),
                    "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                    | "IMAGE_SAFETY" => "filter".to_owned(),
                    other => format!("Other({other:?})"),
                };
            }
            if let Some(used) = event.get("usageMetadata") {
                let thought = number(&used["thoughtsTokenCount"]);
                let input =
                    number(&used["promptTokenCount"]) + number(&used["toolUsePromptTokenCount"]);
                expected.usage = Usage::new(input, number(&used["candidatesTokenCount"]) + thought);
                expected.usage.reasoning_tokens = thought;
                expected.usage.cached_input_tokens = number(&used["cachedContentTokenCount"]);
            }
            expected.model = event["modelVersion"].as_str().map(str::to_owned).or(expected.model);
        }
        expected
    }

    pub(crate) fn of_bedrock(exchange: &Exchange, is_streamed: bool) -> Self {
        let json = if is_streamed { bedrock_whole(exchange) } else { exchange.json().unwrap() };
        let blocks = json["output"]["message"]["content"].as_array().unwrap();
        let text = blocks.iter().map(|block| string(&block["text"])).collect();
        let reasoning =
            blocks.iter().map(|block| string(&block["reasoningContent"]["reasoningText"]["text"]));
        let calls = blocks.iter().filter_map(|block| block.get("toolUse"));
        // A call of another type is a call of a tool that the service runs.
        let calls = calls.filter(|call| call["type"].as_str().is_none_or(|it| it == "tool_use"));
        let calls = calls.map(|call| {
            (Some(string(&call["toolUseId"])), string(&call["name"]), call["input"].clone())
        });
        let used = &json["usage"];
        let cached = number(&used["cacheReadInputTokens"]);
        let input = number(&used["inputTokens"]) + number(&used["cacheWriteInputTokens"]) + cached;
        let mut usage = Usage::new(input, number(&used["outputTokens"]));
        usage.cached_input_tokens = cached;
        Self {
            text,
            reasoning: reasoning.collect(),
            calls: calls.collect(),
            finish: match json["stopReason"].as_str().unwrap() {
                "end_turn" | "stop_sequence" => "stop".to_owned(),
                "max_tokens" | "model_context_window_exceeded" => "length".to_owned(),
                "tool_use" => "tools".to_owned(),
                "guardrail_intervened" | "content_filtered" => "filter".to_owned(),
                other => format!("Other({other:?})"),
            },
            model: None,
            usage,
        }
    }

    pub(crate) fn of_cohere(exchange: &Exchange, is_streamed: bool) -> Self {
        let events = if is_streamed { exchange.json_events().unwrap() } else { Vec::new() };
        let mut expected = Self::default();
        let mut calls: Vec<(Option<String>, String, String)> = Vec::new();
        for event in &events {
            let message = &event["delta"]["message"];
            expected.text += &string(&message["content"]["text"]);
            expected.reasoning += &string(&message["tool_plan"]);
            let call = &message["tool_calls"];
            if event["type"] == "tool-call-start" {
                let id = call["id"].as_str().map(str::to_owned);
                calls.push((id, string(&call["function"]["name"]), String::new()));
            }
            if let Some((_, _, arguments)) = calls.last_mut() {
                *arguments += &string(&call["function"]["arguments"]);
            }
        }
        let json = match events.last() {
            Some(end) => end["delta"].clone(),
            None => {
                let json = exchange.json().unwrap();
                let message = &json["message"];
                expected.reasoning = string(&message["tool_plan"]);
                for block in message["content"].as_array().into_iter().flatten() {
                    expected.text += &string(&block["text"]);
                }
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let (id, function) = (string(&call["id"]), &call["function"]);
                    let arguments = string(&function["arguments"]);
                    calls.push((Some(id), string(&function["name"]), arguments));
                }
                json
            }
        };
        let calls = calls.into_iter().map(|(id, name, arguments)| (id, name, parsed(&arguments)));
        expected.calls = calls.collect();
        expected.finish = match json["finish_reason"].as_str().unwrap() {
            "COMPLETE" | "STOP_SEQUENCE" => "stop".to_owned(),
            "MAX_TOKENS" => "length".to_owned(),
            "TOOL_CALL" => "tools".to_owned(),
            other => format!("Other({other:?})"),
        };
        let tokens = &json["usage"]["tokens"];
        expected.usage =
            Usage::new(number(&tokens["input_tokens"]), number(&tokens["output_tokens"]));
        expected.usage.cached_input_tokens = number(&json["usage"]["cached_tokens"]);
        expected
    }

    pub(crate) fn of_ollama(exchange: &Exchange) -> Self {
        let mut expected = Self::default();
        for event in exchange.json_events().unwrap() {
            let message = &event["message"];
            expected.text += &string(&message["content"]);
            expected.reasoning += &string(&message["thinking"]);
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = &call["function"];
                let id = call["id"].as_str().map(str::to_owned);
                expected.calls.push((id, string(&function["name"]), function["arguments"].clone()));
            }
            if event["done"] == true {
                // Ollama has no finish reason for an answer that ends with calls.
                expected.finish = match string(&event["done_reason"]).as_str() {
                    "stop" if !expected.calls.is_empty() => "tools".to_owned(),
                    reason @ ("stop" | "length") => reason.to_owned(),
                    other => format!("Other({other:?})"),
                };
                expected.model = event["model"].as_str().map(str::to_owned);
                let (input, output) = (&event["prompt_eval_count"], &event["eval_count"]);
                expected.usage = Usage::new(number(input), number(output));
            }
        }
        expected
    }
}

/// Combines the events of a Bedrock stream into a whole answer.
fn bedrock_whole(exchange: &Exchange) -> Value {
    let mut whole = json!({});
    let mut blocks: Vec<Value> = Vec::new();
    for event in exchange.events().unwrap() {
        let json: Value = serde_json::from_str(&event.data).unwrap();
        match event.event.as_deref().unwrap() {
            kind @ ("contentBlockStart" | "contentBlockDelta") => {
                let index = usize::try_from(json["contentBlockIndex"].as_u64().unwrap()).unwrap();
                blocks.resize(blocks.len().max(index + 1), json!({}));
                match kind {
                    "contentBlockStart" => blocks[index] = json["start"].clone(),
                    _ => bedrock_delta(&mut blocks[index], &json["delta"]),
                }
            }
            "messageStop" => whole["stopReason"] = json["stopReason"].clone(),
            "metadata" => whole["usage"] = json["usage"].clone(),
            _ => {}
        }
    }
    for call in blocks.iter_mut().filter_map(|block| block.get_mut("toolUse")) {
        call["input"] = parsed(call["json"].as_str().unwrap_or_default());
    }
    whole["output"] = json!({"message": {"content": blocks}});
    whole
}

fn bedrock_delta(block: &mut Value, delta: &Value) {
    let extend = |field: &mut Value, more: &Value| {
        if let Some(more) = more.as_str() {
            *field = Value::from(string(field) + more);
        }
    };
    extend(&mut block["text"], &delta["text"]);
    extend(
        &mut block["reasoningContent"]["reasoningText"]["text"],
        &delta["reasoningContent"]["text"],
    );
    if delta["toolUse"].is_object() {
        extend(&mut block["toolUse"]["json"], &delta["toolUse"]["input"]);
    }
}

/// Combines the events of an Anthropic stream into a whole answer.
fn anthropic_whole(events: &[Value]) -> Value {
    let mut whole = Value::Null;
    for event in events {
        match event["type"].as_str().unwrap() {
            "message_start" => whole = event["message"].clone(),
            "content_block_start" => {
                let list = whole["content"].as_array_mut().unwrap();
                assert_eq!(event["index"], list.len());
                list.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let position = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
                let block = &mut whole["content"][position];
                for field in ["text", "thinking", "signature", "partial_json"] {
                    if let Some(more) = event["delta"][field].as_str() {
                        block[field] = Value::from(string(&block[field]) + more);
                    }
                }
            }
            "message_delta" => {
                for of in ["delta", "usage"] {
                    for (name, value) in event[of].as_object().unwrap() {
                        match of {
                            "delta" => whole[name] = value.clone(),
                            _ => whole["usage"][name] = value.clone(),
                        }
                    }
                }
            }
            _ => {}
        }
    }
    for block in whole["content"].as_array_mut().unwrap() {
        if let Some(json) = block["partial_json"].as_str().filter(|json| !json.is_empty()) {
            block["input"] = parsed(json);
        }
    }
    whole
}

/// Returns the parsed arguments, or their text if they were cut off.
fn parsed(arguments: &str) -> Value {
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments))
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
