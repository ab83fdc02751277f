//! The directory's summaries of conversations and runs.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Description, ModelUsage, UsageSum};
use crate::{
    ConversationKey, PersistenceMode, RunId,
    store::{Head, author::LAST_SEQUENCE},
};

/// The directory's summary of a conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConversationSummary {
    /// The conversation.
    pub key: ConversationKey,
    /// The title and the metadata of the conversation.
    pub description: Description,
    /// The number of times that the description was set. [`set_description`] expects this number.
    ///
    /// [`set_description`]: crate::store::Directory::set_description
    pub description_version: u64,
    /// The time at which the first run of the conversation
    /// [began](crate::store::RunActivity::began_at), by the writer's clock, to the millisecond. For
    /// a copy, the time at which the copy was made.
    pub created_at: SystemTime,
    /// The time of the last write to the conversation, by the writers' clocks, to the millisecond.
    /// This time never decreases.
    pub last_active_at: SystemTime,
    /// The number of visible messages.
    pub messages: u64,
    /// The number of runs. Pruned runs are included, and discarded runs are not.
    pub runs: u64,
    /// The usage of all runs, including discarded and pruned ones.
    pub usage: UsageSum,
    /// The mode of the last write that has a mode.
    pub last_mode: Option<PersistenceMode>,
    /// The state of the conversation.
    pub state: ConversationState,
    /// The conversation from which this one was [forked](crate::store::Maintenance::fork_at).
    pub parent: Option<Parent>,
}

/// The conversation from which a branch was [forked](crate::store::Maintenance::fork_at). The
/// branch keeps this value after the parent was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredParent", into = "StoredParent")]
#[non_exhaustive]
pub struct Parent {
    /// The key of the parent.
    pub key: ConversationKey,
    /// The sequence number, in the parent, of the last message that the branch contains. If the
    /// branch began without messages, the number before the first message of the parent.
    pub position: u64,
}

impl Parent {
    /// Creates the parent of a branch that contains the messages of `key` up to `position`.
    pub fn new(key: ConversationKey, position: u64) -> Self {
        Self { key, position }
    }
}

/// The serialized form of a [`Parent`].
#[derive(Serialize, Deserialize)]
struct StoredParent {
    scope: String,
    id: String,
    position: u64,
}

impl From<Parent> for StoredParent {
    fn from(Parent { key, position }: Parent) -> Self {
        Self { scope: key.scope().to_owned(), id: key.id().to_owned(), position }
    }
}

impl From<StoredParent> for Parent {
    fn from(StoredParent { scope, id, position }: StoredParent) -> Self {
        Self { key: ConversationKey::new(scope, id), position }
    }
}

impl ConversationSummary {
    /// Creates the summary of a conversation with this head that was created and last active at the
    /// time `at`.
    pub fn new(key: ConversationKey, head: &Head, at: SystemTime) -> Self {
        let state = ConversationState::of(&key, head);
        let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
        Self {
            key,
            description: Description::new(),
            description_version: 0,
            created_at: at,
            last_active_at: at,
            messages: visible.saturating_sub(head.pruned),
            runs: 0,
            usage: UsageSum::default(),
            last_mode: None,
            state,
            parent: None,
        }
    }
}

/// The state of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConversationState {
    /// No run is open, and no call waits for approval.
    Idle,
    /// A journaled run is open: it is in progress or was interrupted.
    RunOpen,
    /// No run is open, and a tool call waits for approval.
    WaitingForApproval,
    /// A stored number of the conversation is out of range, so that a load fails. Damaged messages
    /// do not cause this state.
    Damaged,
}

impl ConversationState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Idle, Self::RunOpen, Self::WaitingForApproval, Self::Damaged];

    /// Returns the state of a conversation with this head.
    pub fn of(key: &ConversationKey, head: &Head) -> Self {
        if head.check_range(key, LAST_SEQUENCE).is_err() {
            Self::Damaged
        } else if head.open_run.is_some() {
            Self::RunOpen
        } else if !head.pending_approvals.is_empty() {
            Self::WaitingForApproval
        } else {
            Self::Idle
        }
    }

    /// Returns the name of the state, such as `run_open`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::RunOpen => "run_open",
            Self::WaitingForApproval => "waiting_for_approval",
            Self::Damaged => "damaged",
        }
    }
}

impl std::fmt::Display for ConversationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The directory's summary of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The mode in the run's last write that has a mode.
    pub mode: Option<PersistenceMode>,
    /// The time at which the first request of the run arrived, by the writer's clock, to the
    /// millisecond. For a run that an older release stored, the time of its first write.
    pub began_at: SystemTime,
    /// The time of the last write of the run.
    pub last_written_at: SystemTime,
    /// The usage of the run, in the byte order of the models' names. The usage of an unknown model
    /// is first.
    pub usage: Vec<ModelUsage>,
    /// Whether the run is open: its messages are staged, and it is neither committed nor discarded.
    pub is_open: bool,
}

impl RunSummary {
    /// Creates the summary of a run that was written once, at this time, and has no usage.
    pub fn new(run: RunId, at: SystemTime) -> Self {
        Self {
            run,
            mode: None,
            began_at: at,
            last_written_at: at,
            usage: Vec::new(),
            is_open: false,
        }
    }

    /// Returns [`began_at`](Self::began_at). This time may differ from the time in the id of the
    /// run, because callers may create ids themselves, for example from recordings or with other
    /// clocks.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tower_chat_core::{RunId, store::RunSummary};
    /// let asked = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    /// let run = RunSummary::new(RunId::from_bytes([7; 16]), asked);
    /// assert_eq!(run.started_at(), asked);
    /// ```
    pub fn started_at(&self) -> SystemTime {
        self.began_at
    }
}
