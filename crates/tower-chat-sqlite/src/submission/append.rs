//! The execution of an append in a transaction.

use rusqlite::Connection;
use tower_chat_core::store::{Revision, author::AppendError};

use super::{Append, Keys, Next, Work};
use crate::{append::NotStored, failure::Failure, head_cache::HeadCache, telemetry::TELEMETRY};

impl Append {
    /// Reports the outcome to the telemetry if it is a conflict.
    pub(super) fn record_refusal(&self) {
        if let Err(error) = &self.outcome {
            TELEMETRY.refused(&error.source);
        }
    }

    pub(super) fn keys(&self) -> Keys {
        self.writes.iter().map(|write| write.key().clone()).collect()
    }
}

impl Work for Append {
    fn step(&mut self, connection: &Connection, heads: &mut HeadCache) -> rusqlite::Result<Next> {
        let Some(write) = self.writes.get(self.stored) else { return Ok(Next::Done) };
        match write.store(connection, heads) {
            Ok(revision) => {
                self.stored += 1;
                self.outcome = Ok(revision);
                Ok(if self.stored < self.writes.len() { Next::Write } else { Next::Done })
            }
            Err(NotStored::Refused(source)) => {
                self.outcome = Err(AppendError { completed: self.stored, source });
                Ok(Next::Done)
            }
            Err(NotStored::Failed(error)) => Err(error),
        }
    }

    fn start_over(&mut self) {
        self.stored = 0;
        self.outcome = Ok(Revision::ABSENT);
    }

    fn fail(&mut self, completed: usize, failure: &Failure) {
        let source = failure.store_error("append to a conversation");
        self.stored = completed;
        self.outcome = Err(AppendError { completed, source });
    }

    fn stored(&self) -> usize {
        self.stored
    }

    fn is_single(&self) -> bool {
        self.writes.len() <= 1
    }

    fn has_deleted(&self) -> bool {
        false
    }
}
