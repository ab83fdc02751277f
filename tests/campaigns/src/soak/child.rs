//! The supervisor's handle of one of the two processes.

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

#[derive(Debug)]
pub(super) struct ChildReport {
    pub(super) child: usize,
    /// `None` at the end of the output of the process.
    pub(super) report: Option<Report>,
}

/// What a process does in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A run, with the value of [`Child::restarts`] when it began.
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
    /// The number of begun restarts of the store plus the number of ended ones. The sum is odd
    /// during a restart.
    pub(super) restarts: u64,
    /// The number of the last measurement that the process has answered.
    pub(super) measured: u64,
}

impl Child {
    /// Starts a process. The prefix makes the tokens in its texts unique.
    pub(super) fn start(
        program: &Path,
        (child, prefix, seed): (usize, &str, u64),
        location: &Location,
        reports: &mpsc::UnboundedSender<ChildReport>,
    ) -> Result<Self, Failure> {
        let kind = clap::ValueEnum::to_possible_value(&location.kind);
        let kind = kind.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = process::Command::new(program);
        command.arg("soak-worker").args(["--prefix", prefix, "--seed", &seed.to_string()]);
        command.args(["--store", &kind, "--address", &location.address]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(|source| Failure::CannotRun {
            what: format!("start {}", program.display()),
            source: Some(source.into()),
        })?;
        let commands = process.stdin.take();
        let output =
            process.stdout.take().ok_or_else(|| Failure::cannot_run("a process has no output"))?;
        tokio::spawn(listen(output, child, reports.clone()));
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

    /// Sends a command. A failure is ignored, because the end of the output reports a killed
    /// process.
    pub(super) async fn send(&mut self, command: &Command) {
        let Some(commands) = &mut self.commands else { return };
        if let Ok(mut line) = serde_json::to_vec(command) {
            line.push(b'\n');
            drop(commands.write_all(&line).await);
        }
    }

    pub(super) fn kill(&mut self) {
        self.was_killed = true;
        // The process may have ended already.
        drop(self.process.start_kill());
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Waits for the end of the process. Returns whether it succeeded.
    pub(super) async fn wait(&mut self) -> bool {
        self.commands = None;
        self.process.wait().await.is_ok_and(|status| status.success())
    }
}

async fn listen(output: ChildStdout, child: usize, reports: mpsc::UnboundedSender<ChildReport>) {
    let mut lines = BufReader::new(output).lines();
    // A killed process may leave a partial line.
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(report) = serde_json::from_str(&line) else { continue };
        if reports.send(ChildReport { child, report: Some(report) }).is_err() {
            return;
        }
    }
    drop(reports.send(ChildReport { child, report: None }));
}
