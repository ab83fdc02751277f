//! An answer as server-sent events.

use std::{collections::VecDeque, convert::Infallible, error::Error, sync::Arc};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};
use tower_chat::core::{
    Answer, BoxError, ChatResponse, ChatUpdate, Finish, Message, Role, TruncatedStream,
};

use crate::{Refusal, chat::AnswerShape};

type UpstreamRule = dyn Fn(&(dyn Error + 'static)) -> Option<Refusal> + Send + Sync;

/// The response that says an answer as it comes.
pub(crate) fn respond(
    response: ChatResponse,
    shape: AnswerShape,
    include_usage: bool,
    upstream: Arc<UpstreamRule>,
) -> Response {
    let chunks = Chunks::new(response, shape, include_usage, upstream);
    let events = stream::unfold(chunks, |mut chunks| async move {
        let data = chunks.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), chunks))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

struct Chunks {
    /// `None` once the answer is over.
    response: Option<ChatResponse>,
    shape: AnswerShape,
    include_usage: bool,
    upstream: Arc<UpstreamRule>,
    ready: VecDeque<String>,
    messages: Vec<Arc<Message>>,
    /// Some text was said, in any message.
    has_spoken: bool,
    /// Some text of the message under way was said.
    is_speaking: bool,
    has_reasoned: bool,
}

impl Chunks {
    fn new(
        response: ChatResponse,
        shape: AnswerShape,
        include_usage: bool,
        upstream: Arc<UpstreamRule>,
    ) -> Self {
        let mut chunks = Self {
            response: Some(response),
            shape,
            include_usage,
            upstream,
            ready: VecDeque::new(),
            messages: Vec::new(),
            has_spoken: false,
            is_speaking: false,
            has_reasoned: false,
        };
        chunks.delta(json!({"role": "assistant", "content": ""}));
        chunks
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            match self.response.as_mut()?.next().await {
                Some(Ok(update)) => self.accept(update),
                Some(Err(error)) => self.fail(&error),
                None => self.fail(&TruncatedStream::default().into()),
            }
        }
    }

    fn accept(&mut self, update: ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(text) => self.say(&text),
            ChatUpdate::ReasoningDelta(text) => {
                self.has_reasoned = true;
                self.delta(json!({"reasoning_content": text}));
            }
            ChatUpdate::Message(message) => {
                if message.role == Role::Assistant {
                    if !self.is_speaking {
                        // It came whole.
                        self.say(&message.text());
                    }
                    self.is_speaking = false;
                }
                self.messages.push(message);
            }
            ChatUpdate::Finish(finish) => self.finish(finish),
            // Whose calls they are shows at the end.
            _ => {}
        }
    }

    fn say(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let begins_again = self.has_spoken && !self.is_speaking;
        self.is_speaking = true;
        self.has_spoken = true;
        let gap = if begins_again { "\n\n" } else { "" };
        self.delta(json!({"content": format!("{gap}{text}")}));
    }

    fn finish(&mut self, finish: Finish) {
        self.response = None;
        let mut body = self.shape.body(&Answer::new(std::mem::take(&mut self.messages), finish));
        let usage = body.get_mut("usage").map(Value::take).unwrap_or_default();
        let choice = body.pointer_mut("/choices/0").map(Value::take);
        let Some(Value::Object(mut choice)) = choice else { return };
        if let Some(Value::Object(message)) = choice.remove("message") {
            let rest = self.unsaid(message);
            if !rest.is_empty() {
                self.delta(Value::Object(rest));
            }
        }
        choice.insert("delta".to_owned(), json!({}));
        self.chunk(json!([choice]), Map::new());
        if self.include_usage {
            self.chunk(json!([]), Map::from_iter([("usage".to_owned(), usage)]));
        }
        self.ready.push_back("[DONE]".to_owned());
    }

    /// What a whole message has that was not streamed: its calls, and fields of the service.
    fn unsaid(&self, mut message: Map<String, Value>) -> Map<String, Value> {
        let is_said = |name: &str| match name {
            "role" | "content" => true,
            "reasoning_content" | "reasoning" => self.has_reasoned,
            _ => false,
        };
        message.retain(|name, value| !value.is_null() && !is_said(name));
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            for (index, call) in calls.iter_mut().enumerate() {
                if let Some(call) = call.as_object_mut() {
                    call.insert("index".to_owned(), json!(index));
                }
            }
        }
        message
    }

    fn fail(&mut self, error: &BoxError) {
        self.response = None;
        let refusal = Refusal::of_stack(error, |error| (self.upstream)(error));
        self.ready.push_back(refusal.body().to_string());
    }

    fn delta(&mut self, delta: Value) {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
        self.chunk(choices, Map::new());
    }

    fn chunk(&mut self, choices: Value, more: Map<String, Value>) {
        let mut chunk = self.shape.head("chat.completion.chunk", None);
        chunk.insert("choices".to_owned(), choices);
        chunk.extend(more);
        self.ready.push_back(Value::Object(chunk).to_string());
    }
}
