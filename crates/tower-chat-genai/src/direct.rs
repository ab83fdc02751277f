//! Requests and answers, sent to the address and with the key that genai resolves.
//!
//! genai's own adapters read answers without any limit, and take no body but one made of genai's
//! types, in which tools, thinking or fields of the service are missing.

use futures_util::{StreamExt, stream};
use genai::{ServiceTarget, resolver::AuthData};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE},
};
use tower_chat_wire::{
    AnswerError,
    body::BodyWire,
    stream::{BodyReader, EventStream, Frame, Framing, Limits, Lines, Sse, check_depth},
};

use crate::{
    GenAiError,
    frame::{Answer, Frames},
    object::{Object, raw},
    refusal,
};

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

/// How a service wants its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// As the bearer token of `authorization`.
    Bearer,
    /// Alone, in a header of this name.
    Named(&'static str),
}

/// A request, but for the headers that the caller gives.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) wire: BodyWire,
    pub(crate) url: String,
    pub(crate) body: &'a Object,
    /// `None` if a whole answer is asked for.
    pub(crate) framed: Option<Framed>,
    pub(crate) key: KeyHeader,
    /// Headers that the service demands.
    pub(crate) demanded: &'static [(&'static str, &'static str)],
}

/// Sends a request once.
pub(crate) async fn send(
    http: &reqwest::Client,
    target: &ServiceTarget,
    request: Request<'_>,
    headers: &HeaderMap,
    limits: Limits,
) -> Result<Answer, GenAiError> {
    let all = all_headers(target, &request, headers)?;
    let body = raw(request.body).get().to_owned();
    let response = http.post(&request.url).headers(all).body(body).send();
    let response = accepted(response.await.map_err(connection)?, request.wire, limits).await?;
    let is_json = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("application/json")));
    match request.framed {
        // A service that cannot stream answers whole.
        Some(framed) if framed == Framed::Lines || !is_json => {
            let frames = match framed {
                Framed::Sse => frames(response, Sse::new(limits), limits),
                Framed::Lines => frames(response, Lines::new(limits), limits),
                Framed::EventStream => frames(response, EventStream::new(limits), limits),
            };
            begun(frames).await.map(Answer::Streamed)
        }
        _ => whole(response, limits).await.map(Answer::Whole),
    }
}

fn all_headers(
    target: &ServiceTarget,
    request: &Request<'_>,
    headers: &HeaderMap,
) -> Result<HeaderMap, GenAiError> {
    let mut all = HeaderMap::new();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in request.demanded {
        all.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some((name, key)) = key(&target.auth, request.key)? {
        all.insert(name, key);
    }
    for (name, value) in headers {
        all.insert(name.clone(), value.clone());
    }
    Ok(all)
}

fn key(auth: &AuthData, form: KeyHeader) -> Result<Option<(HeaderName, HeaderValue)>, GenAiError> {
    if matches!(auth, AuthData::None) {
        return Ok(None);
    }
    let key = auth.single_key_value();
    let key = key.map_err(|error| GenAiError::configuration("the key", error))?;
    let (name, key) = match form {
        KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
        KeyHeader::Named(name) => (HeaderName::from_static(name), key),
    };
    let mut value =
        HeaderValue::from_str(&key).map_err(|error| GenAiError::configuration("the key", error))?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// The answer, if the service has given one, and in a form that was asked for.
async fn accepted(
    response: reqwest::Response,
    wire: BodyWire,
    limits: Limits,
) -> Result<reqwest::Response, GenAiError> {
    if !response.status().is_success() {
        return Err(refused(response, wire, limits).await);
    }
    // One that was asked for is gone from the headers, since the HTTP client has undone it.
    let encoding = response.headers().get(CONTENT_ENCODING).map(|name| name.to_str());
    match encoding {
        None | Some(Ok("identity")) => Ok(response),
        Some(name) => {
            let name = name.unwrap_or("an unknown name");
            let what =
                format!("its body is compressed ({name}), and the leaf was not told to take that");
            Err(GenAiError::malformed(what, ""))
        }
    }
}

/// The error that a refusal is. What there is of its body counts: it is an error in any case.
async fn refused(mut response: reqwest::Response, wire: BodyWire, limits: Limits) -> GenAiError {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = BodyReader::refusal(limits);
    let mut exceeded = None;
    while let Ok(Some(chunk)) = response.chunk().await {
        if let Err(error) = body.push(&chunk) {
            exceeded = Some(error);
            break;
        }
    }
    let mut error = refusal::by_status(wire, status, &headers, &body.into_text());
    if let (Some(exceeded), GenAiError::Refused { message, .. }) = (exceeded, &mut error) {
        *message = format!("its reason was cut off: {exceeded}");
    }
    error
}

async fn whole(mut response: reqwest::Response, limits: Limits) -> Result<String, GenAiError> {
    let mut body = BodyReader::answer(limits);
    while let Some(chunk) = response.chunk().await.map_err(connection)? {
        body.push(&chunk)?;
    }
    let text = body.into_text();
    check_depth(&text, &limits)?;
    Ok(text)
}

/// The same frames, once the first has come: until then a call can fail as a whole one does.
async fn begun(frames: Frames) -> Result<Frames, GenAiError> {
    let mut frames = frames.fuse();
    match frames.next().await {
        Some(Err(error)) => Err(error.into()),
        first => Ok(Box::pin(stream::iter(first).chain(frames))),
    }
}

/// The frames of a stream of bytes. What is not complete at its end is no frame.
fn frames<F>(response: reqwest::Response, framing: F, limits: Limits) -> Frames
where
    F: Framing,
    AnswerError: From<F::Error>,
{
    let batches = stream::unfold(Some((response, framing)), move |state| async move {
        let (mut response, mut framing) = state?;
        match response.chunk().await {
            Ok(Some(chunk)) => match framing.push(&chunk) {
                Ok(frames) => {
                    let frames = frames.into_iter().map(|frame| checked(frame, limits));
                    Some((frames.collect::<Vec<_>>(), Some((response, framing))))
                }
                Err(error) => Some((vec![Err(error.into())], None)),
            },
            Ok(None) => None,
            Err(source) => Some((vec![Err(AnswerError::interrupted(source))], None)),
        }
    });
    Box::pin(batches.flat_map(stream::iter))
}

fn checked(frame: Frame, limits: Limits) -> Result<Frame, AnswerError> {
    check_depth(&frame.data, &limits)?;
    Ok(frame)
}

fn connection(source: reqwest::Error) -> GenAiError {
    GenAiError::Connection { source: source.into() }
}
