//! One service call of a run, as the layer next to the service makes it: `PerServiceCallPersistence`, or
//! the tool loop if a run is stored at its end and no other layer is below the loop.

use std::sync::Arc;

use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Message};
use tower_service::Service;

use super::{
    Run, WritePoint,
    refused_content::AskedAgain,
    service_call::OpenCall,
    start_call::{StartedCall, start_call},
};
use crate::{
    PersistenceError,
    ending::{Ending, with_ending},
    yielding::yield_if_large,
};

/// Calls the service with the history and the new messages of a request, and stores these messages and
/// the answer. A run that is stored at its end holds them until then.
///
/// # Errors
///
/// Returns the errors of the service, and those of the store as the policy requires.
pub(crate) async fn persisted<S>(
    service: &mut S,
    run: &Run,
    mut request: ChatRequest,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    yield_if_large(request.messages().iter_from(request.history_len())).await;
    // A separate statement, because the future would otherwise contain the error across the next
    // awaits.
    let started = start_call(run, &mut request)?;
    match started {
        StartedCall::Answered(call) => Ok(call.durable().await?.into()),
        StartedCall::Call(mut call) => {
            call.reserve().await?;
            yield_if_large(call.inputs()).await;
            let response = AskedAgain { service, run }.call(request).await;
            with_ending(response, call).await
        }
    }
}

impl Ending for Box<OpenCall> {
    /// A run that is stored at its end does not make its messages durable before, so the tool loop
    /// receives them early and can refuse an endless answer.
    fn passes_messages_early(&self) -> bool {
        self.run().write_point() == WritePoint::End
    }

    fn record_update(&mut self, update: &ChatUpdate) {
        OpenCall::record_update(self, update);
    }

    fn check(&self, answer: &[Arc<Message>]) -> Result<(), BoxError> {
        Ok(OpenCall::check(self, answer)?)
    }

    async fn complete(self, answer: Answer) -> Result<Answer, PersistenceError> {
        OpenCall::complete(self, answer).await
    }

    async fn fail(self, error: &BoxError) {
        OpenCall::fail(self, error).await;
    }
}
