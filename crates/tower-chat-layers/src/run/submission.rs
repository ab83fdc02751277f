//! A write on its way into the store, and what becomes of it if it fails.

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

/// Writes that were submitted, together with those that waited in the outbox before them; nothing
/// any more once they are durable.
///
/// The store owns them from the moment this exists. Dropping it changes nothing in the store; a
/// failure is then still noticed, logged, and kept in the outbox if the policy says so.
pub(crate) struct Submission(Option<Pending>);

struct Pending {
    ticket: Ticket,
    /// One, except where there is an outbox.
    writes: Vec<Write>,
    /// How many of the writes, the first ones, come from the outbox.
    waited: usize,
    store: Arc<dyn HistoryStore>,
    policy: StoreFailure,
}

/// A submission that failed for good.
pub(crate) struct FailedSubmission {
    pub(crate) source: StoreError,
    pub(crate) unsaved: Vec<Arc<Message>>,
}

impl Submission {
    /// Nothing to write.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Submits writes to one conversation after its unsaved ones. Where no slot could be had, that
    /// is their outcome.
    pub(crate) fn submit(
        store: &Arc<dyn HistoryStore>,
        policy: StoreFailure,
        slot: Result<Slot, StoreError>,
        new: Vec<Write>,
    ) -> Self {
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

    /// Waits for the writes; returns how many messages of the conversation wait in the outbox. `None` if
    /// there was nothing to write.
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
            // What was in the outbox stays there, unless it can never be stored any more.
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
            "the history store failed: {unsaved} messages wait in its outbox for the next write"
        );
        Ok(unsaved)
    }
}

impl Drop for Submission {
    /// Somebody has to look at the outcome, or a failed write would vanish with the future that
    /// waited for it.
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

/// Whether both are the same write. Its name does not say so alone: a write without messages has
/// the name of the next one that has some.
fn is_repetition(one: &Write, other: &Write) -> bool {
    one.id() == other.id()
        && one.expected() == other.expected()
        && one.messages().len() == other.messages().len()
        && one.tools() == other.tools()
}

/// Waits for the outcome of writes that nobody else waits for any more.
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
    /// There is no runtime, or it is shutting down: no one can wait. The outbox submits the writes
    /// again; what is durable by then is recognised by its write id.
    fn drop(&mut self) {
        let Some(pending) = self.0.take() else { return };
        if pending.policy == StoreFailure::Continue {
            let _ = pending.store.handle().keep_unsaved(&pending.writes);
        }
    }
}

fn log_lost(outcome: Result<usize, FailedSubmission>) {
    if let Err(FailedSubmission { source, unsaved }) = outcome {
        tracing::error!(
            error = &source as &dyn std::error::Error,
            "{} messages of a dropped call could not be stored",
            unsaved.len()
        );
    }
}
