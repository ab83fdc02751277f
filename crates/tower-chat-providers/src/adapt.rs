//! Codecs that convert between async-openai's chat types and the types of this project, for the
//! layers of [`tower_chat_layers::adapt`] (feature `async-openai`).
//!
//! A model client is the innermost service of a stack, and sends requests to a provider. With
//! [`ChatTypes`], a `Service<CreateChatCompletionRequest>` becomes a model client, and a stack
//! becomes a `Service<CreateChatCompletionRequest>`. [`ChatStream`] is for services whose response
//! is a [`ChatCompletionResponseStream`].
//!
//! async-openai's types have no extensions, so a client with these types does not receive the
//! [extensions](ChatRequest::extensions) of a request, which contain the key of its conversation
//! and the id of its run. The types have the fields of one version of OpenAI's API: a request with
//! any other option fails, and fields that only other services add to messages are lost. An
//! application that needs these options or fields uses `JsonClient` of `tower-chat-wire`, or
//! [`OpenAiChat`](crate::OpenAiChat).

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use async_openai::{
    error::OpenAIError,
    types::chat::{
        ChatCompletionResponseStream, CreateChatCompletionRequest, CreateChatCompletionResponse,
    },
};
use futures_util::{StreamExt, future::BoxFuture, stream};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tower_chat_layers::{
    BoxError, ChatOptions, ChatRequest, ChatResponse, ConversationKey, RunId,
    adapt::{ClientCodec, ServerCodec, as_one_message},
};
use tower_chat_wire::{
    AnswerError,
    body::BodyWire,
    codec::{Completion, UsageChunk},
    stream::{Frame, updates},
};

use crate::error::{Errors, ProviderError};

/// A codec for async-openai's request type and its type of whole answers.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use async_openai::types::chat::{CreateChatCompletionRequest, CreateChatCompletionResponse};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{adapt::AdaptLayer, BoxError, ChatRequest};
/// use tower_chat_providers::adapt::ChatTypes;
///
/// let theirs = service_fn(|request: CreateChatCompletionRequest| async move {
///     let said = format!("{} messages", request.messages.len());
///     let answer = serde_json::json!({
///         "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": request.model,
///         "choices": [{"index": 0, "message": {"role": "assistant", "content": said}}],
///     });
///     Ok::<CreateChatCompletionResponse, BoxError>(serde_json::from_value(answer)?)
/// });
/// let model = ServiceBuilder::new().layer(AdaptLayer::new(ChatTypes::new("gpt-4o"))).service(theirs);
/// let answer = model.oneshot(ChatRequest::user("hi")).await?.collect().await?;
/// assert_eq!(answer.text(), "1 messages");
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct ChatTypes {
    model: String,
    key: Arc<KeyRule>,
}

type KeyRule = dyn Fn(&CreateChatCompletionRequest) -> Option<ConversationKey> + Send + Sync;

impl ChatTypes {
    /// Creates a codec. async-openai's request type requires a model: `model` is used for requests
    /// that name no model.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), key: Arc::new(|_| None) }
    }

    /// Returns a codec for the same request type and streamed answers.
    pub fn streamed(self) -> ChatStream {
        ChatStream { types: self }
    }

    fn parse_request(
        &self,
        request: &CreateChatCompletionRequest,
    ) -> Result<ChatRequest, BoxError> {
        let key = (self.key)(request);
        let request = BodyWire::OpenAiChat.parse_request(to_json(request)?)?;
        Ok(match key {
            Some(key) => request.in_conversation(key),
            None => request,
        })
    }

    /// Sets the function that returns the key of a request's conversation. Each request begins a
    /// new run (the work of the stack up to the final answer) in this conversation. Only the
    /// [`ServerCodec`], which converts the requests of callers, uses the function.
    #[must_use]
    pub fn keyed_by(
        mut self,
        rule: impl Fn(&CreateChatCompletionRequest) -> Option<ConversationKey> + Send + Sync + 'static,
    ) -> Self {
        self.key = Arc::new(rule);
        self
    }
}

impl ClientCodec for ChatTypes {
    type Request = CreateChatCompletionRequest;
    type Response = CreateChatCompletionResponse;

    fn encode(&self, mut request: ChatRequest) -> Result<CreateChatCompletionRequest, BoxError> {
        if request.options.stream {
            Arc::make_mut(&mut request.options).stream = false;
        }
        encode(&request, &self.model)
    }

    fn decode(
        &self,
        response: CreateChatCompletionResponse,
    ) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let answer = to_json(&response).and_then(|body| {
            BodyWire::OpenAiChat.parse_answer(&body.to_string()).map_err(BoxError::from)
        });
        Box::pin(std::future::ready(answer.map(ChatResponse::from)))
    }
}

impl ServerCodec for ChatTypes {
    type Request = CreateChatCompletionRequest;
    type Response = CreateChatCompletionResponse;

    fn decode(&self, request: CreateChatCompletionRequest) -> Result<ChatRequest, BoxError> {
        let mut request = self.parse_request(&request)?;
        if request.options.stream {
            Arc::make_mut(&mut request.options).stream = false;
        }
        Ok(request)
    }

    fn encode(
        &self,
        response: ChatResponse,
    ) -> BoxFuture<'static, Result<CreateChatCompletionResponse, BoxError>> {
        let model = self.model.clone();
        Box::pin(async move {
            let answer = response.collect().await?;
            let message = as_one_message(&answer);
            let mut body = BodyWire::OpenAiChat.render_answer(&message, &answer.finish);
            if let Some(fields) = body.as_object_mut() {
                // async-openai's type requires these fields, which the model client may not have
                // set.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let id = || json!(format!("chatcmpl-{}", RunId::new()));
                fields.entry("id").or_insert_with(id);
                fields.entry("created").or_insert_with(|| json!(now.as_secs()));
                fields.entry("model").or_insert(json!(model));
            }
            from_json("an answer", body)
        })
    }
}

/// A codec for async-openai's request type and its type of streamed answers. Created by
/// [`ChatTypes::streamed`].
///
/// The [`ClientCodec`] sends every request with `stream: true`, because the response type is a
/// stream of events. If the received stream ends without a `finish_reason`, the response fails with
/// [`Truncated`](crate::ProviderErrorKind::Truncated). The [`ServerCodec`] adds the usage of the
/// answer to the last event of the stream.
#[derive(Debug, Clone)]
pub struct ChatStream {
    types: ChatTypes,
}

impl ClientCodec for ChatStream {
    type Request = CreateChatCompletionRequest;
    type Response = ChatCompletionResponseStream;

    fn encode(&self, mut request: ChatRequest) -> Result<CreateChatCompletionRequest, BoxError> {
        let options = Arc::make_mut(&mut request.options);
        options.stream = true;
        let usage = || json!({"include_usage": true});
        options.extra.entry("stream_options").or_insert_with(usage);
        encode(&request, &self.types.model)
    }

    fn decode(
        &self,
        events: ChatCompletionResponseStream,
    ) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        // async-openai's stream does not yield `[DONE]`, without which `updates` reports a
        // truncated answer. If a choice had a `finish_reason`, this codec appends `[DONE]` at the
        // end.
        let state = Some((events, false));
        let frames = stream::unfold(state, |state| async move {
            let (mut events, has_ended) = state?;
            match events.next().await {
                Some(Ok(event)) => {
                    let ends = event.choices.iter().any(|choice| choice.finish_reason.is_some());
                    match serde_json::to_string(&event) {
                        Ok(data) => Some((Ok(frame(data)), Some((events, has_ended || ends)))),
                        Err(error) => Some((Err(AnswerError::interrupted(error)), None)),
                    }
                }
                Some(Err(error)) => Some((Err(answer_error(error)), None)),
                None => has_ended.then(|| (Ok(frame("[DONE]".to_owned())), None)),
            }
        });
        let updates = updates(frames, BodyWire::OpenAiChat.accumulator());
        let updates = updates.map(|update| update.map_err(response_error));
        Box::pin(std::future::ready(Ok(ChatResponse::stream(updates))))
    }
}

impl ServerCodec for ChatStream {
    type Request = CreateChatCompletionRequest;
    type Response = ChatCompletionResponseStream;

    fn decode(&self, request: CreateChatCompletionRequest) -> Result<ChatRequest, BoxError> {
        let mut request = self.types.parse_request(&request)?;
        let options = Arc::make_mut(&mut request.options);
        options.stream = true;
        // This option is for the caller's stream. The model client sets its own.
        options.extra.remove("stream_options");
        Ok(request)
    }

    fn encode(
        &self,
        response: ChatResponse,
    ) -> BoxFuture<'static, Result<ChatCompletionResponseStream, BoxError>> {
        let mut options = ChatOptions::default();
        options.model = Some(self.types.model.clone());
        let completion = Completion::of_run(RunId::new()).with_request_options(&options);
        let chunks = completion.chunks(response, UsageChunk::Last).map(|chunk| {
            let event = chunk.and_then(|chunk| from_json("a chunk", chunk));
            event.map_err(OpenAIError::Boxed)
        });
        let events: ChatCompletionResponseStream = Box::pin(chunks);
        Box::pin(std::future::ready(Ok(events)))
    }
}

/// Converts an `AnswerError` to the error of a response.
fn response_error(error: AnswerError) -> BoxError {
    match error {
        AnswerError::Truncated { source: Some(source), .. } if source.is::<ProviderError>() => {
            source
        }
        error => Errors("async-openai").answer_error(error).into(),
    }
}

fn frame(data: String) -> Frame {
    Frame { event: None, data }
}

/// Converts an error of an async-openai stream to an `AnswerError`.
fn answer_error(error: OpenAIError) -> AnswerError {
    match error {
        OpenAIError::Boxed(source) => AnswerError::interrupted(source),
        OpenAIError::JSONDeserialize(source, body) => {
            AnswerError::malformed(format!("it is not JSON: {source}"), body)
        }
        error => AnswerError::interrupted(error),
    }
}

/// The error of a request with fields that async-openai's request type does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request was not sent: async-openai's chat request has no field for {fields:?}: send the \
     request without them, or use a codec of JSON bodies"
)]
#[non_exhaustive]
pub struct UnknownFields {
    /// The names of the fields.
    pub fields: Vec<String>,
}

/// Converts a request to async-openai's type. Fails if the request has top-level fields that this
/// type does not have.
fn encode(request: &ChatRequest, model: &str) -> Result<CreateChatCompletionRequest, BoxError> {
    let mut body = BodyWire::OpenAiChat.render_request(request)?;
    if let Some(fields) = body.as_object_mut() {
        fields.entry("model").or_insert(json!(model));
    }
    let typed: CreateChatCompletionRequest = from_json("a request", body.clone())?;
    let forwarded = to_json(&typed)?;
    let names = body.as_object().into_iter().flat_map(|fields| fields.keys());
    let fields: Vec<String> = names.filter(|name| forwarded.get(name).is_none()).cloned().collect();
    if fields.is_empty() { Ok(typed) } else { Err(UnknownFields { fields }.into()) }
}

fn to_json(value: &impl Serialize) -> Result<Value, BoxError> {
    Ok(serde_json::to_value(value)?)
}

fn from_json<T: DeserializeOwned>(what: &str, body: Value) -> Result<T, BoxError> {
    serde_json::from_value(body)
        .map_err(|error| format!("async-openai's types cannot express {what}: {error}").into())
}

impl fmt::Debug for ChatTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTypes").field("model", &self.model).finish_non_exhaustive()
    }
}
