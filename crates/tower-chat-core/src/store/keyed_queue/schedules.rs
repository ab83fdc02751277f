//! The queue under many schedules.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use shuttle::{future, thread};

use super::{KeyedQueue, QueueGuard};
use crate::{
    ConversationKey,
    sync::{Mutex, try_schedules},
};

/// What a conversation looks like while tasks change it.
#[derive(Debug, Default)]
struct Changed {
    /// How many tasks change it now.
    at_once: AtomicUsize,
    /// The tasks that have changed it: which thread submitted them, as its how-manieth.
    by: Mutex<Vec<(usize, usize)>>,
}

fn keys() -> [ConversationKey; 2] {
    ["a", "b"].map(|id| ConversationKey::new("scope", id))
}

/// Changes the conversations of a guard, with other tasks in between.
async fn change(
    mut guard: QueueGuard,
    changed: Arc<[Changed; 2]>,
    by: (usize, usize),
    waits: bool,
) {
    if waits {
        guard.wait().await;
    }
    let conversations: Vec<&Changed> = keys()
        .iter()
        .zip(changed.iter())
        .filter_map(|(key, changed)| guard.keys.contains(key).then_some(changed))
        .collect();
    for changed in &conversations {
        assert_eq!(changed.at_once.fetch_add(1, Ordering::SeqCst), 0, "two change it at once");
    }
    future::yield_now().await;
    for changed in conversations {
        changed.by.lock().unwrap_or_else(PoisonError::into_inner).push(by);
        changed.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Threads submit tasks on one conversation, the other, and both; some are never run.
fn submit_from_threads(waits: bool) {
    let (queue, changed) = (KeyedQueue::default(), Arc::new(<[Changed; 2]>::default()));
    let threads: Vec<_> = (0..3)
        .map(|submitter| {
            let (queue, changed) = (queue.clone(), changed.clone());
            thread::spawn(move || {
                let [a, b] = keys();
                let sets = [vec![a.clone(), b.clone()], vec![a.clone()], vec![b], vec![a]];
                let tasks: Vec<_> = (0..3)
                    .filter_map(|number| {
                        let keys = sets[(submitter + number) % sets.len()].clone();
                        let guard = queue.enqueue(keys).expect("it is open");
                        // A task that is cancelled before it was run.
                        let is_run = (submitter, number) != (1, 1);
                        let task = change(guard, changed.clone(), (submitter, number), waits);
                        is_run.then(|| future::spawn(task))
                    })
                    .collect();
                future::block_on(queue.settle(None));
                tasks.iter().for_each(|task| assert!(task.is_finished() || !waits));
                tasks.into_iter().for_each(|task| future::block_on(task).expect("it ends"));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    for (changed, expected) in changed.iter().zip([6, 4]) {
        let by = changed.by.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(by.len(), expected, "{by:?}");
        for submitter in 0..3 {
            let numbers = || by.iter().filter(|by| by.0 == submitter).map(|by| by.1);
            assert!(numbers().is_sorted(), "not in the order of submission: {by:?}");
        }
    }
    future::block_on(queue.settle(None));
}

#[test]
fn tasks_of_one_conversation_run_one_by_one_in_order_and_settle_sees_them() {
    try_schedules(|| submit_from_threads(true));
}

#[test]
#[should_panic(expected = "two change it at once")]
fn a_task_that_does_not_wait_is_found() {
    try_schedules(|| submit_from_threads(false));
}
