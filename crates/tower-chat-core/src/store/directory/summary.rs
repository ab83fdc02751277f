//! What the directory says of a conversation, and of its runs.

use std::time::SystemTime;

use super::{Description, ModelUsage, UsageSum};
use crate::{
    ConversationKey, PersistenceMode, RunId,
    store::{Head, author::LAST_SEQUENCE},
};

/// What the directory says of a conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConversationSummary {
    /// The conversation.
    pub key: ConversationKey,
    /// Its title and metadata.
    pub description: Description,
    /// How often the description was set: what [`set_description`] expects.
    ///
    /// [`set_description`]: crate::store::HistoryStore::set_description
    pub description_version: u64,
    /// When it was first written, by the writer's clock, to the millisecond.
    pub created_at: SystemTime,
    /// When it was last written, by the writers' clocks, to the millisecond. It never goes back.
    pub last_active_at: SystemTime,
    /// How many messages readers see.
    pub messages: u64,
    /// How many runs it has had, without those that were discarded.
    pub runs: u64,
    /// What all of its runs have used, those that were discarded or pruned as well.
    pub usage: UsageSum,
    /// The mode of the last run that told it.
    pub last_mode: Option<PersistenceMode>,
    /// What goes on in it.
    pub state: ConversationState,
}

impl ConversationSummary {
    /// A conversation with this head, of which nothing else is known, first and last written at this
    /// time.
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
        }
    }
}

/// What goes on in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConversationState {
    /// Nothing.
    Idle,
    /// A journaled run is open: it is under way, or was left.
    RunOpen,
    /// No run is open, and a tool call waits for approval.
    WaitingForApproval,
    /// A number that the store keeps of it cannot be: a load fails. Whether each message can be read
    /// is not looked at.
    Damaged,
}

impl ConversationState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Idle, Self::RunOpen, Self::WaitingForApproval, Self::Damaged];

    /// The state of a conversation with this head.
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

    /// Its name, such as `run_open`.
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

/// What the directory says of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The mode in which it was last written, if that was told.
    pub mode: Option<PersistenceMode>,
    /// When its first request arrived, by the writer's clock, to the millisecond; when it was first
    /// written, if it was stored by an older release.
    pub began_at: SystemTime,
    /// When it was last written.
    pub last_written_at: SystemTime,
    /// What it has used, in the byte order of the models' names, first of a model that is not known.
    pub usage: Vec<ModelUsage>,
    /// Whether it is open: staged, and neither committed nor discarded.
    pub is_open: bool,
}

impl RunSummary {
    /// A run that was written once, at this time, and has used nothing.
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

    /// When it started. The id of the run does not say it: ids may be made by callers, of recordings
    /// or of other clocks.
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
