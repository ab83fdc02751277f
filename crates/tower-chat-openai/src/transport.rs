//! Requests and answers over HTTP, each request sent once.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use tower_chat_core::RawJson;
use tower_chat_wire::stream::{BodyReader, Framing, LimitExceeded, Limits, Sse, check_depth};

use crate::{OpenAiError, completion};

/// The events of a stream, up to its end.
pub(crate) type Events = Pin<Box<dyn Stream<Item = Result<RawJson, OpenAiError>> + Send>>;

/// How the end of a stream is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By `data: [DONE]`; a stream that ends before is cut off.
    Done,
    /// By an event that the reader knows.
    Event,
}

/// The end of a stream of Chat Completions.
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

/// The body of a whole answer.
pub(crate) async fn whole(
    mut response: reqwest::Response,
    limits: Limits,
) -> Result<RawJson, OpenAiError> {
    let mut body = BodyReader::answer(limits);
    while let Some(chunk) = response.chunk().await.map_err(OpenAiError::connection)? {
        body.push(&chunk)?;
    }
    json(body.into_text(), limits)
}

/// The events of a streamed answer. A service that cannot stream answers with one JSON value, which
/// is the only event then.
pub(crate) async fn events(
    response: reqwest::Response,
    limits: Limits,
    end: End,
) -> Result<Events, OpenAiError> {
    let is_whole = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("application/json")));
    if is_whole {
        let event = whole(response, limits).await?;
        return Ok(Box::pin(stream::iter([Ok(event)])));
    }
    let reading = Reading { response, sse: Sse::new(limits), limits, end };
    let batches = stream::unfold(Some(reading), |reading| async move {
        let mut reading = reading?;
        let (batch, goes_on) = reading.next().await;
        Some((stream::iter(batch), goes_on.then_some(reading)))
    });
    Ok(Box::pin(batches.flatten()))
}

struct Reading {
    response: reqwest::Response,
    sse: Sse,
    limits: Limits,
    end: End,
}

impl Reading {
    /// The events of the next bytes, and whether any may follow.
    async fn next(&mut self) -> (Vec<Result<RawJson, OpenAiError>>, bool) {
        let frames = match self.response.chunk().await {
            Ok(Some(chunk)) => match self.sse.push(&chunk) {
                Ok(frames) => frames,
                Err(error) => return (vec![Err(error.into())], false),
            },
            Ok(None) => return (self.ended(), false),
            Err(error) => return (vec![Err(self.cut_off(&error))], false),
        };
        let mut events = Vec::with_capacity(frames.len());
        for frame in frames {
            if frame.data.trim() == DONE {
                return (events, false);
            }
            match json(frame.data, self.limits) {
                Ok(event) => events.push(Ok(event)),
                Err(error) => {
                    events.push(Err(error));
                    return (events, false);
                }
            }
        }
        (events, true)
    }

    /// What comes where the bytes end before the stream was done: nothing, if its last line says so.
    fn ended(&mut self) -> Vec<Result<RawJson, OpenAiError>> {
        let last = self.sse.end();
        match self.end {
            End::Event => Vec::new(),
            End::Done if last.is_some_and(|frame| frame.data.trim() == DONE) => Vec::new(),
            End::Done => vec![Err(self.cut_off(&"the connection was closed"))],
        }
    }

    fn cut_off(&self, cause: &dyn std::fmt::Display) -> OpenAiError {
        let end = match self.end {
            End::Done => DONE,
            End::Event => "the event of its end",
        };
        let reason = format!("its stream ended, or its connection broke, before {end} ({cause})");
        OpenAiError::Truncated { text: String::new(), reason }
    }
}

/// The JSON value that a text is.
fn json(text: String, limits: Limits) -> Result<RawJson, OpenAiError> {
    check_depth(&text, &limits)?;
    text.parse().map_err(|source: serde_json::Error| OpenAiError::Malformed {
        what: "it is not JSON".to_owned(),
        body: text,
        source: Some(source.into()),
    })
}

async fn refusal(mut response: reqwest::Response, limits: Limits) -> OpenAiError {
    let status = Some(response.status().as_u16());
    let retry_after = completion::retry_after(response.headers());
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
    match cut_off {
        None => completion::refusal(status, retry_after, &body),
        Some(message) => OpenAiError::Refused { status, code: None, message, retry_after, body },
    }
}

fn cut_at_limit(error: LimitExceeded) -> String {
    format!("its reason was cut off: {error}")
}
