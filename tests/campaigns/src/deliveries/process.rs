//! The campaign's handle of a process that executes runs.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::ValueEnum;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};
use tower_chat::run::RunId;

use super::Mode;
use crate::Failure;

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) run: RunId,
    pub(super) seed: u64,
    pub(super) mode: Mode,
    pub(super) is_durable: bool,
}

pub(super) struct Process {
    child: Child,
    commands: ChildStdin,
    is_idle: watch::Receiver<bool>,
    reader: JoinHandle<()>,
}

impl Process {
    /// Starts a process. Each of its requests to the model increments `asked`.
    pub(super) fn start(settings: &Settings, asked: &Arc<AtomicU64>) -> Result<Self, Failure> {
        let mode = settings.mode.to_possible_value();
        let mode = mode.map(|value| value.get_name().to_owned()).unwrap_or_default();
        let mut command = Command::new(&settings.program);
        command.args(["deliveries-worker", "--mode", &mode]);
        command.arg("--folder").arg(&settings.folder);
        command.args(["--run", &settings.run.to_string(), "--seed", &settings.seed.to_string()]);
        if settings.is_durable {
            command.arg("--durable");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(Failure::cannot_run)?;
        let (Some(commands), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::cannot_run("a process has no pipes"));
        };
        let (idle, is_idle) = watch::channel(false);
        let asked = asked.clone();
        let reader = tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match line.as_str() {
                    "asked" => drop(asked.fetch_add(1, Ordering::Relaxed)),
                    "idle" => drop(idle.send_replace(true)),
                    _ => {}
                }
            }
        });
        Ok(Self { child, commands, is_idle, reader })
    }

    pub(super) async fn send(&mut self, command: &str) -> Result<(), Failure> {
        let sent = self.commands.write_all(format!("{command}\n").as_bytes()).await;
        sent.map_err(|error| Failure::cannot_run(format!("a process has ended: {error}")))
    }

    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(Failure::cannot_run)?;
        self.reader.await.map_err(Failure::cannot_run)
    }

    /// Waits for at most this time, and returns whether the process then executes no run.
    pub(super) async fn is_drained(&mut self, time: Duration) -> Result<bool, Failure> {
        self.send("drain").await?;
        let drained = timeout(time, self.is_idle.wait_for(|is_idle| *is_idle)).await;
        Ok(matches!(drained, Ok(Ok(_))))
    }
}
