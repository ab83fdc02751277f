//! Why a message is not sent as it is stored.

use std::fmt;

/// What the model is sent of a stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Explained {
    /// All of it.
    Unchanged,
    /// Something of it, or all of it elsewhere, or what is stored is not all there was.
    Changed {
        /// Why, in the order of the parts; first what concerns the message as a whole.
        reasons: Vec<Reason>,
    },
    /// Nothing.
    LeftOut {
        /// Why, in the order of the parts; first what concerns the message as a whole.
        reasons: Vec<Reason>,
    },
}

impl Explained {
    /// Why it is not sent as it is stored; nothing if it is.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::Unchanged => &[],
            Self::Changed { reasons } | Self::LeftOut { reasons } => reasons,
        }
    }

    /// `unchanged`, `changed` or `left_out`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Changed { .. } => "changed",
            Self::LeftOut { .. } => "left_out",
        }
    }
}

/// A reason, and what it concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Reason {
    /// The part of the stored message, from 0; `None` for the message as a whole.
    pub part: Option<usize>,
    /// The reason.
    pub kind: ReasonKind,
}

impl Reason {
    /// A reason that concerns a part of a message, or all of it.
    pub fn new(kind: ReasonKind, part: impl Into<Option<usize>>) -> Self {
        Self { part: part.into(), kind }
    }
}

/// Why the model is not sent what is stored, or why not everything is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReasonKind {
    /// A result was cut when it was stored ([`Truncation`](tower_chat_layers::replay::Truncation)).
    Truncated,
    /// A hook has stored other arguments than the model gave ([`Tool::persist`](tower_chat_layers::Tool::persist)).
    Redacted,
    /// A hook has not let a call, or results, be stored.
    NotStored,
    /// A call in a message that is not the model's.
    Misplaced,
    /// A call without a result; it is left out.
    Dangling,
    /// A call without a result; it is sent with one that says it was interrupted.
    Interrupted,
    /// A call whose result is in the record of tool calls alone; it is sent with that.
    FromRecord,
    /// A call that waits for approval; it is sent once it was answered.
    AwaitingApproval,
    /// A decision about a call. The model is sent what became of the call.
    Decision,
    /// A result that answers no call.
    Orphan,
    /// A result of a call that has its result already.
    Repeated,
    /// It is sent at another position, since results follow their calls.
    Moved,
    /// It holds nothing that a model can be sent.
    Empty,
    /// Calls and results are not replayed ([`ToolHistory::Omit`](tower_chat_layers::replay::ToolHistory::Omit)).
    ToolHistory,
    /// A result is too old, and goes with its call ([`Freshness`](tower_chat_layers::replay::Freshness)).
    Stale,
    /// No tool of today could answer the call ([`OutdatedCalls`](tower_chat_layers::replay::OutdatedCalls)).
    Outdated,
    /// Sources that were not cited are left out ([`Citations`](tower_chat_layers::replay::Citations)).
    Compacted,
    /// It is older than the newest turns ([`Window`](tower_chat_layers::replay::Window)).
    OutsideWindow,
}

impl ReasonKind {
    /// Its name, such as `outside_window`.
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
            Self::ToolHistory => "tool_history",
            Self::Stale => "stale",
            Self::Outdated => "outdated",
            Self::Compacted => "compacted",
            Self::OutsideWindow => "outside_window",
        }
    }
}

/// In words for people.
impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the result was cut when it was stored",
            Self::Redacted => "a hook has stored other arguments than the model gave",
            Self::NotStored => "a hook has not let all of it be stored",
            Self::Misplaced => "only the model calls tools: the call is not sent",
            Self::Dangling => "no message has a result of the call: it is not sent",
            Self::Interrupted => "no message has a result of the call: it is sent as interrupted",
            Self::FromRecord => "the result is sent from the record of tool calls",
            Self::AwaitingApproval => "the call waits for approval: it is not sent",
            Self::Decision => "decisions are not sent",
            Self::Orphan => "the result answers no call: it is not sent",
            Self::Repeated => "the call has its result already: this one is not sent",
            Self::Moved => "it is sent where its call is",
            Self::Empty => "it holds nothing that can be sent",
            Self::ToolHistory => "calls and results are not replayed",
            Self::Stale => "the result is too old: it is not sent, nor its call",
            Self::Outdated => "no tool of today could answer the call: it is not sent",
            Self::Compacted => "sources that were not cited are not sent",
            Self::OutsideWindow => "it is outside the window",
        })
    }
}

/// The reasons that were found, by message.
#[derive(Debug)]
pub(crate) struct Reasons(Vec<Vec<Reason>>);

impl Reasons {
    pub(crate) fn of(messages: usize) -> Self {
        Self(vec![Vec::new(); messages])
    }

    /// Adds a reason for the message at a position.
    pub(crate) fn add(&mut self, position: usize, kind: ReasonKind, part: Option<usize>) {
        let reason = Reason::new(kind, part);
        if let Some(reasons) = self.0.get_mut(position).filter(|known| !known.contains(&reason)) {
            reasons.push(reason);
        }
    }

    pub(crate) fn has_any(&self, position: usize) -> bool {
        self.0.get(position).is_some_and(|reasons| !reasons.is_empty())
    }

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
