//! Writes to standard output and standard error, and escapes the text.

use std::{
    error::Error,
    io::{self, ErrorKind, IsTerminal as _, Write},
};

use tower_chat::{
    mcp::without_secrets,
    message::{visible_json, visible_text},
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::error::chain;

/// Returns the text with an escape sequence instead of each control character and each invisible
/// character, as described for [`visible_text`].
///
/// All output for people is escaped, because users, models and files determine the ids, the names
/// of tools and the texts of errors. JSON output is not escaped by this function but by
/// [`Lines::write_json`].
pub(crate) fn escaped(text: &str) -> String {
    visible_text(text, &[])
}

/// Like [`escaped`], but line feeds and tabs are not escaped.
pub(crate) fn escaped_text(text: &str) -> String {
    visible_text(text, KEPT_IN_TEXT)
}

/// The control characters that are not escaped in a text of several lines.
pub(crate) const KEPT_IN_TEXT: &[char] = &['\n', '\t'];

/// Writes lines to standard output. After a failed write, later lines are dropped.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    failed: Option<io::Error>,
}

impl Lines {
    /// Writes a line for people. The line is [escaped].
    pub(crate) fn write(&mut self, line: &str) {
        self.write_exactly(&escaped(line));
    }

    /// Writes a line of JSON, which is unchanged for programs. On a terminal, invisible characters
    /// become JSON escape sequences, as described for [`visible_json`].
    pub(crate) fn write_json(&mut self, line: &str) {
        match io::stdout().is_terminal() {
            true => self.write_exactly(&visible_json(line)),
            false => self.write_exactly(line),
        }
    }

    /// Writes a line whose stored content the caller has escaped.
    pub(crate) fn write_exactly(&mut self, line: &str) {
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(line.as_bytes());
            self.failed = written.and_then(|()| stdout.write_all(b"\n")).err();
        }
    }

    /// Returns `true` until a write has failed.
    pub(crate) fn are_open(&self) -> bool {
        self.failed.is_none()
    }

    /// Flushes the buffered lines. A pipe that its reader has closed is not an error.
    pub(crate) fn finish(self) -> io::Result<()> {
        let finished = self.failed.map_or_else(|| io::stdout().lock().flush(), Err);
        finished.or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        })
    }
}

/// Returns the number and the noun. Unless the number is 1, an `s` is appended to the noun.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Converts a length to the number type of [`counted`].
pub(crate) fn count_of(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Formats rows as lines with aligned columns. Columns of texts are aligned to the left, columns of
/// numbers to the right. The first row is the heading.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    table_of(rows)
}

/// Like [`table`], for rows whose number of columns is determined at run time.
pub(crate) fn table_of(rows: &[impl AsRef<[String]>]) -> Vec<String> {
    // An escape sequence is wider than its character.
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.as_ref().iter().map(|cell| escaped(cell)).collect()).collect();
    let columns = columns_of(&rows);
    rows.iter().map(|row| aligned(row, &columns)).collect()
}

/// Like [`table`], but shortens the cells of the column with the index `flexible`, so that the
/// lines fit into `width` columns of the terminal, as far as `MIN_WIDTH` permits.
pub(crate) fn table_within<const COLUMNS: usize>(
    rows: &[[String; COLUMNS]],
    flexible: usize,
    width: Option<usize>,
) -> Vec<String> {
    /// The minimum width of a shortened cell, in columns of the terminal.
    const MIN_WIDTH: usize = 8;
    let widest = |lines: &[String]| lines.iter().map(|line| line.width()).max().unwrap_or(0);
    let whole = table_of(rows);
    let Some(excess) = width.and_then(|width| widest(&whole).checked_sub(width)) else {
        return whole;
    };
    let cells = || rows.iter().filter_map(|row| row.get(flexible));
    let now = cells().map(|cell| escaped(cell).width()).max().unwrap_or(0);
    let limit = now.saturating_sub(excess).max(MIN_WIDTH);
    let mut rows = rows.to_vec();
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(flexible)) {
        *cell = within(&escaped(cell), limit);
    }
    table_of(&rows)
}

/// Returns a text of at most `columns` columns, shortened with an ellipsis.
pub(crate) fn within(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |character: &char| {
        let width = character.width().unwrap_or(0);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let mut cut: String = text.chars().take_while(fits).collect();
    cut.push('…');
    cut
}

/// Returns the value of `COLUMNS`, or the width of the terminal, if there is one.
pub(crate) fn terminal_width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).or_else(|| {
        let terminal = console::Term::stdout();
        let size = terminal.is_term().then(|| terminal.size_checked()).flatten();
        size.map(|(_, columns)| usize::from(columns))
    })
}

/// Returns the width of each column, and whether the column contains numbers only. A column of
/// numbers may also contain `-` and empty cells. The heading is ignored.
fn columns_of(rows: &[Vec<String>]) -> Vec<(usize, bool)> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let column = |column: usize| {
        let cells = || rows.iter().filter_map(move |row| row.get(column));
        let width = cells().map(|cell| cell.width()).max().unwrap_or(0);
        let is_number =
            |cell: &String| matches!(cell.as_str(), "-" | "") || cell.parse::<f64>().is_ok();
        (width, cells().skip(1).all(is_number))
    };
    (0..count).map(column).collect()
}

fn aligned(row: &[String], columns: &[(usize, bool)]) -> String {
    let cell = |(cell, (width, to_the_right)): (&String, &(usize, bool))| {
        let padding = " ".repeat(width.saturating_sub(cell.width()));
        if *to_the_right { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
    };
    let cells: Vec<String> = row.iter().zip(columns).map(cell).collect();
    cells.join("  ").trim_end().to_owned()
}

/// Writes an error with its sources to standard error, without secrets in addresses.
pub(crate) fn print_error(error: &dyn Error) {
    let _ = writeln!(io::stderr().lock(), "error: {}", escaped(&without_secrets(&chain(error))));
}

/// Writes an error about the command line arguments to standard error.
pub(crate) fn refuse_arguments(error: &str) {
    let _ = write!(io::stderr().lock(), "{}", escaped_text(&without_secrets(error)));
}

/// Writes each log event to standard error, as one [escaped] line without secrets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EscapedStderr;

impl EscapedStderr {
    /// Writes a line. Errors are ignored.
    pub(crate) fn write_line(line: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", escaped(line));
    }
}

impl Write for EscapedStderr {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = without_secrets(text.strip_suffix('\n').unwrap_or(&text));
        let line = escaped(&line);
        writeln!(io::stderr().lock(), "{line}")?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_a_terminal_does_not_show_are_escaped() {
        for (text, expected) in [
            ("plain, é, 漢字, 👩\u{200d}🚀", "plain, é, 漢字, 👩\u{200d}🚀"),
            ("C:\\chat.db \"quoted\"", "C:\\chat.db \"quoted\""),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{9b}2J\u{7f}\u{0}\u{8}", "\\u{9b}2J\\u{7f}\\u{0}\\u{8}"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("a\u{202e}b\u{2066}c\u{2028}d\u{200f}", "a\\u{202e}b\\u{2066}c\\u{2028}d\\u{200f}"),
            ("pay\u{200b}pal\u{e0041}\u{ad}", "pay\\u{200b}pal\\u{e0041}\\u{ad}"),
        ] {
            assert_eq!(escaped(text), expected);
            assert_eq!(escaped(expected), expected, "escaping twice changes nothing");
        }
    }

    #[test]
    fn columns_are_aligned_by_the_width_of_the_escaped_text() {
        let rows = [["id", "n"], ["a\u{1b}[1m", "1"], ["longer than that", "22"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let lines = table(&rows);
        assert_eq!(lines[1], "a\\u{1b}[1m         1");
        assert_eq!(lines[2], "longer than that  22");
    }

    #[test]
    fn wide_characters_take_two_columns_and_combining_marks_none() {
        let rows = [["id", "n"], ["漢字", "1"], ["e\u{301}", "22"], ["abcde", "-"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let expected = ["id      n", "漢字    1", "e\u{301}      22", "abcde   -"];
        assert_eq!(table(&rows), expected);
    }

    #[test]
    fn the_flexible_column_is_shortened_if_the_terminal_is_narrow() {
        let rows = [["id", "title", "n"], ["a", "漢字 in a long title", "1"], ["b", "-", "2"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let whole = [
            "id  title                 n",
            "a   漢字 in a long title  1",
            "b   -                     2",
        ];
        for width in [None, Some(200), Some(27)] {
            assert_eq!(table_within(&rows, 1, width), whole, "{width:?}");
        }
        let cut = ["id  title           n", "a   漢字 in a lon…  1", "b   -               2"];
        assert_eq!(table_within(&rows, 1, Some(21)), cut);
        let least = ["id  title     n", "a   漢字 in…  1", "b   -         2"];
        assert_eq!(table_within(&rows, 1, Some(3)), least);
        assert_eq!(within("漢字", 3), "漢…");
        assert_eq!(within("漢字", 4), "漢字");
    }
}
