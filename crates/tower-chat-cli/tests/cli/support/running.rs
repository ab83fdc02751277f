//! Runs a command whose standard streams are pipes or a terminal.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// The output that a process has written so far, which a thread reads.
#[derive(Clone, Default)]
struct Printed(Arc<(Mutex<Vec<u8>>, Condvar)>);

impl Printed {
    fn read(self, mut from: impl Read + Send + 'static) -> JoinHandle<()> {
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The loop ends when the process has exited, because a read of its terminal then fails.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                self.0.0.lock().unwrap().extend(&buffer[..count]);
                self.0.1.notify_all();
            }
        })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap()).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, from: usize, text: &str) -> usize {
        let end = Instant::now() + TIMEOUT;
        let mut printed = self.0.0.lock().unwrap();
        loop {
            let all = String::from_utf8_lossy(&printed).into_owned();
            if let Some(found) = all.get(from..).and_then(|rest| rest.find(text)) {
                return from + found + text.len();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{text:?} was not printed, but: {all}");
            printed = self.0.1.wait_timeout(printed, left).unwrap().0;
        }
    }
}

/// The exit code, the standard output and the standard error of a process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process whose standard streams are pipes.
pub(crate) struct Piped {
    child: Child,
    stdout: Printed,
    stderr: Printed,
    readers: Vec<JoinHandle<()>>,
}

impl Piped {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (Printed::default(), Printed::default());
        let readers = vec![
            stdout.clone().read(child.stdout.take().unwrap()),
            stderr.clone().read(child.stderr.take().unwrap()),
        ];
        Self { child, stdout, stderr, readers }
    }

    /// Writes these lines to standard input, and closes standard input.
    pub(crate) fn give(&mut self, lines: &str) {
        let mut stdin = self.child.stdin.take().unwrap();
        stdin.write_all(lines.as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn wait_for_stdout(&self, text: &str) {
        self.stdout.wait_for(0, text);
    }

    #[track_caller]
    pub(crate) fn wait_for_stderr(&self, text: &str) {
        self.stderr.wait_for(0, text);
    }

    pub(crate) fn interrupt(&self) {
        let status = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until the process has ended.
    pub(crate) fn finish(mut self) -> Ended {
        drop(self.child.stdin.take());
        let code = wait(&mut self.child);
        for reader in self.readers {
            reader.join().unwrap();
        }
        Ended { code, stdout: self.stdout.text(), stderr: self.stderr.text() }
    }
}

#[track_caller]
fn wait(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("the command did not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command with this standard input, and waits until the command has ended.
pub(crate) fn run_with_input(command: Command, input: &str) -> Ended {
    let mut piped = Piped::start(command);
    piped.give(input);
    piped.finish()
}

/// A process whose standard streams are a terminal.
pub(crate) struct OnTerminal {
    child: Child,
    terminal: Arc<pty_process::blocking::Pty>,
    printed: Printed,
    reader: JoinHandle<()>,
    /// The length of the output up to and including the text for which the test has last waited.
    seen: usize,
}

/// Reads from the terminal, while another handle writes to it.
struct Reader(Arc<pty_process::blocking::Pty>);

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        (&*self.0).read(buffer)
    }
}

impl OnTerminal {
    pub(crate) fn start(command: Command) -> Self {
        let (terminal, side) = pty_process::blocking::open().unwrap();
        terminal.resize(pty_process::Size::new(40, 100)).unwrap();
        let child = pty_process::blocking::Command::from(command).spawn(side).unwrap();
        let terminal = Arc::new(terminal);
        let printed = Printed::default();
        let reader = printed.clone().read(Reader(terminal.clone()));
        Self { child, terminal, printed, reader, seen: 0 }
    }

    /// Types these keys. `\n` is the return key, `\u{3}` is Ctrl-C, and `\u{4}` is Ctrl-D.
    pub(crate) fn types(&self, keys: &str) {
        (&*self.terminal).write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the process has printed this text after the previous one.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        self.seen = self.printed.wait_for(self.seen, text);
    }

    /// Waits until the process has ended. Returns the exit code and the whole output.
    pub(crate) fn finish(mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child);
        self.reader.join().unwrap();
        (code, self.printed.text())
    }
}
