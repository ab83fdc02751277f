//! Requests and answers that genai carries.
//!
//! The body is ours: it takes the place of the one that genai makes of its own types
//! (`extra_body`). What comes back is read as the service sent it: genai hands out the body of a
//! whole answer (`capture_raw_body`) and every frame of a stream (`raw_frame_sink`). What genai
//! itself reads in them decides nothing, and its errors about contents that it does not know are
//! passed over.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures_util::Stream;
use genai::{
    Client, Headers, ServiceTarget,
    chat::{ChatFrameSink, ChatOptions, ChatRequest, ChatStream, FrameCtx, RawFrameRef},
};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use reqwest::StatusCode;
use serde_json::Value;
use tower_chat_core::RawJson;

use crate::{
    GenAiError,
    frame::{Frame, Frames},
    object::{Object, raw, to_value},
    refusal,
};

/// Asks for a whole answer.
pub(crate) async fn whole(
    client: &Client,
    target: ServiceTarget,
    body: &Object,
    headers: &HeaderMap,
) -> Result<RawJson, GenAiError> {
    let options = options(body, headers);
    match client.exec_chat(target, replaced(), Some(&options)).await {
        Ok(answer) => answer
            .captured_raw_body
            .map(|body| raw(&body))
            .ok_or_else(|| GenAiError::malformed("genai kept no body of it", "")),
        // A body that came, of which genai could make nothing.
        Err(genai::Error::ChatResponseGeneration { response_body, .. }) => Ok(raw(&response_body)),
        Err(source) => Err(error(source)),
    }
}

/// Asks for an answer in frames. Nothing is sent before the first is asked for.
pub(crate) async fn streamed(
    client: &Client,
    target: ServiceTarget,
    body: &Object,
    headers: &HeaderMap,
) -> Result<Frames, GenAiError> {
    let sink = Arc::new(Sink::default());
    let options = options(body, headers).with_raw_frame_sink_arc(sink.clone());
    let answer = client.exec_chat_stream(target, replaced(), Some(&options)).await;
    let stream = answer.map_err(error)?.stream;
    Ok(Box::pin(Tapped { stream: Some(stream), sink }))
}

/// genai wants a request; `extra_body` takes its place.
fn replaced() -> ChatRequest {
    ChatRequest::from_user("-")
}

fn options(body: &Object, headers: &HeaderMap) -> ChatOptions {
    let body = body.iter().map(|(name, value)| (name.clone(), to_value(value))).collect();
    let options = ChatOptions::default()
        .with_capture_content(true)
        .with_capture_raw_body(true)
        .with_capture_reasoning_content(true)
        .with_capture_tool_calls(true)
        .with_capture_usage(true)
        .with_extra_body(Value::Object(body));
    // genai tells names by their case, and writes this one so.
    let name = |name: &HeaderName| match *name {
        AUTHORIZATION => "Authorization".to_owned(),
        _ => name.to_string(),
    };
    let headers: Vec<(String, String)> = headers
        .iter()
        .filter_map(|(key, value)| Some((name(key), value.to_str().ok()?.to_owned())))
        .collect();
    options.with_extra_headers(Headers::from(headers))
}

/// The frames that have come and were not taken.
#[derive(Debug, Default)]
struct Sink(Mutex<VecDeque<Frame>>);

impl ChatFrameSink for Sink {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let event = frame.event.map(str::to_owned);
        let frame = Frame { event, data: frame.data.to_owned() };
        if !frame.data.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
        }
    }
}

/// The frames that genai sees as it reads its stream.
struct Tapped {
    /// `None` once it has ended.
    stream: Option<ChatStream>,
    sink: Arc<Sink>,
}

impl Stream for Tapped {
    type Item = Result<Frame, GenAiError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = self.sink.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
            match Pin::new(stream).poll_next(cx) {
                Poll::Ready(None) => self.stream = None,
                Poll::Ready(Some(Err(source))) if ends(&source) => {
                    self.stream = None;
                    return Poll::Ready(Some(Err(error(source))));
                }
                Poll::Ready(Some(_)) => {}
                // It may have seen a frame of which it made no event.
                Poll::Pending if self.sink.0.lock().is_ok_and(|frames| !frames.is_empty()) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

/// Whether the error is one of the connection, and not of what genai reads in a frame.
fn ends(error: &genai::Error) -> bool {
    !matches!(
        error,
        genai::Error::ChatResponse { .. }
            | genai::Error::StreamParse { .. }
            | genai::Error::JsonValueExt(_)
            | genai::Error::SerdeJson(_)
            | genai::Error::InvalidJsonResponseElement { .. }
    )
}

/// The error of ours that one of genai stands for.
pub(crate) fn error(error: genai::Error) -> GenAiError {
    use genai::{Error, webc};
    match error {
        Error::WebModelCall { webc_error, .. } | Error::WebAdapterCall { webc_error, .. } => {
            match webc_error {
                webc::Error::ResponseFailedStatus { status, body, headers } => {
                    refused(status, &headers, &body)
                }
                webc::Error::ResponseFailedInvalidJson { body, cause } => {
                    GenAiError::malformed(format!("it is not JSON: {cause}"), body)
                }
                webc::Error::ResponseFailedNotJson { content_type, body } => {
                    GenAiError::malformed(format!("its type is {content_type}, not JSON"), body)
                }
                other => GenAiError::Connection { source: other.into() },
            }
        }
        Error::HttpError { status, body, headers, .. } => refused(status, &headers, &body),
        Error::WebStream { error: source, .. } => match source.downcast::<Error>() {
            Ok(source) => self::error(*source),
            Err(source) => match source.downcast_ref::<reqwest::Error>() {
                Some(error) if error.is_connect() || error.is_request() => {
                    GenAiError::Connection { source }
                }
                _ => GenAiError::broken(&*source),
            },
        },
        Error::Resolver { resolver_error, .. } => {
            GenAiError::configuration("the key", resolver_error)
        }
        Error::RequiresApiKey { .. } | Error::NoAuthData { .. } | Error::NoAuthResolver { .. } => {
            GenAiError::configuration("the key", error)
        }
        other => GenAiError::configuration("genai's settings", other),
    }
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &str) -> GenAiError {
    refusal::by_status(status.as_u16(), headers, body)
}
