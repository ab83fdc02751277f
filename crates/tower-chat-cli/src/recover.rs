//! `tower-chat recover`.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history yet. The *lease* of an open run is the time until which no other process may
//! continue or end the run.

use std::{process::ExitCode, time::SystemTime};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tower_chat::{
    ConversationKey,
    recovery::{RunEnd, close},
    run::RunId,
    store::OpenRun,
};

use crate::{
    age::Age,
    arguments::STORE_VARIABLE,
    error::{CliError, chain},
    report::Report,
    runs::open_runs,
    store::StoreLocation,
};

#[derive(Debug, Args)]
pub(crate) struct RecoverArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// How the runs end
    #[arg(long, value_enum)]
    pub(crate) end: End,
    /// Only runs in conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only runs in the conversation with this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Only runs that were opened longer ago than this age: 30d, 12h, 15m or 45s
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: Option<Age>,
    /// Also end runs on which a process still has a lease; later writes of that process are refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object per line: an object for each run, and a summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// How `recover` ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    /// The staged messages become part of the history, with a result for every call
    Commit,
    /// The staged messages are deleted
    Discard,
}

impl From<End> for RunEnd {
    fn from(end: End) -> Self {
        match end {
            End::Commit => Self::Commit,
            End::Discard => Self::Discard,
        }
    }
}

pub(crate) async fn recover(arguments: RecoverArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_change("recover").await?;
    let now = SystemTime::now();
    let conversation = arguments.conversation.as_deref();
    let keys = open_runs(&store, arguments.scope, conversation).await?;
    let is_old_enough = |open: &OpenRun| {
        arguments.older_than.as_ref().is_none_or(|Age(age)| {
            now.duration_since(open.opened_at).is_ok_and(|since| since >= *age)
        })
    };
    let mut recovery = Recovery::new(arguments.json);
    for key in keys {
        let open = match store.history().head(&key).await {
            Ok(head) => head.open_run,
            Err(error) if error.is_damage() => {
                recovery.leave_alone(&key, None, &chain(&error));
                continue;
            }
            Err(source) => return Err(CliError::OpenRun { key, source }),
        };
        // The run may have ended after it was listed.
        let Some(open) = open.filter(is_old_enough) else { continue };
        let run = Some(open.run);
        if open.is_held_at(now) && !arguments.force {
            recovery.leave_alone(&key, run, "a process may still write to it: see --force");
            continue;
        }
        match close(store.history(), &key, arguments.end.into()).await {
            Ok(true) => recovery.end(&key, open.run, arguments.end),
            Ok(false) => {}
            Err(error) if error.is_damage() => {
                let advice = match arguments.end {
                    End::Commit => ": discard it with --end discard",
                    End::Discard => "",
                };
                recovery.leave_alone(&key, run, &format!("{}{advice}", chain(&error)));
            }
            Err(source) => return Err(CliError::OpenRun { key, source }),
        }
    }
    let code = ExitCode::from(u8::from(recovery.summary.left_alone > 0));
    recovery.report.write_object(&recovery.summary);
    let closed = store.close().await;
    recovery.report.finish()?;
    closed?;
    Ok(code)
}

/// Reports and counts the runs that were ended or skipped.
struct Recovery {
    report: Report,
    summary: Summary,
}

impl Recovery {
    fn new(as_json: bool) -> Self {
        let summary = Summary { kind: "summary", ended: 0, left_alone: 0 };
        Self { report: Report::new(as_json), summary }
    }

    fn end(&mut self, key: &ConversationKey, run: RunId, end: End) {
        self.summary.ended += 1;
        let done = match end {
            End::Commit => "committed",
            End::Discard => "discarded",
        };
        let run = run.to_string();
        let line = format!("{key}: run {run} {done}");
        self.report.write(&line, &RecoveredRun::of(done, key, Some(run)));
    }

    /// Reports a run that was skipped. The run id is `None` if the row of the run is unreadable.
    fn leave_alone(&mut self, key: &ConversationKey, run: Option<RunId>, why: &str) {
        self.summary.left_alone += 1;
        let run = run.map(|run| run.to_string());
        let named =
            run.as_ref().map_or_else(|| "its open run".to_owned(), |run| format!("run {run}"));
        let line = format!("{key}: {named} skipped: {why}");
        self.report.write(&line, &RecoveredRun::of("left_alone", key, run));
    }
}

#[derive(Serialize)]
struct RecoveredRun<'a> {
    kind: &'static str,
    scope: &'a str,
    conversation: &'a str,
    run: Option<String>,
}

impl<'a> RecoveredRun<'a> {
    fn of(kind: &'static str, key: &'a ConversationKey, run: Option<String>) -> Self {
        Self { kind, scope: key.scope(), conversation: key.id(), run }
    }
}

#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    ended: usize,
    left_alone: usize,
}
