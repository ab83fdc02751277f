//! Resumes, commits or discards an open run before a new run of the conversation. An open run is a
//! journaled run that was neither committed nor discarded. Its lease is the time until which no
//! other process may take over the run. An attempt is one execution of a run.

use std::{future::poll_fn, pin::pin, time::SystemTime};

use futures_util::TryFutureExt;
use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse, Conversation, ConversationKey, RecoveredRun, Role,
    store::{Head, Journal, OpenRun},
};

use super::{
    PerRunPersistence,
    admission::{BlockingRun, blocking_run, resuming},
    process_wait::ProcessWait,
    service::execute_run,
};
use crate::{
    PersistenceError, PersistenceMode,
    chat_service::ChatService,
    recovery::{ResumesRun, close_open_run},
    run::{RunParameters, Settings, head_of},
    wait_without_permit::wait_without_permit,
};

/// Applies the policy to the open run of a conversation until no open run blocks the conversation.
/// Then waits for approved calls of other processes, if the policy allows it. Returns the head of
/// the conversation, and the open run that was resumed first.
///
/// Returns an error if the open run may not or could not be closed, or if another process has its
/// lease.
pub(super) async fn clear_open_run<S: ChatService>(
    service: &mut S,
    layer: &PerRunPersistence,
    request: &ChatRequest,
    (conversation, mode): (&Conversation, PersistenceMode),
    arrived_at: SystemTime,
) -> Result<(Head, Option<Box<RecoveredRun>>), BoxError> {
    let settings = &layer.settings;
    let key = &conversation.key;
    let resumes = request.extensions.get::<ResumesRun>().is_some();
    let mut waiting = ProcessWait::of(request, settings);
    let mut recovered: Option<Box<RecoveredRun>> = None;
    let mut attempted = None;
    loop {
        let mut head = head_of(settings, key).await?;
        let is_other = |open: &OpenRun| open.run != conversation.run;
        if resumes && head.open_run.as_ref().is_some_and(is_other) {
            // The run that this request resumes has already ended: the open run belongs to a later
            // request.
            head.open_run = None;
        }
        let blocking = match blocking_run(&head, settings, conversation, mode) {
            Ok(blocking) => blocking,
            Err(held) => {
                wait_without_permit(service, pin!(waiting.wait_after(held, settings))).await?;
                attempted = None;
                continue;
            }
        };
        match blocking {
            None => {
                let revision = head.revision;
                let wait = waiting.wait_for_approved(revision, request, key, settings);
                if !wait_without_permit(service, pin!(wait)).await? {
                    return Ok((head, recovered));
                }
            }
            Some(BlockingRun::Close(run, end)) => close_open_run(settings, key, run, end).await?,
            Some(BlockingRun::Resume(open)) => {
                if attempted.replace(open.run) == Some(open.run) {
                    let (key, run) = (key.clone(), open.run);
                    return Err(PersistenceError::OpenRun { key, run }.into());
                }
                let again = RunParameters {
                    conversation: Conversation { key: key.clone(), run: open.run },
                    mode: PersistenceMode::Journaled,
                    head,
                    arrived_at,
                    sends_record: false,
                };
                let request = resuming(request, key, open.run);
                let resumed = execute_run(service, layer, request, again, None);
                match resumed.and_then(ChatResponse::collect).await {
                    Ok(mut answer) => {
                        answer.finish.recovered = recovered.take();
                        recovered = Some(Box::new(RecoveredRun::new(open.run, answer)));
                    }
                    // Since the head was read, another process has ended the run or taken it over.
                    Err(error) if is_run_gone(&error) || waiting.is_lost_race(&error) => continue,
                    Err(error) => end_refused(settings, key, &open, error).await?,
                }
                poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            }
        }
    }
}

/// Commits or discards an open run whose request the service refuses, so that the next run can
/// begin. Returns `error` if it is no refusal, or if the policy requires the run to remain open.
async fn end_refused(
    settings: &Settings,
    key: &ConversationKey,
    open: &OpenRun,
    error: BoxError,
) -> Result<(), BoxError> {
    let policy = &settings.policy.journal;
    if !policy.is_refusal(&*error, open.lease.attempt.saturating_add(1)) {
        return Err(error);
    }
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    let content = settings.store.open_run(key).await.map_err(not_loaded)?;
    // The failed attempt may already have ended the run.
    let Some(content) = content.filter(|content| content.open.run == open.run) else {
        return Ok(());
    };
    let has_answers = content.messages.iter().any(|message| message.role == Role::Assistant);
    let Some(end) = policy.on_refusal.end(has_answers) else { return Err(error) };
    tracing::warn!(
        conversation = %key,
        error = &*error as &dyn std::error::Error,
        "open run {} cannot be resumed, because the service refuses its request: the run is ended ({end:?})",
        open.run
    );
    Ok(close_open_run(settings, key, open.run, end).await?)
}

fn is_run_gone(error: &BoxError) -> bool {
    matches!(
        error.downcast_ref(),
        Some(PersistenceError::RunGone { .. } | PersistenceError::RunOvertaken { .. })
    )
}
