//! Makes one service call of a run and stores its messages. `PerServiceCallPersistence` makes
//! service calls with this module. The tool loop also makes service calls with this module, if a
//! run is stored at its end and no `PerServiceCallPersistence` is below the loop.

use std::sync::Arc;

use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Message};

use super::{
    Run, WritePoint,
    refused_content::AskedAgain,
    service_call::OpenCall,
    start_call::{StartedCall, start_call},
};
use crate::{
    PersistenceError,
    chat_service::ChatService,
    ending::{Ending, with_ending},
    yielding::yield_if_large,
};

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
            request.extensions.insert(run.below_persister());
            call.reserve().await?;
            yield_if_large(call.inputs()).await;
            let response = AskedAgain { service, run }.call(request).await;
            with_ending(response, call).await
        }
    }
}

impl Ending for Box<OpenCall> {
    /// The messages of a run that is stored at its end need not be durable before the loop receives
    /// them. The loop can then refuse an endless answer.
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
