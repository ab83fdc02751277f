//! `tower-chat recover`.

use std::{process::ExitCode, time::SystemTime};

use tower_chat::recovery::close;

use crate::{
    age::Age,
    arguments::{End, RecoverArguments},
    error::CliError,
    output::Lines,
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
    let mut lines = Lines::default();
    let mut left_alone = 0_usize;
    for (key, open) in runs {
        if open.is_held_at(now) && !arguments.force {
            left_alone += 1;
            lines.write(&format!("{key}: run {} left alone: somebody may work on it", open.run));
            continue;
        }
        let ended = close(store.history(), &key, arguments.end.into()).await;
        if ended.map_err(|source| CliError::OpenRun { key: key.clone(), source })? {
            let done = match arguments.end {
                End::Commit => "committed",
                End::Discard => "discarded",
            };
            lines.write(&format!("{key}: run {} {done}", open.run));
        }
    }
    let closed = store.close().await;
    lines.finish().map_err(CliError::Output)?;
    closed?;
    Ok(ExitCode::from(u8::from(left_alone > 0)))
}
