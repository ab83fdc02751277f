//! Which runs are under way in this process, so that two on one conversation need not find out
//! about each other when the model has been paid.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{ConversationKey, RunId};

/// The runs under way through one store in this process, at most one on each conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct RunsUnderWay(Arc<Mutex<HashMap<ConversationKey, Place>>>);

#[derive(Debug)]
struct Place {
    run: RunId,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    run: RunId,
    turn: oneshot::Sender<RunUnderWay>,
}

/// Says that a run is under way on a conversation, until it is dropped. Then it is the next one's
/// turn, in the order in which they came.
pub struct RunUnderWay {
    runs: RunsUnderWay,
    key: ConversationKey,
    run: RunId,
}

/// No run could begin on a conversation, because of those that came before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("run {run} is under way on conversation {key}, and {waiting} wait for its end")]
#[non_exhaustive]
pub struct ConversationBusy {
    /// The conversation.
    pub key: ConversationKey,
    /// The run under way.
    pub run: RunId,
    /// How many wait already.
    pub waiting: usize,
}

impl RunsUnderWay {
    /// Begins a run, if none is under way on the conversation; otherwise waits for its turn, unless
    /// `most` wait already.
    pub(super) async fn begin(
        &self,
        key: &ConversationKey,
        run: RunId,
        most: usize,
    ) -> Result<RunUnderWay, ConversationBusy> {
        let turn = {
            let mut runs = self.lock();
            let Some(place) = runs.get_mut(key) else {
                runs.insert(key.clone(), Place { run, waiting: VecDeque::new() });
                return Ok(self.under_way(key, run));
            };
            // Those who gave up waiting take no place.
            place.waiting.retain(|waiting| !waiting.turn.is_closed());
            let waiting = place.waiting.len();
            if waiting >= most {
                return Err(ConversationBusy { key: key.clone(), run: place.run, waiting });
            }
            let (turn, ours) = oneshot::channel();
            place.waiting.push_back(Waiting { run, turn });
            ours
        };
        // The sender goes with its place, which is only taken away together with a turn.
        let busy = ConversationBusy { key: key.clone(), run, waiting: 0 };
        turn.await.map_err(|_| busy)
    }

    pub(super) fn find(&self, key: &ConversationKey) -> Option<RunId> {
        self.lock().get(key).map(|place| place.run)
    }

    fn under_way(&self, key: &ConversationKey, run: RunId) -> RunUnderWay {
        RunUnderWay { runs: self.clone(), key: key.clone(), run }
    }

    /// Hands the place to the next who still waits.
    fn end(&self, key: &ConversationKey) {
        loop {
            let mut runs = self.lock();
            let Some(place) = runs.get_mut(key) else { return };
            let Some(Waiting { run, turn }) = place.waiting.pop_front() else {
                runs.remove(key);
                return;
            };
            if turn.is_closed() {
                continue;
            }
            place.run = run;
            drop(runs);
            // A turn that is not taken is dropped, which ends that run in turn.
            drop(turn.send(self.under_way(key, run)));
            return;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationKey, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunUnderWay {
    /// The run.
    pub fn run(&self) -> RunId {
        self.run
    }
}

impl Drop for RunUnderWay {
    fn drop(&mut self) {
        self.runs.end(&self.key);
    }
}

impl fmt::Debug for RunUnderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunUnderWay")
            .field("key", &self.key)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
