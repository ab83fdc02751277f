//! The handlers that stream the events of a run, return its state, and stop it.
//!
//! A run is the work on one completion request, up to the final answer. A detached run continues
//! after its client has disconnected. The layer of detached runs stores the updates of each run
//! (pieces of text, whole messages and other parts of the answer), and a [`RunReader`] reads them.

use std::convert::Infallible;

use axum::{
    extract::{Path, Request, State},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, RunEnd, RunEvent, RunKey, RunReader, RunState, UpdatePosition,
};
use tower_chat_layers::{ChatUpdate, Role, RunId};

use crate::{
    ChatEndpoint, ErrorResponse,
    conversation::{Asked, single_header},
    models::as_json,
};

/// The header of requests and responses that contains the run id. A client may generate the run id
/// itself, as a UUID, and send the id in this header. If the client sends the same request with the
/// same id again, the request joins the run that is in progress, or continues a run that was
/// interrupted.
///
/// ```
/// assert_eq!(tower_chat_http::RUN_HEADER, "x-run-id");
/// ```
pub const RUN_HEADER: &str = "x-run-id";

/// The ids of the conversation and the run in the path of a request.
type Names = Path<(String, String)>;

pub(crate) async fn events(
    State(endpoint): State<ChatEndpoint>,
    Path(names): Names,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (runs, run) = run_of(&endpoint, &names, &request)?;
    let reader = runs
        .attach(&run, last_received_position(&request)?)
        .await
        .map_err(|error| refused(&error))?;
    let events =
        stream::unfold(reader, next).filter_map(|event| async { event.map(Ok::<_, Infallible>) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

pub(crate) async fn state(
    State(endpoint): State<ChatEndpoint>,
    Path(names): Names,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (runs, run) = run_of(&endpoint, &names, &request)?;
    let state = runs.state(&run).await.map_err(|error| refused(&error))?;
    state_response(&run, &state)
}

pub(crate) async fn stop(
    State(endpoint): State<ChatEndpoint>,
    Path(names): Names,
    request: Request,
) -> Result<Response, ErrorResponse> {
    let (runs, run) = run_of(&endpoint, &names, &request)?;
    let state = runs.stop(&run).await.map_err(|error| refused(&error))?;
    state_response(&run, &state)
}

/// Returns the run id in the header of a request, if the client has sent one.
pub(crate) fn run_id_of_header(headers: &HeaderMap) -> Result<Option<RunId>, ErrorResponse> {
    let id = single_header(headers, RUN_HEADER)?.filter(|id| !id.is_empty());
    id.map(str::parse).transpose().map_err(|_| {
        let message = format!("the header {RUN_HEADER} is not the id of a run: send a UUID");
        ErrorResponse::bad_request(message).with_code("invalid_header")
    })
}

/// Adds the id of a run to the headers of a response.
pub(crate) fn with_run(mut response: Response, run: Option<RunId>) -> Response {
    if let Some(id) = run.and_then(|run| HeaderValue::from_str(&run.to_string()).ok()) {
        response.headers_mut().insert(RUN_HEADER, id);
    }
    response
}

/// Returns the layer of detached runs, and the key of the run whose ids are in the path. Fails if
/// the path contains no valid run id, or if [`ChatEndpoint::with_runs`] was not called.
fn run_of<'e>(
    endpoint: &'e ChatEndpoint,
    (conversation, run): &(String, String),
    request: &Request,
) -> Result<(&'e DetachedRunsLayer, RunKey), ErrorResponse> {
    let asked = Asked {
        headers: request.headers(),
        extensions: request.extensions(),
        conversation: Some(conversation),
    };
    let key = (endpoint.key)(&asked)?;
    let runs = endpoint.runs.as_ref().ok_or_else(unknown_run)?;
    let run = run.parse().map_err(|_| unknown_run())?;
    Ok((runs, RunKey::new(key, run)))
}

/// Returns the position of the last event that the client has received, from
/// the header that browsers send when they reconnect, or from the query parameter `after`.
fn last_received_position(request: &Request) -> Result<UpdatePosition, ErrorResponse> {
    let header = single_header(request.headers(), "last-event-id")?;
    let mut query = request.uri().query().unwrap_or_default().split('&');
    let queried = query.find_map(|field| field.strip_prefix("after="));
    match header.or(queried).filter(|position| !position.is_empty()) {
        None => Ok(UpdatePosition::START),
        Some(position) => position.parse().map_err(|error| {
            ErrorResponse::bad_request(format!("{error}")).with_code("invalid_position")
        }),
    }
}

/// Reads the next event of a run, and returns the event with the reader. The inner `Option` is
/// `None` if clients do not receive this event. The outer `Option` is `None` at the end of the
/// stream.
async fn next(mut reader: RunReader) -> Option<(Option<Event>, RunReader)> {
    // After an error, the stream ends without the event `end`. The client then reconnects.
    let event = reader.next().await?.ok()?;
    let event = match event {
        RunEvent::Update { position, update } => {
            data_of(&update, position.attempt).map(|(name, data)| positioned(name, position, &data))
        }
        RunEvent::Restarted { position, attempt } => {
            Some(positioned("restarted", position, &json!({"attempt": attempt})))
        }
        RunEvent::Ended(end) => {
            let data = json!({"end": name_of(&end)});
            Some(Event::default().event("end").data(data.to_string()))
        }
        _ => None,
    };
    Some((event, reader))
}

fn positioned(name: &str, position: UpdatePosition, data: &Value) -> Event {
    Event::default().event(name).id(position.to_string()).data(data.to_string())
}

/// Returns the name and the data of the event for an update. Returns `None` for an update that
/// clients do not receive: clients receive text of the model, but no reasoning, calls or results.
///
/// A run that was interrupted continues in another attempt. From the second attempt on, a message
/// without text is sent too, because the event `message` replaces the messages of the
/// earlier attempts.
fn data_of(update: &ChatUpdate, attempt: u32) -> Option<(&'static str, Value)> {
    match update {
        ChatUpdate::TextDelta(text) => Some(("text", json!({"text": text}))),
        ChatUpdate::Message(message) if message.role == Role::Assistant => {
            let text = message.text();
            let index = message.id.map(|id| id.index);
            (!text.is_empty() || attempt > 1)
                .then(|| ("message", json!({"index": index, "text": text})))
        }
        _ => None,
    }
}

fn name_of(end: &RunEnd) -> &'static str {
    match end {
        RunEnd::Completed => "completed",
        RunEnd::Interrupted => "interrupted",
        RunEnd::Truncated => "truncated",
        _ => "failed",
    }
}

fn state_response(run: &RunKey, state: &RunState) -> Result<Response, ErrorResponse> {
    let name = match state {
        RunState::Unknown => return Err(unknown_run()),
        RunState::Open { stop_requested: true, .. } => "stopping",
        RunState::LeaseExpired { .. } => "interrupted",
        RunState::Closed { end, .. } => name_of(end),
        _ => "in_progress",
    };
    Ok(as_json(StatusCode::OK, &json!({"run": run.run.to_string(), "state": name})))
}

fn unknown_run() -> ErrorResponse {
    let message = "there are no events of this run: load the conversation";
    ErrorResponse::new(StatusCode::NOT_FOUND, message).with_code("run_not_found")
}

fn refused(error: &DeliveryError) -> ErrorResponse {
    ErrorResponse::of_delivery(error).unwrap_or_else(unknown_run)
}
