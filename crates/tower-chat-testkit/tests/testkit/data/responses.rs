//! Generates exchanges with OpenAI's Responses API
//! (<https://platform.openai.com/docs/api-reference/responses>).

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Call, Dialogue, Item, Tool},
    exchange::{Exchange, Provider, sse},
    text::{pieces, text},
};

/// The Responses API of a service, which stores the conversation if `is_kept` is set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Responses {
    pub(crate) folder: &'static str,
    pub(crate) url: &'static str,
    pub(crate) model: &'static str,
    pub(crate) is_kept: bool,
}

pub(crate) const OPENAI: Responses = Responses {
    folder: "openai_responses",
    url: "https://api.openai.com/v1/responses",
    model: "gpt-5-mini",
    is_kept: false,
};

pub(crate) const AZURE: Responses = Responses {
    folder: "azure",
    url: "https://harbour.openai.azure.com/openai/v1/responses",
    model: "gpt-5.4",
    is_kept: false,
};

fn input(dialogue: &Dialogue) -> Vec<Value> {
    let mut items = Vec::new();
    for item in &dialogue.items {
        match item {
            Item::User(text) => items.push(json!({"role": "user", "content": text})),
            Item::Answer(answer) => {
                items.extend(output(answer));
                items.extend(answer.calls.iter().map(outcome));
            }
        }
    }
    items
}

fn outcome(call: &Call) -> Value {
    json!({"type": "function_call_output", "call_id": format!("call_{}", call.token),
        "output": text(&call.result)})
}

fn output(answer: &Answer) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thought) = &answer.thought {
        items.push(json!({"type": "reasoning", "id": format!("rs_{}", answer.token),
            "summary": [{"type": "summary_text", "text": thought}],
            "encrypted_content": answer.signature()}));
    }
    if !answer.text.is_empty() {
        let part = json!({"type": "output_text", "text": answer.text, "annotations": [],
            "logprobs": []});
        items.push(message(answer, &part));
    }
    items.extend(answer.calls.iter().map(|call| {
        json!({"type": "function_call", "id": format!("fc_{}", call.token), "status": "completed",
            "call_id": format!("call_{}", call.token), "name": call.tool.name,
            "arguments": text(&call.arguments)})
    }));
    items
}

fn message(answer: &Answer, part: &Value) -> Value {
    json!({"type": "message", "id": format!("msg_{}", answer.token), "status": "completed",
        "role": "assistant", "content": [part]})
}

impl Responses {
    pub(crate) fn response(self, answer: &Answer, status: &str, output: &[Value]) -> Value {
        let (read, written) = (answer.input_tokens, answer.output_tokens);
        json!({"id": format!("resp_{}", answer.token), "object": "response",
            "created_at": 1_760_000_000, "status": status, "error": null,
            "incomplete_details": null, "instructions": null, "model": self.model,
            "output": output, "parallel_tool_calls": true, "store": self.is_kept,
            "tool_choice": "auto", "metadata": {},
            "usage": {"input_tokens": read, "input_tokens_details": {"cached_tokens": read / 4},
                "output_tokens": written, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + written}})
    }

    /// Returns the response to a request that the model refuses.
    pub(crate) fn refusal(self, answer: &Answer) -> Value {
        let part = json!({"type": "refusal", "refusal": answer.text});
        self.response(answer, "completed", &[message(answer, &part)])
    }

    /// Returns the events of a stream, without the last event.
    pub(crate) fn events(self, answer: &Answer, output: &[Value]) -> Vec<Value> {
        let mut begun = self.response(answer, "in_progress", &[]);
        begun["usage"] = Value::Null;
        let mut events = vec![
            json!({"type": "response.created", "response": begun}),
            json!({"type": "response.in_progress", "response": begun}),
        ];
        for (index, item) in output.iter().enumerate() {
            events.extend(item_events(index, item));
        }
        events
    }

    pub(crate) fn ended(mut events: Vec<Value>, end: Value) -> Vec<u8> {
        events.push(end);
        for (number, event) in events.iter_mut().enumerate() {
            event["sequence_number"] = json!(number);
        }
        sse(&events)
    }

    /// Returns the exchanges of a dialogue whose earlier messages the service stores.
    pub(crate) fn kept(self, dialogue: &Dialogue, is_streamed: bool) -> Vec<Exchange> {
        let mut exchanges = self.exchanges(dialogue, is_streamed);
        let mut before: Option<(usize, String)> = None;
        for (exchange, answer) in exchanges.iter_mut().zip(dialogue.answers()) {
            let items = exchange.request["input"].as_array().unwrap().clone();
            let (known, id) = before.take().unzip();
            if let Some(id) = id {
                exchange.request["previous_response_id"] = json!(id);
            }
            exchange.request["input"] = json!(items[known.unwrap_or(0)..]);
            before = Some((items.len() + output(answer).len(), format!("resp_{}", answer.token)));
        }
        exchanges
    }
}

fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let mut begun = item.clone();
    let at = |kind: &str| json!({"type": kind, "output_index": index, "item_id": item["id"]});
    let part_at = |kind: &str, name: &str| {
        let mut event = at(kind);
        event[name] = json!(0);
        event
    };
    let mut events = Vec::new();
    let (name, field, part_kind, text_kind, part) = match item["type"].as_str().unwrap() {
        "function_call" => {
            begun["arguments"] = json!("");
            begun["status"] = json!("in_progress");
            let arguments = item["arguments"].as_str().unwrap();
            for piece in pieces(arguments, 24) {
                let mut delta = at("response.function_call_arguments.delta");
                delta["delta"] = json!(piece);
                events.push(delta);
            }
            let mut done = at("response.function_call_arguments.done");
            done["arguments"] = json!(arguments);
            events.push(done);
            return around(index, &begun, events, item);
        }
        "reasoning" => {
            begun["summary"] = json!([]);
            let kinds = ("response.reasoning_summary_part", "response.reasoning_summary_text");
            ("summary_index", "text", kinds.0, kinds.1, &item["summary"][0])
        }
        _ => {
            begun["content"] = json!([]);
            begun["status"] = json!("in_progress");
            let part = &item["content"][0];
            match part["type"].as_str().unwrap() {
                "refusal" => {
                    ("content_index", "refusal", "response.content_part", "response.refusal", part)
                }
                _ => {
                    ("content_index", "text", "response.content_part", "response.output_text", part)
                }
            }
        }
    };
    let with = |kind: String, field: &str, value: Value| {
        let mut event = part_at(&kind, name);
        event[field] = value;
        event
    };
    let whole = part[field].as_str().unwrap();
    let mut empty = part.clone();
    empty[field] = json!("");
    events.push(with(format!("{part_kind}.added"), "part", empty));
    let deltas = pieces(whole, 26).into_iter();
    events.extend(deltas.map(|piece| with(format!("{text_kind}.delta"), "delta", json!(piece))));
    events.push(with(format!("{text_kind}.done"), field, json!(whole)));
    events.push(with(format!("{part_kind}.done"), "part", part.clone()));
    around(index, &begun, events, item)
}

/// Returns the events of an item between the events of its beginning and its end.
fn around(index: usize, begun: &Value, events: Vec<Value>, item: &Value) -> Vec<Value> {
    let event =
        |kind: &str, item: &Value| json!({"type": kind, "output_index": index, "item": item});
    let mut all = vec![event("response.output_item.added", begun)];
    all.extend(events);
    all.push(event("response.output_item.done", item));
    all
}

impl Provider for Responses {
    fn folder(&self) -> &'static str {
        self.folder
    }

    fn url(&self, _: bool) -> String {
        self.url.to_owned()
    }

    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.schema(), "strict": false})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"model": self.model, "instructions": dialogue.system,
            "input": input(dialogue)});
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        if !self.is_kept {
            body["store"] = json!(false);
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
        if is_streamed {
            body["stream"] = json!(true);
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        self.response(answer, "completed", &output(answer))
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        let end = json!({"type": "response.completed", "response": self.whole(answer)});
        Self::ended(self.events(answer, &output(answer)), end)
    }
}
