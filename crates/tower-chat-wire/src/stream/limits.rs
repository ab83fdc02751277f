//! How much of an answer a model client takes.

use std::fmt;

use tower_chat_core::Retryability;

/// How large an answer may be. Each limit counts what is there after decompression.
///
/// The defaults are at least ten times what the largest of 1,100 recorded exchanges reaches: 105
/// KiB of a body, 27 KB of a line and an event, 1.4 KB of an error, 11 levels of nesting.
///
/// ```
/// use tower_chat_wire::stream::Limits;
/// let limits = Limits::default().with_max_body_bytes(1024 * 1024).with_max_depth(32);
/// assert_eq!(limits.max_depth, 32);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The bytes of a whole answer, or of all events of a streamed one: 64 MiB.
    pub max_body_bytes: usize,
    /// The bytes of a line of a stream: 16 MiB, in which a generated picture fits.
    pub max_line_bytes: usize,
    /// The bytes of an event of a stream, which may have several lines: 16 MiB.
    pub max_event_bytes: usize,
    /// The bytes that are read of the body of a refusal: 256 KiB.
    pub max_error_bytes: usize,
    /// How deeply objects and lists of an answer are nested: 120 levels.
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
    /// Sets the limit of a whole answer, or of all events of a streamed one, in bytes.
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: usize) -> Self {
        self.max_body_bytes = bytes;
        self
    }

    /// Sets the limit of a line of a stream, in bytes.
    #[must_use]
    pub fn with_max_line_bytes(mut self, bytes: usize) -> Self {
        self.max_line_bytes = bytes;
        self
    }

    /// Sets the limit of an event of a stream, in bytes.
    #[must_use]
    pub fn with_max_event_bytes(mut self, bytes: usize) -> Self {
        self.max_event_bytes = bytes;
        self
    }

    /// Sets the limit of the body of a refusal, in bytes. What is longer is cut off there.
    #[must_use]
    pub fn with_max_error_bytes(mut self, bytes: usize) -> Self {
        self.max_error_bytes = bytes;
        self
    }

    /// Sets how deeply objects and lists may be nested.
    #[must_use]
    pub fn with_max_depth(mut self, levels: usize) -> Self {
        self.max_depth = levels;
        self
    }

    /// Fails if there is more of something than its limit allows.
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`].
    pub fn check(&self, limit: Limit, found: usize) -> Result<(), LimitExceeded> {
        let max = self.max(limit);
        if found > max { Err(LimitExceeded { limit, max }) } else { Ok(()) }
    }

    /// How much of something is allowed.
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

/// What of an answer is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// A whole answer, or all events of a streamed one.
    Body,
    /// A line of a stream.
    Line,
    /// An event of a stream.
    Event,
    /// The body of a refusal.
    Error,
    /// The nesting of objects and lists.
    Depth,
}

impl Limit {
    /// The name of the setting, a field of [`Limits`].
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

/// An answer is larger than a limit allows. The same request will likely exceed it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitExceeded {
    /// The limit.
    pub limit: Limit,
    /// How much it allows, in bytes or levels.
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
