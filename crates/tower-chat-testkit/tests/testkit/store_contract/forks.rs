//! Faulty copies of conversations.

use tower_chat_core::{
    ConversationKey, MessageId, RunId,
    store::{
        Fork, HistoryStore, Parent, Revision, StoreError,
        author::{Slot, Write},
    },
};

use super::Broken;

/// Copies all messages before a message without their record, even within a turn.
pub(super) async fn in_the_middle(
    store: &Broken,
    from: &ConversationKey,
    before: Option<u64>,
    to: &ConversationKey,
) -> Result<Fork, StoreError> {
    let history = store.inner.load(from).await?;
    let before = before.unwrap_or(u64::MAX);
    let copied: Vec<_> = history.numbered().take_while(|(number, _)| *number < before).collect();
    let position = copied.last().map_or(history.head.pruned, |(number, _)| *number);
    let id = MessageId { run: RunId::new(), index: 0 };
    let parent = Parent::new(from.clone(), position);
    let mut writes =
        vec![Write::new(to.clone(), id, Revision::ABSENT, []).with_parent(Some(parent))];
    for (_, message) in copied {
        let at = writes.last().map_or(Revision::ABSENT, Write::result);
        let id = message.id.unwrap_or(id);
        writes.push(Write::new(to.clone(), id, at, [message.clone()]));
    }
    let revision = store.inner.append(Slot::unbounded(), writes).await;
    Ok(Fork::new(revision.map_err(|error| error.source)?, position))
}
