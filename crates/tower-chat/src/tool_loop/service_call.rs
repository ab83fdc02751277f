//! Which service call of its run a request is.

/// The request extension that numbers the service calls of a run.
///
/// A retry below the loop sends the same number again, so that a persister can tell a repeated
/// call from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceCall {
    /// The call's place among those of its run, from 0.
    pub ordinal: u32,
}
