//! The receipt of a transfer.
//!
//! The messages of an *open run* (*staged* messages) are not part of the history yet; all other
//! messages are *visible*. To *prune* a conversation is to delete its oldest runs. The *mode* of a
//! run determines when its messages become durable.

use std::{collections::BTreeMap, fmt, ops::AddAssign, time::SystemTime};

use serde::{Deserialize, Serialize};
use tower_chat_core::{ConversationKey, MessageId, RunId, store::author::milliseconds};

use crate::Selection;

/// The kind of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// From a store to a file.
    Export,
    /// From a file to a store.
    Import,
    /// From one store to another.
    Copy,
    /// Deletion from a store.
    Delete,
}

/// The receipt of a transfer: a summary of all its [`TransferStep`]s, which can be serialized.
///
/// The transfer passes each step to its callback. A [`ReceiptLog`](crate::ReceiptLog) writes the
/// steps to a file, and adds up the counts of all attempts at one transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Receipt {
    /// The kind of the transfer.
    pub operation: Operation,
    /// The selected conversations.
    pub selection: Selection,
    /// The time at which the transfer began, in milliseconds since 1970.
    pub began_at: i64,
    /// The time at which the transfer ended, in milliseconds since 1970.
    pub ended_at: i64,
    /// The counts by scope and outcome.
    pub scopes: BTreeMap<String, BTreeMap<OutcomeKind, Counts>>,
    /// The refused conversations with their reasons. The list contains at most the first
    /// [`LISTED`](Self::LISTED) conversations.
    pub refused: Vec<TransferStep>,
    /// The conversations that differ at the target after the transfer, with their differences. The
    /// list contains at most the first [`LISTED`](Self::LISTED) conversations.
    pub differing: Vec<TransferStep>,
    /// The SHA-256 of the exported or imported file, in hexadecimal digits; `None` in transfers
    /// without a file.
    pub sha256: Option<String>,
}

impl Receipt {
    /// The maximum length of [`refused`](Self::refused) and of [`differing`](Self::differing). The
    /// counts include all conversations.
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

    /// Adds a step to the counts and lists.
    pub fn add(&mut self, step: &TransferStep) {
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

    /// Returns the counts of an outcome over all scopes.
    pub fn total(&self, kind: OutcomeKind) -> Counts {
        let mut total = Counts::default();
        self.scopes
            .values()
            .filter_map(|scope| scope.get(&kind))
            .for_each(|counts| total += counts);
        total
    }
}

/// The result of a transfer for one conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TransferStep {
    /// The conversation's scope.
    pub scope: String,
    /// The conversation's id.
    pub id: String,
    /// The outcome.
    pub outcome: TransferOutcome,
    /// The counts of the conversation in the source, or in the store from which it is deleted. If
    /// the conversation could not be read, all counts except the number of conversations are 0.
    pub counts: Counts,
    /// The differences that remain at the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// The open run of the conversation, which was transferred too, if there is one. Resume the run
    /// either in the source or at the target, and not in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_run: Option<RunId>,
}

impl TransferStep {
    pub(crate) fn new(key: &ConversationKey, outcome: TransferOutcome, counts: Counts) -> Self {
        let (scope, id) = (key.scope().to_owned(), key.id().to_owned());
        Self { scope, id, outcome, counts, differences: Vec::new(), open_run: None }
    }

    /// Returns the conversation.
    pub fn key(&self) -> ConversationKey {
        ConversationKey::new(self.scope.as_str(), self.id.as_str())
    }
}

/// Counts of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// The number of conversations.
    pub conversations: u64,
    /// The number of messages, including staged messages. A deletion counts only visible messages.
    pub messages: u64,
    /// The number of rows of the record of tool calls, which has one row for each call.
    pub tool_calls: u64,
    /// The number of runs, including pruned and discarded runs, as the store has counted them. A
    /// deletion does not count discarded runs.
    pub runs: u64,
    /// The size of the messages in stored form, in bytes; 0 in a deletion, because it does not read
    /// the messages.
    pub bytes: u64,
}

impl Counts {
    /// Returns counts with one conversation, in which all other counts are 0.
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

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransferOutcome {
    /// The conversation was written to the file.
    Exported,
    /// The target did not have the conversation, and the transfer has written it.
    Written,
    /// The target had the beginning of the conversation, or all of its messages but not all other
    /// data. The transfer has written the missing data.
    Extended {
        /// The number of added messages, which may be 0.
        messages: u64,
    },
    /// The target already had the conversation and was not changed.
    Unchanged,
    /// The conversation was deleted.
    Deleted,
    /// Another process deleted the conversation before the transfer could read or delete it.
    Gone,
    /// The conversation was refused. The documentation of each [`TransferRefusal`] says whether
    /// messages of the conversation may have been written.
    Refused(TransferRefusal),
}

/// The kind of an outcome, without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutcomeKind {
    /// [`TransferOutcome::Exported`].
    Exported,
    /// [`TransferOutcome::Written`].
    Written,
    /// [`TransferOutcome::Extended`].
    Extended,
    /// [`TransferOutcome::Unchanged`].
    Unchanged,
    /// [`TransferOutcome::Deleted`].
    Deleted,
    /// [`TransferOutcome::Gone`].
    Gone,
    /// [`TransferOutcome::Refused`].
    Refused,
}

impl TransferOutcome {
    /// Returns the kind of the outcome.
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

/// The reason why a conversation was refused. The error message contains advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TransferRefusal {
    /// The target has a different conversation with this key. Nothing was written.
    #[error(
        "the target has another conversation under this key: message {message} is {source_id} in the \
         source and {target_id} at the target{}: delete one of them, or fork one to another key",
        if source_id == target_id { ", with other content" } else { "" }
    )]
    Differs {
        /// The sequence number, in the source, of the first message that differs.
        message: u64,
        /// The id of the message in the source.
        source_id: MessageId,
        /// The id of the message at the target.
        target_id: MessageId,
    },
    /// The target has all visible messages of the conversation, and additional messages. Nothing
    /// was written.
    #[error(
        "the target has more messages than the source (by {messages}), because it was continued there: no action is \
         needed, unless the conversation should continue in the source"
    )]
    TargetHasMore {
        /// The number of additional messages.
        messages: u64,
    },
    /// A run is open at the target, and the transfer can neither continue nor discard it. Nothing
    /// was written.
    #[error(
        "run {run} is open at the target: wait for its end, or end it with `tower-chat recover`, and \
         repeat the transfer"
    )]
    OpenRun {
        /// The run.
        run: RunId,
    },
    /// Another process wrote to the conversation at the target during the transfer. The transfer
    /// may have written some messages of the conversation before.
    #[error(
        "another process wrote to the conversation at the target during the transfer: repeat the transfer"
    )]
    Conflict,
    /// The conversation changed in the source during each attempt to read it. A copy may have
    /// written some messages of the conversation.
    #[error(
        "the conversation was changed in the source during each of {attempts} attempts to read it: \
         repeat the transfer when fewer programs write to it"
    )]
    Changing {
        /// The number of attempts to read the conversation.
        attempts: u32,
    },
    /// The target does not accept the conversation. The transfer may have written some messages of
    /// the conversation before.
    #[error(
        "the target refuses the conversation ({reason}): change it in the source, and repeat the transfer"
    )]
    // Receipts that earlier versions have written contain this name.
    #[serde(rename = "not_taken")]
    RejectedByTarget {
        /// The error of the target.
        reason: String,
    },
    /// The stored conversation cannot be read, in the source or at the target. A copy may have
    /// written some messages of the conversation.
    #[error(
        "the conversation cannot be read ({reason}): see `tower-chat verify` and `tower-chat repair`"
    )]
    Unreadable {
        /// A description of the damage.
        reason: String,
    },
}

/// A difference between the conversation at the source and at the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// The source and the target have pruned different numbers of messages, so that equal messages
    /// have different sequence numbers. In a conversation that a transfer has created, the numbers
    /// begin with 1.
    #[error(
        "the sequence numbers differ, because the source has pruned its messages up to {pruned}"
    )]
    Renumbered {
        /// The number of messages that were pruned in the source.
        pruned: u64,
    },
    /// The time of the creation, or of the last activity, of the conversation.
    #[error("the times of the conversation differ")]
    Times,
    /// The number of runs, or the mode of the last run.
    #[error("the number of runs, or the last mode, differs")]
    RunCount,
    /// The times, modes or usage of the runs.
    #[error("the directory data of its runs differ")]
    Runs,
    /// The descriptions differ. A transfer sets the description only if the target never had one.
    #[error("the target has another description")]
    Description,
    /// The parents differ: one of the conversations is a branch (a copy of the beginning) of
    /// another conversation.
    #[error("the target is not a branch of the same conversation")]
    Parent,
    /// The service ids differ. Under this id, the provider's service stores the history. The target
    /// keeps its own service id if no messages were added.
    #[error("the target has another service id")]
    ServiceId,
    /// The summaries of the first messages differ. A summary is not written if the target store has
    /// no summaries, if the target has another summary of the same messages, or if all messages that
    /// the summary covers were pruned in the source.
    #[error("the target has other summaries")]
    Summaries,
}
