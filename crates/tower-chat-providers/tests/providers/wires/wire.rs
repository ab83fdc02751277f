//! Determines the provider, the model and the format of a recorded request.

use serde_json::{Value, json};
use tower_chat_core::{Answer, Message, Role};
use tower_chat_wire::{anthropic, gemini, openai_chat};

use crate::{
    cassettes::{Api, Exchange},
    client::Provider,
    native_texts,
    wires::{expected::ExpectedAnswer, plain},
};

/// The APIs that no model client of the crate supports, with the reason.
pub(crate) const EXCLUDED: [(Api, &str); 2] = [
    (Api::BedrockInvoke, "Bedrock's InvokeModel: the model client speaks Converse"),
    (Api::Writer, "Writer's own chat"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Gemini,
    Bedrock,
    Cohere,
    Ollama,
    Chat,
}

/// How a recorded exchange sends its request to a model.
#[derive(Debug)]
pub(crate) struct ModelRequest {
    pub(crate) provider: Provider,
    pub(crate) wire: Wire,
    pub(crate) model: String,
    pub(crate) is_streamed: bool,
}

impl ModelRequest {
    /// Reads the request of an exchange. Returns `None` if the request is not sent to a model, or
    /// if other tests replay requests of its format.
    pub(crate) fn of_exchange(exchange: &Exchange) -> Option<Self> {
        let path = exchange.path();
        let in_vertex = path.contains("aiplatform.googleapis.com");
        let google = if in_vertex { Provider::Vertex } else { Provider::Gemini };
        let in_body = exchange.request["model"].as_str().unwrap_or_default().to_owned();
        let streams = exchange.request["stream"] == true;
        let model_request = |provider, wire, model: &str, is_streamed| {
            Some(Self { provider, wire, model: model.to_owned(), is_streamed })
        };
        let rest = path.rsplit_once(':').map_or(path, |(rest, _)| rest);
        let model = rest.rsplit('/').next().unwrap();
        let ends = |end: &str| path.ends_with(end);
        match exchange.api().unwrap() {
            Api::Gemini => {
                model_request(google, Wire::Gemini, model, ends(":streamGenerateContent"))
            }
            Api::VertexAnthropic => {
                model_request(Provider::Vertex, Wire::Anthropic, model, ends(":streamRawPredict"))
            }
            Api::AnthropicMessages => {
                model_request(Provider::Anthropic, Wire::Anthropic, &in_body, streams)
            }
            Api::BedrockConverse => {
                let (path, method) = path.rsplit_once('/').unwrap();
                let model = path.rsplit('/').next().unwrap().replace("%3A", ":");
                model_request(Provider::Bedrock, Wire::Bedrock, &model, method == "converse-stream")
            }
            Api::Cohere => model_request(Provider::Cohere, Wire::Cohere, &in_body, streams),
            // Ollama streams unless the request sets `stream` to `false`.
            Api::Ollama => {
                let streams = exchange.request["stream"] != false;
                model_request(Provider::Ollama, Wire::Ollama, &in_body, streams)
            }
            Api::ChatCompletions => {
                let provider = match exchange.folder.as_str() {
                    "mistral" => Provider::Mistral,
                    "groq" => Provider::Groq,
                    "deepseek" => Provider::DeepSeek,
                    "xai" => Provider::XAi,
                    "openrouter" => Provider::OpenRouter,
                    _ => return None,
                };
                model_request(provider, Wire::Chat, &in_body, streams)
            }
            Api::Responses | Api::BedrockInvoke | Api::Writer | Api::Other => None,
        }
    }

    /// Returns the messages in a body.
    pub(crate) fn list<'a>(&self, body: &'a Value) -> &'a Vec<Value> {
        let name = if self.wire == Wire::Gemini { "contents" } else { "messages" };
        body[name].as_array().unwrap()
    }

    /// Returns whether the model client writes the field, so that it must not be in the `extra`
    /// options.
    pub(crate) fn is_written_by_client(&self, name: &str) -> bool {
        match name {
            "messages" | "contents" | "model" | "stream" => true,
            "system" => matches!(self.wire, Wire::Anthropic | Wire::Bedrock),
            "systemInstruction" | "system_instruction" => self.wire == Wire::Gemini,
            "anthropic_version" => self.provider == Provider::Vertex,
            _ => false,
        }
    }

    pub(crate) fn system(&self, body: &Value) -> Vec<Message> {
        match self.wire {
            Wire::Anthropic => body
                .get("system")
                .map(|system| vec![anthropic::parse_system(&system.to_string()).unwrap()]),
            Wire::Gemini => {
                let system = ["systemInstruction", "system_instruction"];
                system.iter().find_map(|name| body.get(name)).map(|system| {
                    let body = json!({"systemInstruction": system, "contents": []});
                    gemini::parse_body(&body.to_string()).unwrap()
                })
            }
            Wire::Bedrock => body["system"].as_array().map(|blocks| {
                vec![Message::new(Role::System, blocks.iter().map(plain::bedrock_block).collect())]
            }),
            _ => None,
        }
        .unwrap_or_default()
    }

    pub(crate) fn parse(&self, list: &[Value]) -> Vec<Message> {
        let json = Value::from(list).to_string();
        match self.wire {
            Wire::Anthropic => anthropic::parse_messages(&json).unwrap(),
            Wire::Gemini => gemini::parse_contents(&json).unwrap(),
            Wire::Chat => openai_chat::parse_messages(&json).unwrap(),
            Wire::Bedrock => list.iter().map(plain::bedrock).collect(),
            Wire::Cohere | Wire::Ollama => list.iter().map(plain::chat).collect(),
        }
    }

    /// Returns whether the message at this position is an assistant message, and the next message
    /// is not.
    pub(crate) fn is_answer(&self, list: &[Value], position: usize) -> bool {
        let is = |position| {
            list.get(position).is_some_and(|message: &Value| {
                message["role"] == "assistant" || message["role"] == "model"
            })
        };
        is(position) && !is(position + 1)
    }

    /// Removes the messages, and fields that have no effect, from a body.
    pub(crate) fn options(&self, body: &Value) -> Value {
        let mut body = body.clone();
        let fields = body.as_object_mut().unwrap();
        for list in ["messages", "contents"] {
            fields.remove(list);
        }
        if fields.get("stream") != Some(&Value::Bool(true)) {
            fields.remove("stream");
        }
        for (snake, camel) in
            [("system_instruction", "systemInstruction"), ("generation_config", "generationConfig")]
        {
            if let Some(value) = fields.remove(snake) {
                fields.insert(camel.to_owned(), value);
            }
        }
        fields.retain(|_, value| !value.is_null() && *value != json!({}) && *value != json!([]));
        if !fields.contains_key("tools") {
            fields.remove("tool_choice");
            fields.remove("toolConfig");
        }
        body
    }

    /// Returns the parts of the history in a body that every client sends alike. Clients differ in
    /// cache marks, in the white space around texts, and in empty fields.
    pub(crate) fn history(&self, body: &Value) -> Vec<Value> {
        let list = self.list(body).iter();
        match self.wire {
            Wire::Cohere | Wire::Ollama => list.map(plain::content_of).collect(),
            _ => list.map(|message| json!([message["role"], self.parts(message)])).collect(),
        }
    }

    fn parts(&self, message: &Value) -> Value {
        let field = if self.wire == Wire::Gemini { "parts" } else { "content" };
        match &message[field] {
            Value::Array(parts) => {
                parts.iter().filter(|part| !is_blank(part)).map(plain_part).collect()
            }
            text => text.clone(),
        }
    }

    pub(crate) fn assert_answer(&self, exchange: &Exchange, answer: &Answer, source: &str) {
        let expected = match self.wire {
            Wire::Anthropic => ExpectedAnswer::of_anthropic(exchange, self.is_streamed),
            Wire::Gemini => ExpectedAnswer::of_gemini(exchange, self.is_streamed),
            Wire::Chat => unreachable!("compared with what the OpenAI model client makes of it"),
            Wire::Bedrock => ExpectedAnswer::of_bedrock(exchange, self.is_streamed),
            Wire::Cohere => ExpectedAnswer::of_cohere(exchange, self.is_streamed),
            Wire::Ollama => ExpectedAnswer::of_ollama(exchange),
        };
        assert_eq!(ExpectedAnswer::of_answer(answer), expected, "{source}");
        if self.is_streamed && matches!(self.wire, Wire::Anthropic | Wire::Gemini | Wire::Cohere) {
            native_texts::assert_texts_occur_in_events(
                &exchange.json_events().unwrap(),
                &answer.messages[0],
                source,
            );
        }
    }
}

/// Returns whether a part is a blank text. Blank texts are never sent, because Anthropic refuses
/// them.
fn is_blank(part: &Value) -> bool {
    let fields = part.as_object().unwrap();
    part["text"].as_str().is_some_and(|text| text.trim().is_empty())
        && fields.keys().all(|name| name == "text" || name == "type")
}

/// Removes fields that have no effect from a part, and fields that only some clients send.
fn plain_part(part: &Value) -> Value {
    let mut part = part.clone();
    if let Some(fields) = part.as_object_mut() {
        fields.retain(|name, value| {
            let is_clients = matches!(name.as_str(), "cache_control" | "caller");
            !value.is_null() && !is_clients && (name != "thought" || *value != json!(false))
        });
        // Removes fields with their default values. Older recordings do not contain the `type` of a
        // tool use.
        for (kind, name, usual) in
            [("toolResult", "status", "success"), ("toolUse", "type", "tool_use")]
        {
            if let Some(inner) = fields.get_mut(kind).and_then(Value::as_object_mut) {
                inner.retain(|field, value| field != name || *value != json!(usual));
            }
        }
        // Some clients use the URL-safe alphabet of base64.
        if let Some(Value::String(signature)) = fields.get_mut("thoughtSignature") {
            *signature = signature.replace('-', "+").replace('_', "/");
        }
    }
    part
}
