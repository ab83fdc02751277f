//! The thread that reads a terminal.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::mpsc::{self as channel, TryRecvError},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{read, retry_on_intr},
    termios::{QueueSelector, tcflush},
};
use tokio::sync::{mpsc, oneshot};

use super::typed::{TypedLine, TypedLines};

/// A handle by which the chat sends requests to the thread that reads the terminal.
#[derive(Debug)]
pub(super) struct Control {
    requests: channel::Sender<Settle>,
    /// The end of a socket pair to which a byte is written to wake the thread.
    wakes: UnixStream,
}

/// A request to drop input until the terminal has sent none for the time `silence`.
#[derive(Debug)]
struct Settle {
    silence: Duration,
    /// The channel by which the thread reports whether it has dropped lines.
    dropped: oneshot::Sender<bool>,
}

impl Control {
    pub(super) fn start(lines: mpsc::Sender<io::Result<TypedLine>>) -> io::Result<Self> {
        let (wakes, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let (requests, received) = channel::channel();
        let reader = Reader { lines, requests: received, woken, typed: TypedLines::default() };
        thread::spawn(move || reader.run());
        Ok(Self { requests, wakes })
    }

    /// Requests to drop input until there was none for `silence`. `None` if the thread has ended.
    pub(super) fn settle(&mut self, silence: Duration) -> Option<oneshot::Receiver<bool>> {
        let (dropped, settled) = oneshot::channel();
        self.requests.send(Settle { silence, dropped }).ok()?;
        self.wakes.write_all(&[0]).ok()?;
        Some(settled)
    }
}

struct Reader {
    lines: mpsc::Sender<io::Result<TypedLine>>,
    requests: channel::Receiver<Settle>,
    woken: UnixStream,
    typed: TypedLines,
}

/// The result of reading the terminal.
enum Found {
    Lines(Vec<io::Result<TypedLine>>),
    End,
}

impl Reader {
    /// Sends lines to the chat until the terminal is closed or the receiver is dropped.
    fn run(mut self) {
        loop {
            match self.wait(None) {
                // A request is handled before the terminal is read, because input that arrived
                // before a question must not answer the question.
                Ok((_, true)) => {
                    if self.settle().is_none() {
                        return;
                    }
                }
                Ok((true, false)) => match self.read() {
                    Found::Lines(lines) => {
                        for line in lines {
                            let is_last = line.is_err();
                            if self.lines.blocking_send(line).is_err() || is_last {
                                return;
                            }
                        }
                    }
                    Found::End => {
                        if let Some(line) = self.typed.end() {
                            let _ = self.lines.blocking_send(line);
                        }
                        return;
                    }
                },
                Ok((false, false)) => {}
                Err(error) => {
                    let _ = self.lines.blocking_send(Err(error));
                    return;
                }
            }
        }
    }

    /// Handles all requests: drops the input that has arrived, and later input until the terminal
    /// has sent none for the requested time.
    fn settle(&mut self) -> Option<()> {
        let mut wakes = [0; 16];
        while matches!(self.woken.read(&mut wakes), Ok(1..)) {}
        loop {
            let Settle { silence, dropped } = match self.requests.try_recv() {
                Ok(request) => request,
                Err(TryRecvError::Empty) => return Some(()),
                Err(TryRecvError::Disconnected) => return None,
            };
            let mut had_lines = false;
            while matches!(self.wait(Some(silence)), Ok((true, _))) {
                match self.read() {
                    Found::Lines(lines) => had_lines |= !lines.is_empty(),
                    Found::End => return None,
                }
            }
            // During a paste, the rest is not dropped. The thread must read the marker at the end
            // of the paste, because all lines up to this marker are pasted text.
            if !self.typed.is_in_paste() {
                let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                self.typed.drop_beginning();
            }
            let _ = dropped.send(had_lines);
        }
    }

    /// Waits until the terminal has input or the chat sends a request. With `time`, waits at most
    /// for this time, and only for the terminal. Returns whether there is input, and whether there
    /// is a request.
    fn wait(&self, time: Option<Duration>) -> io::Result<(bool, bool)> {
        let stdin = io::stdin();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let mut watched =
            [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
        let [terminal, _] = &mut watched;
        match &time {
            Some(time) => retry_on_intr(|| poll(std::slice::from_mut(terminal), Some(time)))?,
            None => retry_on_intr(|| poll(&mut watched, None))?,
        };
        let [terminal, wake] = &watched;
        Ok((!terminal.revents().is_empty(), !wake.revents().is_empty()))
    }

    /// Reads the terminal. An error means that the terminal was closed.
    fn read(&mut self) -> Found {
        let mut buffer = [0; 4096];
        match retry_on_intr(|| read(io::stdin(), &mut buffer)) {
            Ok(0) | Err(_) => Found::End,
            Ok(count) => Found::Lines(self.typed.take(buffer.get(..count).unwrap_or_default())),
        }
    }
}
