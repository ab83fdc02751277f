//! Writes the answer of a run as an OpenAI chat completion: as one body or in chunks.
//!
//! A stack is a model client inside the layers that store the conversation and run tools. A run is
//! the work of the stack on one request.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use futures_core::Stream;
use futures_util::stream;
use serde_json::{Map, Value, json};
use tower_chat_layers::{
    Answer, BoxError, ChatOptions, ChatResponse, ChatUpdate, Finish, Message, Part, Role, RunId,
    TruncatedStream, adapt::as_one_message,
};

use crate::body::BodyWire;

/// Writes the answer of a stack as an OpenAI chat completion: as one body, or as the chunks of a
/// stream with the same content.
///
/// [`as_one_message`] combines the messages of the answer into one message. If this message has
/// calls of tools that the request declares, calls of other tools are omitted: the client runs the
/// declared tools, and the stack runs the others.
///
/// ```
/// use tower_chat::{Answer, Finish, Message, run::RunId};
/// use tower_chat_wire::codec::Completion;
///
/// let answer = Answer::new(vec![Message::assistant("Rain.").into()], Finish::stop());
/// let body = Completion::of_run(RunId::new()).body(&answer);
/// assert_eq!(body["object"], "chat.completion");
/// assert_eq!(body["choices"][0]["message"]["content"], "Rain.");
/// ```
#[derive(Debug, Clone)]
pub struct Completion {
    id: String,
    /// The creation time of the completion, in seconds since 1 January 1970 (UTC).
    created: u64,
    model: Option<String>,
    /// The names of the tools that the request declares.
    declared_tools: HashSet<String>,
}

/// Selects the chunk of a stream that contains the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageChunk {
    /// No chunk contains the usage.
    None,
    /// A separate chunk without choices, at the end of the stream, contains the usage. OpenAI sends
    /// this chunk for `stream_options.include_usage`.
    Own,
    /// The chunk with the finish reason contains the usage.
    Last,
}

impl Completion {
    /// Creates the completion of a run, with the current time as its creation time.
    pub fn of_run(run: RunId) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("chatcmpl-{run}");
        Self { id, created: now.as_secs(), model: None, declared_tools: HashSet::new() }
    }

    /// Sets the tools that the request declares, and the name of the request's model. The body
    /// contains this name if the answer names no model.
    #[must_use]
    pub fn with_request_options(mut self, options: &ChatOptions) -> Self {
        self.model.clone_from(&options.model);
        self.declared_tools = options.tools.iter().map(|tool| tool.name.clone()).collect();
        self
    }

    /// Returns the body of a whole answer. Calls that wait for approval are in the field
    /// `approval_requests` of the choice, which is not part of OpenAI's API.
    pub fn body(&self, answer: &Answer) -> Value {
        let mut message = as_one_message(answer);
        let is_own = |name: &str| self.declared_tools.contains(name);
        if message.calls().any(|call| is_own(&call.name)) {
            message.parts.retain(|part| match part {
                Part::ToolCall(call) => call.provider_executed || is_own(&call.name),
                _ => true,
            });
        }
        let mut body = BodyWire::OpenAiChat.render_answer(&message, &answer.finish);
        let approval_requests: Vec<Value> = answer
            .approval_requests()
            .map(|request| {
                let call = &request.call;
                json!({"id": request.id, "name": call.name, "arguments": call.arguments})
            })
            .collect();
        if let (false, Some(Value::Object(choice))) =
            (approval_requests.is_empty(), body.pointer_mut("/choices/0"))
        {
            choice.insert("approval_requests".to_owned(), Value::Array(approval_requests));
        }
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.common_fields("chat.completion", fields.get("model").cloned()));
        }
        body
    }

    /// Returns the chunks of a streamed answer as JSON. The caller has to send `[DONE]` at the end
    /// of the stream. The stream ends after an error.
    ///
    /// Text and reasoning are returned when they arrive. Calls are returned whole at the end of the
    /// answer: only then is it known whether the answer has a call of a declared tool, and whether
    /// calls of other tools must be omitted.
    pub fn chunks(
        self,
        response: ChatResponse,
        usage: UsageChunk,
    ) -> impl Stream<Item = Result<Value, BoxError>> + Send + 'static {
        stream::unfold(Chunks::new(self, response, usage), |mut chunks| async move {
            let chunk = chunks.next().await?;
            Some((chunk, chunks))
        })
    }

    /// Returns the fields that a body and every chunk have: id, type, creation time and model.
    fn common_fields(&self, object: &str, model: Option<Value>) -> Map<String, Value> {
        let model = model.or_else(|| self.model.clone().map(Value::String));
        Map::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("object".to_owned(), json!(object)),
            ("created".to_owned(), json!(self.created)),
            ("model".to_owned(), model.unwrap_or_else(|| json!(""))),
        ])
    }
}

struct Chunks {
    completion: Completion,
    /// `None` after the end of the response.
    response: Option<ChatResponse>,
    usage: UsageChunk,
    /// The chunks that [`next`](Self::next) has not returned yet.
    ready: VecDeque<Value>,
    messages: Vec<Arc<Message>>,
    /// Whether a chunk with text of any message was created.
    has_text: bool,
    /// Whether a chunk with text of the current message was created.
    message_has_text: bool,
    /// Whether a chunk with reasoning was created.
    has_reasoned: bool,
}

impl Chunks {
    fn new(completion: Completion, response: ChatResponse, usage: UsageChunk) -> Self {
        let mut chunks = Self {
            completion,
            response: Some(response),
            usage,
            ready: VecDeque::new(),
            messages: Vec::new(),
            has_text: false,
            message_has_text: false,
            has_reasoned: false,
        };
        chunks.push_choice_delta(json!({"role": "assistant", "content": ""}));
        chunks
    }

    async fn next(&mut self) -> Option<Result<Value, BoxError>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Some(Ok(chunk));
            }
            let error = match self.response.as_mut()?.next().await {
                Some(Ok(update)) => {
                    self.accept(update);
                    continue;
                }
                Some(Err(error)) => error,
                None => TruncatedStream::default().into(),
            };
            self.response = None;
            return Some(Err(error));
        }
    }

    fn accept(&mut self, update: ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(text) => self.push_text(&text),
            ChatUpdate::ReasoningDelta(text) => {
                self.has_reasoned = true;
                self.push_choice_delta(json!({"reasoning_content": text}));
            }
            ChatUpdate::Message(message) => {
                if message.role == Role::Assistant {
                    if !self.message_has_text {
                        // The text of this message was not streamed in deltas.
                        self.push_text(&message.text());
                    }
                    self.message_has_text = false;
                }
                self.messages.push(message);
            }
            ChatUpdate::Finish(finish) => self.finish(finish),
            _ => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let is_later_message = self.has_text && !self.message_has_text;
        self.message_has_text = true;
        self.has_text = true;
        let gap = if is_later_message { "\n\n" } else { "" };
        self.push_choice_delta(json!({"content": format!("{gap}{text}")}));
    }

    fn finish(&mut self, finish: Box<Finish>) {
        self.response = None;
        let answer = Answer::new(std::mem::take(&mut self.messages), finish);
        let mut body = self.completion.body(&answer);
        let usage = body.get_mut("usage").map(Value::take).unwrap_or_default();
        let usage = Map::from_iter([("usage".to_owned(), usage)]);
        let choice = body.pointer_mut("/choices/0").map(Value::take);
        let Some(Value::Object(mut choice)) = choice else { return };
        if let Some(Value::Object(message)) = choice.remove("message") {
            let rest = self.extra_fields(message);
            if !rest.is_empty() {
                self.push_choice_delta(Value::Object(rest));
            }
        }
        choice.insert("delta".to_owned(), json!({}));
        match self.usage {
            UsageChunk::None => self.push_chunk(json!([choice]), Map::new()),
            UsageChunk::Own => {
                self.push_chunk(json!([choice]), Map::new());
                self.push_chunk(json!([]), usage);
            }
            UsageChunk::Last => self.push_chunk(json!([choice]), usage),
        }
    }

    /// Returns the fields of a message that no earlier chunk contains.
    fn extra_fields(&self, mut message: Map<String, Value>) -> Map<String, Value> {
        let is_known = |name: &str| match name {
            "role" | "content" => true,
            "reasoning_content" | "reasoning" => self.has_reasoned,
            _ => false,
        };
        message.retain(|name, value| !value.is_null() && !is_known(name));
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            for (index, call) in calls.iter_mut().enumerate() {
                if let Some(call) = call.as_object_mut() {
                    call.insert("index".to_owned(), json!(index));
                }
            }
        }
        message
    }

    fn push_choice_delta(&mut self, delta: Value) {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": null}]);
        self.push_chunk(choices, Map::new());
    }

    fn push_chunk(&mut self, choices: Value, more: Map<String, Value>) {
        let mut chunk = self.completion.common_fields("chat.completion.chunk", None);
        chunk.insert("choices".to_owned(), choices);
        chunk.extend(more);
        self.ready.push_back(Value::Object(chunk));
    }
}
