//! The reasons why a model receives a message in another form than the stored one.

use std::fmt;

/// The form in which the model receives a stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explained {
    /// The whole message is sent, unchanged.
    Unchanged,
    /// The message is sent, but only in part, with changes or at another position. Or the message
    /// was stored only in part.
    Changed {
        /// The reasons that concern the whole message, followed by those of its parts in their
        /// order.
        reasons: Vec<Reason>,
    },
    /// The message is not sent.
    LeftOut {
        /// The reasons that concern the whole message, followed by those of its parts in their
        /// order.
        reasons: Vec<Reason>,
    },
}

impl Explained {
    /// Returns the reasons. The slice is empty if the message is sent unchanged.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Unchanged => &[],
            Self::Changed { reasons } | Self::LeftOut { reasons } => reasons,
        }
    }

    /// Returns `unchanged`, `changed` or `left_out`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed { .. } => "changed",
            Self::LeftOut { .. } => "left_out",
        }
    }
}

/// A reason, and the part of the message that it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Reason {
    /// The index of the part in the stored message, from 0; `None` for the message as a whole.
    pub part: Option<usize>,
    /// The reason.
    pub kind: ReasonKind,
}

impl Reason {
    /// Creates a reason that concerns a part of a message, or the whole message.
    pub fn new(kind: ReasonKind, part: impl Into<Option<usize>>) -> Self {
        Self { part: part.into(), kind }
    }
}

/// The kind of a reason: why the model receives other content than the stored content, or why some
/// content was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReasonKind {
    /// A result was truncated before it was stored
    /// ([`Truncation`](tower_chat_layers::replay::Truncation)).
    Truncated,
    /// A hook changed the arguments of a call before they were stored
    /// ([`Tool::persist`](tower_chat_layers::Tool::persist)).
    Redacted,
    /// A hook prevented the storage of a call or of a result.
    NotStored,
    /// A call is in a message that is not from the model.
    Misplaced,
    /// A call has no result, and is therefore not sent.
    Dangling,
    /// A call has no result, and is sent with a generated result, which reports an interruption.
    Interrupted,
    /// A call is sent with a result that no message contains. The result is in the record of tool
    /// calls, which has a row for each call.
    FromRecord,
    /// A call waits for approval, and is not sent until it has a result.
    AwaitingApproval,
    /// A part is a decision about a call. Decisions are never sent, because the result of the call
    /// contains the outcome.
    Decision,
    /// A result answers no call.
    Orphan,
    /// A result answers a call that already has a result.
    Repeated,
    /// A message or a part is sent at another position than the stored one, because results must
    /// follow their calls.
    Moved,
    /// The message contains nothing that can be sent to a model.
    Empty,
    /// The model receives a summary of the history instead of this message
    /// ([`ReplaySummary`](tower_chat_layers::replay::ReplaySummary)).
    Summarized,
    /// Calls and results are not replayed
    /// ([`ToolHistory::Omit`](tower_chat_layers::replay::ToolHistory::Omit)).
    ToolHistory,
    /// A result is too old. Neither the result nor its call is sent
    /// ([`Freshness`](tower_chat_layers::replay::Freshness)).
    Stale,
    /// A call is not sent, because no registered tool could answer it
    /// ([`OutdatedCalls`](tower_chat_layers::replay::OutdatedCalls)).
    Outdated,
    /// Sources that the answer does not cite are removed
    /// ([`Citations`](tower_chat_layers::replay::Citations)).
    Compacted,
    /// A sentence is sent instead of an old image or document
    /// ([`OldMedia`](tower_chat_layers::replay::OldMedia)).
    OldMedia,
    /// The message is older than the turns in the window
    /// ([`Window`](tower_chat_layers::replay::Window)).
    OutsideWindow,
}

impl ReasonKind {
    /// Returns the name of the kind, such as `outside_window`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Redacted => "redacted",
            Self::NotStored => "not_stored",
            Self::Misplaced => "misplaced",
            Self::Dangling => "dangling",
            Self::Interrupted => "interrupted",
            Self::FromRecord => "from_record",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Decision => "decision",
            Self::Orphan => "orphan",
            Self::Repeated => "repeated",
            Self::Moved => "moved",
            Self::Empty => "empty",
            Self::Summarized => "summarized",
            Self::ToolHistory => "tool_history",
            Self::Stale => "stale",
            Self::Outdated => "outdated",
            Self::Compacted => "compacted",
            Self::OldMedia => "old_media",
            Self::OutsideWindow => "outside_window",
        }
    }
}

/// Formats the kind as a clause in English.
impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the result was cut when it was stored",
            Self::Redacted => "a hook has stored other arguments than the model gave",
            Self::NotStored => "a hook has stored only a part of the message",
            Self::Misplaced => "only the model calls tools: the call is not sent",
            Self::Dangling => "no message has a result of the call: it is not sent",
            Self::Interrupted => "no message has a result of the call: it is sent as interrupted",
            Self::FromRecord => "the result is sent from the record of tool calls",
            Self::AwaitingApproval => "the call waits for approval: it is not sent",
            Self::Decision => "decisions are not sent",
            Self::Orphan => "the result answers no call: it is not sent",
            Self::Repeated => "the call has a result already: this result is not sent",
            Self::Moved => "it is sent at the position of its call",
            Self::Empty => "it contains nothing that can be sent",
            Self::Summarized => "a summary is sent instead",
            Self::ToolHistory => "calls and results are not replayed",
            Self::Stale => "the result is too old: it is not sent, nor its call",
            Self::Outdated => "no registered tool could answer the call: it is not sent",
            Self::Compacted => "sources that were not cited are not sent",
            Self::OldMedia => "a sentence is sent instead of an old picture or document",
            Self::OutsideWindow => "it is outside the window",
        })
    }
}

/// The reasons that were found. The index is the index of the message in the stored messages.
#[derive(Debug)]
pub(crate) struct Reasons(Vec<Vec<Reason>>);

impl Reasons {
    pub(crate) fn of(messages: usize) -> Self {
        Self(vec![Vec::new(); messages])
    }

    /// Adds a reason for the message with the index `position`, unless the message already has this
    /// reason.
    pub(crate) fn add(&mut self, position: usize, kind: ReasonKind, part: Option<usize>) {
        let reason = Reason::new(kind, part);
        if let Some(reasons) = self.0.get_mut(position).filter(|known| !known.contains(&reason)) {
            reasons.push(reason);
        }
    }

    pub(crate) fn has_any(&self, position: usize) -> bool {
        self.0.get(position).is_some_and(|reasons| !reasons.is_empty())
    }

    /// Returns the explanation of each message. The function `is_sent` returns whether the message
    /// with the given index is sent.
    pub(crate) fn into_explained(self, is_sent: impl Fn(usize) -> bool) -> Vec<Explained> {
        let explained = |(position, mut reasons): (usize, Vec<Reason>)| {
            reasons.sort_unstable();
            match is_sent(position) {
                true if reasons.is_empty() => Explained::Unchanged,
                true => Explained::Changed { reasons },
                false => Explained::LeftOut { reasons },
            }
        };
        self.0.into_iter().enumerate().map(explained).collect()
    }
}
