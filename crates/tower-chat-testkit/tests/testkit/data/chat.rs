//! Generates exchanges with Chat Completions
//! (<https://platform.openai.com/docs/api-reference/chat>), of OpenAI and of compatible services,
//! which use variants of the format.

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Call, Dialogue, Item},
    exchange::{Provider, sse},
    text::{pieces, text},
};

/// The form in which a service streams its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streaming {
    /// For each call, a chunk with the id and the name, and then the arguments in several chunks.
    Pieces,
    /// As `Pieces`, but the chunks of all calls are interleaved.
    Interleaved,
    /// One chunk for each call.
    WholeCalls,
}

/// A service that offers this API, with the variants that it uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    pub(crate) folder: &'static str,
    pub(crate) url: &'static str,
    pub(crate) model: &'static str,
    pub(crate) id: fn(&Call) -> String,
    /// The name of the field that contains reasoning, if the service returns reasoning.
    pub(crate) reasoning: Option<&'static str>,
    pub(crate) streaming: Streaming,
}

pub(crate) const OPENAI: Chat = Chat {
    folder: "openai_chat",
    url: "https://api.openai.com/v1/chat/completions",
    model: "gpt-4.1-mini",
    id: |call| format!("call_{}", call.token),
    reasoning: None,
    streaming: Streaming::Pieces,
};

/// The services other than OpenAI.
pub(crate) const COMPATIBLE: [Chat; 7] = [
    Chat {
        folder: "azure",
        url: "https://harbour.openai.azure.com/openai/deployments/gpt-4.1/chat/completions?api-version=2024-10-21",
        streaming: Streaming::Interleaved,
        ..OPENAI
    },
    Chat {
        folder: "mistral",
        url: "https://api.mistral.ai/v1/chat/completions",
        model: "mistral-small-latest",
        id: |call| call.token[..9].to_owned(),
        streaming: Streaming::WholeCalls,
        ..OPENAI
    },
    Chat {
        folder: "deepseek",
        url: "https://api.deepseek.com/chat/completions",
        model: "deepseek-reasoner",
        id: |call| format!("call_00_{}", call.token),
        reasoning: Some("reasoning_content"),
        ..OPENAI
    },
    Chat {
        folder: "openrouter",
        url: "https://openrouter.ai/api/v1/chat/completions",
        model: "moonshotai/kimi-k2",
        id: |call| format!("{}:0", call.tool.name.to_owned() + &call.token),
        reasoning: Some("reasoning"),
        ..OPENAI
    },
    Chat {
        folder: "groq",
        url: "https://api.groq.com/openai/v1/chat/completions",
        model: "openai/gpt-oss-20b",
        id: |call| format!("fc_{}", call.token),
        reasoning: Some("reasoning"),
        streaming: Streaming::WholeCalls,
    },
    Chat {
        folder: "xai",
        url: "https://api.x.ai/v1/chat/completions",
        model: "grok-4-fast",
        id: |call| format!("call_{}", &call.token[..8]),
        reasoning: Some("reasoning_content"),
        streaming: Streaming::WholeCalls,
    },
    // This server returns no call ids. Clients generate the ids that they send.
    Chat {
        folder: "local_openai_compatible",
        url: "http://localhost:8080/v1/chat/completions",
        model: "qwen3",
        id: |_| String::new(),
        reasoning: None,
        streaming: Streaming::WholeCalls,
    },
];

impl Chat {
    fn id_sent_back(self, call: &Call) -> String {
        let given = (self.id)(call);
        if given.is_empty() { format!("made_up_{}", call.token) } else { given }
    }

    fn calls(self, answer: &Answer, id: impl Fn(&Call) -> String) -> Vec<Value> {
        let call = |call: &Call| {
            json!({"id": id(call), "type": "function",
                "function": {"name": call.tool.name, "arguments": text(&call.arguments)}})
        };
        answer.calls.iter().map(call).collect()
    }

    pub(crate) fn messages(self, dialogue: &Dialogue) -> Vec<Value> {
        let mut messages = vec![json!({"role": "system", "content": dialogue.system})];
        for item in &dialogue.items {
            match item {
                Item::User(text) => messages.push(json!({"role": "user", "content": text})),
                Item::Answer(answer) => messages.extend(self.answered(answer)),
            }
        }
        messages
    }

    /// Returns the message of an answer, and a message for the result of each of its calls.
    fn answered(self, answer: &Answer) -> Vec<Value> {
        let mut message = json!({"role": "assistant", "content": content(answer)});
        if !answer.calls.is_empty() {
            message["tool_calls"] = self.calls(answer, |call| self.id_sent_back(call)).into();
        }
        let result = |call: &Call| {
            json!({"role": "tool", "tool_call_id": self.id_sent_back(call),
                "content": text(&call.result)})
        };
        [message].into_iter().chain(answer.calls.iter().map(result)).collect()
    }

    fn usage(self, answer: &Answer) -> Value {
        let (input, output) = (answer.input_tokens, answer.output_tokens);
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": input / 2, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": output / 3, "audio_tokens": 0,
                "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
    }

    fn chunk(self, answer: &Answer, delta: &Value, reason: &Value) -> Value {
        json!({"id": format!("chatcmpl-{}", &answer.token[..8]), "object": "chat.completion.chunk",
            "created": 1_760_000_000, "model": self.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    }

    fn call_deltas(self, answer: &Answer) -> Vec<Value> {
        let whole = self.calls(answer, self.id);
        let indexed = whole.into_iter().enumerate().map(|(index, mut call)| {
            call["index"] = json!(index);
            call
        });
        let indexed: Vec<Value> = indexed.collect();
        if self.streaming == Streaming::WholeCalls {
            return indexed.into_iter().map(|call| json!({"tool_calls": [call]})).collect();
        }
        let pieces_of = |call: &Value| -> Vec<Value> {
            let mut start = call.clone();
            let arguments = start["function"]["arguments"].take();
            start["function"]["arguments"] = json!("");
            let more = pieces(arguments.as_str().unwrap(), 20)
                .into_iter()
                .map(|piece| json!({"index": call["index"], "function": {"arguments": piece}}));
            [start].into_iter().chain(more).collect()
        };
        let mut all: Vec<_> = indexed.iter().map(|call| pieces_of(call).into_iter()).collect();
        let mut deltas = Vec::new();
        match self.streaming {
            Streaming::Interleaved => loop {
                let next: Vec<Value> = all.iter_mut().filter_map(Iterator::next).collect();
                if next.is_empty() {
                    break;
                }
                deltas.extend(next);
            },
            _ => deltas.extend(all.into_iter().flatten()),
        }
        deltas.into_iter().map(|call| json!({"tool_calls": [call]})).collect()
    }

    /// Returns the chunks of a stream up to and including the chunk with the finish reason.
    pub(crate) fn chunks(self, answer: &Answer, reason: &str) -> Vec<Value> {
        let mut deltas = vec![json!({"role": "assistant", "content": "", "refusal": null})];
        if let (Some(field), Some(thought)) = (self.reasoning, &answer.thought) {
            deltas.extend(pieces(thought, 30).into_iter().map(|piece| json!({field: piece})));
        }
        deltas.extend(pieces(&answer.text, 22).into_iter().map(|piece| json!({"content": piece})));
        deltas.extend(self.call_deltas(answer));
        let chunks = deltas.iter().map(|delta| self.chunk(answer, delta, &Value::Null));
        chunks.chain([self.chunk(answer, &json!({}), &json!(reason))]).collect()
    }

    pub(crate) fn whole_with(self, answer: &Answer, message: &Value, reason: &str) -> Value {
        json!({"id": format!("chatcmpl-{}", &answer.token[..8]), "object": "chat.completion",
            "created": 1_760_000_000, "model": self.model, "system_fingerprint": null,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reason}],
            "usage": self.usage(answer)})
    }
}

impl Provider for Chat {
    fn folder(&self) -> &'static str {
        self.folder
    }

    fn url(&self, _: bool) -> String {
        self.url.to_owned()
    }

    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value {
        let tool = |tool: &crate::data::dialogue::Tool| {
            json!({"type": "function", "function": {"name": tool.name,
                "description": tool.description, "parameters": tool.schema()}})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"model": self.model, "messages": self.messages(dialogue)});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        if is_streamed {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        let mut message = json!({"role": "assistant", "content": content(answer), "refusal": null});
        if let (Some(field), Some(thought)) = (self.reasoning, &answer.thought) {
            message[field] = json!(thought);
        }
        if !answer.calls.is_empty() {
            message["tool_calls"] = self.calls(answer, self.id).into();
        }
        self.whole_with(answer, &message, finish(answer))
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        let mut events = self.chunks(answer, finish(answer));
        let mut end = self.chunk(answer, &Value::Null, &Value::Null);
        end["choices"] = json!([]);
        end["usage"] = self.usage(answer);
        events.push(end);
        let mut body = sse(&events);
        body.extend(b"data: [DONE]\n\n");
        body
    }
}

fn content(answer: &Answer) -> Value {
    if answer.text.is_empty() { Value::Null } else { json!(answer.text) }
}

fn finish(answer: &Answer) -> &'static str {
    if answer.calls.is_empty() { "stop" } else { "tool_calls" }
}
