//! Limits on the data that a server may send, and on the time for listing its tools.

use std::{io, time::Duration};

use serde::Serialize;

use crate::OverLimit;

/// Limits on a server's list of tools, and on the answer to one call.
///
/// Sizes are numbers of bytes of JSON. The bytes of a message are counted after the whole message
/// was received: only the transport can limit the size of a single message.
///
/// ```
/// use tower_chat_mcp::McpLimits;
/// let limits = McpLimits::default().with_max_pages(10).with_max_answer_bytes(1 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpLimits {
    pub(crate) pages: usize,
    pub(crate) tools: usize,
    pub(crate) list_bytes: usize,
    pub(crate) list_time: Duration,
    pub(crate) answer_bytes: usize,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            pages: 1_000,
            tools: 10_000,
            list_bytes: 16 << 20,
            list_time: Duration::from_secs(60),
            answer_bytes: 64 << 20,
        }
    }
}

impl McpLimits {
    /// Sets the maximum number of pages of a list; 1,000 by default.
    #[must_use]
    pub fn with_max_pages(mut self, pages: usize) -> Self {
        self.pages = pages;
        self
    }

    /// Sets the maximum number of tools in a list; 10,000 by default.
    #[must_use]
    pub fn with_max_tools(mut self, tools: usize) -> Self {
        self.tools = tools;
        self
    }

    /// Sets the maximum number of bytes of all tools and cursors of a list; 16 MiB by default.
    #[must_use]
    pub fn with_max_list_bytes(mut self, bytes: usize) -> Self {
        self.list_bytes = bytes;
        self
    }

    /// Sets the time limit for a complete list; a minute by default.
    #[must_use]
    pub fn with_max_list_time(mut self, time: Duration) -> Self {
        self.list_time = time;
        self
    }

    /// Sets the maximum number of bytes of the answer to one call; 64 MiB by default.
    #[must_use]
    pub fn with_max_answer_bytes(mut self, bytes: usize) -> Self {
        self.answer_bytes = bytes;
        self
    }
}

/// A counter of items called `name`, with a limit that the method `setting` sets.
pub(crate) struct Counter {
    limit: usize,
    /// The amount that can be added before the limit is exceeded.
    remaining: usize,
    name: &'static str,
    setting: &'static str,
}

impl Counter {
    pub(crate) fn new(limit: usize, name: &'static str, setting: &'static str) -> Self {
        Self { limit, remaining: limit, name, setting }
    }

    /// Adds `count` to the counter. Fails if the sum exceeds the limit.
    pub(crate) fn add(&mut self, count: usize) -> Result<(), OverLimit> {
        let Self { limit, name, setting, .. } = *self;
        let remaining = self.remaining.checked_sub(count);
        self.remaining = remaining.ok_or(OverLimit { what: name, limit, setting })?;
        Ok(())
    }

    /// Adds the number of bytes of a value's JSON. Serialization stops at the limit, and the
    /// function fails.
    pub(crate) fn add_json(&mut self, value: &impl Serialize) -> Result<(), OverLimit> {
        let mut bytes = ByteCount { bytes: 0, max: self.remaining };
        match serde_json::to_writer(&mut bytes, value) {
            Ok(()) => self.add(bytes.bytes),
            Err(_) => self.add(usize::MAX),
        }
    }
}

/// A writer that counts bytes, and fails after more than `max` bytes.
struct ByteCount {
    bytes: usize,
    max: usize,
}

impl io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
