//! `tower-chat recover`.

use std::{process::ExitCode, time::SystemTime};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tower_chat::recovery::{RunEnd, close};

use crate::{
    age::Age,
    arguments::STORE_VARIABLE,
    error::{CliError, chain},
    report::Report,
    runs::open_runs,
    store::StoreLocation,
};

/// What `recover` is told.
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
    /// Only the run in the conversation of this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Only runs that were opened at least so long ago: 30d, 12h, 15m or 45s
    #[arg(long, value_name = "AGE")]
    pub(crate) older_than: Option<Age>,
    /// Also runs whose lease a process still holds; what that process writes later is refused
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object a line: one for each run, and a last one with their counts
    #[arg(long)]
    pub(crate) json: bool,
}

/// How `recover` ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    /// What is staged becomes part of the history, with an answer to every call
    Commit,
    /// Nothing of it is left
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

/// Ends the open runs of a store.
pub(crate) async fn recover(arguments: RecoverArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_change("recover").await?;
    let now = SystemTime::now();
    let conversation = arguments.conversation.as_deref();
    let mut runs = open_runs(&store, arguments.scope, conversation).await?;
    if let Some(Age(age)) = arguments.older_than {
        runs.retain(|(_, open)| now.duration_since(open.opened_at).is_ok_and(|since| since >= age));
    }
    let mut report = Report::new(arguments.json);
    let (mut ended, mut left_alone) = (0_usize, 0_usize);
    for (key, open) in runs {
        let run = open.run.to_string();
        let object = |kind| {
            let (scope, conversation) = (key.scope(), key.id());
            RecoveredRun { kind, scope, conversation, run: &run }
        };
        if open.is_held_at(now) && !arguments.force {
            left_alone += 1;
            let line =
                format!("{key}: run {run} left alone: a process may still write it, see --force");
            report.write(&line, &object("left_alone"));
            continue;
        }
        match close(store.history(), &key, arguments.end.into()).await {
            Ok(true) => {
                ended += 1;
                let done = match arguments.end {
                    End::Commit => "committed",
                    End::Discard => "discarded",
                };
                report.write(&format!("{key}: run {run} {done}"), &object(done));
            }
            Ok(false) => {}
            Err(error) if error.is_damage() => {
                left_alone += 1;
                let why = chain(&error);
                let advice = match arguments.end {
                    End::Commit => ": discard it with --end discard",
                    End::Discard => "",
                };
                let line = format!("{key}: run {run} left alone: {why}{advice}");
                report.write(&line, &object("left_alone"));
            }
            Err(source) => return Err(CliError::OpenRun { key, source }),
        }
    }
    report.write_object(&Summary { kind: "summary", ended, left_alone });
    let closed = store.close().await;
    report.finish()?;
    closed?;
    Ok(ExitCode::from(u8::from(left_alone > 0)))
}

#[derive(Serialize)]
struct RecoveredRun<'a> {
    kind: &'static str,
    scope: &'a str,
    conversation: &'a str,
    run: &'a str,
}

#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    ended: usize,
    left_alone: usize,
}
