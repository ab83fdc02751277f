//! The HTTP service below async-openai.
//!
//! async-openai by itself retries, drops the headers and the body of most refusals, and does not
//! tell a stream that said `[DONE]` from one that just ended. This service sends once, keeps the
//! refusal, and makes a stream that ends early fail.

use std::task::{Context, Poll};

use async_openai::{error::OpenAIError, middleware::HttpRequestFactory};
use futures_util::{Stream, StreamExt, future::BoxFuture, stream};
use http::{
    HeaderMap,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use tower_chat_core::BoxError;
use tower_service::Service;

use crate::{OpenAiError, completion};

/// Sends each request once.
#[derive(Debug, Clone)]
pub(crate) struct OneAttempt {
    pub(crate) http: reqwest::Client,
    /// Headers in place of those that async-openai sends.
    pub(crate) headers: HeaderMap,
    /// Whether there is a key to send.
    pub(crate) has_key: bool,
    pub(crate) answers: Answers,
}

/// What answers are, and how the end of one is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// They are whole.
    Whole,
    /// They are streams, and complete with `data: [DONE]`.
    UntilDone,
    /// They are streams, and whoever reads them knows the event that completes them.
    Events,
}

/// The end of a stream of Chat Completions.
pub(crate) const DONE: &str = "[DONE]";

impl Service<HttpRequestFactory> for OneAttempt {
    type Response = reqwest::Response;
    type Error = OpenAIError;
    type Future = BoxFuture<'static, Result<reqwest::Response, OpenAIError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let Self { http, headers, has_key, answers } = self.clone();
        Box::pin(async move {
            let mut request = factory.build().await?;
            if !has_key {
                request.headers_mut().remove(AUTHORIZATION);
            }
            for (name, value) in &headers {
                request.headers_mut().insert(name, value.clone());
            }
            let response = http.execute(request).await?;
            if !response.status().is_success() {
                return Err(OpenAIError::Boxed(refusal(response).await.into()));
            }
            if answers == Answers::Whole {
                return Ok(response);
            }
            let is_whole = response.headers().get(CONTENT_TYPE).is_some_and(|kind| {
                kind.to_str().is_ok_and(|kind| kind.starts_with("application/json"))
            });
            let head = http::Response::builder().status(response.status());
            let body = if is_whole {
                reqwest::Body::from(as_event(&response.bytes().await?))
            } else if answers == Answers::Events {
                return Ok(response);
            } else {
                reqwest::Body::wrap_stream(until_done(response.bytes_stream()))
            };
            let response = head.body(body).map_err(|error| OpenAIError::Boxed(error.into()))?;
            Ok(response.into())
        })
    }
}

/// The error of ours that an error of async-openai stands for; `text` had come of the answer, and
/// `end` would have completed it.
pub(crate) fn error(error: OpenAIError, text: &str, end: &str) -> OpenAiError {
    match error {
        OpenAIError::Boxed(error) => match error.downcast::<OpenAiError>() {
            Ok(error) => *error,
            Err(source) => OpenAiError::Connection { source },
        },
        OpenAIError::Reqwest(source) => OpenAiError::Connection { source: source.into() },
        OpenAIError::JSONDeserialize(source, body) => {
            let what = "it is not JSON".to_owned();
            OpenAiError::Malformed { what, body, source: Some(source.into()) }
        }
        OpenAIError::StreamError(error) => {
            let reason =
                format!("its stream ended, or its connection broke, before {end} ({error})");
            OpenAiError::Truncated { text: text.to_owned(), reason }
        }
        error => OpenAiError::Connection { source: error.into() },
    }
}

async fn refusal(response: reqwest::Response) -> OpenAiError {
    let status = response.status().as_u16();
    let retry_after = completion::retry_after(response.headers());
    match response.bytes().await {
        Ok(body) => completion::refusal(Some(status), retry_after, &String::from_utf8_lossy(&body)),
        Err(source) => OpenAiError::Refused {
            status: Some(status),
            code: None,
            message: format!("its reason was cut off: {source}"),
            retry_after,
            body: String::new(),
        },
    }
}

/// A whole answer to a request for a stream, as the only event of one.
fn as_event(json: &[u8]) -> Vec<u8> {
    let mut event = b"data: ".to_vec();
    for byte in json {
        match byte {
            b'\n' => event.extend(b"\ndata: "),
            b'\r' => event.push(b' '),
            _ => event.push(*byte),
        }
    }
    event.extend(b"\n\ndata: [DONE]\n\n");
    event
}

/// The same bytes, and an error at their end if none of their lines was `data: [DONE]`.
fn until_done<B: AsRef<[u8]> + Send + 'static>(
    bytes: impl Stream<Item = Result<B, reqwest::Error>> + Send + 'static,
) -> impl Stream<Item = Result<Vec<u8>, BoxError>> + Send + 'static {
    let state = (Box::pin(bytes), DoneWatch::default());
    stream::unfold(Some(state), |state| async move {
        let (mut bytes, mut watch) = state?;
        match bytes.next().await {
            Some(Ok(chunk)) => {
                watch.see(chunk.as_ref());
                Some((Ok(chunk.as_ref().to_vec()), Some((bytes, watch))))
            }
            Some(Err(error)) => Some((Err(error.into()), None)),
            None if watch.is_done() => None,
            None => Some((Err("no [DONE] came".into()), None)),
        }
    })
}

/// Looks for the line by which a stream says that it is complete.
#[derive(Debug, Default)]
struct DoneWatch {
    line: Vec<u8>,
    done: bool,
}

impl DoneWatch {
    /// No line longer than this says so.
    const LONGEST: usize = 32;

    fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if matches!(byte, b'\n' | b'\r') {
                self.done |= self.line_says_done();
                self.line.clear();
            } else if self.line.len() <= Self::LONGEST {
                self.line.push(*byte);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done || self.line_says_done()
    }

    fn line_says_done(&self) -> bool {
        self.line.strip_prefix(b"data:").is_some_and(|rest| rest.trim_ascii() == b"[DONE]")
    }
}
