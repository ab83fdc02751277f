//! Makes one service call of a run and stores its messages. `PerServiceCallPersistence` makes
//! service calls with this module. The tool loop also makes service calls with this module, if a
//! run is stored at its end and no `PerServiceCallPersistence` is below the loop.

use tower_chat_core::{BoxError, ChatRequest, ChatResponse};

use super::{
    Run,
    refused_content::call_again_if_refused,
    start_call::{StartedCall, start_call},
};
use crate::{chat_service::ChatService, ending::with_ending, yielding::yield_if_large};

/// Calls the service with the history and the new messages of a request, and stores the new
/// messages and the answer or, if the run is stored at its end, adds them to the run log.
pub(crate) async fn persisted<S: ChatService>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
) -> Result<ChatResponse, BoxError> {
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    // A separate statement, because the future would otherwise contain the error.
    let started = start_call(run, &mut request)?;
    match started {
        StartedCall::Answered(call) => Ok(call.durable().await?.into()),
        StartedCall::Call(mut call) => {
            request.extensions.insert(Run { is_below_persister: true, ..run.clone() });
            call.reserve().await?;
            yield_if_large(call.inputs()).await;
            let response = call_again_if_refused(service, run, request).await;
            with_ending(response, call).await
        }
    }
}
