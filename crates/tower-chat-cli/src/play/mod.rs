//! `tower-chat play`.

mod conversations;
mod progress;
mod summary;

use std::{fs, path::Path, process::ExitCode, sync::Arc, time::Instant};

use tower_chat::core::store::HistoryStore;
use tower_chat_testkit::transcript::{Player, Recording};

use self::{conversations::Conversations, progress::Progress, summary::Summary};
use crate::{
    arguments::PlayArguments,
    error::CliError,
    output::{Lines, complain},
};

/// Plays the conversations of a file.
pub(crate) async fn play(arguments: PlayArguments) -> Result<ExitCode, CliError> {
    let started = Instant::now();
    let recordings = read(&arguments.file)?;
    let store: Arc<dyn HistoryStore> = arguments.store.open().await?;
    let player = Player::new(store.clone())
        .mode(arguments.persistence.into())
        .streamed(arguments.stream)
        .verified(!arguments.no_verify)
        .resumed(arguments.resume);
    if !arguments.resume {
        check_absent(&player, &recordings).await?;
    }

    let progress = Progress::new(recordings.len());
    let mut lines = Lines::default();
    let mut conversations =
        Conversations::new(player.clone(), recordings, arguments.concurrency.get());
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut is_interrupted = false;
    let mut failures = 0_usize;
    let mut completed = 0_usize;
    loop {
        let played = tokio::select! {
            biased;
            _ = &mut interrupt => {
                is_interrupted = true;
                conversations.stop().await;
                break;
            }
            played = conversations.next() => played,
        };
        let Some(played) = played else { break };
        match played {
            Ok(()) => completed += 1,
            Err(error) => {
                failures += 1;
                progress.aside(|| complain(&error));
            }
        }
        report_divergences(&player, &progress, &mut lines)?;
        progress.played_one(player.tally());
    }
    report_divergences(&player, &progress, &mut lines)?;
    progress.finish();

    for closed in [store.flush().await, store.close().await] {
        if let Err(error) = closed {
            failures += 1;
            complain(&error);
        }
    }
    let tally = player.tally();
    let summary = Summary::new(completed, tally, started.elapsed());
    lines.write(&summary.to_json()).and_then(|()| lines.flush()).map_err(CliError::Output)?;
    Ok(ExitCode::from(match (is_interrupted, failures, tally.divergences) {
        (true, ..) => 130,
        (false, 0, 0) => 0,
        (false, 0, _) => 1,
        (false, ..) => 2,
    }))
}

fn read(file: &Path) -> Result<Vec<Recording>, CliError> {
    let named = || file.to_owned();
    let bytes = fs::read(file).map_err(|source| CliError::Read { file: named(), source })?;
    let text = str::from_utf8(&bytes).map_err(|source| {
        let before = bytes.get(..source.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        CliError::NotText { file: named(), line, source }
    })?;
    Recording::read_lines(text).map_err(|source| CliError::Recording { file: named(), source })
}

/// Refuses to begin if the store holds one of the conversations already.
async fn check_absent(player: &Player, recordings: &[Recording]) -> Result<(), CliError> {
    let mut stored = Vec::new();
    for recording in recordings {
        if player.is_stored(recording).await.map_err(CliError::Check)? {
            stored.push(recording.id());
        }
    }
    match stored.first() {
        None => Ok(()),
        Some(first) => {
            Err(CliError::AlreadyStored { count: stored.len(), first: (*first).to_owned() })
        }
    }
}

fn report_divergences(
    player: &Player,
    progress: &Progress,
    lines: &mut Lines,
) -> Result<(), CliError> {
    let divergences = player.take_divergences();
    if divergences.is_empty() {
        return Ok(());
    }
    progress
        .aside(|| {
            divergences.iter().try_for_each(|divergence| lines.write(&divergence.to_string()))
        })
        .map_err(CliError::Output)
}
