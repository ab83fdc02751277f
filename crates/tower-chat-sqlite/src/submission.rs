//! Submissions: units of work that a caller executes on its own thread, or puts into the queue of
//! the writer thread. A submission has a slot, which is a reserved entry of the queue, and a
//! ticket, with which the caller waits for the outcome.

mod append;
mod changes;

use std::sync::Arc;

use rusqlite::Connection;
use tower_chat_core::{
    ConversationKey,
    store::{
        AddedSummary, Fork, Pruned, Revision, StoreError,
        author::{AppendError, Slot, Ticket, TicketSender, Write},
    },
    telemetry::Queued as Queuing,
};

use self::changes::{AddSummary, Delete, Describe, ForkAt, Prune, RemoveSummary, RewriteRows};
use crate::{
    append::{self as statements, EncodedWrite, NotStored},
    byte_budget::{BudgetGuard, ByteBudget},
    directory,
    failure::Failure,
    fork,
    head_cache::HeadCache,
    history_summary, maintenance, prune, seal_mark,
    telemetry::TELEMETRY,
};

/// A unit of work with its slot: an [`Append`], which the caller may execute, or a [`Queued`] entry
/// of the queue.
#[derive(Debug)]
pub(crate) struct Submission<W = Queued> {
    slot: Slot,
    /// The bytes of the submission in the queue's byte budget; `None` unless the work is an append.
    budget: Option<BudgetGuard>,
    /// Measures the time that the submission waits.
    queued: Queuing,
    work: W,
}

/// The execution of a submission in transactions.
pub(crate) trait Work {
    /// Executes the next write inside a transaction. If the write is refused, the submission ends
    /// without an error. After an error the caller must roll the transaction back, and then call
    /// either [`start_over`](Self::start_over) or [`fail`](Self::fail).
    fn step(&mut self, connection: &Connection, heads: &mut HeadCache) -> rusqlite::Result<Next>;

    /// Resets the submission to its first write, after a rollback.
    fn start_over(&mut self);

    /// Sets a failure as the outcome. `completed` is the number of writes of the submission that
    /// are durable.
    fn fail(&mut self, completed: usize, failure: &Failure);

    /// Returns the number of stored writes.
    fn stored(&self) -> usize;

    /// Returns whether the submission consists of one write.
    fn is_single(&self) -> bool;

    /// Returns whether the submission has deleted a conversation. If rows of the conversation
    /// remain, further steps must delete them.
    fn has_deleted(&self) -> bool;
}

/// An append or another change in the queue, with the sender for its outcome.
#[derive(Debug)]
pub(crate) enum Queued {
    Append(Append, TicketSender),
    Delete(Delete),
    Fork(ForkAt),
    Prune(Prune),
    Describe(Describe),
    Rewrite(RewriteRows),
    AddSummary(AddSummary),
    RemoveSummary(RemoveSummary),
}

#[derive(Debug)]
pub(crate) struct Append {
    /// The writes: usually one. There are several if earlier writes failed and are submitted again.
    writes: Vec<EncodedWrite>,
    /// The number of writes that were stored, including those in the current transaction.
    stored: usize,
    outcome: Result<Revision, AppendError>,
}

/// The conversations that a submission changes or copies, usually one.
pub(crate) type Keys = Vec<ConversationKey>;

/// Whether a submission has more writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Write,
    Done,
}

impl<W> Submission<W> {
    /// Returns the number of bytes of an append, and 0 for any other work.
    pub(crate) fn bytes(&self) -> usize {
        self.budget.as_ref().map_or(0, BudgetGuard::bytes)
    }

    /// Ends the measurement of the waiting time, when the transaction is about to begin.
    pub(crate) fn begin(&mut self) {
        self.queued.begin();
    }
}

impl Submission<Append> {
    /// Creates an append, whose bytes count in the byte budget until it has an outcome.
    pub(crate) fn append(slot: Slot, writes: Vec<Write>, budget: &Arc<ByteBudget>) -> Self {
        let writes: Vec<_> = writes.into_iter().map(EncodedWrite::new).collect();
        let budget = Some(budget.take(writes.iter().map(EncodedWrite::bytes).sum()));
        let bytes = budget.as_ref().map(BudgetGuard::bytes);
        let queued = TELEMETRY.queued(writes.len(), bytes);
        let work = Append { writes, stored: 0, outcome: Ok(Revision::ABSENT) };
        Self { slot, budget, queued, work }
    }

    pub(crate) fn caller_may_block(&self) -> bool {
        self.slot.may_block()
    }

    /// Returns the conversations that the append changes.
    pub(crate) fn keys(&self) -> Keys {
        self.work.keys()
    }

    /// Converts the submission to an entry of the queue.
    pub(crate) fn queued(self) -> (Submission, Ticket) {
        let Self { slot, budget, queued, work } = self;
        let (reply, ticket) = Ticket::channel();
        (Submission { slot, budget, queued, work: Queued::Append(work, reply) }, ticket)
    }

    /// Releases the slot of an append that the caller has executed, and returns a ticket with the
    /// outcome.
    pub(crate) fn done(self) -> Ticket {
        self.work.record_refusal();
        self.queued.end();
        drop((self.slot, self.budget));
        Ticket::done(self.work.outcome)
    }
}

impl Submission {
    fn without_writes(slot: Slot, work: Queued) -> Self {
        Self { slot, budget: None, queued: TELEMETRY.queued(0, None), work }
    }

    /// Returns the conversations that the submission changes or copies.
    pub(crate) fn keys(&self) -> Keys {
        self.work.keys()
    }

    /// Sets [`StoreError::Closed`] as the outcome.
    pub(crate) fn refuse(&mut self) {
        match &mut self.work {
            Queued::Append(append, _) => {
                append.outcome = Err(AppendError { completed: 0, source: StoreError::Closed });
            }
            Queued::Delete(delete) => delete.outcome = Err(StoreError::Closed),
            Queued::Fork(fork) => fork.outcome = Err(StoreError::Closed),
            Queued::Prune(prune) => prune.outcome = Err(StoreError::Closed),
            Queued::Describe(describe) => describe.outcome = Err(StoreError::Closed),
            Queued::Rewrite(rewrite) => rewrite.outcome = Err(StoreError::Closed),
            Queued::AddSummary(add) => add.outcome = Err(StoreError::Closed),
            Queued::RemoveSummary(remove) => remove.outcome = Err(StoreError::Closed),
        }
    }

    /// Releases the slot of the submission and sends the outcome.
    pub(crate) fn resolve(self) {
        if let Queued::Append(append, _) = &self.work {
            append.record_refusal();
        }
        self.queued.end();
        drop((self.slot, self.budget));
        // Sending fails if the receiver was dropped, and this error is ignored.
        match self.work {
            Queued::Append(append, reply) => reply.send(append.outcome),
            Queued::Delete(delete) => drop(delete.reply.send(delete.outcome)),
            Queued::Fork(fork) => drop(fork.reply.send(fork.outcome)),
            Queued::Prune(prune) => drop(prune.reply.send(prune.outcome)),
            Queued::Describe(describe) => drop(describe.reply.send(describe.outcome)),
            Queued::Rewrite(rewrite) => drop(rewrite.reply.send(rewrite.outcome)),
            Queued::AddSummary(add) => drop(add.reply.send(add.outcome)),
            Queued::RemoveSummary(remove) => drop(remove.reply.send(remove.outcome)),
        }
    }
}

impl<W: Work> Work for Submission<W> {
    fn step(&mut self, connection: &Connection, heads: &mut HeadCache) -> rusqlite::Result<Next> {
        self.work.step(connection, heads)
    }

    fn start_over(&mut self) {
        self.work.start_over();
    }

    fn fail(&mut self, completed: usize, failure: &Failure) {
        self.work.fail(completed, failure);
    }

    fn stored(&self) -> usize {
        self.work.stored()
    }

    fn is_single(&self) -> bool {
        self.work.is_single()
    }

    fn has_deleted(&self) -> bool {
        self.work.has_deleted()
    }
}

impl Queued {
    fn keys(&self) -> Keys {
        match self {
            Self::Append(append, _) => append.keys(),
            Self::Delete(delete) => [delete.key.clone()].into_iter().collect(),
            Self::Fork(fork) => [fork.from.clone(), fork.to.clone()].into_iter().collect(),
            Self::Prune(prune) => [prune.key.clone()].into_iter().collect(),
            Self::Describe(describe) => [describe.key.clone()].into_iter().collect(),
            Self::Rewrite(rewrite) => [rewrite.rewrite.key.clone()].into_iter().collect(),
            Self::AddSummary(add) => [add.key.clone()].into_iter().collect(),
            Self::RemoveSummary(remove) => [remove.key.clone()].into_iter().collect(),
        }
    }
}

impl Work for Queued {
    fn step(&mut self, connection: &Connection, heads: &mut HeadCache) -> rusqlite::Result<Next> {
        #[cfg(test)]
        self.keys().iter().for_each(|key| heads.panic_at(key));
        match self {
            Self::Append(append, _) => append.step(connection, heads),
            // The change is skipped if its caller no longer waits for the outcome.
            Self::Delete(delete) if delete.reply.is_closed() => Ok(Next::Done),
            Self::Fork(fork) if fork.reply.is_closed() => Ok(Next::Done),
            Self::Prune(prune) if prune.reply.is_closed() => Ok(Next::Done),
            Self::Describe(describe) if describe.reply.is_closed() => Ok(Next::Done),
            Self::Rewrite(rewrite) if rewrite.reply.is_closed() => Ok(Next::Done),
            Self::AddSummary(add) if add.reply.is_closed() => Ok(Next::Done),
            Self::RemoveSummary(remove) if remove.reply.is_closed() => Ok(Next::Done),
            Self::Delete(delete) => {
                heads.forget();
                delete.outcome = refused(statements::delete(connection, &delete.key))?;
                Ok(Next::Done)
            }
            Self::Fork(fork) => {
                heads.forget();
                fork.outcome = refused(
                    seal_mark::admit(connection, None, false)
                        .and_then(|_| fork::fork(connection, &fork.from, fork.before, &fork.to)),
                )?;
                Ok(Next::Done)
            }
            Self::Prune(prune) => {
                heads.forget();
                prune.outcome = refused(
                    seal_mark::admit(connection, None, prune.keep.is_sealed())
                        .and_then(|_| prune::prune(connection, &prune.key, prune.keep)),
                )?;
                Ok(Next::Done)
            }
            // The cached head (the row of the conversation) remains valid, because a head does not
            // contain the description.
            Self::Describe(Describe { key, description, expected_version, outcome, .. }) => {
                let described = heads.admit(connection, description.is_sealed()).and_then(|()| {
                    directory::describe(connection, key, description, *expected_version)
                });
                *outcome = refused(described)?;
                Ok(Next::Done)
            }
            Self::Rewrite(rewrite) => {
                heads.forget();
                rewrite.outcome = refused(
                    seal_mark::admit(connection, None, rewrite.rewrite.is_sealed)
                        .and_then(|_| maintenance::rewrite(connection, &rewrite.rewrite)),
                )?;
                Ok(Next::Done)
            }
            // These changes update the cached head of their conversation.
            Self::AddSummary(AddSummary { key, summary, rewrites, outcome, .. }) => {
                let added = history_summary::add(connection, heads, key, summary, *rewrites);
                *outcome = refused(added)?;
                Ok(Next::Done)
            }
            Self::RemoveSummary(RemoveSummary { key, id, outcome, .. }) => {
                *outcome = refused(history_summary::remove(connection, heads, key, *id))?;
                Ok(Next::Done)
            }
        }
    }

    fn start_over(&mut self) {
        match self {
            Self::Append(append, _) => append.start_over(),
            Self::Delete(delete) => delete.outcome = Ok(false),
            Self::Fork(fork) => fork.outcome = Ok(Fork::ABSENT),
            Self::Prune(prune) => prune.outcome = Ok(Pruned::default()),
            Self::Describe(describe) => describe.outcome = Ok(0),
            Self::Rewrite(rewrite) => rewrite.outcome = Ok(Revision::ABSENT),
            Self::AddSummary(add) => add.outcome = Ok(AddedSummary::NoSuchMessage),
            Self::RemoveSummary(remove) => remove.outcome = Ok(false),
        }
    }

    fn fail(&mut self, completed: usize, failure: &Failure) {
        match self {
            Self::Append(append, _) => append.fail(completed, failure),
            Self::Delete(delete) => {
                delete.outcome = Err(failure.store_error("delete a conversation"));
            }
            Self::Fork(fork) => fork.outcome = Err(failure.store_error("copy a conversation")),
            Self::Prune(prune) => {
                prune.outcome = Err(failure.store_error("prune a conversation"));
            }
            Self::Describe(describe) => {
                describe.outcome = Err(failure.store_error("describe a conversation"));
            }
            Self::Rewrite(rewrite) => {
                rewrite.outcome = Err(failure.store_error("rewrite a conversation"));
            }
            Self::AddSummary(add) => add.outcome = Err(failure.store_error("add a summary")),
            Self::RemoveSummary(remove) => {
                remove.outcome = Err(failure.store_error("remove a summary"));
            }
        }
    }

    fn stored(&self) -> usize {
        match self {
            Self::Append(append, _) => append.stored(),
            Self::Delete(_)
            | Self::Fork(_)
            | Self::Prune(_)
            | Self::Describe(_)
            | Self::Rewrite(_)
            | Self::AddSummary(_)
            | Self::RemoveSummary(_) => 0,
        }
    }

    fn is_single(&self) -> bool {
        match self {
            Self::Append(append, _) => append.is_single(),
            Self::Delete(_)
            | Self::Fork(_)
            | Self::Prune(_)
            | Self::Describe(_)
            | Self::Rewrite(_)
            | Self::AddSummary(_)
            | Self::RemoveSummary(_) => true,
        }
    }

    fn has_deleted(&self) -> bool {
        match self {
            Self::Delete(delete) => delete.outcome.is_ok(),
            Self::Append(..)
            | Self::Fork(_)
            | Self::Prune(_)
            | Self::Describe(_)
            | Self::Rewrite(_)
            | Self::AddSummary(_)
            | Self::RemoveSummary(_) => false,
        }
    }
}

/// Separates refusals, which are an outcome of the change, from failures of SQLite, after which the
/// caller must roll the transaction back.
fn refused<T>(outcome: Result<T, NotStored>) -> rusqlite::Result<Result<T, StoreError>> {
    match outcome {
        Ok(done) => Ok(Ok(done)),
        Err(NotStored::Refused(error)) => Ok(Err(error)),
        Err(NotStored::Failed(error)) => Err(error),
    }
}
