//! The output of the commands that export, import, copy or delete whole conversations: a progress
//! bar, lines, a receipt, and a message after an interruption.
//!
//! The *receipt* is a file with a line for each finished conversation. If the command is repeated
//! after an interruption, the new attempt continues the receipt.

mod options;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tower_chat::{BoxError, ConversationKey};
use tower_chat_transfer::{
    Event, OutcomeKind, Receipt, ReceiptLog, ReceiptLogError, Transfer, TransferOutcome,
    TransferStep,
};

pub(crate) use self::options::{ReportOptions, SelectionOptions};
use crate::{
    error::CliError,
    figures::json_line,
    files::{FileMode, NamedFile},
    output::{Lines, counted, escaped},
};

/// Reports a transfer with a progress bar on a terminal, with lines, and in the receipt.
pub(crate) struct Report {
    lines: Lines,
    json: bool,
    /// Whether the lines are written to standard error, because standard output has the data.
    is_aside: bool,
    log: Option<(PathBuf, ReceiptLog)>,
    bar: ProgressBar,
    done: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Done(&'a TransferStep),
    Receipt(&'a Receipt),
}

impl Report {
    /// Creates the report of a transfer. If the options name a receipt, continues it, or creates it
    /// with the permissions in `mode`.
    pub(crate) fn new(
        options: &ReportOptions,
        transfer: Transfer,
        mode: FileMode,
    ) -> Result<Self, CliError> {
        let log = match &options.receipt {
            None => None,
            Some(file) => {
                let made = mode.create_missing(file).map_err(ReceiptLogError::Io);
                let log = made.and_then(|()| ReceiptLog::open(file, transfer));
                let failed = |source| CliError::Receipt { file: file.clone(), source };
                Some((file.clone(), log.map_err(failed)?))
            }
        };
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos}/{len} conversations [{elapsed}]")
        {
            bar.set_style(style);
        }
        Ok(Self { lines: Lines::default(), json: options.json, is_aside: false, log, bar, done: 0 })
    }

    /// Writes the lines to standard error, because the data is written to standard output.
    #[must_use]
    pub(crate) fn aside(mut self) -> Self {
        self.is_aside = true;
        self
    }

    /// Returns the receipt, which contains this attempt and earlier attempts.
    pub(crate) fn log(&mut self) -> Option<&mut ReceiptLog> {
        self.log.as_mut().map(|(_, log)| log)
    }

    /// Returns the last conversation that is complete according to the receipt.
    pub(crate) fn last(&self) -> Option<ConversationKey> {
        self.log.as_ref().and_then(|(_, log)| log.last().cloned())
    }

    pub(crate) fn record(&mut self, event: &Event) -> Result<(), BoxError> {
        if let Some((_, log)) = &mut self.log {
            log.record(event)?;
        }
        match event {
            Event::Total { conversations } => self.bar.set_length(*conversations),
            Event::Done(step) => {
                self.done += 1;
                self.bar.inc(1);
                self.step(step);
            }
            _ => {}
        }
        Ok(())
    }

    fn step(&mut self, step: &TransferStep) {
        if self.json {
            let line = json_line(&Line::Done(step));
            self.print(&line);
            return;
        }
        let key = step.key();
        if let TransferOutcome::Refused(refusal) = &step.outcome {
            self.print(&escaped(&format!("{key}: not transferred: {refusal}")));
        }
        for difference in &step.differences {
            self.print(&escaped(&format!("{key}: {difference}")));
        }
        if let Some(run) = step.open_run.filter(|_| step.outcome.kind() != OutcomeKind::Exported) {
            let what =
                "is open in both stores now: continue it in one of them, and end it in the other";
            self.print(&escaped(&format!("{key}: run {run} {what}")));
        }
    }

    fn print(&mut self, line: &str) {
        let (lines, is_aside) = (&mut self.lines, self.is_aside);
        self.bar.suspend(|| match is_aside {
            true => drop(writeln!(io::stderr().lock(), "{line}")),
            false => lines.write_exactly(line),
        });
    }

    /// Reports an interruption, with `advice` how to continue. Returns the exit code 130.
    pub(crate) fn interrupted(self, advice: &str) -> ExitCode {
        self.bar.finish_and_clear();
        let done = self.done;
        let _ = writeln!(
            io::stderr().lock(),
            "interrupted: {} completed in this attempt; {advice}",
            counted(done, "conversation")
        );
        ExitCode::from(130)
    }

    /// Completes the receipt, and prints the sums. Returns 1 if a conversation was refused.
    pub(crate) fn finish(mut self, receipt: Receipt) -> Result<ExitCode, CliError> {
        self.bar.finish_and_clear();
        let receipt = match self.log.take() {
            None => receipt,
            Some((file, log)) => log
                .complete_with(receipt.sha256)
                .map_err(|source| CliError::Receipt { file, source: source.into() })?,
        };
        if self.json {
            self.print(&json_line(&Line::Receipt(&receipt)));
        } else {
            sums(&receipt).iter().for_each(|line| self.print(line));
        }
        let refused = receipt.total(OutcomeKind::Refused).conversations;
        self.lines.finish().map_err(CliError::Output)?;
        Ok(ExitCode::from(u8::from(refused > 0)))
    }
}

/// Returns one line for each outcome, with the number of conversations that have this outcome.
fn sums(receipt: &Receipt) -> Vec<String> {
    const KINDS: [OutcomeKind; 7] = [
        OutcomeKind::Exported,
        OutcomeKind::Written,
        OutcomeKind::Extended,
        OutcomeKind::Unchanged,
        OutcomeKind::Deleted,
        OutcomeKind::Gone,
        OutcomeKind::Refused,
    ];
    let mut lines = Vec::new();
    for kind in KINDS {
        let sum = receipt.total(kind);
        if sum.conversations > 0 {
            lines.push(format!(
                "{kind}: {} with {}, {} and {}",
                counted(sum.conversations, "conversation"),
                counted(sum.messages, "message"),
                counted(sum.tool_calls, "tool call"),
                counted(sum.runs, "run")
            ));
        }
    }
    if lines.is_empty() {
        lines.push("no conversations".to_owned());
    }
    if let Some(sha256) = &receipt.sha256 {
        lines.push(format!("SHA-256 of the file: {sha256}"));
    }
    lines
}

impl ReportOptions {
    /// Returns the file of the receipt, if the options name one.
    pub(crate) fn written(&self) -> Option<NamedFile<'_>> {
        self.receipt.as_deref().map(|path| NamedFile::new("--receipt", path))
    }
}

/// Returns the name by which a receipt refers to a file.
pub(crate) fn file_name(path: &Path) -> String {
    path.display().to_string()
}
