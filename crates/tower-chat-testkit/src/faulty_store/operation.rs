//! Executes one operation with the fault that a test has prepared or an injector has selected.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::task::{unconstrained, yield_now};
use tower_chat_core::{
    ConversationKey,
    store::{
        HistoryStore, Revision, StoreError,
        author::{AppendError, Slot, Ticket, Write},
    },
};

use super::{
    FaultyStore, Held, Injection, Operation, State, StoreFault, Unreleased, script::Script,
};

impl<S: HistoryStore> FaultyStore<S> {
    pub(super) fn injected(&self, operation: Operation) -> Injection {
        self.injector.as_ref().map(|injector| injector.before(operation)).unwrap_or_default()
    }

    pub(super) fn is_dead(&self) -> bool {
        self.shared.is_dead.load(Ordering::Acquire)
    }

    /// Executes an operation other than a submission. In a store with an injector, the operation
    /// first waits for all delayed writes. In any other store, the operation first waits for the
    /// delayed writes to the conversations for which `concerns` returns `true`.
    pub(super) async fn perform<T>(
        &self,
        operation: Operation,
        concerns: impl Fn(&ConversationKey) -> bool,
        effect: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let (prepared, gate) = {
            let script = &mut self.state().script;
            script.count(operation);
            (script.next_fault(operation), script.next_gate(operation))
        };
        let Injection { yields_before, yields_after, fault } = self.injected(operation);
        if let Some(gate) = gate {
            gate.pass().await;
        }
        yield_times(yields_before).await;
        let is_waited_for = |key: &ConversationKey| self.injector.is_some() || concerns(key);
        let is_released = |unreleased: &Unreleased| !unreleased.keys.iter().any(&is_waited_for);
        // Waiting on a channel consumes the task's cooperative budget in tokio. If no writes are
        // delayed, an operation must not consume more budget than in the inner store.
        if !is_released(&self.shared.unreleased.borrow()) {
            let _ = self.shared.unreleased.subscribe().wait_for(is_released).await;
        }
        let effect =
            async { if self.injector.is_some() { block_on(effect) } else { effect.await } };
        let outcome = match fault.or(prepared) {
            Some(StoreFault::Never) => std::future::pending().await,
            Some(StoreFault::Before(error) | StoreFault::Midway(_, error)) => Err(error),
            Some(StoreFault::After(error)) => effect.await.and(Err(error)),
            None => effect.await,
        };
        if let Some(injector) = &self.injector {
            injector.after(operation);
        }
        yield_times(yields_after).await;
        outcome
    }

    /// Submits writes with `fault`, or with the next prepared fault, to the inner store.
    pub(super) fn submit(
        &self,
        script: &mut Script,
        slot: Slot,
        mut writes: Vec<Write>,
        fault: Option<StoreFault>,
    ) -> Ticket {
        let (completed, error) = match fault.or_else(|| script.next_fault(Operation::Append)) {
            None => (0, None),
            Some(StoreFault::Before(error)) => {
                writes.clear();
                (0, Some(error))
            }
            Some(StoreFault::Midway(count, error)) => {
                writes.truncate(count);
                (writes.len(), Some(error))
            }
            Some(StoreFault::After(error)) => (0, Some(error)),
            Some(StoreFault::Never) => {
                writes.clear();
                (0, Some(StoreError::Closed))
            }
        };
        let ticket = match &self.injector {
            _ if writes.is_empty() && error.is_some() => Ticket::done(Ok(Revision::ABSENT)),
            None => self.inner.append(slot, writes),
            Some(injector) => {
                let outcome = block_on(self.inner.append(slot, writes.clone()));
                let stored =
                    outcome.as_ref().map_or_else(|error| error.completed, |_| writes.len());
                writes.iter().take(stored).for_each(|write| injector.stored(write));
                Ticket::done(outcome)
            }
        };
        if let Some(injector) = &self.injector {
            injector.after(Operation::Append);
        }
        match error {
            None => ticket,
            Some(source) => Ticket::watching(async move {
                ticket.await?;
                Err(AppendError { completed, source })
            }),
        }
    }

    /// Passes the oldest delayed submission to the inner store. Returns `false` if there is none.
    pub(super) fn release_one(&self, state: &mut State) -> bool {
        let Some(Held { slot, writes, fault, ticket }) = state.held.pop_front() else {
            return false;
        };
        let count = writes.len();
        // Sending fails if the caller has dropped its ticket. The writes are stored nevertheless.
        let _ = ticket.send(self.submit(&mut state.script, slot, writes, fault));
        self.shared.unreleased.send_modify(|unreleased| {
            unreleased.released += 1;
            unreleased.keys.drain(..count);
        });
        true
    }

    /// Waits until all earlier submissions were released. Then yields `yields` times, and releases
    /// the submission with this number, from 0. Does nothing if the store simulates a dead process.
    pub(super) async fn release_in_turn(self, number: usize, yields: usize) {
        let is_first = |unreleased: &Unreleased| unreleased.released == number;
        let _ = self.shared.unreleased.subscribe().wait_for(is_first).await;
        yield_times(yields).await;
        if !self.is_dead() {
            self.release_one(&mut self.state());
        }
    }
}

/// Returns a ticket that waits for `ticket`, and then yields `yields` times before it completes.
pub(super) fn delayed(ticket: Ticket, yields: usize) -> Ticket {
    if yields == 0 {
        return ticket;
    }
    Ticket::watching(async move {
        let outcome = ticket.await;
        yield_times(yields).await;
        outcome
    })
}

async fn yield_times(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Blocks this thread until the future has completed.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    // A future that has consumed the task's cooperative budget would never complete, because the
    // task receives no new budget while this function blocks its thread.
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
