//! The handler of `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use tower::ServiceExt;
use tower_chat_layers::{
    ChatResponse, Conversation, ConversationKey, Finish, Message, Messages, RepeatedTranscript,
    Role, RunId, check_unique_keys,
    transcript::{Recognised, recognise_in},
};
use tower_chat_wire::{body::BodyWire, codec::Completion};

use crate::{
    ChatEndpoint, ErrorResponse, branch,
    conversation::{Asked, CONVERSATION_HEADER, header_of, id_in_body, single_header},
    models::{self, as_json},
    new_messages::{before_run, refusal},
    runs::{run_id_of_header, with_run},
    streamed,
};

pub(crate) async fn complete(
    State(endpoint): State<ChatEndpoint>,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (parts, body) = request.into_parts();
    let bytes = endpoint.limits.read(body).await?;
    endpoint.limits.check_depth(&bytes)?;
    let is_large = bytes.len() >= LARGE_BODY_BYTES;
    yield_if(is_large).await;
    let mut body = as_object(&bytes)?;
    yield_if(is_large).await;
    let conversation = body.remove("conversation");
    let asked = Asked {
        headers: &parts.headers,
        extensions: &parts.extensions,
        conversation: id_in_body(conversation.as_ref())?,
    };
    let key = (endpoint.key)(&asked)?;
    let named = run_id_of_header(&parts.headers)?;
    // If the client sends a run id, a retry is recognised by this id. The header
    // `x-stainless-retry-count` is then ignored.
    let is_retry = is_retry(&parts.headers)? && named.is_none();
    let include_usage = take_include_usage(&mut body);
    refuse_choices(&body)?;
    let mut request = BodyWire::OpenAiChat
        .parse_request(Value::Object(body))
        .map_err(|error| ErrorResponse::of_body(&error))?;
    endpoint.limits.check(request.messages())?;
    yield_if(is_large).await;
    models::check(&endpoint.models, request.options.model.as_deref())?;

    let history =
        endpoint.store.load(&key).await.map_err(|error| ErrorResponse::of_store(&error))?;
    let history = match named {
        Some(run) => before_run(history, run),
        None => history,
    };
    let run = named.unwrap_or_else(RunId::new);
    let mut recognised = recognise_in(&history, request.messages(), is_retry);
    yield_if(is_large).await;
    let (mut key, mut history) = (key, history);
    if endpoint.has_branches && branch::is_rewritten(&recognised, is_retry) {
        let branch =
            branch::branch(&*endpoint.store, &key, &history, request.messages(), &recognised, run);
        if let Some((branch, common)) =
            branch.await.map_err(|error| ErrorResponse::of_store(&error))?
        {
            (key, history) = (branch, before_run(common, run));
            recognised = recognise_in(&history, request.messages(), false);
        }
    }
    let recognised = recognised.map_err(|error| refusal(&error))?;
    let is_streamed = request.options.stream;
    let upstream = endpoint.upstream;
    let failed = |error| ErrorResponse::of_error(&error, |error| upstream(error));
    let (response, completion, run) = match recognised {
        Recognised::New(new) => {
            request.set_new_messages(new);
            request.extensions = parts.extensions;
            // `recognise_in` has removed the messages that are stored already. With `Append`, the
            // stack does not compare the remaining messages with the stored messages again, and
            // stores all of them.
            request.extensions.insert(RepeatedTranscript::Append);
            let completion = Completion::of_run(run).with_request_options(&request.options);
            let request = request.in_run(Conversation { key: key.clone(), run });
            (endpoint.stack.oneshot(request).await.map_err(failed)?, completion, Some(run))
        }
        Recognised::LastAnswer => {
            let run = history.messages.last().and_then(|message| Some(message.id?.run));
            let completion = Completion::of_run(run.unwrap_or_else(RunId::new));
            let completion = completion.with_request_options(&request.options);
            (last_answer(&history.messages, run), completion, run)
        }
    };
    let response = if is_streamed {
        streamed::respond(response, completion, include_usage, upstream)
    } else {
        let answer = response.collect().await.map_err(failed)?;
        as_json(StatusCode::OK, &completion.body(&answer))
    };
    Ok(with_run(with_conversation(response, &key), run))
}

/// The body size, in bytes, from which [`yield_if`] yields. Parsing or comparing a request of this
/// size takes a large part of a millisecond.
const LARGE_BODY_BYTES: usize = 256 * 1024;

/// Yields to the other tasks of the worker thread if the body is large. The handler calls this
/// function between long computations. If the client has disconnected, the server drops the
/// handler's future at this point.
async fn yield_if(is_large: bool) {
    if is_large {
        tokio::task::yield_now().await;
    }
}

/// Returns whether the client has marked the request as a retry with the header that OpenAI's SDKs
/// send. Fails if the value of the header is not a number.
fn is_retry(headers: &HeaderMap) -> Result<bool, ErrorResponse> {
    const RETRIES: &str = "x-stainless-retry-count";
    let Some(count) = single_header(headers, RETRIES)? else { return Ok(false) };
    count.parse::<u32>().map(|count| count > 0).map_err(|_| {
        let message =
            format!("the header {RETRIES} is not a number: send a number, or leave the header out");
        ErrorResponse::bad_request(message).with_code("invalid_header")
    })
}

/// Returns the stored answer of `run`, which is the newest run of the conversation. The answer
/// consists of the first message of the assistant in the run, and of all messages after it.
fn last_answer(stored: &Messages, run: Option<RunId>) -> ChatResponse {
    let is_of_run = |message: &&Arc<Message>| message.id.map(|id| id.run) == run;
    let mut of_run: Vec<Arc<Message>> =
        stored.iter().rev().take_while(is_of_run).cloned().collect();
    of_run.reverse();
    let answer = of_run.into_iter().skip_while(|message| message.role != Role::Assistant);
    ChatResponse::whole(answer, Finish::stop())
}

/// Parses a body as a JSON object. Fails if any object in the body has a key twice, because the
/// parsed map would contain only the last of the two values.
fn as_object(bytes: &[u8]) -> Result<Map<String, Value>, ErrorResponse> {
    let text = str::from_utf8(bytes)
        .map_err(|error| ErrorResponse::bad_request(format!("the body is not UTF-8: {error}")))?;
    check_unique_keys(text).and_then(|()| serde_json::from_str(text)).map_err(|error| {
        ErrorResponse::bad_request(format!("the body is not a JSON object: {error}"))
    })
}

/// Removes `stream_options` from the body, because the model client sets its own. Returns whether
/// the client requests the usage at the end of the stream.
fn take_include_usage(body: &mut Map<String, Value>) -> bool {
    let options = body.remove("stream_options");
    let include_usage =
        options.as_ref().and_then(|options| options.get("include_usage")?.as_bool());
    include_usage.unwrap_or_default()
}

fn refuse_choices(body: &Map<String, Value>) -> Result<(), ErrorResponse> {
    match body.get("n") {
        None | Some(Value::Null) => Ok(()),
        Some(count) if count.as_u64() == Some(1) => Ok(()),
        Some(_) => {
            let message = "a conversation continues with one answer: request one choice";
            Err(ErrorResponse::bad_request(message).with_param("n"))
        }
    }
}

fn with_conversation(response: impl IntoResponse, key: &ConversationKey) -> Response {
    let mut response = response.into_response();
    // The header is omitted for an id that is not valid in a header. The client knows such an id:
    // it has sent the id in the body, or the rule of `ChatEndpoint::keyed_by` has derived the id
    // from the request.
    if let Some(id) = header_of(key.id()) {
        response.headers_mut().insert(CONVERSATION_HEADER, id);
    }
    response
}
