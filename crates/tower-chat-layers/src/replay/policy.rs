//! The policy of the replay for an incomplete record.

/// The policy of the replay for a dangling call: a stored tool call without a stored result.
///
/// Every provider refuses a request with a dangling call. The call remains in the record in every case.
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
    /// Does not send the call, regardless of the state of its run. The model does not receive its own
    /// call. If no call of a round has a result, only the text of the round is sent.
    Drop,
    /// Like [`Interrupted`](Self::Interrupted), but a call of a run that ended intentionally is sent
    /// with its recorded result, if there is one.
    FromRecord,
    /// Sends a call whose run was interrupted with its recorded result, or with an error result that reports
    /// that the call may or may not have run. Does not send a call of a run that ended intentionally (a
    /// tool ended the run, or the call was returned to the caller and never answered).
    ///
    /// The intentional end of a run is recognised by the mark that was stored with it. A run without a
    /// mark, as in histories of earlier versions, counts as interrupted.
    #[default]
    Interrupted,
    /// Fails the request with [`DanglingCallError`](super::DanglingCallError).
    Fail,
}

impl DanglingCalls {
    /// Returns whether the replay depends on the recorded results of dangling calls.
    pub(crate) fn needs_record(self) -> bool {
        matches!(self, Self::FromRecord | Self::Interrupted)
    }
}

/// Whether a replay repairs its messages, or only completes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Stored history: the output is valid for every provider.
    Repair(DanglingCalls),
    /// A caller's own messages, which may refer to stored calls and results. Dangling calls and orphan
    /// results remain.
    Lenient,
}
