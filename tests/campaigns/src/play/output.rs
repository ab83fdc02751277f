//! Standard output and error, of which the reader may go away.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
};

use tower_chat::visible_text;

use super::error::chain;

/// Standard output, line by line. Once it cannot be written any more, the rest is dropped, so that the
/// conversations are still played.
#[derive(Debug, Default)]
pub(super) struct Lines {
    failed: Option<io::Error>,
}

impl Lines {
    /// Writes a line to be read: ids and texts in it are chosen by the file, so characters that a terminal obeys are
    /// escapes.
    pub(super) fn write(&mut self, line: &str) {
        self.write_exactly(&visible_text(line, &[]));
    }

    /// Writes a line as it is.
    pub(super) fn write_exactly(&mut self, line: &str) {
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(line.as_bytes());
            self.failed = written.and_then(|()| stdout.write_all(b"\n")).err();
        }
    }

    /// Writes what is still buffered, and returns whether everything was written. A reader that has closed the pipe is
    /// no error.
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
