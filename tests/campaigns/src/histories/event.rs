//! The file format of a history: one JSON object on each line.
//!
//! The first line is a [`Heading`], and every other line is an [`Event`]. An operation has a line
//! with its request and a line with its answer. Without the second line, its outcome is unknown.
//! `at` is the time of the machine's monotonic clock in nanoseconds, which is the same for all
//! processes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tower_chat_core::store::{
    AddedSummary, Conflict, Head, HistorySummary, Lease, OpenRun, Revision, StoreError,
    author::{Close, OpenRunContent, Write},
};
use tower_chat_core::{Message, RunId};

/// Identifies a history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Heading {
    pub(super) store: String,
    pub(super) seed: u64,
    pub(super) case: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    Invoke { at: u64, operation: u64, client: String, request: Request },
    Return { at: u64, operation: u64, response: Response },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Head {
        key: String,
    },
    Load {
        key: String,
    },
    OpenRun {
        key: String,
    },
    Append(AppendRequest),
    /// Copies the turns before a message, or all turns.
    Fork {
        from: String,
        before: Option<u64>,
        to: String,
    },
    /// Removes the oldest runs, so that at least `keep` messages remain.
    Prune {
        key: String,
        keep: u64,
    },
    Delete {
        key: String,
    },
    Summarize(SummaryRequest),
    /// Removes the summary in force, if it has this id.
    Undo {
        key: String,
        summary: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Response {
    Head(HeadSeen),
    Loaded {
        head: HeadSeen,
        messages: Vec<MessageSeen>,
    },
    OpenRun(Option<OpenRunSeen>),
    Stored(RevisionSeen),
    Conflict {
        found: RevisionSeen,
        open_run: Option<String>,
    },
    /// The revision of the copy, and the number of the last copied message in the original.
    Forked {
        revision: RevisionSeen,
        position: u64,
    },
    Exists,
    Pruned {
        runs: u64,
        messages: u64,
    },
    UnderWay {
        run: String,
    },
    Deleted(bool),
    Summarized(SummaryOutcome),
    Undone(bool),
    /// An error after which it is unknown whether the operation took effect.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AppendRequest {
    pub(super) key: String,
    pub(super) run: String,
    pub(super) index: u32,
    pub(super) expected: RevisionSeen,
    pub(super) result: RevisionSeen,
    pub(super) texts: Vec<String>,
    pub(super) staged: Option<StagedSeen>,
}

/// A summary of the messages up to a number, the last of which has an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SummaryRequest {
    pub(super) key: String,
    pub(super) summary: SummarySeen,
    pub(super) run: String,
    pub(super) index: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct SummarySeen {
    pub(super) id: u64,
    pub(super) covers_to: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SummaryOutcome {
    Stored,
    NoSuchMessage,
    Superseded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagedSeen {
    pub(super) lease: LeaseSeen,
    pub(super) begins_attempt: bool,
    pub(super) close: Option<CloseSeen>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CloseSeen {
    Commit,
    Discard { visible: u64 },
}

/// The lease of an open run. Times are in milliseconds since 1970, by the clock of the client that
/// wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct LeaseSeen {
    pub(super) attempt: u32,
    pub(super) holder: u64,
    pub(super) renewed_at: u64,
    pub(super) until: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct RevisionSeen {
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeadSeen {
    pub(super) revision: RevisionSeen,
    pub(super) pruned: u64,
    pub(super) open: Option<OpenSeen>,
    /// The summary in force.
    pub(super) summary: Option<SummarySeen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenSeen {
    pub(super) run: String,
    pub(super) lease: LeaseSeen,
    pub(super) visible: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenRunSeen {
    pub(super) head: HeadSeen,
    pub(super) open: OpenSeen,
    pub(super) messages: Vec<MessageSeen>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct MessageSeen {
    pub(super) run: String,
    pub(super) index: u32,
    pub(super) text: String,
}

impl Event {
    /// Returns the sort key of an event. A request precedes an answer with the same time.
    pub(super) fn order(&self) -> (u64, bool) {
        match self {
            Self::Invoke { at, .. } => (*at, false),
            Self::Return { at, .. } => (*at, true),
        }
    }
}

impl Response {
    pub(super) fn of_error(error: &StoreError) -> Self {
        match error {
            StoreError::Conflict(conflict) => {
                let Conflict { found, open_run, .. } = &**conflict;
                Self::Conflict { found: (*found).into(), open_run: open_run.map(name) }
            }
            StoreError::Exists { .. } => Self::Exists,
            StoreError::UnderWay { run, .. } => Self::UnderWay { run: name(*run) },
            other => {
                let mut text = other.to_string();
                let mut source = std::error::Error::source(other);
                while let Some(cause) = source {
                    text.push_str(&format!(": {cause}"));
                    source = cause.source();
                }
                Self::Failed(text)
            }
        }
    }
}

impl From<AddedSummary> for Response {
    fn from(added: AddedSummary) -> Self {
        match added {
            AddedSummary::Stored => Self::Summarized(SummaryOutcome::Stored),
            AddedSummary::NoSuchMessage => Self::Summarized(SummaryOutcome::NoSuchMessage),
            AddedSummary::Superseded => Self::Summarized(SummaryOutcome::Superseded),
            other => Self::Failed(format!("a summary has the outcome {other:?}")),
        }
    }
}

impl SummaryRequest {
    pub(super) fn new(key: &str, summary: &HistorySummary) -> Self {
        let HistorySummary { id, covers_to, last, .. } = *summary;
        let summary = SummarySeen { id, covers_to };
        Self { key: key.to_owned(), summary, run: name(last.run), index: last.index }
    }
}

impl From<Revision> for RevisionSeen {
    fn from(revision: Revision) -> Self {
        Self { incarnation: revision.incarnation, sequence: revision.sequence }
    }
}

impl From<Lease> for LeaseSeen {
    fn from(lease: Lease) -> Self {
        let Lease { attempt, holder, renewed_at, until } = lease;
        let (renewed_at, until) = (milliseconds(renewed_at), until.to_stored().map(milliseconds));
        Self { attempt, holder, renewed_at, until }
    }
}

impl From<&OpenRun> for OpenSeen {
    fn from(open: &OpenRun) -> Self {
        Self { run: name(open.run), lease: open.lease.into(), visible: open.visible }
    }
}

impl From<&Head> for HeadSeen {
    fn from(head: &Head) -> Self {
        let open = head.open_run.as_ref().map(OpenSeen::from);
        let summary = head.summary.map(|it| SummarySeen { id: it.id, covers_to: it.covers_to });
        Self { revision: head.revision.into(), pruned: head.pruned, open, summary }
    }
}

impl From<&OpenRunContent> for OpenRunSeen {
    fn from(content: &OpenRunContent) -> Self {
        let messages = content.messages.iter().map(|message| MessageSeen::from(&**message));
        Self {
            head: (&content.head).into(),
            open: (&content.open).into(),
            messages: messages.collect(),
        }
    }
}

impl From<&Message> for MessageSeen {
    fn from(message: &Message) -> Self {
        let (run, index) = match message.id {
            Some(id) => (name(id.run), id.index),
            None => (String::new(), 0),
        };
        Self { run, index, text: message.text() }
    }
}

impl From<&Write> for AppendRequest {
    fn from(write: &Write) -> Self {
        let staged = write.as_staged().map(|staged| StagedSeen {
            lease: staged.lease.into(),
            begins_attempt: write.begins_attempt(),
            close: staged.close.map(|close| match close {
                Close::Commit => CloseSeen::Commit,
                Close::Discard { visible } => CloseSeen::Discard { visible },
            }),
        });
        Self {
            key: write.key().id().to_owned(),
            run: name(write.id().run),
            index: write.id().index,
            expected: write.expected().into(),
            result: write.result().into(),
            texts: write.messages().iter().map(|message| message.text()).collect(),
            staged,
        }
    }
}

fn name(run: RunId) -> String {
    run.to_string()
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
