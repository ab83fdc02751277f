//! What an answer should be read as, computed from the recorded JSON without the leaf.

use serde_json::Value;
use tower_chat_core::{Answer, FinishReason, Part, Usage};

use crate::cassettes::Exchange;

/// An answer, as plainly as can be compared.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Id, name and arguments.
    pub(crate) calls: Vec<(Option<String>, String, Value)>,
    pub(crate) finish: String,
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
}

impl Said {
    /// What the leaf made of it.
    pub(crate) fn of(answer: &Answer) -> Self {
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

    pub(crate) fn by_anthropic(exchange: &Exchange, is_streamed: bool) -> Self {
        let json = if is_streamed { anthropic_whole(&exchange.events()) } else { exchange.json() };
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
                "end_turn" | "stop_sequence" => "stop",
                "max_tokens" => "length",
                "tool_use" => "tools",
                other => panic!("{other}"),
            }
            .to_owned(),
            model: json["model"].as_str().map(str::to_owned),
            usage,
        }
    }

    pub(crate) fn by_gemini(exchange: &Exchange, is_streamed: bool) -> Self {
        let events = if is_streamed { exchange.events() } else { vec![exchange.json()] };
        let mut said = Self::default();
        for event in &events {
            let candidate = &event["candidates"][0];
            for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                let text = string(&part["text"]);
                if part["thought"] == true {
                    said.reasoning += &text;
                } else {
                    said.text += &text;
                }
                if let Some(call) = part.get("functionCall") {
                    let id = call["id"].as_str().map(str::to_owned);
                    said.calls.push((id, string(&call["name"]), call["args"].clone()));
                }
            }
            if let Some(reason) = candidate["finishReason"].as_str() {
                said.finish = match reason {
                    "STOP" if !said.calls.is_empty() => "tools".to_owned(),
                    "STOP" => "stop".to_owned(),
                    "MAX_TOKENS" => "length".to_owned(),
                    other => format!("Other({other:?})"),
                };
            }
            if let Some(used) = event.get("usageMetadata") {
                let thought = number(&used["thoughtsTokenCount"]);
                let input =
                    number(&used["promptTokenCount"]) + number(&used["toolUsePromptTokenCount"]);
                said.usage = Usage::new(input, number(&used["candidatesTokenCount"]) + thought);
                said.usage.reasoning_tokens = thought;
                said.usage.cached_input_tokens = number(&used["cachedContentTokenCount"]);
            }
            said.model = event["modelVersion"].as_str().map(str::to_owned).or(said.model);
        }
        said
    }

    /// The recorded stream has reasoning that cannot be read, and texts.
    pub(crate) fn by_bedrock(exchange: &Exchange, is_streamed: bool) -> Self {
        if is_streamed {
            let text = String::from_utf8_lossy(&exchange.response);
            let texts = text.split(r#""delta":{"text":""#).skip(1);
            let texts = texts.map(|rest| rest.split(r#""},"#).next().unwrap());
            let text: String = texts.collect();
            let text = serde_json::from_str(&format!("\"{text}\"")).unwrap();
            let count = |name: &str| -> u64 {
                let rest = text_after(&exchange.response, &format!("\"{name}\":"));
                rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
            };
            let usage = Usage::new(count("inputTokens"), count("outputTokens"));
            return Self { text, usage, finish: "stop".to_owned(), ..Self::default() };
        }
        let json = exchange.json();
        let blocks = json["output"]["message"]["content"].as_array().unwrap();
        let text = blocks.iter().map(|block| string(&block["text"])).collect();
        let reasoning =
            blocks.iter().map(|block| string(&block["reasoningContent"]["reasoningText"]["text"]));
        let calls = blocks.iter().filter_map(|block| block.get("toolUse")).map(|call| {
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
                "end_turn" => "stop".to_owned(),
                "tool_use" => "tools".to_owned(),
                other => panic!("{other}"),
            },
            model: None,
            usage,
        }
    }

    pub(crate) fn by_cohere(exchange: &Exchange, is_streamed: bool) -> Self {
        let events = if is_streamed { exchange.events() } else { Vec::new() };
        let mut said = Self::default();
        let mut calls: Vec<(Option<String>, String, String)> = Vec::new();
        for event in &events {
            let message = &event["delta"]["message"];
            said.text += &string(&message["content"]["text"]);
            said.reasoning += &string(&message["tool_plan"]);
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
                let json = exchange.json();
                let message = &json["message"];
                said.reasoning = string(&message["tool_plan"]);
                for block in message["content"].as_array().into_iter().flatten() {
                    said.text += &string(&block["text"]);
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
        said.calls = calls.collect();
        said.finish = match json["finish_reason"].as_str().unwrap() {
            "COMPLETE" => "stop".to_owned(),
            "TOOL_CALL" => "tools".to_owned(),
            other => panic!("{other}"),
        };
        let tokens = &json["usage"]["tokens"];
        said.usage = Usage::new(number(&tokens["input_tokens"]), number(&tokens["output_tokens"]));
        said.usage.cached_input_tokens = number(&json["usage"]["cached_tokens"]);
        said
    }

    pub(crate) fn by_ollama(exchange: &Exchange) -> Self {
        let json = exchange.json();
        assert_eq!(json["message"].get("tool_calls"), None);
        Self {
            text: string(&json["message"]["content"]),
            finish: string(&json["done_reason"]),
            model: json["model"].as_str().map(str::to_owned),
            usage: Usage::new(number(&json["prompt_eval_count"]), number(&json["eval_count"])),
            ..Self::default()
        }
    }
}

fn text_after(bytes: &[u8], mark: &str) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.split_once(mark).expect(mark).1.to_owned()
}

/// The whole answer that the events of a stream spell.
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
                let place = usize::try_from(event["index"].as_u64().unwrap()).unwrap();
                let block = &mut whole["content"][place];
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

/// The arguments, or their text if it was cut off.
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
