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

/// Rows as lines, their columns aligned: texts to the left, numbers to the right.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    // A name may hold anything; a row is one line.
    let printable = |cell: &String| -> String {
        cell.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
    };
    let rows: Vec<[String; COLUMNS]> =
        rows.iter().map(|row| row.each_ref().map(printable)).collect();
    let columns: Vec<(usize, bool)> = (0..COLUMNS)
        .map(|column| {
            let cells = || rows.iter().filter_map(|row| row.get(column));
            let width = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
            let is_number = |cell: &String| cell == "-" || cell.parse::<f64>().is_ok();
            (width, cells().skip(1).all(is_number))
        })
        .collect();
    let aligned = |(cell, (width, to_the_right)): (&String, &(usize, bool))| {
        if *to_the_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    };
    rows.iter()
        .map(|row| {
            let cells: Vec<String> = row.iter().zip(&columns).map(aligned).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// Reports an error with its causes on standard error.
pub(crate) fn complain(error: &dyn Error) {
    let _ = writeln!(io::stderr().lock(), "error: {}", chain(error));
}
