//! One of the two processes, as the campaign sees it.

use std::{collections::HashMap, path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{self, ChildStdin, ChildStdout},
    sync::mpsc,
};

use super::{
    protocol::{Command, Report},
    store::Location,
};
use crate::Failure;

/// What a process has told, or that it has told everything.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) child: usize,
    /// `None` at the end of its output.
    pub(super) report: Option<Report>,
}

/// What a process does with a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// How many restarts of its store there were when it began.
    Run {
        restarts: u64,
    },
    Prune,
}

#[derive(Debug)]
pub(super) struct Child {
    process: process::Child,
    commands: Option<ChildStdin>,
    pub(super) is_open: bool,
    pub(super) was_killed: bool,
    pub(super) work: HashMap<u32, Work>,
    /// Begun and ended restarts of its store.
    pub(super) restarts: u64,
    /// The last measuring that it has answered.
    pub(super) measured: u64,
}

impl Child {
    /// Starts a process, whose tokens begin with a prefix.
    pub(super) fn start(
        program: &Path,
        (child, prefix, seed): (usize, &str, u64),
        location: &Location,
        told: &mpsc::UnboundedSender<Told>,
    ) -> Result<Self, Failure> {
        let kind = clap::ValueEnum::to_possible_value(&location.kind);
        let kind = kind.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = process::Command::new(program);
        command.arg("soak-worker").args(["--prefix", prefix, "--seed", &seed.to_string()]);
        command.args(["--store", &kind, "--address", &location.address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(|source| Failure::CannotRun {
            what: format!("to start {}", program.display()),
            source: Some(source.into()),
        })?;
        let commands = process.stdin.take();
        let output = process.stdout.take().ok_or_else(|| Failure::cannot_run("no output"))?;
        tokio::spawn(listen(output, child, told.clone()));
        Ok(Self {
            process,
            commands,
            is_open: false,
            was_killed: false,
            work: HashMap::new(),
            restarts: 0,
            measured: 0,
        })
    }

    /// Sends a command. One that was killed does not read it, which its end tells.
    pub(super) async fn send(&mut self, command: &Command) {
        let Some(commands) = &mut self.commands else { return };
        if let Ok(mut line) = serde_json::to_vec(command) {
            line.push(b'\n');
            drop(commands.write_all(&line).await);
        }
    }

    /// Ends it as it is, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        self.was_killed = true;
        // It may have ended by itself, which the end of its output tells.
        drop(self.process.start_kill());
    }

    /// Its number, while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits for its end; says whether it ended well.
    pub(super) async fn wait(&mut self) -> bool {
        self.commands = None;
        self.process.wait().await.is_ok_and(|status| status.success())
    }
}

async fn listen(output: ChildStdout, child: usize, told: mpsc::UnboundedSender<Told>) {
    let mut lines = BufReader::new(output).lines();
    // A killed process may leave half a line, which it had not told.
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(report) = serde_json::from_str(&line) else { continue };
        if told.send(Told { child, report: Some(report) }).is_err() {
            return;
        }
    }
    drop(told.send(Told { child, report: None }));
}
