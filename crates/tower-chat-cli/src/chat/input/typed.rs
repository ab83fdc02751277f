//! Divides the bytes that a terminal sends into lines, and recognises pasted text.

use std::io;

/// The marker that a terminal in bracketed paste mode sends before pasted text.
const PASTE_BEGINS: &[u8] = b"\x1b[200~";
const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// A line of input. Pasted text forms one line, even if it contains line feeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedLine {
    pub(crate) text: String,
    /// Whether a part of the line was pasted. Such a line does not answer a question.
    pub(crate) is_pasted: bool,
}

impl TypedLine {
    /// Creates a line without pasted text.
    pub(crate) fn typed(text: String) -> Self {
        Self { text, is_pasted: false }
    }
}

/// Assembles lines from the bytes that a terminal sends.
#[derive(Debug, Default)]
pub(super) struct TypedLines {
    /// The bytes after the last line feed, which may contain markers of a paste.
    unread: Vec<u8>,
    /// The text of the current line. During a paste, this text may contain several lines.
    text: Vec<u8>,
    is_in_paste: bool,
    is_pasted: bool,
}

impl TypedLines {
    /// Adds bytes. Returns the lines that are now complete, with an error for a line that is not
    /// UTF-8.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Vec<io::Result<TypedLine>> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                lines.extend(self.end_line());
            } else {
                self.unread.push(*byte);
            }
        }
        lines
    }

    /// Ends the input. Returns the text after the last line feed, unless it is empty.
    pub(super) fn end(&mut self) -> Option<io::Result<TypedLine>> {
        self.read_markers();
        self.is_in_paste = false;
        let is_empty = self.text.is_empty();
        let line = self.line();
        (!is_empty).then_some(line)
    }

    /// Returns whether the beginning of a paste was read but not its end.
    pub(super) fn is_in_paste(&self) -> bool {
        self.is_in_paste
    }

    /// Drops an incomplete line.
    pub(super) fn drop_beginning(&mut self) {
        *self = Self::default();
    }

    fn end_line(&mut self) -> Option<io::Result<TypedLine>> {
        self.read_markers();
        if self.is_in_paste {
            self.text.push(b'\n');
            return None;
        }
        Some(self.line())
    }

    /// Moves the unread bytes to the text, without the markers of a paste.
    fn read_markers(&mut self) {
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        while let Some((first, after)) = rest.split_first() {
            if let Some(after) = rest.strip_prefix(PASTE_BEGINS) {
                (self.is_in_paste, self.is_pasted, rest) = (true, true, after);
            } else if let Some(after) = rest.strip_prefix(PASTE_ENDS) {
                (self.is_in_paste, self.is_pasted, rest) = (false, true, after);
            } else {
                self.text.push(*first);
                rest = after;
            }
        }
    }

    fn line(&mut self) -> io::Result<TypedLine> {
        let mut bytes = std::mem::take(&mut self.text);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        let is_pasted = std::mem::take(&mut self.is_pasted);
        match String::from_utf8(bytes) {
            Ok(text) => Ok(TypedLine { text, is_pasted }),
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the line is not valid UTF-8"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines in these pieces of input, and whether a part of each was pasted.
    fn lines(pieces: &[&str]) -> Vec<(String, bool)> {
        let mut typed = TypedLines::default();
        let mut lines: Vec<_> =
            pieces.iter().flat_map(|piece| typed.take(piece.as_bytes())).collect();
        lines.extend(typed.end());
        lines
            .into_iter()
            .map(|line| line.map(|line| (line.text, line.is_pasted)).unwrap())
            .collect()
    }

    #[test]
    fn a_bracketed_paste_is_one_line_and_is_marked_as_pasted() {
        for (pieces, expected) in [
            (&["one\ntwo\n"][..], &[("one", false), ("two", false)][..]),
            (&["o", "ne\r\ntw", "o"], &[("one", false), ("two", false)]),
            (
                &["\u{1b}[200~one\ny\ntwo\u{1b}[201~\n", "y\n"],
                &[("one\ny\ntwo", true), ("y", false)],
            ),
            (
                &["\u{1b}[20", "0~one\n", "y\n\u{1b}[20", "1~\ny\n"],
                &[("one\ny\n", true), ("y", false)],
            ),
            (&["yes, \u{1b}[200~y\u{1b}[201~\n"], &[("yes, y", true)]),
            // The marker at the beginning of the paste was dropped.
            (&["y\u{1b}[201~\ny\n"], &[("y", true), ("y", false)]),
            // The input ends before the paste ends.
            (&["\u{1b}[200~one\ny\n"], &[("one\ny\n", true)]),
            (&["\n\u{1b}[A\n"], &[("", false), ("\u{1b}[A", false)]),
            (&[], &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(text, pasted)| ((*text).to_owned(), *pasted)).collect();
            assert_eq!(lines(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_line_that_is_not_utf_8_is_an_error() {
        let mut typed = TypedLines::default();
        let read = typed.take(b"\xff\xfe\nwell\n");
        assert!(read[0].is_err());
        assert_eq!(read[1].as_ref().unwrap().text, "well");
    }
}
