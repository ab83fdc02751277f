//! Writes to standard output and standard error. The reader of a pipe may close it at any time.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
};

use tower_chat::message::visible_text;

use super::error::chain;

/// Writes lines to standard output. After the first failed write, all further lines are dropped,
/// but the remaining conversations are still played.
#[derive(Debug, Default)]
pub(super) struct Lines {
    failed: Option<io::Error>,
}

impl Lines {
    /// Writes a line for a terminal. Control characters are escaped, because ids and texts of a
    /// recording may contain them.
    pub(super) fn write(&mut self, line: &str) {
        self.write_exactly(&visible_text(line, &[]));
    }

    pub(super) fn write_exactly(&mut self, line: &str) {
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(line.as_bytes());
            self.failed = written.and_then(|()| stdout.write_all(b"\n")).err();
        }
    }

    /// Flushes the output, and returns the error of the first failed write. A closed pipe is not an error.
    pub(super) fn finish(self) -> io::Result<()> {
        let finished = self.failed.map_or_else(|| io::stdout().lock().flush(), Err);
        finished.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }
}

/// Writes an error with its causes to standard error.
pub(super) fn complain(error: &dyn Error) {
    let _ = writeln!(io::stderr().lock(), "error: {}", visible_text(&chain(error), &[]));
}
