//! The wires as a client of JSON bodies speaks them.

use futures_util::future::{BoxFuture, ready};
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;
use tower_chat::{
    adapt::ClientCodec,
    core::{BoxError, ChatRequest, ChatResponse, Finish, Message},
};
use tower_chat_wire::{
    anthropic,
    gemini::{self, Unsigned},
    openai_responses,
    validate::Wire,
};

/// The conversation of one wire in JSON bodies, whole answers alone.
pub(crate) struct ValueCodec {
    pub(crate) wire: Wire,
}

impl ClientCodec for ValueCodec {
    type Request = Value;
    type Response = String;

    fn encode(&self, request: ChatRequest) -> Result<Value, BoxError> {
        let messages = request.messages.iter().map(|message| &**message);
        let tools: Vec<&str> =
            request.options.tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut body = match self.wire {
            Wire::OpenAiResponses => json!({"input": openai_responses::render_input(messages)}),
            Wire::Anthropic => serde_json::to_value(anthropic::render_body(messages))?,
            Wire::Gemini => {
                json!({"contents": gemini::render_messages(messages, Unsigned::AsRecorded).contents})
            }
            other => return Err(format!("there is no codec for {other}").into()),
        };
        body["tools"] = json!(tools);
        Ok(body)
    }

    fn decode(&self, body: String) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let messages: Result<Vec<Message>, _> = match self.wire {
            Wire::OpenAiResponses => openai_responses::parse_answer(&body),
            Wire::Anthropic => anthropic::parse_answer(&body).map(|answer| vec![answer]),
            _ => gemini::parse_answer(&body),
        };
        let answer = messages.map(|messages| ChatResponse::whole(messages, Finish::stop()));
        Box::pin(ready(answer.map_err(BoxError::from)))
    }
}

/// A client that posts JSON and returns what comes.
pub(crate) fn json_client(url: &str) -> BoxCloneSyncService<Value, String, BoxError> {
    let (client, url) = (reqwest::Client::new(), url.to_owned());
    BoxCloneSyncService::new(tower::service_fn(move |body: Value| {
        let request = client.post(&url).body(body.to_string());
        async move { Ok(request.send().await?.text().await?) }
    }))
}
