//! A queue that orders the tasks which change conversations: the tasks of one conversation run one
//! after the other, and those of different conversations run concurrently.
//! [`TaskQueue`](super::task_queue::TaskQueue) is built on this queue.

#[cfg(all(test, shuttle))]
mod schedules;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, PoisonError},
};

use tokio::sync::watch;

use crate::{
    ConversationKey,
    sync::{Mutex, MutexGuard},
};

/// Orders the tasks that change conversations.
///
/// A task waits for the previous task on each of its conversations. A task ends when its
/// [`QueueGuard`] is dropped, whether the task succeeded, failed or was cancelled.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyedQueue(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// For each conversation that has entries, the end of its latest entry.
    last: HashMap<ConversationKey, End>,
}

/// The guard of an entry in a [`KeyedQueue`]. The task of the entry may change the conversations
/// after [`wait`](Self::wait) has returned. Later guards on the same conversations wait until this
/// guard and all earlier ones are dropped.
#[derive(Debug)]
pub(super) struct QueueGuard {
    queue: KeyedQueue,
    keys: Vec<ConversationKey>,
    /// The ends of the previous entries of the conversations. [`wait`](Self::wait) removes each end
    /// that it has awaited.
    before: Vec<End>,
    /// The end of this guard, for which later guards wait.
    finished: End,
    /// The sender of `finished`, which is dropped with the guard.
    unfinished: watch::Sender<Vec<End>>,
}

/// Resolves when a guard has ended, because dropping the guard drops the sender of this channel. A
/// guard that is dropped before it has waited for all earlier guards sends the ends of those guards
/// through the channel, and the receiver awaits them too.
#[derive(Debug, Clone)]
struct End(watch::Receiver<Vec<End>>);

impl KeyedQueue {
    /// Adds an entry at the end of the queue; `None` if the queue is closed.
    pub(super) fn enqueue(&self, keys: Vec<ConversationKey>) -> Option<QueueGuard> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let (unfinished, finished) = watch::channel(Vec::new());
        let finished = End(finished);
        let before = keys
            .iter()
            .filter_map(|key| state.last.insert(key.clone(), finished.clone()))
            .filter(|last| !last.is(&finished))
            .collect();
        drop(state);
        Some(QueueGuard { queue: self.clone(), keys, before, finished, unfinished })
    }

    /// Waits until all earlier entries, or those of one conversation, have ended.
    pub(super) async fn settle(&self, key: Option<&ConversationKey>) {
        let unfinished: Vec<_> = {
            let state = self.state();
            match key {
                Some(key) => state.last.get(key).cloned().into_iter().collect(),
                None => state.last.values().cloned().collect(),
            }
        };
        for last in unfinished {
            last.wait().await;
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueGuard {
    /// Waits until all earlier guards on the same conversations are dropped.
    pub(super) async fn wait(&mut self) {
        while let Some(last) = self.before.last().cloned() {
            last.wait().await;
            self.before.pop();
        }
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        if !self.before.is_empty() {
            // The task was cancelled before its turn. Later guards and `settle` receive the ends of
            // the earlier guards, and wait for those instead of this guard.
            self.unfinished.send_replace(mem::take(&mut self.before));
            return;
        }
        let mut state = self.queue.state();
        for key in &self.keys {
            if state.last.get(key).is_some_and(|last| last.is(&self.finished)) {
                state.last.remove(key);
            }
        }
    }
}

impl End {
    fn is(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    async fn wait(self) {
        let mut ends = vec![self];
        while let Some(mut end) = ends.pop() {
            // `changed` returns an error once the sender is dropped.
            while end.0.changed().await.is_ok() {}
            ends.extend(end.0.borrow().iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Poll};

    use futures_util::poll;

    use super::*;

    fn key(id: &str) -> ConversationKey {
        ConversationKey::new("scope", id)
    }

    #[tokio::test]
    async fn guards_of_one_conversation_are_released_in_order() {
        let queue = KeyedQueue::default();
        let first = queue.enqueue(vec![key("a")]).unwrap();
        let mut second = queue.enqueue(vec![key("b"), key("a")]).unwrap();
        let mut third = queue.enqueue(vec![key("a")]).unwrap();
        let mut elsewhere = queue.enqueue(vec![key("c")]).unwrap();
        elsewhere.wait().await;
        {
            let mut waiting = pin!(second.wait());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            drop(first);
            waiting.await;
        }
        {
            let mut waiting = pin!(third.wait());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            drop(second);
            waiting.await;
        }
        drop((third, elsewhere));
        assert!(queue.state().last.is_empty(), "no entry remains in the queue");
    }

    #[tokio::test]
    async fn settle_waits_for_earlier_guards_of_the_conversation() {
        let queue = KeyedQueue::default();
        let (a, b) = (key("a"), key("b"));
        let guard = queue.enqueue(vec![a.clone(), a.clone()]).unwrap();
        queue.settle(Some(&b)).await;
        let mut one = pin!(queue.settle(Some(&a)));
        assert_eq!(poll!(&mut one), Poll::Pending);
        drop(guard);
        one.await;
        queue.settle(None).await;
    }

    #[tokio::test]
    async fn a_guard_that_is_dropped_before_its_turn_lets_no_other_run_pass_those_before_it() {
        let (queue, a) = (KeyedQueue::default(), key("a"));
        let first = queue.enqueue(vec![a.clone()]).unwrap();
        let mut second = queue.enqueue(vec![a.clone()]).unwrap();
        let mut third = queue.enqueue(vec![a.clone()]).unwrap();
        assert_eq!(poll!(pin!(second.wait())), Poll::Pending);
        drop(second);
        {
            let mut waiting = pin!(third.wait());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            drop(queue.enqueue(vec![a.clone()]));
            let mut settled = pin!(queue.settle(Some(&a)));
            assert_eq!(poll!(&mut settled), Poll::Pending);
            drop(first);
            waiting.await;
            assert_eq!(poll!(&mut settled), Poll::Pending);
        }
        drop(third);
        queue.settle(None).await;
    }

    #[test]
    fn a_closed_queue_accepts_no_entries() {
        let queue = KeyedQueue::default();
        queue.close();
        assert!(queue.enqueue(vec![key("a")]).is_none());
    }
}
