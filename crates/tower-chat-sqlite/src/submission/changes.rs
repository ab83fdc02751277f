//! Changes other than appends. The execution of a change sets its field `outcome`, and
//! `Submission::resolve` sends this outcome to the caller through `reply`.

use tokio::sync::oneshot;
use tower_chat_core::{
    ConversationKey,
    store::{
        AddedSummary, Description, Fork, HistorySummary, Keep, Pruned, Revision, Rewrite,
        StoreError, author::Slot,
    },
};

use super::{Queued, Submission};

#[derive(Debug)]
pub(crate) struct Delete {
    pub(super) key: ConversationKey,
    pub(super) outcome: Result<bool, StoreError>,
    pub(super) reply: oneshot::Sender<Result<bool, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct ForkAt {
    pub(super) from: ConversationKey,
    pub(super) before: Option<u64>,
    pub(super) to: ConversationKey,
    pub(super) outcome: Result<Fork, StoreError>,
    pub(super) reply: oneshot::Sender<Result<Fork, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct Prune {
    pub(super) key: ConversationKey,
    pub(super) keep: Keep,
    pub(super) outcome: Result<Pruned, StoreError>,
    pub(super) reply: oneshot::Sender<Result<Pruned, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct Describe {
    pub(super) key: ConversationKey,
    pub(super) description: Description,
    pub(super) expected_version: u64,
    pub(super) outcome: Result<u64, StoreError>,
    pub(super) reply: oneshot::Sender<Result<u64, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct RewriteRows {
    pub(super) rewrite: Box<Rewrite>,
    pub(super) outcome: Result<Revision, StoreError>,
    pub(super) reply: oneshot::Sender<Result<Revision, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct AddSummary {
    pub(super) key: ConversationKey,
    pub(super) summary: Box<HistorySummary>,
    pub(super) rewrites: u64,
    pub(super) outcome: Result<AddedSummary, StoreError>,
    pub(super) reply: oneshot::Sender<Result<AddedSummary, StoreError>>,
}

#[derive(Debug)]
pub(crate) struct RemoveSummary {
    pub(super) key: ConversationKey,
    pub(super) id: u64,
    pub(super) outcome: Result<bool, StoreError>,
    pub(super) reply: oneshot::Sender<Result<bool, StoreError>>,
}

impl Submission {
    pub(crate) fn delete(
        slot: Slot,
        key: ConversationKey,
    ) -> (Self, oneshot::Receiver<Result<bool, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let delete = Delete { key, outcome: Ok(false), reply };
        (Self::without_writes(slot, Queued::Delete(delete)), outcome)
    }

    pub(crate) fn fork(
        slot: Slot,
        from: ConversationKey,
        before: Option<u64>,
        to: ConversationKey,
    ) -> (Self, oneshot::Receiver<Result<Fork, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let fork = ForkAt { from, before, to, outcome: Ok(Fork::ABSENT), reply };
        (Self::without_writes(slot, Queued::Fork(fork)), outcome)
    }

    pub(crate) fn prune(
        slot: Slot,
        key: ConversationKey,
        keep: Keep,
    ) -> (Self, oneshot::Receiver<Result<Pruned, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let prune = Prune { key, keep, outcome: Ok(Pruned::default()), reply };
        (Self::without_writes(slot, Queued::Prune(prune)), outcome)
    }

    pub(crate) fn describe(
        slot: Slot,
        key: ConversationKey,
        description: Description,
        expected_version: u64,
    ) -> (Self, oneshot::Receiver<Result<u64, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let describe = Describe { key, description, expected_version, outcome: Ok(0), reply };
        (Self::without_writes(slot, Queued::Describe(describe)), outcome)
    }

    pub(crate) fn rewrite(
        slot: Slot,
        rewrite: Rewrite,
    ) -> (Self, oneshot::Receiver<Result<Revision, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let rewrite =
            RewriteRows { rewrite: Box::new(rewrite), outcome: Ok(Revision::ABSENT), reply };
        (Self::without_writes(slot, Queued::Rewrite(rewrite)), outcome)
    }

    /// Creates the addition of a summary, without a slot (reserved entry of the queue), because
    /// runs that wait for this addition may have reserved all slots.
    pub(crate) fn add_summary(
        key: ConversationKey,
        summary: HistorySummary,
        rewrites: u64,
    ) -> (Self, oneshot::Receiver<Result<AddedSummary, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let summary = Box::new(summary);
        let add =
            AddSummary { key, summary, rewrites, outcome: Ok(AddedSummary::NoSuchMessage), reply };
        (Self::without_writes(Slot::unbounded(), Queued::AddSummary(add)), outcome)
    }

    /// Creates the removal of a summary, which needs no slot either.
    pub(crate) fn remove_summary(
        key: ConversationKey,
        id: u64,
    ) -> (Self, oneshot::Receiver<Result<bool, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        let remove = RemoveSummary { key, id, outcome: Ok(false), reply };
        (Self::without_writes(Slot::unbounded(), Queued::RemoveSummary(remove)), outcome)
    }
}
