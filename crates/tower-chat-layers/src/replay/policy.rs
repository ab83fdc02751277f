//! What replay does where the record is incomplete.

/// What becomes of a dangling call: a stored tool call with no stored result.
///
/// Every provider refuses a request that holds one. The record keeps it in any case.
///
/// ```
/// use tower_chat::{PersistencePolicy, replay::DanglingCalls};
///
/// let policy = PersistencePolicy::default().with_dangling_calls(DanglingCalls::Drop);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DanglingCalls {
    /// Leave the call out, whatever its run has come to: the model does not know that it has asked
    /// for it. A round in which no call was answered disappears; its text stays.
    Drop,
    /// As [`Interrupted`](Self::Interrupted), but a call of a run that ended on purpose is shown
    /// with the result in the record of tool calls, where it has one.
    FromRecord,
    /// Keep a call whose run was interrupted, with the result in the record of tool calls, or with
    /// an error result that says it may or may not have run. A call of a run that ended on purpose
    /// (a tool ended it, or the call was returned to the caller and never answered) is left out.
    ///
    /// The replay knows that a run ended on purpose by what was stored with its end. Without such
    /// a mark, as in histories of earlier versions, a run counts as interrupted.
    #[default]
    Interrupted,
    /// Fail the request with [`DanglingCallError`](super::DanglingCallError).
    Fail,
}

impl DanglingCalls {
    /// Whether the replay depends on what the record of tool calls knows of dangling calls.
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::FromRecord | Self::Interrupted)
    }
}

/// Whether a replay repairs what it is given, or only completes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Stored history: the output is valid for every provider.
    Repair(DanglingCalls),
    /// A caller's own messages, whose other half may be stored below: dangling calls and orphan
    /// results stay.
    Lenient,
}
