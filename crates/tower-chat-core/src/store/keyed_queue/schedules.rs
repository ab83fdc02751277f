//! Tests of the keyed queue under many schedules, which the crate `shuttle` generates.

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

/// The changes of one conversation.
#[derive(Debug, Default)]
struct Changes {
    /// The number of tasks that change the conversation now.
    concurrent: AtomicUsize,
    /// The tasks that have changed the conversation, each with its submitting thread and its number
    /// in that thread.
    tasks: Mutex<Vec<(usize, usize)>>,
}

fn keys() -> [ConversationKey; 2] {
    ["a", "b"].map(|id| ConversationKey::new("scope", id))
}

/// Changes the conversations of a guard, and yields to other tasks during each change.
async fn change(
    mut guard: QueueGuard,
    changed: Arc<[Changes; 2]>,
    task: (usize, usize),
    waits: bool,
) {
    if waits {
        guard.wait().await;
    }
    let conversations: Vec<&Changes> = keys()
        .iter()
        .zip(changed.iter())
        .filter_map(|(key, changed)| guard.keys.contains(key).then_some(changed))
        .collect();
    for changed in &conversations {
        assert_eq!(
            changed.concurrent.fetch_add(1, Ordering::SeqCst),
            0,
            "two tasks change it concurrently"
        );
    }
    future::yield_now().await;
    for changed in conversations {
        changed.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        changed.concurrent.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Submits tasks from several threads, on one or both conversations, and never runs one of the
/// tasks. If `waits` is false, the tasks do not wait for their turn.
fn submit_from_threads(waits: bool) {
    let (queue, changed) = (KeyedQueue::default(), Arc::new(<[Changes; 2]>::default()));
    let threads: Vec<_> = (0..3)
        .map(|submitter| {
            let (queue, changed) = (queue.clone(), changed.clone());
            thread::spawn(move || {
                let [a, b] = keys();
                let sets = [vec![a.clone(), b.clone()], vec![a.clone()], vec![b], vec![a]];
                let tasks: Vec<_> = (0..3)
                    .filter_map(|number| {
                        let keys = sets[(submitter + number) % sets.len()].clone();
                        let guard = queue.enqueue(keys).expect("the queue is open");
                        // One task is cancelled before it runs.
                        let is_run = (submitter, number) != (1, 1);
                        let task = change(guard, changed.clone(), (submitter, number), waits);
                        is_run.then(|| future::spawn(task))
                    })
                    .collect();
                future::block_on(queue.settle(None));
                tasks.iter().for_each(|task| assert!(task.is_finished() || !waits));
                tasks.into_iter().for_each(|task| future::block_on(task).expect("the task ends"));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the task ends"));
    for (changed, expected) in changed.iter().zip([6, 4]) {
        let tasks = changed.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(tasks.len(), expected, "{tasks:?}");
        for submitter in 0..3 {
            let numbers = || tasks.iter().filter(|task| task.0 == submitter).map(|task| task.1);
            assert!(numbers().is_sorted(), "not in the order of submission: {tasks:?}");
        }
    }
    future::block_on(queue.settle(None));
}

#[test]
fn tasks_of_one_conversation_run_one_by_one_in_order_and_settle_waits_for_them() {
    try_schedules(|| submit_from_threads(true));
}

#[test]
#[should_panic(expected = "two tasks change it concurrently")]
fn a_task_that_does_not_wait_is_found() {
    try_schedules(|| submit_from_threads(false));
}
