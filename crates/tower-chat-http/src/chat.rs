//! `POST /v1/chat/completions`.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    body::Bytes,
    extract::{FromRequest, Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use tower_chat::{
    adapt::as_one_message,
    core::{
        Answer, ChatRequest, ChatResponse, Conversation, ConversationKey, Finish, Message,
        Messages, Part, Role, RunId,
    },
};
use tower_chat_wire::body::BodyWire;

use crate::{
    ChatEndpoint, Refusal,
    conversation::{Asked, CONVERSATION_HEADER, id_in_body},
    models::{self, as_json},
    new_messages::{Wanted, wanted},
    streamed,
};

pub(crate) async fn complete(
    State(endpoint): State<ChatEndpoint>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let bytes = Bytes::from_request(request, &())
        .await
        .map_err(|rejection| Refusal::new(rejection.status(), rejection.body_text()))?;
    let mut body = as_object(&bytes)?;
    let conversation = body.remove("conversation");
    let asked = Asked {
        headers: &parts.headers,
        extensions: &parts.extensions,
        conversation: id_in_body(conversation.as_ref())?,
    };
    let key = (endpoint.key)(&asked)?;
    let include_usage = takes_usage(&mut body);
    refuse_choices(&body)?;
    let mut request = BodyWire::OpenAiChat
        .parse_request(Value::Object(body))
        .map_err(|error| Refusal::of_body(&error))?;
    models::check(&endpoint.models, request.options.model.as_deref())?;

    let history = endpoint.store.load(&key).await.map_err(|error| Refusal::of_store(&error))?;
    let wanted = wanted(&history.messages, &request.messages, tries_again(&parts.headers))?;
    let is_streamed = request.options.stream;
    let upstream = endpoint.upstream;
    let failed = |error| Refusal::of_stack(&error, |error| upstream(error));
    let (response, shape) = match wanted {
        Wanted::Answer(new) => {
            request.messages = new;
            request.extensions = parts.extensions;
            let run = RunId::new();
            let shape = AnswerShape::of(&request, run);
            let request = request.in_run(Conversation { key: key.clone(), run });
            (endpoint.stack.oneshot(request).await.map_err(failed)?, shape)
        }
        Wanted::LastAnswer => {
            let run = history.messages.last().and_then(|message| Some(message.id?.run));
            let shape = AnswerShape::of(&request, run.unwrap_or_else(RunId::new));
            (last_answer(&history.messages, run), shape)
        }
    };
    let response = if is_streamed {
        streamed::respond(response, shape, include_usage, upstream)
    } else {
        let answer = response.collect().await.map_err(failed)?;
        as_json(StatusCode::OK, &shape.body(&answer))
    };
    Ok(with_conversation(response, &key))
}

/// Whether the client says that it has sent the request before, as OpenAI's SDKs do.
fn tries_again(headers: &HeaderMap) -> bool {
    let count = headers.get("x-stainless-retry-count").and_then(|count| count.to_str().ok());
    count.and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count > 0)
}

/// What the last run of a conversation has answered, as it is stored.
fn last_answer(stored: &Messages, run: Option<RunId>) -> ChatResponse {
    let is_of_run = |message: &&Arc<Message>| message.id.map(|id| id.run) == run;
    let mut of_run: Vec<Arc<Message>> =
        stored.iter().rev().take_while(is_of_run).cloned().collect();
    of_run.reverse();
    let answer = of_run.into_iter().skip_while(|message| message.role != Role::Assistant);
    ChatResponse::whole(answer, Finish::stop())
}

/// What every part of one answer has in common.
#[derive(Debug)]
pub(crate) struct AnswerShape {
    id: String,
    created: u64,
    model: Option<String>,
    /// The tools that the client runs.
    declared: HashSet<String>,
}

impl AnswerShape {
    fn of(request: &ChatRequest, run: RunId) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let names = request.options.tools.iter().map(|tool| tool.name.clone());
        Self {
            id: format!("chatcmpl-{run}"),
            created: now.map(|now| now.as_secs()).unwrap_or_default(),
            model: request.options.model.clone(),
            declared: names.collect(),
        }
    }

    /// The body of a whole answer.
    pub(crate) fn body(&self, answer: &Answer) -> Value {
        let mut message = as_one_message(answer);
        let is_own = |name: &str| self.declared.contains(name);
        if message.calls().any(|call| is_own(&call.name)) {
            message.parts.retain(|part| match part {
                Part::ToolCall(call) => call.provider_executed || is_own(&call.name),
                _ => true,
            });
        }
        let mut body = BodyWire::OpenAiChat.render_answer(&message, &answer.finish);
        let waiting: Vec<Value> = answer
            .approval_requests()
            .map(|request| {
                let call = &request.call;
                json!({"id": request.id, "name": call.name, "arguments": call.arguments})
            })
            .collect();
        if let (false, Some(Value::Object(choice))) =
            (waiting.is_empty(), body.pointer_mut("/choices/0"))
        {
            choice.insert("approval_requests".to_owned(), Value::Array(waiting));
        }
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.head("chat.completion", fields.get("model").cloned()));
        }
        body
    }

    /// The fields that all bodies and events of the answer have.
    pub(crate) fn head(&self, object: &str, model: Option<Value>) -> Map<String, Value> {
        let model = model.or_else(|| self.model.clone().map(Value::String));
        Map::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("object".to_owned(), json!(object)),
            ("created".to_owned(), json!(self.created)),
            ("model".to_owned(), model.unwrap_or_else(|| json!(""))),
        ])
    }
}

fn as_object(bytes: &[u8]) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad_request(format!("the body is no JSON object: {error}")))
}

/// Takes out whether a stream is to end with the usage; the leaf asks for its own.
fn takes_usage(body: &mut Map<String, Value>) -> bool {
    let options = body.remove("stream_options");
    let wants = options.as_ref().and_then(|options| options.get("include_usage")?.as_bool());
    wants.unwrap_or_default()
}

fn refuse_choices(body: &Map<String, Value>) -> Result<(), Refusal> {
    match body.get("n") {
        None | Some(Value::Null) => Ok(()),
        Some(count) if count.as_u64() == Some(1) => Ok(()),
        Some(_) => {
            let message = "a conversation goes on with one answer: ask for one choice";
            Err(Refusal::bad_request(message).with_param("n"))
        }
    }
}

fn with_conversation(response: impl IntoResponse, key: &ConversationKey) -> Response {
    let mut response = response.into_response();
    // An id that no header can hold came in the body, and the client knows it.
    if let Ok(id) = HeaderValue::from_str(key.id()) {
        response.headers_mut().insert(CONVERSATION_HEADER, id);
    }
    response
}
