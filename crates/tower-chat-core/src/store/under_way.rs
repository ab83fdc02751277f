//! The runs in progress in this process. A second run on a conversation waits before it calls the
//! model. Without the wait, the caller would pay for an answer that the store then refuses with a
//! conflict.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{ConversationKey, RunId, counted::counted};

/// The runs in progress through one store in this process, at most one per conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct RunsUnderWay(Arc<Mutex<HashMap<ConversationKey, RunQueue>>>);

/// The run in progress on a conversation, and the runs that wait for their turn, in order.
#[derive(Debug)]
struct RunQueue {
    run: RunId,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    run: RunId,
    /// Sends the guard when it is the run's turn.
    turn: oneshot::Sender<RunUnderWay>,
}

/// The guard of a run in progress on a conversation. Dropping the guard begins the run that has
/// waited longest.
pub struct RunUnderWay {
    runs: RunsUnderWay,
    key: ConversationKey,
    run: RunId,
}

/// A run could not begin, because too many earlier runs wait on its conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "conversation {key} is busy: run {run} is in progress, and the queue behind it is full ({}): \
     try again later",
    counted(*waiting, "waiting run")
)]
#[non_exhaustive]
pub struct ConversationBusy {
    /// The conversation.
    pub key: ConversationKey,
    /// The run in progress.
    pub run: RunId,
    /// The number of waiting runs.
    pub waiting: usize,
}

impl RunsUnderWay {
    /// Begins a run when no earlier run is in progress on the conversation or waits for it.
    pub(super) async fn begin(
        &self,
        key: &ConversationKey,
        run: RunId,
        max_waiting: usize,
    ) -> Result<RunUnderWay, ConversationBusy> {
        let turn = {
            let mut runs = self.lock();
            let Some(queue) = runs.get_mut(key) else {
                runs.insert(key.clone(), RunQueue { run, waiting: VecDeque::new() });
                return Ok(self.under_way(key, run));
            };
            queue.waiting.retain(|waiting| !waiting.turn.is_closed());
            let waiting = queue.waiting.len();
            if waiting >= max_waiting {
                return Err(ConversationBusy { key: key.clone(), run: queue.run, waiting });
            }
            let (turn, ours) = oneshot::channel();
            queue.waiting.push_back(Waiting { run, turn });
            ours
        };
        // The queue drops the sender only after this run has begun or its caller has stopped
        // waiting.
        let busy = ConversationBusy { key: key.clone(), run, waiting: 0 };
        turn.await.map_err(|_| busy)
    }

    pub(super) fn find(&self, key: &ConversationKey) -> Option<RunId> {
        self.lock().get(key).map(|queue| queue.run)
    }

    fn under_way(&self, key: &ConversationKey, run: RunId) -> RunUnderWay {
        RunUnderWay { runs: self.clone(), key: key.clone(), run }
    }

    /// Ends the run in progress, and begins the next waiting run whose caller has not dropped the
    /// future.
    fn end(&self, key: &ConversationKey) {
        loop {
            let mut runs = self.lock();
            let Some(queue) = runs.get_mut(key) else { return };
            let Some(Waiting { run, turn }) = queue.waiting.pop_front() else {
                runs.remove(key);
                return;
            };
            if turn.is_closed() {
                continue;
            }
            queue.run = run;
            drop(runs);
            // If the receiver was dropped meanwhile, `send` returns the guard. Dropping the guard
            // ends the run again, and begins the next one.
            drop(turn.send(self.under_way(key, run)));
            return;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationKey, RunQueue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunUnderWay {
    /// Returns the id of the run.
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use futures_util::{FutureExt, future::BoxFuture};

    use super::*;
    use crate::store::StoreHandle;

    type Turn<'a> = BoxFuture<'a, Result<RunUnderWay, ConversationBusy>>;

    fn key(id: &str) -> ConversationKey {
        ConversationKey::new("tests", id)
    }

    /// Enqueues a run. Another run is in progress, so that the returned future is pending.
    fn queued<'a>(store: &'a StoreHandle, key: &'a ConversationKey, run: RunId) -> Turn<'a> {
        let mut turn = store.begin_run(key, run, usize::MAX).boxed();
        assert!(poll(&mut turn).is_pending(), "the run has to wait");
        turn
    }

    fn poll(turn: &mut Turn<'_>) -> Poll<Result<RunUnderWay, ConversationBusy>> {
        turn.poll_unpin(&mut Context::from_waker(Waker::noop()))
    }

    fn begun(turn: &mut Turn<'_>) -> RunUnderWay {
        match poll(turn) {
            Poll::Ready(Ok(run)) => run,
            other => panic!("the run should begin, but the result is {other:?}"),
        }
    }

    fn at_once(store: &StoreHandle, key: &ConversationKey, run: RunId) -> RunUnderWay {
        store.begin_run(key, run, 0).now_or_never().unwrap().unwrap()
    }

    #[test]
    fn runs_on_a_conversation_have_their_turns_in_the_order_in_which_they_arrived() {
        let (store, key) = (StoreHandle::new(), key("c"));
        let runs = [(); 4].map(|()| RunId::new());
        assert_eq!(store.run_under_way(&key), None);
        let mut under_way = at_once(&store, &key, runs[0]);
        let mut turns = [1, 2, 3].map(|index| queued(&store, &key, runs[index]));
        for index in 1..4 {
            assert_eq!(store.run_under_way(&key), Some(runs[index - 1]));
            assert!(turns.iter_mut().skip(index - 1).all(|turn| poll(turn).is_pending()));
            drop(under_way);
            under_way = begun(&mut turns[index - 1]);
            assert_eq!(under_way.run(), runs[index]);
        }
        drop(under_way);
        assert_eq!(store.run_under_way(&key), None);
    }

    #[test]
    fn conversations_and_stores_do_not_wait_for_each_other() {
        let (store, run) = (StoreHandle::new(), RunId::new());
        let _one = at_once(&store, &key("a"), run);
        let _two = at_once(&store, &key("b"), run);
        let _three = at_once(&StoreHandle::new(), &key("a"), run);
        assert!(store.clone().begin_run(&key("a"), run, 0).now_or_never().unwrap().is_err());
    }

    #[test]
    fn no_more_wait_than_may() {
        let (store, key) = (StoreHandle::new(), key("c"));
        let run = RunId::new();
        let under_way = at_once(&store, &key, run);
        let busy = |max_queued| store.begin_run(&key, RunId::new(), max_queued).now_or_never();
        let error = busy(0).unwrap().unwrap_err();
        assert_eq!(error, ConversationBusy { key: key.clone(), run, waiting: 0 });
        let mut first = queued(&store, &key, RunId::new());
        let second = queued(&store, &key, RunId::new());
        assert_eq!(busy(2).unwrap().unwrap_err().waiting, 2);
        drop(second);
        assert!(busy(2).is_none(), "a run whose future was dropped is not in the queue");
        drop(under_way);
        drop(begun(&mut first));
        drop(at_once(&store, &key, run));
    }

    #[test]
    fn a_run_that_gave_up_waiting_is_passed_over() {
        let (store, key) = (StoreHandle::new(), key("c"));
        let under_way = at_once(&store, &key, RunId::new());
        let gone = queued(&store, &key, RunId::new());
        let mut next = queued(&store, &key, RunId::new());
        drop(gone);
        assert!(poll(&mut next).is_pending());
        drop(under_way);
        drop(begun(&mut next));
        assert_eq!(store.run_under_way(&key), None);
    }

    #[test]
    fn a_turn_that_is_not_taken_goes_to_the_next() {
        let (store, key) = (StoreHandle::new(), key("c"));
        let under_way = at_once(&store, &key, RunId::new());
        let (gone, last) = (RunId::new(), RunId::new());
        let given = queued(&store, &key, gone);
        let mut next = queued(&store, &key, last);
        drop(under_way);
        assert_eq!(store.run_under_way(&key), Some(gone));
        drop(given);
        assert_eq!(begun(&mut next).run(), last);
        assert_eq!(store.run_under_way(&key), None);
    }

    #[test]
    fn an_end_without_anyone_waiting_frees_the_conversation() {
        let (store, key) = (StoreHandle::new(), key("c"));
        let under_way = at_once(&store, &key, RunId::new());
        drop([(); 3].map(|()| queued(&store, &key, RunId::new())));
        drop(under_way);
        assert_eq!(store.run_under_way(&key), None);
        drop(at_once(&store, &key, RunId::new()));
    }
}
