//! Plays recorded conversations through the real stack into a store.

mod arguments;
mod conversations;
mod error;
mod output;
mod progress;
mod store;
mod summary;

use std::{error::Error, fs, path::Path, process::ExitCode, time::Instant};

pub use self::arguments::Arguments;
use self::{
    arguments::Persistence,
    conversations::{Conversations, NotPlayed},
    error::CannotPlay,
    output::{Lines, complain},
    progress::Progress,
    summary::Summary,
};
use crate::playback::{Player, Recording};

/// Plays the conversations of a file, and prints divergences, errors and a summary.
pub fn run(arguments: Arguments) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done =
        runtime.map_err(CannotPlay::Runtime).and_then(|runtime| runtime.block_on(play(arguments)));
    done.unwrap_or_else(|error| {
        complain(&error);
        ExitCode::from(2)
    })
}

async fn play(arguments: Arguments) -> Result<ExitCode, CannotPlay> {
    let started = Instant::now();
    let recordings = read(&arguments.file)?;
    let store = arguments.store.open().await.map_err(CannotPlay::Open)?;
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
        let failed = |source| CannotPlay::Counters { file: file.clone(), source };
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
    lines.write_exactly(&Summary::new(completed, counters, started.elapsed()).to_json());
    lines.finish().map_err(CannotPlay::Output)?;
    Ok(ExitCode::from(match (is_interrupted, failures, counters.divergences) {
        (true, ..) => 130,
        (false, 0, 0) => 0,
        (false, 0, _) => 1,
        (false, ..) => 2,
    }))
}

async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

struct Report {
    player: Player,
    progress: Progress,
    lines: Lines,
    completed: usize,
    failures: usize,
}

impl Report {
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

fn read(file: &Path) -> Result<Vec<Recording>, CannotPlay> {
    let named = || file.to_owned();
    let bytes = fs::read(file).map_err(|source| CannotPlay::Read { file: named(), source })?;
    let text = str::from_utf8(&bytes).map_err(|source| {
        let before = bytes.get(..source.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        CannotPlay::NotText { file: named(), line, source }
    })?;
    Recording::read_lines(text).map_err(|source| CannotPlay::Recording { file: named(), source })
}

/// Returns an error if the store already has one of the conversations.
async fn check_absent(player: &Player, recordings: &[Recording]) -> Result<(), CannotPlay> {
    let mut stored = Vec::new();
    for recording in recordings {
        if player.is_stored(recording).await.map_err(CannotPlay::Look)? {
            stored.push(recording.id());
        }
    }
    match stored.first() {
        None => Ok(()),
        Some(first) => {
            Err(CannotPlay::AlreadyStored { count: stored.len(), first: (*first).to_owned() })
        }
    }
}
