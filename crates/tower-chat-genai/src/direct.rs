//! Requests and answers that genai cannot carry whole, sent by the same HTTP client to the address
//! and with the key that genai resolves.
//!
//! genai's adapters for these providers take no body but the one that they make of genai's own
//! types, in which tools, thinking or fields of the service are missing.

use futures_util::{Stream, StreamExt, stream};
use genai::{ServiceTarget, resolver::AuthData};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use tower_chat_core::{BoxError, RawJson};

use crate::{
    GenAiError,
    event_stream::EventStream,
    frame::{Answer, Frame, Frames},
    lines::Lines,
    object::{Object, raw},
    refusal,
    sse::Sse,
};

/// How the pieces of a stream are told apart.
pub(crate) trait Framing: Default + Send + 'static {
    /// The frames that some more bytes complete.
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, GenAiError>;
}

/// How a stream is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framed {
    /// Server-sent events.
    Sse,
    /// One JSON value a line.
    Lines,
    /// `application/vnd.amazon.eventstream`.
    EventStream,
}

/// A request, but for its headers.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) url: String,
    pub(crate) body: &'a Object,
    /// `None` if a whole answer is asked for.
    pub(crate) framed: Option<Framed>,
}

/// Sends a request once.
pub(crate) async fn send(
    http: &reqwest::Client,
    target: &ServiceTarget,
    request: Request<'_>,
    headers: &HeaderMap,
) -> Result<Answer, GenAiError> {
    let mut all = HeaderMap::new();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = bearer(&target.auth)? {
        all.insert(AUTHORIZATION, key);
    }
    for (name, value) in headers {
        all.insert(name.clone(), value.clone());
    }
    let connection = |source: reqwest::Error| GenAiError::Connection { source: source.into() };
    let body = raw(request.body).get().to_owned();
    let response = http.post(&request.url).headers(all).body(body).send();
    let response = response.await.map_err(connection)?;
    let status = response.status();
    if !status.is_success() {
        let headers = response.headers().clone();
        // What there is of it counts: it is an error in any case.
        let body = response.bytes().await.unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        return Err(refusal::by_status(status.as_u16(), &headers, &body));
    }
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("application/json")));
    match request.framed {
        // A service that cannot stream answers whole.
        Some(framed) if framed == Framed::Lines || !is_json => {
            let frames = match framed {
                Framed::Sse => frames::<Sse>(response),
                Framed::Lines => frames::<Lines>(response),
                Framed::EventStream => frames::<EventStream>(response),
            };
            begun(frames).await.map(Answer::Streamed)
        }
        _ => {
            let body = response.bytes().await.map_err(connection)?;
            let text = String::from_utf8_lossy(&body);
            let body: RawJson = text.parse().map_err(|error: serde_json::Error| {
                GenAiError::malformed(format!("it is not JSON: {error}"), text.clone())
            })?;
            Ok(Answer::Whole(body))
        }
    }
}

/// The same frames, once the first has come: until then a call can fail as a whole one does.
pub(crate) async fn begun(frames: Frames) -> Result<Frames, GenAiError> {
    let mut frames = frames.fuse();
    match frames.next().await {
        Some(Err(error)) => Err(error),
        first => Ok(Box::pin(stream::iter(first).chain(frames))),
    }
}

fn bearer(auth: &AuthData) -> Result<Option<HeaderValue>, GenAiError> {
    if matches!(auth, AuthData::None) {
        return Ok(None);
    }
    let key = auth.single_key_value();
    let key = key.map_err(|error| GenAiError::configuration("the key", error))?;
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .map_err(|error| GenAiError::configuration("the key", error))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn frames<F: Framing>(response: reqwest::Response) -> Frames {
    let bytes = response.bytes_stream().map(|bytes| bytes.map_err(BoxError::from));
    Box::pin(framed::<F, _>(bytes))
}

/// The frames of a stream of bytes. What is not complete at its end is no frame.
fn framed<F: Framing, B: AsRef<[u8]>>(
    bytes: impl Stream<Item = Result<B, BoxError>> + Send + 'static,
) -> impl Stream<Item = Result<Frame, GenAiError>> + Send + 'static {
    let state = (Box::pin(bytes), F::default());
    let batches = stream::unfold(Some(state), |state| async move {
        let (mut bytes, mut framing) = state?;
        match bytes.next().await? {
            Ok(chunk) => match framing.push(chunk.as_ref()) {
                Ok(frames) => {
                    let frames = frames.into_iter().map(Ok).collect::<Vec<_>>();
                    Some((frames, Some((bytes, framing))))
                }
                Err(error) => Some((vec![Err(error)], None)),
            },
            Err(source) => Some((vec![Err(GenAiError::broken(&*source))], None)),
        }
    });
    batches.flat_map(stream::iter)
}
