//! One conversation in memory, and how its record is searched.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    ConversationKey, Message,
    store::{CallPlace, History, InvocationQuery, ToolRecord, Write},
};

/// The messages of a conversation, and what is known of its tool calls.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) history: History,
    tools: BTreeMap<CallPlace, ToolRecord>,
}

impl Stored {
    pub(super) fn new() -> Self {
        Self { history: History::empty(), tools: BTreeMap::new() }
    }

    pub(super) fn apply(&mut self, write: &Write) {
        self.history.apply(write);
        let last = self.history.head.revision.sequence;
        let known =
            write.tools().iter().filter(|record| (1..=last).contains(&record.call.sequence));
        self.tools.extend(known.map(|record| (record.call, record.clone())));
    }

    /// A message by its number.
    pub(super) fn message(&self, sequence: u64) -> Option<Arc<Message>> {
        let index = usize::try_from(sequence.checked_sub(1)?).ok()?;
        self.history.messages.get(index).cloned()
    }
}

/// The rows that fit a query, in order, with their conversations.
pub(super) fn asked_for<'a>(
    conversations: &'a BTreeMap<ConversationKey, Stored>,
    query: &'a InvocationQuery,
) -> impl Iterator<Item = (&'a ConversationKey, &'a Stored, &'a ToolRecord)> {
    let first = ConversationKey::new(&*query.scope, query.conversation.as_deref().unwrap_or(""));
    let is_asked_for = |key: &ConversationKey| {
        query.conversation.as_ref().is_none_or(|conversation| conversation == key.id())
    };
    conversations
        .range(first..)
        .take_while(move |(key, _)| key.scope() == query.scope && is_asked_for(key))
        .flat_map(|(key, stored)| stored.tools.values().map(move |record| (key, stored, record)))
        .filter(|(_, _, record)| query.fits(record))
}
