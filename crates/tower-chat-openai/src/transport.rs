//! Requests and answers over HTTP, each request sent once.

use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use tower_chat_core::ChatResponse;
use tower_chat_wire::{
    AnswerError,
    body::{AnswerContext, BodyWire},
    stream::{BodyReader, Frame, Framing, LimitExceeded, Limits, Sse, check_depth, updates},
};

use crate::OpenAiError;

/// The data of the event that ends a stream.
const DONE: &str = "[DONE]";

/// The answer, if the service has given one.
///
/// # Errors
///
/// [`OpenAiError::Refused`] with the body of the refusal, up to its limit.
pub(crate) async fn accepted(
    response: reqwest::Response,
    limits: Limits,
) -> Result<reqwest::Response, OpenAiError> {
    if !response.status().is_success() {
        return Err(refusal(response, limits).await);
    }
    // One that was asked for is gone from the headers, since the HTTP client has undone it.
    let encoding = response.headers().get(CONTENT_ENCODING).map(|name| name.to_str());
    match encoding {
        None | Some(Ok("identity")) => Ok(response),
        Some(name) => {
            let name = name.unwrap_or("an unknown name");
            let what =
                format!("its body is compressed ({name}), and the leaf was not told to take that");
            Err(OpenAiError::malformed(what, ""))
        }
    }
}

/// What an answer is read with.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) wire: BodyWire,
    pub(crate) context: AnswerContext,
    /// Whether a stream was asked for. A service that cannot stream answers whole all the same.
    pub(crate) is_streamed: bool,
}

/// The response that an answer of the service is.
pub(crate) async fn read(
    response: reqwest::Response,
    limits: Limits,
    asked: Asked,
) -> Result<ChatResponse, OpenAiError> {
    let Asked { wire, context, is_streamed } = asked;
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("application/json")));
    if !is_streamed || is_json {
        let body = whole(response, limits).await?;
        return Ok(wire.parse_answer_to(&body, &context)?.into());
    }
    let updates = updates(frames(response, limits), wire.accumulator_to(context));
    let error = |error| OpenAiError::from(error).into();
    Ok(ChatResponse::stream(updates.map(move |update| update.map_err(error))))
}

/// The body of a whole answer.
pub(crate) async fn whole(
    mut response: reqwest::Response,
    limits: Limits,
) -> Result<String, OpenAiError> {
    let mut body = BodyReader::answer(limits);
    while let Some(chunk) = response.chunk().await.map_err(OpenAiError::connection)? {
        body.push(&chunk)?;
    }
    let body = body.into_text();
    check_depth(&body, &limits)?;
    Ok(body)
}

/// The frames of a streamed answer.
fn frames(
    response: reqwest::Response,
    limits: Limits,
) -> impl Stream<Item = Result<Frame, AnswerError>> + Send {
    let reading = Some((response, Sse::new(limits)));
    let batches = stream::unfold(reading, move |reading| async move {
        let (mut response, mut sse) = reading?;
        match response.chunk().await {
            Ok(Some(chunk)) => match sse.push(&chunk) {
                Ok(frames) => {
                    let frames = frames.into_iter().map(|frame| checked(frame, limits));
                    Some((frames.collect::<Vec<_>>(), Some((response, sse))))
                }
                Err(error) => Some((vec![Err(error.into())], None)),
            },
            // What is not complete is no event, but for the mark of the end.
            Ok(None) => {
                let last = sse.end().filter(|frame| frame.data.trim() == DONE);
                Some((last.map(Ok).into_iter().collect(), None))
            }
            Err(error) => Some((vec![Err(AnswerError::interrupted(error))], None)),
        }
    });
    batches.flat_map(stream::iter)
}

fn checked(frame: Frame, limits: Limits) -> Result<Frame, AnswerError> {
    check_depth(&frame.data, &limits)?;
    Ok(frame)
}

async fn refusal(mut response: reqwest::Response, limits: Limits) -> OpenAiError {
    let status = response.status().as_u16();
    let wait = retry_after(response.headers());
    let mut body = BodyReader::refusal(limits);
    let cut_off = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                if let Err(error) = body.push(&chunk) {
                    break Some(cut_at_limit(error));
                }
            }
            Ok(None) => break None,
            Err(source) => break Some(format!("its reason was cut off: {source}")),
        }
    };
    let body = body.into_text();
    if let Some(message) = cut_off {
        let (status, code, retry_after) = (Some(status), None, wait);
        return OpenAiError::Refused { status, code, message, retry_after, body };
    }
    let mut error = BodyWire::OpenAiChat.parse_error(status, &body).into();
    if let OpenAiError::Refused { retry_after, .. } = &mut error {
        *retry_after = wait.or(*retry_after);
    }
    error
}

fn cut_at_limit(error: LimitExceeded) -> String {
    format!("its reason was cut off: {error}")
}

/// How long the service asks to wait: `retry-after-ms`, or `retry-after` in seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let milliseconds = number("retry-after-ms").map(|milliseconds| milliseconds / 1_000.0);
    let seconds = milliseconds.or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}
