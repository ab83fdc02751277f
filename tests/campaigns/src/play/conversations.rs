//! Plays several conversations at the same time.

use std::{collections::HashMap, iter::Fuse, vec};

use tokio::task::{Id, JoinError, JoinSet};

use crate::playback::{PlayError, Player, Recording};

/// Plays conversations, at most `concurrency` at the same time.
pub(super) struct Conversations {
    player: Player,
    waiting: Fuse<vec::IntoIter<Recording>>,
    playing: JoinSet<Result<(), PlayError>>,
    ids: HashMap<Id, String>,
    concurrency: usize,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NotPlayed {
    #[error(transparent)]
    Failed(#[from] PlayError),
    #[error("conversation {conversation:?} was abandoned by a defect in this program")]
    Panicked { conversation: String, source: JoinError },
}

impl Conversations {
    pub(super) fn new(player: Player, recordings: Vec<Recording>, concurrency: usize) -> Self {
        Self {
            player,
            waiting: recordings.into_iter().fuse(),
            playing: JoinSet::new(),
            ids: HashMap::new(),
            concurrency,
        }
    }

    /// Waits until a conversation ends, and returns its outcome. Returns `None` after all
    /// conversations. This function is cancel safe.
    pub(super) async fn next(&mut self) -> Option<Result<(), NotPlayed>> {
        while self.playing.len() < self.concurrency
            && let Some(recording) = self.waiting.next()
        {
            let player = self.player.clone();
            let id = recording.id().to_owned();
            let task = self.playing.spawn(async move { player.play(&recording).await });
            self.ids.insert(task.id(), id);
        }
        Some(match self.playing.join_next_with_id().await? {
            Ok((task, played)) => {
                self.ids.remove(&task);
                played.map_err(NotPlayed::Failed)
            }
            Err(source) => {
                let conversation = self.ids.remove(&source.id()).unwrap_or_default();
                Err(NotPlayed::Panicked { conversation, source })
            }
        })
    }

    /// Cancels the conversations in progress, and waits until their tasks have ended. A run that is
    /// dropped still submits its last writes to the store, so that no writes follow after this
    /// function has returned.
    pub(super) async fn stop(&mut self) {
        self.playing.shutdown().await;
    }
}
