//! Reads the lines that the user writes.
//!
//! The terminal itself edits a line until it is sent (erase, kill, reprint), which every terminal
//! supports. A line editor in the program would add a history and arrow keys, but would need the
//! terminal's raw mode, in which Ctrl-C is an input byte instead of a signal, also while an answer is
//! streamed.

#[cfg(unix)]
mod terminal;
mod typed;

use std::{
    io::{self, BufRead, IsTerminal},
    thread,
    time::Duration,
};

use tokio::sync::mpsc;

pub(crate) use self::typed::TypedLine;

/// The largest number of lines that wait for an answer. A program that writes more lines is blocked.
const MAX_WAITING: usize = 64;

/// The time for which a terminal must be silent before a question. A terminal passes a large paste on in
/// pieces, without pauses between them.
const SILENCE_BEFORE: Duration = Duration::from_millis(250);

/// The time for which a terminal must be silent after an answer. If other lines follow a `y` without a
/// pause, the `y` was pasted.
const SILENCE_AFTER: Duration = Duration::from_millis(100);

/// Standard input, line by line.
///
/// A thread reads it instead of a task, because a read cannot be cancelled and the runtime would wait
/// for it at its end.
#[derive(Debug)]
pub(crate) struct Input {
    lines: mpsc::Receiver<io::Result<TypedLine>>,
    is_terminal: bool,
    #[cfg(unix)]
    terminal: Option<terminal::Control>,
}

impl Input {
    /// Begins to read.
    ///
    /// # Errors
    ///
    /// If the thread that reads a terminal cannot be started.
    pub(crate) fn open() -> io::Result<Self> {
        let (sender, lines) = mpsc::channel(MAX_WAITING);
        let is_terminal = io::stdin().is_terminal();
        #[cfg(unix)]
        if is_terminal {
            let terminal = Some(terminal::Control::start(sender)?);
            return Ok(Self { lines, is_terminal, terminal });
        }
        thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let is_last = line.is_err();
                if sender.blocking_send(line.map(TypedLine::typed)).is_err() || is_last {
                    break;
                }
            }
        });
        Ok(Self {
            lines,
            is_terminal,
            #[cfg(unix)]
            terminal: None,
        })
    }

    /// Returns whether standard input is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns the next line; `None` after the last one. Cancel safe: dropping the future loses no line.
    pub(crate) async fn next(&mut self) -> Option<io::Result<TypedLine>> {
        self.lines.recv().await
    }

    /// Drops all input that has arrived, so that it does not answer the next question: the lines that
    /// were read, the input that the terminal still buffers, and the beginning of a line. Returns when
    /// the terminal is silent.
    pub(crate) async fn drop_waiting(&mut self) {
        self.settle(SILENCE_BEFORE).await;
    }

    /// Returns whether more lines followed the last one without a pause. Drops these lines.
    pub(crate) async fn has_more_at_once(&mut self) -> bool {
        self.settle(SILENCE_AFTER).await
    }

    /// Drops lines until none has arrived for this time. Returns whether there were any.
    #[cfg(unix)]
    async fn settle(&mut self, silence: Duration) -> bool {
        let mut had_lines = false;
        if let Some(mut settled) =
            self.terminal.as_mut().and_then(|terminal| terminal.settle(silence))
        {
            loop {
                tokio::select! {
                    biased;
                    line = self.lines.recv() => match line {
                        // The thread has ended; `next` returns the end or the error.
                        None | Some(Err(_)) => return had_lines,
                        Some(Ok(_)) => had_lines = true,
                    },
                    dropped = &mut settled => {
                        had_lines |= dropped.unwrap_or(false);
                        break;
                    }
                }
            }
        }
        // The thread sends lines before it completes the request, so more lines may be in the channel.
        self.drop_read() || had_lines
    }

    #[cfg(not(unix))]
    async fn settle(&mut self, silence: Duration) -> bool {
        let mut had_lines = false;
        while let Ok(Some(Ok(_))) = tokio::time::timeout(silence, self.lines.recv()).await {
            had_lines = true;
        }
        had_lines
    }

    #[cfg(unix)]
    fn drop_read(&mut self) -> bool {
        let mut had_lines = false;
        while let Ok(Ok(_)) = self.lines.try_recv() {
            had_lines = true;
        }
        had_lines
    }
}
