//! The prunes of the faulty stores.

use tower_chat_core::{
    ConversationKey, MessageId, RunId, ToolStatus,
    store::{
        HistoryStore, InvocationQuery, Keep, Maintenance, Pruned, Revision, SequencePosition,
        StoreError, ToolCallQueries,
        author::{Slot, ToolRecord, Write},
    },
};

use super::{Broken, Fault, summaries};

/// Prunes a conversation.
pub(super) async fn prune(
    broken: &Broken,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, StoreError> {
    let mut keep = keep;
    match (broken.fault, keep) {
        (Fault::PrunesNothing, _) => return Ok(Pruned::default()),
        (Fault::PrunesAll, Keep::Messages(0)) => {
            broken.inner.delete(key).await?;
        }
        (Fault::PrunesOneMessageMore, Keep::Messages(count)) => {
            keep = Keep::Messages(count.saturating_sub(1));
        }
        (Fault::PrunesOverOtherNumbers, _) => {
            // Simulates a store that numbers the remaining messages from 1 again.
            let pruned = broken.inner.prune(key, keep).await?;
            let left = broken.inner.load(key).await?.messages;
            broken.inner.delete(key).await?;
            let mut at = Revision::ABSENT;
            for message in left.iter().cloned() {
                let id = message.id.expect("an id");
                let write = Write::new(key.clone(), id, at, [message]);
                at = write.result();
                drop(broken.inner.append(Slot::unbounded(), vec![write]));
            }
            return Ok(pruned);
        }
        (Fault::PrunesForApprovals, _) => {
            let query = InvocationQuery::of(key).with_status(ToolStatus::PendingApproval);
            let waiting = broken.inner.invocations(&query).await?.found;
            let rows = waiting.into_iter().map(|(_, call)| {
                let position =
                    SequencePosition { sequence: call.sequence, index: call.sequence_index };
                let mut row = ToolRecord::pending(position, 0, call.call_id, call.name);
                row.status = ToolStatus::Interrupted;
                row
            });
            let head = broken.inner.head(key).await?;
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(key.clone(), id, head.revision, []);
            let write = write.with_tools(rows.collect());
            drop(broken.inner.append(Slot::unbounded(), vec![write]));
        }
        (Fault::PrunesTheSummaryInForce, _) => {
            let pruned = broken.inner.prune(key, keep).await?;
            summaries::pruned(broken, key).await?;
            return Ok(pruned);
        }
        _ => {}
    }
    broken.inner.prune(key, keep).await
}
