//! Whether a run may begin: what else is under way on its conversation, and what is open there.

use std::sync::Arc;

use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Messages, RecoveredRun, RunHandle, RunId,
    store::{Head, OpenRun, Revision, RunUnderWay, StoreError},
};

use crate::{
    ConcurrentRuns, PersistenceError, PersistenceMode,
    recovery::{OnOpenRun, ResumesRun, RunEnd},
    run::{Settings, head_of},
};

/// A run that may begin.
pub(super) struct Admitted {
    /// The request's own, or the branch it goes on in.
    pub(super) conversation: Conversation,
    pub(super) turn: RunUnderWay,
    pub(super) branch: Option<ConversationKey>,
}

/// What a run holds until its end.
pub(super) struct RunAdmission {
    pub(super) _turn: RunUnderWay,
    /// The copy of the conversation in which it goes on, if it does.
    pub(super) branch: Option<ConversationKey>,
    /// The open run that was resumed first.
    pub(super) recovered: Option<Box<RecoveredRun>>,
}

/// An open run that has to go before another may begin.
pub(super) enum OpenRunInTheWay {
    ToResume(Box<OpenRun>),
    Closed(Box<OpenRun>, RunEnd),
}

/// Waits for the run's turn in this process, by the policy.
pub(super) async fn admit(
    settings: &Settings,
    conversation: Conversation,
) -> Result<Admitted, PersistenceError> {
    let Conversation { key, run } = &conversation;
    let (key, run) = (key.clone(), *run);
    let most = match settings.policy.concurrent_runs {
        ConcurrentRuns::Queue { most } => most,
        ConcurrentRuns::Reject | ConcurrentRuns::Branch => 0,
    };
    let handle = settings.store.handle();
    if settings.policy.concurrent_runs == ConcurrentRuns::Branch {
        // A run that is sent again goes on where it was, although its conversation is free now.
        let branch = branch_of(&key, run);
        let head = head_of(settings, &branch).await?;
        if head.revision != Revision::ABSENT {
            return in_branch(settings, branch, run).await;
        }
    }
    match handle.begin_run(&key, run, most).await {
        Ok(turn) => Ok(Admitted { conversation, turn, branch: None }),
        Err(_) if settings.policy.concurrent_runs == ConcurrentRuns::Branch => {
            let branch = branch_of(&key, run);
            match settings.store.fork(&key, &branch).await {
                // An earlier attempt at the run has made it.
                Ok(_) | Err(StoreError::Exists { .. }) => {}
                Err(source) => return Err(PersistenceError::NotLoaded { key, source }),
            }
            in_branch(settings, branch, run).await
        }
        Err(busy) => Err(busy_with(key, busy)),
    }
}

/// The copy of a conversation in which a run goes on.
fn branch_of(key: &ConversationKey, run: RunId) -> ConversationKey {
    ConversationKey::new(key.scope(), format!("{}~{run}", key.id()))
}

async fn in_branch(
    settings: &Settings,
    branch: ConversationKey,
    run: RunId,
) -> Result<Admitted, PersistenceError> {
    let under_way = |busy| busy_with(branch.clone(), busy);
    let turn = settings.store.handle().begin_run(&branch, run, 0).await.map_err(under_way)?;
    let conversation = Conversation { key: branch.clone(), run };
    Ok(Admitted { conversation, turn, branch: Some(branch) })
}

fn busy_with(
    key: ConversationKey,
    busy: tower_chat_core::store::ConversationBusy,
) -> PersistenceError {
    PersistenceError::RunUnderWay { key, run: busy.run }
}

impl OpenRunInTheWay {
    /// What has to be done about the conversation's open run, if there is one that is not this
    /// run's own.
    ///
    /// # Errors
    ///
    /// If somebody is still at work on it, or the policy is to leave it alone.
    pub(super) fn of(
        head: &Head,
        settings: &Settings,
        Conversation { key, run }: &Conversation,
        mode: PersistenceMode,
    ) -> Result<Option<Self>, PersistenceError> {
        let Some(open) = &head.open_run else { return Ok(None) };
        // It is this run's turn in this process: what was written from here has come to an end.
        if let Some(held) = settings.held_elsewhere(key, open) {
            return Err(held);
        }
        let open = Box::new(open.clone());
        if open.run == *run {
            let goes_on = mode == PersistenceMode::Journaled;
            return Ok((!goes_on).then_some(Self::ToResume(open)));
        }
        match settings.policy.journal.on_open_run {
            // Its caller has disconnected, so no service call is made to finish its answer.
            OnOpenRun::Recover if open.lease.is_abandoned() => {
                Ok(Some(Self::Closed(open, RunEnd::Commit)))
            }
            OnOpenRun::Recover => Ok(Some(Self::ToResume(open))),
            OnOpenRun::Commit => Ok(Some(Self::Closed(open, RunEnd::Commit))),
            OnOpenRun::Discard => Ok(Some(Self::Closed(open, RunEnd::Discard))),
            OnOpenRun::Reject => Err(PersistenceError::OpenRun { key: key.clone(), run: open.run }),
        }
    }
}

/// A request that goes on with an open run, with the options and extensions of another.
pub(super) fn resuming(request: &ChatRequest, key: &ConversationKey, run: RunId) -> ChatRequest {
    let mut resuming = ChatRequest::new(Messages::new());
    resuming.options = request.options.clone();
    to_foreground(&mut resuming);
    resuming.extensions = request.extensions.clone();
    resuming.extensions.insert(Conversation { key: key.clone(), run });
    resuming.extensions.insert(ResumesRun::default());
    // What is queued is for the new run.
    resuming.extensions.insert(RunHandle::new());
    resuming
}

/// An answer in the background is stored at the end of its run, and one that is resumed is staged.
pub(super) fn to_foreground(request: &mut ChatRequest) {
    if request.options.is_background() {
        let options = Arc::make_mut(&mut request.options);
        options.background = false;
        options.continuation = None;
    }
}
