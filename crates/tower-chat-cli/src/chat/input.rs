//! The lines that the user writes.
//!
//! The terminal itself edits a line until it is sent (erase, kill, reprint), which every terminal can
//! do. An editor in the program would add recalled lines and arrow keys, and put the terminal into
//! raw mode, in which Ctrl-C is a byte and no signal while an answer is streamed.

use std::{
    io::{self, BufRead, IsTerminal},
    thread,
};

use tokio::sync::mpsc;

/// How many lines may wait to be answered; a program that writes more waits.
const MOST_WAITING: usize = 64;

/// Standard input, line by line.
///
/// A thread reads it, not a task of the runtime: a read cannot be cancelled, and the runtime would wait
/// for it at the end.
#[derive(Debug)]
pub(crate) struct Input {
    lines: mpsc::Receiver<io::Result<String>>,
    is_terminal: bool,
}

impl Input {
    pub(crate) fn open() -> Self {
        let (sender, lines) = mpsc::channel(MOST_WAITING);
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let is_last = line.is_err();
                if sender.blocking_send(line).is_err() || is_last {
                    break;
                }
            }
        });
        Self { lines, is_terminal: io::stdin().is_terminal() }
    }

    /// Whether a person writes the lines.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next line; `None` after the last one. A future that is dropped takes none.
    pub(crate) async fn next(&mut self) -> Option<io::Result<String>> {
        self.lines.recv().await
    }

    /// Forgets lines that were typed before they were asked for: none of them answers a question that
    /// is only now put.
    pub(crate) fn discard_typed(&mut self) {
        while let Ok(Ok(_)) = self.lines.try_recv() {}
    }
}
