//! A queue of writes for stores that run them in tasks: writes of one conversation run one after the
//! other, those of different conversations concurrently.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::ConversationKey;

/// Orders the tasks that change conversations.
///
/// A task waits for the last task before it on each of its conversations. A task ends when its
/// [`QueueGuard`] is dropped, whether it succeeded, failed or was cancelled.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyedQueue(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    last: HashMap<ConversationKey, watch::Receiver<()>>,
}

/// An entry in a [`KeyedQueue`]: the right to change some conversations once the guards before it
/// are dropped. Dropping it releases the guards after it.
#[derive(Debug)]
pub(super) struct QueueGuard {
    queue: KeyedQueue,
    keys: Vec<ConversationKey>,
    before: Vec<watch::Receiver<()>>,
    finished: watch::Receiver<()>,
    _unfinished: watch::Sender<()>,
}

impl KeyedQueue {
    /// Adds an entry for these conversations at the end; `None` once the queue is closed.
    pub(super) fn enqueue(&self, keys: Vec<ConversationKey>) -> Option<QueueGuard> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        let (unfinished, finished) = watch::channel(());
        let before = keys
            .iter()
            .filter_map(|key| state.last.insert(key.clone(), finished.clone()))
            .filter(|last| !last.same_channel(&finished))
            .collect();
        drop(state);
        Some(QueueGuard { queue: self.clone(), keys, before, finished, _unfinished: unfinished })
    }

    /// Waits until everything submitted so far is finished, or everything for one conversation.
    pub(super) async fn settle(&self, key: Option<&ConversationKey>) {
        let unfinished: Vec<_> = {
            let state = self.state();
            match key {
                Some(key) => state.last.get(key).cloned().into_iter().collect(),
                None => state.last.values().cloned().collect(),
            }
        };
        for last in unfinished {
            end_of(last).await;
        }
    }

    /// Closes the queue: [`enqueue`](Self::enqueue) returns `None` from now on.
    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueGuard {
    /// Waits until the guards before this one on its conversations are dropped.
    pub(super) async fn wait(&mut self) {
        for last in self.before.drain(..) {
            end_of(last).await;
        }
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        for key in &self.keys {
            if state.last.get(key).is_some_and(|last| last.same_channel(&self.finished)) {
                state.last.remove(key);
            }
        }
    }
}

async fn end_of(mut last: watch::Receiver<()>) {
    // Nothing is ever sent: it ends with an error when the sender is dropped.
    while last.changed().await.is_ok() {}
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
        assert!(queue.state().last.is_empty(), "nothing is left behind");
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

    #[test]
    fn a_closed_queue_accepts_no_entries() {
        let queue = KeyedQueue::default();
        queue.close();
        assert!(queue.enqueue(vec![key("a")]).is_none());
    }
}
