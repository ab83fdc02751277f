//! The policy of the replay for calls without a stored result.

use serde::Deserialize;

/// The policy of the replay for a dangling call: a stored tool call without a stored result.
///
/// Every provider refuses a request with a dangling call. The policy changes only the request. The
/// stored call does not change.
///
/// ```
/// use tower_chat::{PersistencePolicy, replay::DanglingCalls};
///
/// let policy = PersistencePolicy::default().with_dangling_calls(DanglingCalls::Drop);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DanglingCalls {
    /// Does not send the call, whether or not the run of the call was interrupted. If no call of an
    /// answer has a result, only the text of the answer is sent.
    Drop,
    /// Like [`Interrupted`](Self::Interrupted), but also sends the calls of a run that ended
    /// intentionally, if the record of tool calls contains their results.
    FromRecord,
    /// Sends a call of an interrupted run with the result from the record of tool calls. If the
    /// record contains no result, the call is sent with an error result, which reports that the
    /// call may or may not have run.
    ///
    /// Does not send a call of a run that ended intentionally, such as a run that returned the call
    /// to the caller, who then sent no result.
    ///
    /// A run that ended intentionally has stored a mark. A run without this mark, such as an
    /// imported run, is treated as interrupted.
    #[default]
    Interrupted,
    /// Fails the request with [`DanglingCallError`](super::DanglingCallError).
    Fail,
}

impl DanglingCalls {
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::FromRecord | Self::Interrupted)
    }
}

/// Whether a replay repairs dangling calls and orphan results, which are results without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// For a stored history. The replay repairs dangling calls by this policy, and the output is
    /// valid for every provider.
    Repair(DanglingCalls),
    /// For messages of a caller, which may refer to stored calls and results. Dangling calls and
    /// orphan results remain.
    Lenient,
}
