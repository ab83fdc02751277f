//! Prints the output of a chat: answers to standard output, and all other text to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use tower_chat::message::VisiblePieces;

use crate::output::{KEPT_IN_TEXT, escaped};

const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

/// The escape sequence that enables bracketed paste mode, in which a terminal marks pasted text.
const MARK_PASTES: &str = "\u{1b}[?2004h";
const MARK_NO_PASTES: &str = "\u{1b}[?2004l";

/// The kind of text in the current line of the output, which has no line feed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenLine {
    Answer,
    Reasoning,
}

/// Sets which texts are printed in addition to answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScreenOptions {
    /// Whether the reasoning of the model is printed.
    pub(crate) reasoning: bool,
    /// Whether a prompt for the user is printed.
    pub(crate) has_prompt: bool,
}

/// Prints the output of a chat. After a failed write, later parts of answers are not printed.
#[derive(Debug)]
pub(crate) struct Screen {
    options: ScreenOptions,
    has_colours: bool,
    open: Option<OpenLine>,
    /// Escapes control characters in the pieces of the current answer or reasoning.
    pieces: VisiblePieces<'static>,
    failed: Option<io::Error>,
    marks_pastes: bool,
}

impl Screen {
    pub(crate) fn new(options: ScreenOptions) -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let has_colours = is_wanted && io::stderr().is_terminal();
        let pieces = VisiblePieces::new(KEPT_IN_TEXT);
        Self { options, has_colours, open: None, pieces, failed: None, marks_pastes: false }
    }

    /// Enables bracketed paste mode. Dropping the screen disables the mode.
    pub(crate) fn mark_pastes(&mut self) {
        if self.options.has_prompt && io::stderr().is_terminal() {
            self.marks_pastes = true;
            self.write_note(MARK_PASTES);
        }
    }

    /// Prints a delta of an answer. Control characters other than line feeds are escaped.
    pub(crate) fn answer(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.open == Some(OpenLine::Reasoning) {
            self.end_line();
        }
        let text = self.pieces.push(text);
        self.write_answer(&text);
        self.open = (!text.ends_with('\n')).then_some(OpenLine::Answer);
    }

    /// Prints a delta of reasoning if [`ScreenOptions::reasoning`] is set.
    pub(crate) fn reasoning(&mut self, text: &str) {
        if !self.options.reasoning || text.is_empty() {
            return;
        }
        if self.open == Some(OpenLine::Answer) {
            self.end_line();
        }
        let text = self.pieces.push(text);
        self.write_thought(text);
        self.open = Some(OpenLine::Reasoning);
    }

    /// Writes a line feed if the current line is not empty.
    pub(crate) fn end_line(&mut self) {
        let rest = self.pieces.finish();
        match self.open.take() {
            Some(OpenLine::Answer) => self.write_answer(&format!("{rest}\n")),
            Some(OpenLine::Reasoning) => {
                self.write_thought(rest);
                self.write_note("\n");
            }
            None => {}
        }
    }

    /// Prints a line of text about the chat to standard error.
    pub(crate) fn note(&mut self, line: &str) {
        self.end_line();
        let line = escaped(line);
        let line =
            if self.has_colours { format!("{DIM}{line}{PLAIN}\n") } else { format!("{line}\n") };
        self.write_note(&line);
    }

    /// Prints a question for the user, without a line feed.
    pub(crate) fn ask(&mut self, question: &str) {
        self.end_line();
        self.write_note(&escaped(question));
    }

    pub(crate) fn prompt(&mut self) {
        if self.options.has_prompt {
            self.ask("> ");
        }
    }

    /// Returns `true` until a write to standard output has failed.
    pub(crate) fn is_open(&self) -> bool {
        self.failed.is_none()
    }

    /// Flushes the output. A pipe that its reader has closed is not an error.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.end_line();
        match self.failed.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    fn write_answer(&mut self, text: &str) {
        if self.failed.is_none() {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
            self.failed = written.err();
        }
    }

    fn write_thought(&mut self, text: String) {
        let is_coloured = self.has_colours && !text.is_empty();
        self.write_note(&if is_coloured { format!("{DIM}{text}{PLAIN}") } else { text });
    }

    /// Writes to standard error, which is not buffered.
    fn write_note(&mut self, text: &str) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.marks_pastes {
            self.write_note(MARK_NO_PASTES);
        }
    }
}
