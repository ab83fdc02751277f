//! Submits writes to a store, and handles their failure. Depending on the policy, a failed write is
//! added to the outbox of the store, and submitted again with the next write.

use std::sync::Arc;

use futures_util::FutureExt;
use tower_chat_core::{
    Message,
    store::{
        HistoryStore, StoreError,
        author::{AppendError, Slot, Ticket, Write},
    },
};

use crate::StoreFailure;

/// Submitted writes, preceded by the conversation's writes from the outbox. Empty after
/// [`outcome`](Self::outcome).
///
/// The store receives the writes when this value is created. Dropping the value does not cancel
/// them. A later failure is logged, and the writes are added to the outbox if the policy is
/// [`StoreFailure::Continue`].
pub(crate) struct Submission(Option<Pending>);

struct Pending {
    ticket: Ticket,
    /// The writes from the outbox, followed by the new writes.
    writes: Vec<Write>,
    /// The number of writes from the outbox.
    waited: usize,
    store: Arc<dyn HistoryStore>,
    policy: StoreFailure,
}

/// A submission that failed, and whose messages are not all in the outbox.
pub(crate) struct FailedSubmission {
    pub(crate) source: StoreError,
    /// The messages that are neither stored nor in the outbox.
    pub(crate) unsaved: Vec<Arc<Message>>,
}

impl Submission {
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Submits the writes in the outbox of a conversation, followed by the `new` ones. If `slot` is
    /// an error, they fail with this error.
    pub(crate) fn submit(
        store: Option<&Arc<dyn HistoryStore>>,
        policy: StoreFailure,
        slot: Result<Slot, StoreError>,
        new: Vec<Write>,
    ) -> Self {
        let Some(store) = store else { return Self::nothing() };
        let unsaved = new.first().map(|write| store.handle().take_unsaved(write.key()));
        let mut writes = unsaved.unwrap_or_default();
        let waited = writes.len();
        if waited == 0 {
            writes = new;
        } else {
            let is_unsaved =
                |write: &Write| writes.iter().any(|unsaved| is_repetition(unsaved, write));
            let new: Vec<Write> = new.into_iter().filter(|write| !is_unsaved(write)).collect();
            writes.extend(new);
        }
        let copies = writes.to_vec();
        let ticket = match slot {
            Ok(slot) => (**store).append(slot, writes),
            Err(source) => Ticket::done(Err(AppendError { completed: 0, source })),
        };
        Self(Some(Pending { ticket, writes: copies, waited, store: store.clone(), policy }))
    }

    /// Waits for the outcome of the writes. Returns the number of messages that are now in the
    /// outbox, if writes were submitted.
    pub(crate) async fn outcome(&mut self) -> Result<Option<usize>, FailedSubmission> {
        let Some(pending) = &mut self.0 else { return Ok(None) };
        let outcome = (&mut pending.ticket).await;
        let Some(pending) = self.0.take() else { return Ok(None) };
        match outcome {
            Ok(_) => Ok(Some(0)),
            Err(error) => pending.failed(error).map(Some),
        }
    }
}

impl Pending {
    fn failed(mut self, error: AppendError) -> Result<usize, FailedSubmission> {
        let AppendError { completed, source } = error;
        let completed = completed.min(self.writes.len());
        self.writes.drain(..completed);
        let waited = self.waited.saturating_sub(completed);
        let outbox = self.store.handle();
        let is_conflict = matches!(source, StoreError::Conflict(_));
        let is_retained = self.policy == StoreFailure::Continue
            && !is_conflict
            && outbox.keep_unsaved(&self.writes).is_ok();
        if !is_retained {
            // Writes from the outbox return to the outbox, except after a conflict, because the
            // store would refuse them again.
            let earlier = self.writes.get(..waited).unwrap_or_default();
            if !is_conflict && outbox.keep_unsaved(earlier).is_ok() {
                self.writes.drain(..waited);
            }
        }
        let unsaved = self.writes.iter().flat_map(|write| write.messages().iter().cloned());
        if !is_retained {
            return Err(FailedSubmission { source, unsaved: unsaved.collect() });
        }
        let unsaved = unsaved.count();
        let key = self.writes.first().map(|write| write.key().to_string()).unwrap_or_default();
        tracing::warn!(
            conversation = %key,
            error = &source as &dyn std::error::Error,
            "the history store failed: its outbox keeps {} until the next write",
            counted_messages(unsaved)
        );
        Ok(unsaved)
    }
}

impl Drop for Submission {
    /// Starts a task that waits for the outcome, so that the failure of a write is not lost.
    fn drop(&mut self) {
        let Some(mut pending) = self.0.take() else { return };
        if let Some(outcome) = (&mut pending.ticket).now_or_never() {
            return outcome.err().map_or((), |error| log_lost(pending.failed(error)));
        }
        let watch = Watch(Some(pending));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(watch.outcome());
        }
    }
}

/// Returns whether both values are the same write. The ids are not sufficient: a write without
/// messages has the same id as the next write with messages, and writes of two attempts can have
/// the same id and different incarnations.
fn is_repetition(first: &Write, second: &Write) -> bool {
    first.id() == second.id()
        && first.expected() == second.expected()
        && first.result() == second.result()
        && first.messages().len() == second.messages().len()
        && first.tools() == second.tools()
}

/// Waits for the outcome of writes after their submission was dropped.
struct Watch(Option<Pending>);

impl Watch {
    async fn outcome(mut self) {
        let Some(pending) = &mut self.0 else { return };
        let outcome = (&mut pending.ticket).await;
        if let (Some(pending), Err(error)) = (self.0.take(), outcome) {
            log_lost(pending.failed(error));
        }
    }
}

impl Drop for Watch {
    /// Adds the writes to the outbox under [`StoreFailure::Continue`]. No task waits for their
    /// outcome, because there is no runtime, or the runtime has stopped the task. When they are
    /// submitted again, the store recognises writes that are already durable.
    fn drop(&mut self) {
        let Some(pending) = self.0.take() else { return };
        if pending.policy == StoreFailure::Continue {
            let _ = pending.store.handle().keep_unsaved(&pending.writes);
        }
    }
}

fn counted_messages(count: usize) -> String {
    match count {
        1 => "1 message".to_owned(),
        _ => format!("{count} messages"),
    }
}

fn log_lost(outcome: Result<usize, FailedSubmission>) {
    if let Err(FailedSubmission { source, unsaved }) = outcome {
        tracing::error!(
            error = &source as &dyn std::error::Error,
            "the history store failed to store {} of a dropped call",
            counted_messages(unsaved.len())
        );
    }
}
