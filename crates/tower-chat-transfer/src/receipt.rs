//! What a transfer has done.

use std::{collections::BTreeMap, fmt, ops::AddAssign, time::SystemTime};

use serde::{Deserialize, Serialize};
use tower_chat_core::{ConversationKey, MessageId, RunId, store::author::milliseconds};

use crate::Selection;

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// From a store to a file.
    Export,
    /// From a file to a store.
    Import,
    /// From a store to another.
    Copy,
    /// Out of a store.
    Delete,
}

/// What a transfer has done: an account of all its [`Step`]s, which can be serialised.
///
/// The steps themselves are told to the callback; a [`ReceiptLog`](crate::ReceiptLog) keeps them in a
/// file, and adds the attempts at one transfer up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    /// What was asked for.
    pub operation: Operation,
    /// Of which conversations; an import takes all that its file has.
    pub selection: Selection,
    /// When it was begun, in milliseconds since 1970.
    pub began_at: i64,
    /// When it ended.
    pub ended_at: i64,
    /// What was done, by scope and by outcome.
    pub scopes: BTreeMap<String, BTreeMap<OutcomeKind, Counts>>,
    /// The conversations that were refused, and why: the first [`LISTED`](Self::LISTED) of them.
    pub refused: Vec<Step>,
    /// The conversations that are not the same at the target: the first [`LISTED`](Self::LISTED).
    pub differing: Vec<Step>,
    /// The SHA-256 of the whole file that was written, or read, in hexadecimal digits.
    pub sha256: Option<String>,
}

impl Receipt {
    /// How many conversations each of the two lists has at most. The counts have all.
    pub const LISTED: usize = 1_000;

    pub(crate) fn begin(operation: Operation, selection: Selection) -> Self {
        let now = milliseconds::of(SystemTime::now());
        Self {
            operation,
            selection,
            began_at: now,
            ended_at: now,
            scopes: BTreeMap::new(),
            refused: Vec::new(),
            differing: Vec::new(),
            sha256: None,
        }
    }

    pub(crate) fn end(mut self) -> Self {
        self.ended_at = milliseconds::of(SystemTime::now());
        self
    }

    /// Counts a step.
    pub fn add(&mut self, step: &Step) {
        let scope = self.scopes.entry(step.scope.clone()).or_default();
        *scope.entry(step.outcome.kind()).or_default() += &step.counts;
        let is_refused = step.outcome.kind() == OutcomeKind::Refused;
        if is_refused && self.refused.len() < Self::LISTED {
            self.refused.push(step.clone());
        }
        if !step.differences.is_empty() && self.differing.len() < Self::LISTED {
            self.differing.push(step.clone());
        }
    }

    /// What was done with an outcome, in all scopes.
    pub fn total(&self, kind: OutcomeKind) -> Counts {
        let mut total = Counts::default();
        self.scopes
            .values()
            .filter_map(|scope| scope.get(&kind))
            .for_each(|counts| total += counts);
        total
    }
}

/// What was done with one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// The conversation's scope.
    pub scope: String,
    /// Its id.
    pub id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// What the conversation consists of, where it was taken from.
    pub counts: Counts,
    /// What of it is not the same at the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// The run that is open in it: it can be resumed in both stores now, and should be in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_run: Option<RunId>,
}

impl Step {
    pub(crate) fn new(key: &ConversationKey, outcome: Outcome, counts: Counts) -> Self {
        let (scope, id) = (key.scope().to_owned(), key.id().to_owned());
        Self { scope, id, outcome, counts, differences: Vec::new(), open_run: None }
    }

    /// The conversation.
    pub fn key(&self) -> ConversationKey {
        ConversationKey::new(self.scope.as_str(), self.id.as_str())
    }
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Conversations.
    pub conversations: u64,
    /// Their messages, those that an open run has staged included.
    pub messages: u64,
    /// Rows of the record of tool calls.
    pub tool_calls: u64,
    /// Runs of which the directory knows.
    pub runs: u64,
    /// Bytes of the messages in their stored form; a deletion does not read them, and has 0.
    pub bytes: u64,
}

impl Counts {
    /// One conversation of which nothing else is counted.
    pub(crate) fn one() -> Self {
        Self { conversations: 1, ..Self::default() }
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        let Self { conversations, messages, tool_calls, runs, bytes } = self;
        *conversations += other.conversations;
        *messages += other.messages;
        *tool_calls += other.tool_calls;
        *runs += other.runs;
        *bytes += other.bytes;
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It is in the file.
    Exported,
    /// It was not at the target, and is there now.
    Written,
    /// The target had its beginning, and has all of it now.
    Extended {
        /// How many messages were added.
        messages: u64,
    },
    /// The target had it already.
    Unchanged,
    /// It is deleted.
    Deleted,
    /// It was deleted by somebody else before its turn.
    Gone,
    /// It was left as it is.
    Refused(Refusal),
}

/// How a step ended, without why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutcomeKind {
    /// [`Outcome::Exported`].
    Exported,
    /// [`Outcome::Written`].
    Written,
    /// [`Outcome::Extended`].
    Extended,
    /// [`Outcome::Unchanged`].
    Unchanged,
    /// [`Outcome::Deleted`].
    Deleted,
    /// [`Outcome::Gone`].
    Gone,
    /// [`Outcome::Refused`].
    Refused,
}

impl Outcome {
    /// The outcome without why.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Exported => OutcomeKind::Exported,
            Self::Written => OutcomeKind::Written,
            Self::Extended { .. } => OutcomeKind::Extended,
            Self::Unchanged => OutcomeKind::Unchanged,
            Self::Deleted => OutcomeKind::Deleted,
            Self::Gone => OutcomeKind::Gone,
            Self::Refused(_) => OutcomeKind::Refused,
        }
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exported => "exported",
            Self::Written => "written",
            Self::Extended => "extended",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
            Self::Gone => "gone",
            Self::Refused => "refused",
        })
    }
}

/// Why a conversation was left as it is. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// The target has another conversation under this key. Nothing was written.
    #[error(
        "the target has another conversation under this key: message {message} is {source_id} in the \
         source and {target_id} at the target{}: delete one of them, or fork one to another key",
        if source_id == target_id { ", with other content" } else { "" }
    )]
    Differs {
        /// The number of the first message that differs, in the source.
        message: u64,
        /// The id it has in the source.
        source_id: MessageId,
        /// The id of the message that the target has instead.
        target_id: MessageId,
    },
    /// The target has all of it, and more. Nothing was written.
    #[error(
        "the target has {messages} messages more than the source: it was gone on with there; nothing \
         is to be done unless the source is the one to go on with"
    )]
    TargetHasMore {
        /// How many.
        messages: u64,
    },
    /// A run is open at the target. Nothing was written.
    #[error(
        "run {run} is open at the target: wait for its end, or end it with `tower-chat recover`, and \
         repeat the transfer"
    )]
    OpenRun {
        /// The run.
        run: RunId,
    },
    /// Another process has written to the conversation at the target meanwhile.
    #[error("the conversation was written to at the target meanwhile: repeat the transfer")]
    Conflict,
    /// The conversation changed in the source whenever it was read.
    #[error(
        "the conversation was changed in the source during each of {attempts} attempts to read it: \
         repeat the transfer when less is going on in it"
    )]
    Changing {
        /// How often it was read.
        attempts: u32,
    },
    /// The target does not take what is in it. Messages before what is refused may be stored.
    #[error(
        "the target does not take it ({reason}): nothing can be done unless it is changed in the source"
    )]
    NotTaken {
        /// What the target says.
        reason: String,
    },
    /// What is stored of it cannot be read.
    #[error("it cannot be read ({reason}): see `tower-chat verify` and `tower-chat repair`")]
    Unreadable {
        /// What was found.
        reason: String,
    },
}

/// Something of a conversation that is not the same at the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// Messages were pruned in the source: those that are left are numbered from 1 at the target,
    /// since a store numbers what it takes.
    #[error("{pruned} messages were pruned in the source, so the others have other numbers")]
    Renumbered {
        /// How many were pruned.
        pruned: u64,
    },
    /// When the conversation was created, or last active.
    #[error("the times of the conversation differ")]
    Times,
    /// How many runs the conversation has had, or the mode of the last one.
    #[error("the number of runs, or the last mode, differs")]
    RunCount,
    /// What the directory has of its runs.
    #[error("what the directory has of its runs differs")]
    Runs,
    /// The target had a description of its own.
    #[error("the target has another description")]
    Description,
    /// The target had a service id of its own.
    #[error("the target has another service id")]
    ServiceId,
}
