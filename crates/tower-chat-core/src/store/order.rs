//! The order of writes, for stores that do them in tasks: one after the other within a conversation,
//! side by side otherwise.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::ConversationKey;

/// Who comes after whom.
///
/// Each submission waits for the last one before it that changes one of its conversations. That
/// one's sender is dropped when it is finished, however it ends.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::{ConversationKey, store::order::Order};
/// let order = Order::default();
/// let key = ConversationKey::new("alice", "support");
/// let first = order.take(vec![key.clone()]).expect("it is not closed");
/// let mut second = order.take(vec![key]).expect("it is not closed");
/// drop(first); // its write is done, or has failed, or its task was dropped
/// second.comes().await;
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct Order(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    last: HashMap<ConversationKey, watch::Receiver<()>>,
}

/// The right to change some conversations, once those before are finished. Dropping it lets those
/// after it go on.
#[derive(Debug)]
pub struct Turn {
    order: Order,
    keys: Vec<ConversationKey>,
    before: Vec<watch::Receiver<()>>,
    finished: watch::Receiver<()>,
    _unfinished: watch::Sender<()>,
}

impl Order {
    /// Takes the next turn on these conversations; `None` once the order is closed.
    pub fn take(&self, keys: Vec<ConversationKey>) -> Option<Turn> {
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
        Some(Turn { order: self.clone(), keys, before, finished, _unfinished: unfinished })
    }

    /// Waits until everything submitted so far is finished, or everything for one conversation.
    pub async fn settle(&self, key: Option<&ConversationKey>) {
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

    /// Gives no more turns.
    pub fn close(&self) {
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Waits for those before.
    pub async fn comes(&mut self) {
        for last in self.before.drain(..) {
            end_of(last).await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.order.state();
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
    async fn turns_on_one_conversation_come_one_after_the_other() {
        let order = Order::default();
        let first = order.take(vec![key("a")]).unwrap();
        let mut second = order.take(vec![key("b"), key("a")]).unwrap();
        let mut third = order.take(vec![key("a")]).unwrap();
        let mut elsewhere = order.take(vec![key("c")]).unwrap();
        elsewhere.comes().await;
        {
            let mut waiting = pin!(second.comes());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            drop(first);
            waiting.await;
        }
        {
            let mut waiting = pin!(third.comes());
            assert_eq!(poll!(&mut waiting), Poll::Pending);
            drop(second);
            waiting.await;
        }
        drop((third, elsewhere));
        assert!(order.state().last.is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn settling_waits_for_what_was_taken_before() {
        let order = Order::default();
        let (a, b) = (key("a"), key("b"));
        let turn = order.take(vec![a.clone(), a.clone()]).unwrap();
        order.settle(Some(&b)).await;
        let mut one = pin!(order.settle(Some(&a)));
        assert_eq!(poll!(&mut one), Poll::Pending);
        drop(turn);
        one.await;
        order.settle(None).await;
    }

    #[test]
    fn a_closed_order_gives_no_turns() {
        let order = Order::default();
        order.close();
        assert!(order.take(vec![key("a")]).is_none());
    }
}
