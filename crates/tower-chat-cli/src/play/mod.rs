//! `tower-chat play`.

mod conversations;
mod progress;
mod summary;

use std::{error::Error, fs, path::Path, process::ExitCode, time::Instant};

use self::{
    conversations::{Conversations, NotPlayed},
    progress::Progress,
    summary::Summary,
};
use crate::{
    arguments::{Persistence, PlayArguments},
    error::CliError,
    interruption::interruption,
    output::{Lines, complain},
    playback::{Player, Recording},
};

/// Plays the conversations of a file.
pub(crate) async fn play(arguments: PlayArguments) -> Result<ExitCode, CliError> {
    let started = Instant::now();
    let recordings = read(&arguments.file)?;
    let store = arguments.store.open().await?.history().clone();
    let mut player = Player::new(store.clone())
        .mode(arguments.persistence.into())
        .streamed(arguments.stream)
        .verified(!arguments.no_verify)
        .resumed(arguments.resume);
    if !arguments.resume {
        check_absent(&player, &recordings).await?;
    }
    if arguments.persistence == Persistence::Journaled
        && let Some(file) = arguments.store.beside("played")
    {
        let failed = |source| CliError::PlayCounters { file: file.clone(), source };
        player = player.counters_in(&file).map_err(failed)?;
    }

    let mut report = Report {
        player: player.clone(),
        progress: Progress::new(recordings.len()),
        lines: Lines::default(),
        completed: 0,
        failures: 0,
    };
    let mut conversations =
        Conversations::new(player.clone(), recordings, arguments.concurrency.get());
    let mut interruption = std::pin::pin!(interruption());
    let is_interrupted = loop {
        let played = tokio::select! {
            biased;
            () = &mut interruption => break true,
            played = conversations.next() => played,
        };
        match played {
            Some(played) => report.played(played),
            None => break false,
        }
    };
    conversations.stop().await;
    report.divergences();
    report.progress.finish();
    for closed in [store.flush().await, store.close().await] {
        if let Err(error) = closed {
            report.failed(&error);
        }
    }

    let counters = player.counters();
    let Report { mut lines, completed, failures, .. } = report;
    lines.write_json(&Summary::new(completed, counters, started.elapsed()).to_json());
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::from(match (is_interrupted, failures, counters.divergences) {
        (true, ..) => 130,
        (false, 0, 0) => 0,
        (false, 0, _) => 1,
        (false, ..) => 2,
    }))
}

/// The output and the counts of the command.
struct Report {
    player: Player,
    progress: Progress,
    lines: Lines,
    completed: usize,
    failures: usize,
}

impl Report {
    /// Reports that a conversation has ended.
    fn played(&mut self, played: Result<(), NotPlayed>) {
        match played {
            Ok(()) => self.completed += 1,
            Err(error) => self.failed(&error),
        }
        self.divergences();
        self.progress.played_one(self.player.counters());
    }

    fn failed(&mut self, error: &dyn Error) {
        self.failures += 1;
        self.progress.aside(|| complain(error));
    }

    /// Prints the divergences that were not printed yet.
    fn divergences(&mut self) {
        let divergences = self.player.take_divergences();
        if !divergences.is_empty() {
            let lines = &mut self.lines;
            self.progress.aside(|| {
                divergences.iter().for_each(|divergence| lines.write(&divergence.to_string()));
            });
        }
    }
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

/// Refuses to begin if the store already has one of the conversations.
async fn check_absent(player: &Player, recordings: &[Recording]) -> Result<(), CliError> {
    let mut stored = Vec::new();
    for recording in recordings {
        if player.is_stored(recording).await.map_err(CliError::Look)? {
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
