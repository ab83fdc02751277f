//! Standard output and error, of which the reader may go away.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
};

use crate::error::chain;

/// Standard output, line by line. Once nobody reads it any more, what is written is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    is_closed: bool,
}

impl Lines {
    /// Writes a line.
    pub(crate) fn write(&mut self, line: &str) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(line.as_bytes());
        let written = written.and_then(|()| stdout.write_all(b"\n"));
        self.settle(written)
    }

    /// Writes what is still buffered.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let flushed = io::stdout().lock().flush();
        self.settle(flushed)
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn settle(&mut self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written,
        }
    }
}

/// Reports an error with its causes on standard error.
pub(crate) fn complain(error: &dyn Error) {
    say(&format!("error: {}", chain(error)));
}

/// Writes a line on standard error; if nobody reads it, so be it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}
