//! Streams an answer as server-sent events.

use std::{convert::Infallible, error::Error, sync::Arc};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{StreamExt, stream};
use tower_chat_layers::ChatResponse;
use tower_chat_wire::codec::{Completion, UsageChunk};

use crate::ErrorResponse;

type UpstreamRule = dyn Fn(&(dyn Error + 'static)) -> Option<ErrorResponse> + Send + Sync;

/// Returns a response that streams an answer. The last event is `[DONE]`, or an error if the answer
/// failed.
pub(crate) fn respond(
    response: ChatResponse,
    completion: Completion,
    include_usage: bool,
    upstream: Arc<UpstreamRule>,
) -> Response {
    let usage = if include_usage { UsageChunk::Own } else { UsageChunk::None };
    let chunks = Box::pin(completion.chunks(response, usage));
    let events = stream::unfold(Some(chunks), move |chunks| {
        let upstream = upstream.clone();
        async move {
            let mut chunks = chunks?;
            let (data, chunks) = match chunks.next().await {
                Some(Ok(chunk)) => (chunk.to_string(), Some(chunks)),
                Some(Err(error)) => {
                    let refusal = ErrorResponse::of_error(&error, |error| upstream(error));
                    (refusal.body().to_string(), None)
                }
                None => ("[DONE]".to_owned(), None),
            };
            Some((Ok::<_, Infallible>(Event::default().data(data)), chunks))
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
