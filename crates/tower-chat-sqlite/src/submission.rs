//! What waits in the queue, and how it is answered.

use std::sync::Arc;

use rusqlite::Connection;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tower_chat_core::{
    ConversationKey,
    store::{AppendError, Keep, Pruned, Revision, Slot, StoreError, Write},
};

use crate::{
    append::{self, EncodedWrite, NotStored},
    failure::Failure,
    fork,
    heads::Heads,
    prune,
    room::{Room, Taken},
};

/// One entry of the queue: an append, a deletion, a copy or a pruning, with the place it takes and who is told.
#[derive(Debug)]
pub(crate) struct Submission {
    slot: Slot,
    /// What it takes of the queue's room; only messages do.
    room: Option<Taken>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Append(Append),
    Delete(Delete),
    Fork(Fork),
    Prune(Prune),
}

#[derive(Debug)]
struct Append {
    /// One, except where an outbox is emptied.
    writes: SmallVec<[EncodedWrite; 1]>,
    stored: usize,
    outcome: Result<Revision, AppendError>,
    reply: oneshot::Sender<Result<Revision, AppendError>>,
}

#[derive(Debug)]
struct Delete {
    key: ConversationKey,
    outcome: Result<bool, StoreError>,
    reply: oneshot::Sender<Result<bool, StoreError>>,
}

#[derive(Debug)]
struct Fork {
    from: ConversationKey,
    to: ConversationKey,
    outcome: Result<Revision, StoreError>,
    reply: oneshot::Sender<Result<Revision, StoreError>>,
}

#[derive(Debug)]
struct Prune {
    key: ConversationKey,
    keep: Keep,
    outcome: Result<Pruned, StoreError>,
    reply: oneshot::Sender<Result<Pruned, StoreError>>,
}

/// The conversations of a submission: one as a rule.
pub(crate) type Keys = SmallVec<[ConversationKey; 1]>;

/// Whether a submission has more to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Step,
    Done,
}

impl Submission {
    pub(crate) fn append(
        slot: Slot,
        writes: Vec<Write>,
    ) -> (Self, oneshot::Receiver<Result<Revision, AppendError>>) {
        let (reply, outcome) = oneshot::channel();
        let writes = writes.into_iter().map(EncodedWrite::new).collect();
        let append = Append { writes, stored: 0, outcome: Ok(Revision::ABSENT), reply };
        (Self { slot, room: None, work: Work::Append(append) }, outcome)
    }

    pub(crate) fn delete(
        slot: Slot,
        key: ConversationKey,
    ) -> (Self, oneshot::Receiver<Result<bool, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let delete = Delete { key, outcome: Ok(false), reply };
        (Self { slot, room: None, work: Work::Delete(delete) }, outcome)
    }

    pub(crate) fn fork(
        slot: Slot,
        from: ConversationKey,
        to: ConversationKey,
    ) -> (Self, oneshot::Receiver<Result<Revision, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let fork = Fork { from, to, outcome: Ok(Revision::ABSENT), reply };
        (Self { slot, room: None, work: Work::Fork(fork) }, outcome)
    }

    /// Counts it against the room of a queue, until it is answered.
    pub(crate) fn taking(mut self, room: &Arc<Room>) -> Self {
        let bytes = match &self.work {
            Work::Append(append) => append.writes.iter().map(EncodedWrite::bytes).sum(),
            Work::Delete(_) | Work::Fork(_) | Work::Prune(_) => 0,
        };
        self.room = Some(room.take(bytes));
        self
    }

    /// How many bytes of messages and results it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.room.as_ref().map_or(0, Taken::bytes)
    }

    pub(crate) fn prune(
        slot: Slot,
        key: ConversationKey,
        keep: Keep,
    ) -> (Self, oneshot::Receiver<Result<Pruned, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let prune = Prune { key, keep, outcome: Ok(Pruned::default()), reply };
        (Self { slot, room: None, work: Work::Prune(prune) }, outcome)
    }

    pub(crate) fn may_block(&self) -> bool {
        self.slot.may_block()
    }

    /// The conversations it changes.
    pub(crate) fn keys(&self) -> Keys {
        match &self.work {
            Work::Append(append) => append.writes.iter().map(|write| write.key().clone()).collect(),
            Work::Delete(delete) => [delete.key.clone()].into_iter().collect(),
            Work::Fork(fork) => [fork.from.clone(), fork.to.clone()].into_iter().collect(),
            Work::Prune(prune) => [prune.key.clone()].into_iter().collect(),
        }
    }

    /// How many writes it stored.
    pub(crate) fn stored(&self) -> usize {
        match &self.work {
            Work::Append(append) => append.stored,
            Work::Delete(_) | Work::Fork(_) | Work::Prune(_) => 0,
        }
    }

    /// Whether all it does is one write.
    pub(crate) fn is_single(&self) -> bool {
        match &self.work {
            Work::Append(append) => append.writes.len() <= 1,
            Work::Delete(_) | Work::Fork(_) | Work::Prune(_) => true,
        }
    }

    /// Does its next write inside a transaction. After an error the transaction must be rolled
    /// back, and the submission either [started over](Self::start_over) or [failed](Self::fail).
    pub(crate) fn step(
        &mut self,
        connection: &Connection,
        heads: &mut Heads,
    ) -> rusqlite::Result<Next> {
        match &mut self.work {
            Work::Append(append) => append.step(connection, heads),
            // Nobody is told, so nothing need be done: the caller gave up.
            Work::Delete(delete) if delete.reply.is_closed() => Ok(Next::Done),
            Work::Fork(fork) if fork.reply.is_closed() => Ok(Next::Done),
            Work::Prune(prune) if prune.reply.is_closed() => Ok(Next::Done),
            Work::Delete(delete) => {
                heads.forget();
                delete.outcome = Ok(append::delete(connection, &delete.key)?);
                Ok(Next::Done)
            }
            Work::Fork(fork) => {
                heads.forget();
                fork.outcome = fork::fork(connection, &fork.from, &fork.to)?;
                Ok(Next::Done)
            }
            Work::Prune(prune) => {
                heads.forget();
                prune.outcome = prune::prune(connection, &prune.key, prune.keep)?;
                Ok(Next::Done)
            }
        }
    }

    /// Forgets what it did, after a rollback.
    pub(crate) fn start_over(&mut self) {
        match &mut self.work {
            Work::Append(append) => {
                append.stored = 0;
                append.outcome = Ok(Revision::ABSENT);
            }
            Work::Delete(delete) => delete.outcome = Ok(false),
            Work::Fork(fork) => fork.outcome = Ok(Revision::ABSENT),
            Work::Prune(prune) => prune.outcome = Ok(Pruned::default()),
        }
    }

    /// Ends it with SQLite's error after this many writes that are durable.
    pub(crate) fn fail(&mut self, completed: usize, failure: &Failure) {
        match &mut self.work {
            Work::Append(append) => {
                let source = failure.store_error("append to a conversation");
                append.stored = completed;
                append.outcome = Err(AppendError { completed, source });
            }
            Work::Delete(delete) => {
                delete.outcome = Err(failure.store_error("delete a conversation"));
            }
            Work::Fork(fork) => fork.outcome = Err(failure.store_error("copy a conversation")),
            Work::Prune(prune) => {
                prune.outcome = Err(failure.store_error("prune a conversation"));
            }
        }
    }

    /// Ends it because the store takes no more writes.
    pub(crate) fn refuse(&mut self) {
        match &mut self.work {
            Work::Append(append) => {
                append.outcome = Err(AppendError { completed: 0, source: StoreError::Closed });
            }
            Work::Delete(delete) => delete.outcome = Err(StoreError::Closed),
            Work::Fork(fork) => fork.outcome = Err(StoreError::Closed),
            Work::Prune(prune) => prune.outcome = Err(StoreError::Closed),
        }
    }

    /// Gives its place in the queue back and tells whoever waits.
    pub(crate) fn resolve(self) {
        drop((self.slot, self.room));
        // Nobody need be waiting.
        match self.work {
            Work::Append(append) => drop(append.reply.send(append.outcome)),
            Work::Delete(delete) => drop(delete.reply.send(delete.outcome)),
            Work::Fork(fork) => drop(fork.reply.send(fork.outcome)),
            Work::Prune(prune) => drop(prune.reply.send(prune.outcome)),
        }
    }
}

impl Append {
    fn step(&mut self, connection: &Connection, heads: &mut Heads) -> rusqlite::Result<Next> {
        let Some(write) = self.writes.get(self.stored) else { return Ok(Next::Done) };
        match write.store(connection, heads) {
            Ok(revision) => {
                self.stored += 1;
                self.outcome = Ok(revision);
                Ok(if self.stored < self.writes.len() { Next::Step } else { Next::Done })
            }
            Err(NotStored::Refused(source)) => {
                self.outcome = Err(AppendError { completed: self.stored, source });
                Ok(Next::Done)
            }
            Err(NotStored::Failed(error)) => Err(error),
        }
    }
}
