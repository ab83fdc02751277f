//! What replay does where the record is incomplete.

/// What becomes of a dangling call: a stored tool call with no stored result.
///
/// Every provider refuses a request that holds one. The record keeps it in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DanglingCalls {
    /// Leave the call out. A round in which no call was answered disappears; its text stays.
    #[default]
    Drop,
    /// Complete the call with the result in the record of tool calls, where it has one; leave it
    /// out otherwise.
    FromRecord,
    /// Keep the call, with an error result that says it may or may not have run.
    Interrupted,
    /// Fail the request with [`DanglingCallError`](super::DanglingCallError).
    Fail,
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
