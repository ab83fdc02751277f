//! Standard output and error, of which the reader may go away.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
};

use crate::error::chain;

/// Standard output, line by line. Once it cannot be written any more, the rest is dropped, so that
/// what a command does besides printing goes on.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    failed: Option<io::Error>,
}

impl Lines {
    /// Writes a line.
    pub(crate) fn write(&mut self, line: &str) {
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(line.as_bytes());
            self.failed = written.and_then(|()| stdout.write_all(b"\n")).err();
        }
    }

    /// Whether more lines can be written.
    pub(crate) fn are_open(&self) -> bool {
        self.failed.is_none()
    }

    /// Writes what is still buffered, and says whether everything was written. A reader who went
    /// away has seen enough: that is no error.
    pub(crate) fn finish(self) -> io::Result<()> {
        let finished = self.failed.map_or_else(|| io::stdout().lock().flush(), Err);
        finished.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }
}

/// Reports an error with its causes on standard error.
pub(crate) fn complain(error: &dyn Error) {
    let _ = writeln!(io::stderr().lock(), "error: {}", chain(error));
}
