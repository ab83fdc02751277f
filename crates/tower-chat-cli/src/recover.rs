//! `tower-chat recover`.

use std::{process::ExitCode, time::SystemTime};

use serde::Serialize;
use tower_chat::recovery::close;

use crate::{
    age::Age,
    arguments::{End, RecoverArguments},
    error::CliError,
    report::Report,
    runs::open_runs,
};

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
            let line = format!("{key}: run {run} left alone: somebody may work on it");
            report.write(&line, &object("left_alone"));
            continue;
        }
        let is_ended = close(store.history(), &key, arguments.end.into()).await;
        if is_ended.map_err(|source| CliError::OpenRun { key: key.clone(), source })? {
            ended += 1;
            let done = match arguments.end {
                End::Commit => "committed",
                End::Discard => "discarded",
            };
            report.write(&format!("{key}: run {run} {done}"), &object(done));
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
