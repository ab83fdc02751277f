//! Moves the drop of a run's loaded messages to a blocking thread of the runtime.

use tokio::runtime::Handle;
use tower_chat_core::{Messages, store::History};

/// The minimum number of messages that a blocking thread drops. Dropping one message takes up to a
/// microsecond, so dropping many would delay the caller and the worker threads of the runtime.
const DROP_ON_THREAD_FROM: usize = 500;

/// References to the messages that a run has loaded. If these are the last references, a blocking
/// thread drops the messages.
#[derive(Debug)]
pub(super) struct Loaded(Messages);

impl Loaded {
    /// Returns references to the messages of a history. Empty if there are few messages, or if the
    /// store itself has references to them.
    pub(super) fn of(history: &History) -> Self {
        let stays = history.messages.len() < DROP_ON_THREAD_FROM || history.memo().is_shared();
        Self(if stays { Messages::new() } else { history.messages.clone() })
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let messages = std::mem::take(&mut self.0);
        // Without a runtime, the current thread drops the messages.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(messages)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Weak, mpsc},
        time::Duration,
    };

    use tokio::{runtime::Builder, task::spawn_blocking};
    use tower_chat_core::{
        Message,
        store::{Head, Revision},
    };

    use super::*;

    /// Returns a history as a store returns it, and a weak reference to its last message.
    fn history(messages: usize) -> (History, Weak<Message>) {
        let messages: Messages = (0..messages).map(|n| Message::user(n.to_string())).collect();
        let last = messages.last().map(Arc::downgrade).unwrap();
        let head = Head::new(Revision { incarnation: 7, sequence: messages.len() as u64 });
        (History::new(head, messages), last)
    }

    fn is_let_go(message: &Weak<Message>) -> bool {
        message.upgrade().is_none()
    }

    #[test]
    fn many_messages_are_dropped_on_a_blocking_thread() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let busy = spawn_blocking(move || released.recv().unwrap_err());
            let (history, last) = history(DROP_ON_THREAD_FROM);
            let loaded = Loaded::of(&history);
            drop(history);
            drop(loaded);
            assert!(!is_let_go(&last), "the only blocking thread is busy");
            drop(release);
            busy.await.unwrap();
            spawn_blocking(|| ()).await.unwrap();
            assert!(is_let_go(&last));
        });
    }

    #[test]
    fn loaded_does_not_retain_few_messages_or_messages_of_a_memory_store() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let (few, last_of_few) = history(DROP_ON_THREAD_FROM - 1);
            let loaded = Loaded::of(&few);
            drop(few);
            assert!(is_let_go(&last_of_few));
            drop(loaded);
            let (loaded_history, last) = history(DROP_ON_THREAD_FROM);
            let loaded = Loaded::of(&loaded_history.clone());
            drop(loaded_history);
            assert!(is_let_go(&last));
            drop(loaded);
        });
    }

    #[test]
    fn loaded_messages_are_dropped_immediately_if_no_runtime_is_active() {
        let (first, last_of_first) = history(DROP_ON_THREAD_FROM);
        drop(Loaded::of(&first));
        assert!(!is_let_go(&last_of_first));
        let loaded = Loaded::of(&first);
        drop(first);
        drop(loaded);
        assert!(is_let_go(&last_of_first));
        let (second, last) = history(DROP_ON_THREAD_FROM);
        let loaded = Loaded::of(&second);
        drop(second);
        let runtime = Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_timeout(Duration::ZERO);
        let _entered = handle.enter();
        drop(loaded);
        assert!(is_let_go(&last), "the runtime was shut down");
    }
}
