//! The thread that stores the gathered writes.

use std::{
    sync::{Arc, PoisonError},
    time::Instant,
};

use futures_util::future::join_all;
use tower_chat_core::store::{HistoryStore, author::Slot};

use super::{
    gathered::{Due, InRow, Work},
    store::Shared,
};
use crate::{
    sync::{block_on, thread},
    telemetry,
};

/// Starts the thread, and returns whether it was started.
pub(super) fn start<S: HistoryStore>(shared: Arc<Shared<S>>) -> bool {
    let thread = thread::Builder::new().name("tower-chat-write-behind".to_owned());
    thread.spawn(move || run(&shared)).is_ok()
}

fn run<S: HistoryStore>(shared: &Shared<S>) {
    let _gone = Gone(shared);
    let mut gathered = shared.gathered();
    loop {
        match gathered.next_work(Instant::now()) {
            Work::Wait(None) => {
                gathered = shared.due.wait(gathered).unwrap_or_else(PoisonError::into_inner);
            }
            Work::Wait(Some(time)) => {
                let waited = shared.due.wait_timeout(gathered, time);
                gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            Work::Store(due) => {
                drop(gathered);
                store(shared, due);
                gathered = shared.gathered();
            }
            Work::Submit(row) => {
                drop(gathered);
                submit(shared, row);
                gathered = shared.gathered();
                gathered.row_is_over();
            }
            Work::End => return,
        }
    }
}

/// Stores the gathered writes of several conversations concurrently.
fn store<S: HistoryStore>(shared: &Shared<S>, due: Vec<Due>) {
    let began = Instant::now();
    let tickets = due.into_iter().map(|due| {
        // Even after a failure the writes own their slots, so that at most as many submissions as
        // the queue has slots are gathered.
        let slot = Slot::unbounded().without_blocking();
        let ticket = shared.inner.append(slot, due.writes.clone());
        async move {
            let outcome = ticket.await;
            if outcome.is_ok() {
                telemetry::flushed(&due.key, due.writes.len(), began.elapsed());
            }
            (due, outcome)
        }
    });
    let tickets: Vec<_> = tickets.collect();
    for (due, outcome) in block_on(join_all(tickets)) {
        shared.gathered().tried(due, outcome, shared.max_delay);
    }
}

/// Submits the queued submissions. The inner store keeps their order.
fn submit<S: HistoryStore>(shared: &Shared<S>, row: Vec<InRow>) {
    let submitted = row.into_iter().map(|InRow { slot, writes, outcome }| {
        let ticket = shared.inner.append(slot.without_blocking(), writes);
        async { outcome.send(ticket.await) }
    });
    let submitted: Vec<_> = submitted.collect();
    block_on(join_all(submitted));
}

/// Fails all waiting callers when the thread has ended, for example by a panic of the inner store.
struct Gone<'a, S>(&'a Shared<S>);

impl<S> Drop for Gone<'_, S> {
    fn drop(&mut self) {
        self.0.gathered().has_no_writer();
    }
}
