//! The service.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt, stream};
use tower_chat_core::{
    Answer, BoxError, ChatRequest, ChatResponse, ChatUpdate, Conversation, Message, Role,
    store::{Head, OpenRun as OpenRunOfHead},
};
use tower_service::Service;

use super::{
    PerRunPersistence,
    admission::{Admitted, OpenRunInTheWay, RunPlace, admit, resuming, to_foreground},
};
use crate::{
    PersistenceError, PersistenceMode, ResponseFuture,
    ending::{Ending, with_ending},
    recovery::{ResumesRun, close_open_run},
    run::{Caller, OpenRun, Run, head_of, strip_sentinel},
    tool::RunAncestry,
    tool_loop::check_approvals,
};

/// The service that [`PerRunPersistence`] makes.
#[derive(Debug, Clone)]
pub struct PerRunPersistenceService<S> {
    inner: S,
    layer: Arc<PerRunPersistence>,
}

impl<S> PerRunPersistenceService<S> {
    pub(super) fn new(inner: S, layer: PerRunPersistence) -> Self {
        Self { inner, layer: Arc::new(layer) }
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
    layer: Arc<PerRunPersistence>,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
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
    let admitted = pin!(admit(&layer.settings, conversation));
    let Admitted { conversation, turn, branch } = giving_way(&mut service, admitted).await?;
    let mut request = request;
    request.extensions.insert(conversation.clone());
    let resumes = request.extensions.get::<ResumesRun>().is_some();
    if resumes {
        to_foreground(&mut request);
    }
    let mut recovered = None;
    let head = loop {
        let mut head = head_of(&layer.settings, &conversation.key).await?;
        let is_other = |open: &OpenRunOfHead| open.run != conversation.run;
        if resumes && head.open_run.as_ref().is_some_and(is_other) {
            // Its own end has come: what is open now is none of its business.
            head.open_run = None;
        }
        let in_the_way = OpenRunInTheWay::of(&head, &layer.settings, &conversation, mode)?;
        match in_the_way {
            None => break head,
            Some(OpenRunInTheWay::Closed(open, close)) => {
                close_open_run(&layer.settings, &conversation.key, open, close).await?;
            }
            Some(OpenRunInTheWay::ToResume(open)) => {
                if recovered.replace(open.run) == Some(open.run) {
                    let key = conversation.key;
                    return Err(PersistenceError::OpenRun { key, run: open.run }.into());
                }
                let resuming = resuming(&request, &conversation.key, open.run);
                let of_run =
                    resuming.conversation().cloned().unwrap_or_else(|| conversation.clone());
                let mode = PersistenceMode::Journaled;
                match one_run(&mut service, &layer, resuming, of_run, mode, head, None).await {
                    Ok(response) => drop(response.collect().await?),
                    // Somebody else has ended it since the head was read.
                    Err(error) if is_gone(&error) => continue,
                    Err(error) => return Err(error),
                }
                poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            }
        }
    };
    let of_run = RunPlace { _turn: turn, branch };
    one_run(&mut service, &layer, request, conversation, mode, head, Some(of_run)).await
}

/// Waits for something that another run may have to give back at its end. That run may still need
/// the place in the service that this one holds, so the place is given back for as long as it takes.
async fn giving_way<S, T>(
    service: &mut S,
    mut waited_for: Pin<&mut impl Future<Output = Result<T, PersistenceError>>>,
) -> Result<T, BoxError>
where
    S: Service<ChatRequest> + Clone,
    S::Error: Into<BoxError>,
{
    if let Poll::Ready(at_once) = poll_fn(|cx| Poll::Ready(waited_for.as_mut().poll(cx))).await {
        return Ok(at_once?);
    }
    *service = service.clone();
    let waited_for = waited_for.await?;
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    Ok(waited_for)
}

/// One run, with nothing in its way any more.
async fn one_run<S>(
    service: &mut S,
    layer: &PerRunPersistence,
    mut request: ChatRequest,
    conversation: Conversation,
    mode: PersistenceMode,
    head: Head,
    place: Option<RunPlace>,
) -> Result<ChatResponse, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone + Send,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    let settings = &layer.settings;
    let run = Run::begin(settings, mode, conversation, &mut request, head, Caller::Request).await?;
    let opened = Opened { run: run.clone(), place };
    if let Some(mut answer) = run.last_answer() {
        opened.name_branch(&mut answer);
        return Ok(answer.into());
    }
    if let Some(mut answer) = run.stored_answer(&request)? {
        run.commit(&answer).await?;
        opened.name_branch(&mut answer);
        return Ok(answer.into());
    }
    if request.extensions.get::<ResumesRun>().is_some() && !run.is_resumed() {
        let (key, run) = (run.key().clone(), run.id());
        return Err(PersistenceError::RunGone { key, run }.into());
    }
    let is_written_here = run.is_written_at_end();
    let before = match is_written_here {
        true => Vec::new(),
        false => run.answered_before(&request),
    };
    let (request, input) = run.open_request(request)?;
    // Before the input of a journaled run is staged: a run that cannot go on would stay open.
    check_approvals(&run, &request)?;
    let open = if is_written_here {
        let slot = giving_way(service, pin!(run.reserve())).await?;
        Some(OpenRun::new(run.clone(), input, slot))
    } else {
        if run.is_journaled() && !input.is_empty() {
            let slot = giving_way(service, pin!(run.reserve())).await?;
            run.stage_input(slot, input).await?;
        }
        None
    };
    let response = service.call(request).await.map_err(Into::into);
    let ending = RunEnding { run, open, before: before.len(), opened };
    with_ending(response.map(|response| following(before, response)), ending).await
}

fn is_gone(error: &BoxError) -> bool {
    matches!(error.downcast_ref(), Some(PersistenceError::RunGone { .. }))
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
    opened: Opened,
}

/// A run that was begun. When it goes, whatever is still open of the run is left for a later
/// attempt, and it is the next run's turn.
struct Opened {
    run: Run,
    place: Option<RunPlace>,
}

impl Opened {
    fn name_branch(&self, answer: &mut Answer) {
        let branch = self.place.as_ref().and_then(|place| place.branch.clone());
        answer.finish.branch = branch;
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.run.interrupt();
    }
}

impl Ending for RunEnding {
    const SHOWS_MESSAGES: bool = true;

    async fn complete(self, mut answer: Answer) -> Result<Answer, PersistenceError> {
        let Self { run, open, before, opened } = self;
        strip_sentinel(&mut answer);
        match open {
            Some(open) => answer = open.complete(answer).await?,
            None => {
                // A loop of somebody else's does not check after its first service call.
                let mut now = answer.messages.iter().skip(before);
                if now.any(|message| message.role == Role::Assistant) {
                    run.check_persister()?;
                }
                if run.is_journaled() {
                    run.commit(&answer).await?;
                } else {
                    run.record_left_out(&answer).await;
                }
            }
        }
        answer.finish.saved = Some(run.saved());
        opened.name_branch(&mut answer);
        Ok(answer)
    }

    async fn fail(self) {}
}
