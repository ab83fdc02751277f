//! Reads the lines of standard input.
//!
//! The user edits a line with the functions of the terminal's line discipline (erase, kill,
//! reprint). A line editor in the program would offer a history and arrow keys, but would require
//! the raw mode of the terminal, in which Ctrl-C is an input byte instead of a signal, even while
//! an answer is streamed.

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

/// The maximum number of lines that are read ahead. A program that writes more lines waits.
const MAX_WAITING: usize = 64;

/// The time for which a terminal must send no input before a question is printed. A terminal sends
/// a large paste in pieces, without pauses between the pieces.
const SILENCE_BEFORE: Duration = Duration::from_millis(250);

/// The time for which a terminal must send no input after an answer. If other lines follow a `y`
/// without a pause, the `y` was pasted.
const SILENCE_AFTER: Duration = Duration::from_millis(100);

/// Standard input, line by line.
///
/// Standard input is read on a separate thread and not on tokio's blocking pool, because a read
/// cannot be cancelled, and the shutdown of the runtime would wait for a read on the blocking pool.
#[derive(Debug)]
pub(crate) struct Input {
    lines: mpsc::Receiver<io::Result<TypedLine>>,
    is_terminal: bool,
    #[cfg(unix)]
    terminal: Option<terminal::Control>,
}

impl Input {
    /// Starts the thread that reads standard input.
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

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns the next line, or `None` after the last line. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<TypedLine>> {
        self.lines.recv().await
    }

    /// Drops the input that has arrived, including an incomplete line, so that it cannot answer the
    /// next question. Returns when the terminal has sent no input for [`SILENCE_BEFORE`].
    pub(crate) async fn drop_waiting(&mut self) {
        self.settle(SILENCE_BEFORE).await;
    }

    /// Returns whether other lines followed the last line without a pause, and drops these lines.
    pub(crate) async fn has_more_at_once(&mut self) -> bool {
        self.settle(SILENCE_AFTER).await
    }

    /// Drops lines until none has arrived for `silence`. Returns whether any was dropped.
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
                        // The thread has ended, and `next` returns `None` from now on.
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
        // The thread may have sent further lines before it answered the request.
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
