//! The service.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt, stream};
use tower_chat_core::{Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Message, Role};
use tower_service::Service;

use super::PerRunPersistence;
use crate::{
    PersistenceError, PersistenceMode, ResponseFuture,
    ending::{Ending, with_ending},
    run::{OpenRun, Run, strip_sentinel},
    tool::RunAncestry,
};

/// The service that [`PerRunPersistence`] makes.
#[derive(Debug, Clone)]
pub struct PerRunPersistenceService<S> {
    inner: S,
    layer: PerRunPersistence,
}

impl<S> PerRunPersistenceService<S> {
    pub(super) fn new(inner: S, layer: PerRunPersistence) -> Self {
        Self { inner, layer }
    }
}

impl<S> Service<ChatRequest> for PerRunPersistenceService<S>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        ResponseFuture::new(per_run(ready, request, self.layer.clone()))
    }
}

async fn per_run<S>(
    mut service: S,
    request: ChatRequest,
    layer: PerRunPersistence,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    const LAYER: &str = "PerRunPersistence";
    if request.extensions.get::<Run>().is_some() {
        return Err(PersistenceError::LayerTwice { layer: LAYER }.into());
    }
    let Some(conversation) = request.conversation().cloned() else {
        return Err(PersistenceError::NoConversation { layer: LAYER }.into());
    };
    RunAncestry::check(&request)?;
    let mode = request.extensions.get::<PersistenceMode>().copied().unwrap_or(layer.mode);
    let run = Run::begin(&layer.store, layer.policy, mode, conversation, &request).await?;
    if let Some(answer) = run.stored_answer(&request)? {
        return Ok(answer.into());
    }
    let is_written_here = run.is_written_at_end();
    let before = match is_written_here {
        true => Vec::new(),
        false => run.answered_before(&request),
    };
    let (request, input) = run.open_request(request)?;
    let open = match is_written_here {
        true => Some(OpenRun::reserve(run.clone(), input).await?),
        false => None,
    };
    let response = service.call(request).await.map_err(Into::into);
    let ending = RunEnding { run, open, before: before.len() };
    with_ending(response.map(|response| following(before, response)), ending).await
}

/// The response of a run that is resumed, after what was stored of its answer before.
fn following(before: Vec<Arc<Message>>, response: ChatResponse) -> ChatResponse {
    if before.is_empty() {
        return response;
    }
    match response.try_into_answer() {
        Ok(mut answer) => {
            answer.messages.splice(..0, before);
            answer.into()
        }
        Err(response) => {
            let before = stream::iter(before).map(|message| Ok(ChatUpdate::Message(message)));
            ChatResponse::forward(before.chain(response))
        }
    }
}

struct RunEnding {
    run: Run,
    /// The run's buffer, if it is written at its end.
    open: Option<OpenRun>,
    /// How many messages of the answer are of an earlier attempt at the run.
    before: usize,
}

impl Ending for RunEnding {
    const SHOWS_MESSAGES: bool = true;

    async fn complete(self, mut answer: Answer) -> Result<Answer, PersistenceError> {
        let Self { run, open, before } = self;
        strip_sentinel(&mut answer);
        match open {
            Some(open) => answer = open.complete(answer).await?,
            None => {
                // A loop of somebody else's does not check after its first service call.
                let mut now = answer.messages.iter().skip(before);
                if now.any(|message| message.role == Role::Assistant) {
                    run.check_persister()?;
                }
            }
        }
        answer.finish.saved = Some(run.saved());
        Ok(answer)
    }

    async fn fail(self) {}
}
