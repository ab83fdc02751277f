//! Decides whether a run may begin if its conversation has an active run, or an open run. An open
//! run is a journaled run that was neither committed nor discarded.

use std::sync::Arc;

use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Messages, RecoveredRun, RunHandle, RunId,
    store::{
        ConversationBusy, Head, LeaseEnd, Maintenance, OpenRun, Revision, RunUnderWay, StoreError,
    },
};

use crate::{
    ConcurrentRuns, PersistenceError, PersistenceMode,
    recovery::{OnOpenRun, ResumesRun, RunEnd},
    run::{Settings, head_of},
};

/// The guard that a run holds until its end, and values for its answer.
pub(super) struct RunAdmission {
    /// While this guard exists, no other run of the conversation is active in this process.
    _turn: RunUnderWay,
    /// The branch in which the run executes, instead of the conversation of the request.
    pub(super) branch: Option<ConversationKey>,
    /// The open run that was resumed before this run began.
    pub(super) recovered: Option<Box<RecoveredRun>>,
}

/// An open run that must end before another run may begin.
pub(super) enum BlockingRun {
    Resume(Box<OpenRun>),
    Close(RunId, RunEnd),
}

/// Makes the run the only active run of its conversation in this process. Otherwise, the policy
/// decides whether the run waits, continues in a branch, or fails. Returns the conversation in
/// which the run executes: the conversation of the request, or a branch of it.
pub(super) async fn admit(
    settings: &Settings,
    conversation: Conversation,
) -> Result<(Conversation, RunAdmission), PersistenceError> {
    let Conversation { key, run } = conversation.clone();
    let branches = settings.policy.concurrent_runs == ConcurrentRuns::Branch;
    let branch = branch_of(&key, run);
    if branches {
        // A request that is sent again continues in the branch of its first attempt, even if the
        // conversation has no active run now.
        let head = head_of(settings, &branch).await?;
        if head.revision != Revision::ABSENT {
            return in_branch(settings, branch, run).await;
        }
    }
    let max_waiting = match settings.policy.concurrent_runs {
        ConcurrentRuns::Queue { max_waiting } => max_waiting,
        ConcurrentRuns::Reject | ConcurrentRuns::Branch => 0,
    };
    match settings.store.handle().begin_run(&key, run, max_waiting).await {
        Ok(turn) => Ok((conversation, RunAdmission { _turn: turn, branch: None, recovered: None })),
        Err(_) if branches => {
            match settings.store.fork_at(&key, None, &branch).await {
                // An earlier attempt has created the branch.
                Ok(_) | Err(StoreError::Exists { .. }) => {}
                Err(source) => return Err(PersistenceError::NotLoaded { key, source }),
            }
            in_branch(settings, branch, run).await
        }
        Err(busy) => Err(busy_with(key, busy)),
    }
}

fn branch_of(key: &ConversationKey, run: RunId) -> ConversationKey {
    ConversationKey::new(key.scope(), format!("{}~{run}", key.id()))
}

async fn in_branch(
    settings: &Settings,
    branch: ConversationKey,
    run: RunId,
) -> Result<(Conversation, RunAdmission), PersistenceError> {
    let under_way = |busy| busy_with(branch.clone(), busy);
    let turn = settings.store.handle().begin_run(&branch, run, 0).await.map_err(under_way)?;
    let conversation = Conversation { key: branch.clone(), run };
    Ok((conversation, RunAdmission { _turn: turn, branch: Some(branch), recovered: None }))
}

fn busy_with(key: ConversationKey, busy: ConversationBusy) -> PersistenceError {
    PersistenceError::RunUnderWay { key, run: busy.run }
}

/// Returns the open run that must be resumed or closed before this run may begin. A journaled run
/// that is itself the open run continues after its staged messages (stored, but not yet part of the
/// history).
///
/// Returns an error if another process may be working on the open run, or if the policy does not
/// allow it to be closed.
pub(super) fn blocking_run(
    head: &Head,
    settings: &Settings,
    Conversation { key, run }: &Conversation,
    mode: PersistenceMode,
) -> Result<Option<BlockingRun>, PersistenceError> {
    let Some(open) = &head.open_run else { return Ok(None) };
    // No other run of the conversation is active in this process.
    if let Some(held) = settings.held_elsewhere(key, open) {
        return Err(held);
    }
    let resume = || BlockingRun::Resume(Box::new(open.clone()));
    if open.run == *run {
        let is_journaled = mode == PersistenceMode::Journaled;
        return Ok((!is_journaled).then(resume));
    }
    Ok(Some(match settings.policy.journal.on_open_run {
        // The caller of the open run has disconnected, so its answer needs no paid service call.
        OnOpenRun::Recover if open.lease.until == LeaseEnd::Abandoned => {
            BlockingRun::Close(open.run, RunEnd::Commit)
        }
        OnOpenRun::Recover => resume(),
        OnOpenRun::Commit => BlockingRun::Close(open.run, RunEnd::Commit),
        OnOpenRun::Discard => BlockingRun::Close(open.run, RunEnd::Discard),
        OnOpenRun::Reject => {
            return Err(PersistenceError::OpenRun { key: key.clone(), run: open.run });
        }
    }))
}

/// Returns a request that resumes an open run, with the options and extensions of another request.
pub(super) fn resuming(request: &ChatRequest, key: &ConversationKey, run: RunId) -> ChatRequest {
    let mut resuming = ChatRequest::new(Messages::new());
    resuming.options = request.options.clone();
    to_foreground(&mut resuming);
    resuming.extensions = request.extensions.clone();
    resuming.extensions.insert(Conversation { key: key.clone(), run });
    resuming.extensions.insert(ResumesRun::default());
    // Messages in the queue of the handle of `request` belong to the run of `request`.
    resuming.extensions.insert(RunHandle::new());
    resuming
}

/// Removes the options for an answer in the background. A run with such an answer is stored at its
/// end, but a resumed run already has staged messages.
pub(super) fn to_foreground(request: &mut ChatRequest) {
    if request.options.is_background() {
        let options = Arc::make_mut(&mut request.options);
        options.background = false;
        options.continuation = None;
    }
}
