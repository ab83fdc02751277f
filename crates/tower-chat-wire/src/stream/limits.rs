//! Limits on the size and the nesting of an answer.

use std::fmt;

use tower_chat_core::Retryability;

/// The limits on the size and the nesting of an answer. Limits in bytes apply to decompressed
/// bytes.
///
/// Each default is at least ten times the largest value in 1,100 recorded exchanges: a body of 105
/// KiB, a line and an event of 27 KB, an error of 1.4 KB, and 11 levels of nesting.
///
/// ```
/// use tower_chat_wire::stream::Limits;
/// let limits = Limits::default().with_max_body_bytes(1024 * 1024).with_max_depth(32);
/// assert_eq!(limits.max_depth, 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of bytes of a whole answer, or of all events of a streamed answer. 64 MiB
    /// by default.
    pub max_body_bytes: usize,
    /// The maximum number of bytes of a line of a stream. 16 MiB by default, which is enough for a
    /// generated image.
    pub max_line_bytes: usize,
    /// The maximum number of bytes of an event of a stream. An event may have several lines. 16 MiB
    /// by default.
    pub max_event_bytes: usize,
    /// The maximum number of bytes that are read from the body of an error response. 256 KiB by
    /// default.
    pub max_error_bytes: usize,
    /// The maximum number of levels of nested objects and lists in an answer. 120 by default.
    pub max_depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            max_body_bytes: 64 * MIB,
            max_line_bytes: 16 * MIB,
            max_event_bytes: 16 * MIB,
            max_error_bytes: MIB / 4,
            max_depth: 120,
        }
    }
}

impl Limits {
    /// Sets the maximum number of bytes of a whole answer, or of all events of a streamed answer.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets the maximum number of bytes of a line of a stream.
    #[must_use]
    pub fn with_max_line_bytes(mut self, bytes: usize) -> Self {
        self.max_line_bytes = bytes;
        self
    }

    /// Sets the maximum number of bytes of an event of a stream.
    #[must_use]
    pub fn with_max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Sets the maximum number of bytes of the body of an error response. The rest of a longer body
    /// is not read.
    #[must_use]
    pub fn with_max_error_bytes(mut self, bytes: usize) -> Self {
        self.max_error_bytes = bytes;
        self
    }

    /// Sets the maximum number of levels of nested objects and lists.
    #[must_use]
    pub fn with_max_depth(mut self, levels: usize) -> Self {
        self.max_depth = levels;
        self
    }

    /// Returns an error if `found` exceeds the limit.
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`], if `found` exceeds the limit.
    pub fn check(&self, limit: Limit, found: usize) -> Result<(), LimitExceeded> {
        let max = self.max(limit);
        if found > max { Err(LimitExceeded { limit, max }) } else { Ok(()) }
    }

    /// Returns the value of a limit.
    pub fn max(&self, limit: Limit) -> usize {
        match limit {
            Limit::Body => self.max_body_bytes,
            Limit::Line => self.max_line_bytes,
            Limit::Event => self.max_event_bytes,
            Limit::Error => self.max_error_bytes,
            Limit::Depth => self.max_depth,
        }
    }
}

/// One of the limits in [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The size of a whole answer, or of all events of a streamed answer.
    Body,
    /// The size of a line of a stream.
    Line,
    /// The size of an event of a stream.
    Event,
    /// The size of the body of an error response.
    Error,
    /// The number of levels of nested objects and lists.
    Depth,
}

impl Limit {
    /// Returns the name of the field of [`Limits`] that contains this limit.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Body => "max_body_bytes",
            Self::Line => "max_line_bytes",
            Self::Event => "max_event_bytes",
            Self::Error => "max_error_bytes",
            Self::Depth => "max_depth",
        }
    }
}

/// The error of an answer that exceeds a limit. The answer to a retry of the same request will
/// probably exceed the limit too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitExceeded {
    /// The limit that the answer exceeds.
    pub limit: Limit,
    /// The value of the limit, in bytes or levels.
    pub max: usize,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, unit) = match self.limit {
            Limit::Body => ("the answer is longer than", "bytes"),
            Limit::Line => ("a line of the answer's stream is longer than", "bytes"),
            Limit::Event => ("an event of the answer's stream is longer than", "bytes"),
            Limit::Error => ("the body of the refusal is longer than", "bytes"),
            Limit::Depth => ("the answer's JSON is nested more deeply than", "levels"),
        };
        let setting = self.limit.setting();
        write!(f, "{what} {} {unit}: the limit is Limits::{setting}", self.max)
    }
}

impl std::error::Error for LimitExceeded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(Retryability::Permanent.as_source())
    }
}
