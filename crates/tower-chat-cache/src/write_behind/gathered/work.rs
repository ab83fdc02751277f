//! The work of the writer thread, and its outcomes.

use std::{
    mem,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tower_chat_core::store::{Revision, StoreError, author::AppendError};

use super::{Due, Gathered, InRow, Known, Outcome, Phase, Waiting, Work, after};

/// The longest and the shortest pause between two attempts.
const MOST_PATIENCE: Duration = Duration::from_secs(30);
const LEAST_PATIENCE: Duration = Duration::from_millis(1);

impl Gathered {
    /// Returns the next work of the writer thread.
    pub(in crate::write_behind) fn next_work(&mut self, now: Instant) -> Work {
        let stores_all = self.has_row();
        let is_due = |waiting: &Waiting| stores_all || waiting.due <= now;
        let due: Vec<Due> = self
            .conversations
            .iter_mut()
            .filter(|(_, waiting)| is_due(waiting))
            .map(|(key, waiting)| Due {
                key: key.clone(),
                slots: mem::take(&mut waiting.slots),
                writes: mem::take(&mut waiting.writes),
            })
            .collect();
        if !due.is_empty() {
            return Work::Store(due);
        }
        if !self.row.is_empty() {
            self.is_row_submitted = true;
            let row: Vec<InRow> = self.row.drain(..).collect();
            for write in row.iter().flat_map(|in_row| &in_row.writes) {
                self.known.remove(write.key());
            }
            return Work::Submit(row);
        }
        match self.conversations.values().map(|waiting| waiting.due).min() {
            Some(due) => Work::Wait(Some(due.saturating_duration_since(now))),
            None if self.phase == Phase::Ending => Work::End,
            None => Work::Wait(None),
        }
    }

    /// Called with the outcome of gathered writes.
    pub(in crate::write_behind) fn tried(
        &mut self,
        tried: Due,
        outcome: Outcome,
        max_delay: Duration,
    ) {
        match outcome {
            Ok(revision) => self.settled(&tried, revision),
            Err(AppendError { completed, source }) if source.is_retryable() => {
                self.try_again(tried, completed, source, max_delay);
            }
            Err(AppendError { completed, source }) => self.lose(&tried, completed, source),
        }
    }

    fn settled(&mut self, tried: &Due, revision: Revision) {
        let key = &tried.key;
        let Some(waiting) = self.conversations.get_mut(key) else { return };
        waiting.failures = 0;
        waiting.set_unstored(waiting.unstored - tried.writes.len());
        if !waiting.writes.is_empty() {
            // These writes were gathered meanwhile, and have a deadline of their own.
            return;
        }
        let waiters = mem::take(&mut waiting.waiters);
        self.conversations.remove(key);
        self.submissions += 1;
        self.forget_some();
        let known = Known { revision: Some(revision), submission: self.submissions };
        self.known.insert(key.clone(), known);
        tell(waiters, &Ok(()));
    }

    fn try_again(&mut self, tried: Due, completed: usize, error: StoreError, max_delay: Duration) {
        if let Some(waiting) = self.conversations.get_mut(&tried.key) {
            let later = mem::take(&mut waiting.writes);
            waiting.writes = tried.writes.into_iter().skip(completed).chain(later).collect();
            waiting.slots.extend(tried.slots);
            waiting.set_unstored(waiting.unstored - completed);
            let patience = max_delay.saturating_mul(1 << waiting.failures.min(20));
            waiting.due = after(patience.clamp(LEAST_PATIENCE, MOST_PATIENCE));
            waiting.failures += 1;
            tracing::warn!(
                conversation = %tried.key,
                writes = waiting.writes.len(),
                error = &error as &dyn std::error::Error,
                "gathered writes could not be stored yet",
            );
            tell(mem::take(&mut waiting.waiters), &Err(error.clone()));
        }
        // Submissions queued behind these fail too, because they wait for a store that has failed.
        for in_row in self.row.drain(..) {
            let error = AppendError { completed: 0, source: error.clone() };
            in_row.outcome.send(Err(error));
        }
        tell(mem::take(&mut self.row_waiters), &Err(error));
    }

    fn lose(&mut self, tried: &Due, completed: usize, error: StoreError) {
        let waiting = self.conversations.remove(&tried.key);
        let later = waiting.as_ref().map_or(0, |waiting| waiting.writes.len());
        tracing::error!(
            conversation = %tried.key,
            writes = tried.writes.len().saturating_sub(completed) + later,
            error = &error as &dyn std::error::Error,
            "gathered writes cannot be stored and are lost",
        );
        let waiters = waiting.map_or_else(Vec::new, |waiting| waiting.waiters);
        // The callers that wait get the error. If there are none, the next caller gets it.
        if waiters.is_empty() {
            self.lost.insert(tried.key.clone(), error.clone());
        }
        tell(waiters, &Err(error));
    }

    /// Called when the queued submissions have their outcomes.
    pub(in crate::write_behind) fn row_is_over(&mut self) {
        self.is_row_submitted = false;
        if self.row.is_empty() {
            tell(mem::take(&mut self.row_waiters), &Ok(()));
        }
    }
}

fn tell(waiters: Vec<oneshot::Sender<Result<(), StoreError>>>, outcome: &Result<(), StoreError>) {
    for waiter in waiters {
        drop(waiter.send(outcome.clone()));
    }
}
