//! Builds the writes that copy a conversation. The values of the copy are sealed (encrypted) for
//! the key of the copy. A turn, the unit of a copy, consists of the messages of a run and of the
//! later runs that answer calls of this run.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, PersistenceMode, RunId, ToolInvocation,
    store::{
        History, Parent, Revision, RunActivity, SequencePosition,
        author::{RecordedResult, ToolRecord, Write},
    },
};

/// The turns of a conversation that a fork copies.
pub(crate) struct CopiedTurns {
    /// The whole history, opened.
    pub(crate) history: History,
    /// The sequence number of the last message to copy.
    pub(crate) position: u64,
    /// The results that are in messages: the position of the result, by the position of its call.
    pub(crate) results: HashMap<SequencePosition, SequencePosition>,
}

/// Returns the writes that make a copy of these turns. The first write creates the conversation.
/// All messages of a write belong to one run, because a write derives the ids of its messages from
/// one id. The final write contains the rows of the record, one row for each tool call.
pub(crate) fn writes(
    to: &ConversationKey,
    turns: &CopiedTurns,
    invocations: Vec<ToolInvocation>,
    mode: Option<PersistenceMode>,
    parent: Parent,
) -> Vec<Write> {
    let CopiedTurns { history, position, results } = turns;
    let activity = RunActivity::new(SystemTime::now()).with_mode(mode);
    let id = MessageId { run: RunId::new(), index: 0 };
    let first = Write::new(to.clone(), id, Revision::ABSENT, [])
        .without_activity()
        .with_parent(Some(parent));
    let mut at = first.result();
    let mut writes = vec![first];
    let copied = history.numbered().take_while(|(sequence, _)| sequence <= position);
    let copied = copied.map(|(_, message)| message);
    for group in consecutive_messages(copied) {
        let id = group.first().and_then(|message| message.id).unwrap_or(id);
        let write = Write::new(to.clone(), id, at, group).with_activity(activity.clone());
        at = write.result();
        writes.push(write);
    }
    let moved = |original: SequencePosition| {
        let sequence = original.sequence.checked_sub(history.head.pruned)?;
        (1..=at.sequence).contains(&sequence).then_some(SequencePosition { sequence, ..original })
    };
    let rows: Vec<_> = invocations
        .into_iter()
        .filter_map(|invocation| {
            let (sequence, index) = (invocation.sequence, invocation.sequence_index);
            let call = SequencePosition { sequence, index };
            let result = results.get(&call).and_then(|result| moved(*result));
            Some(row(moved(call)?, result, invocation))
        })
        .collect();
    if let Some(last) = writes.pop() {
        writes.push(last.with_tools(rows));
    }
    writes
}

/// Groups the messages into sequences of one run with consecutive indices.
fn consecutive_messages<'m>(
    messages: impl Iterator<Item = &'m Arc<Message>>,
) -> Vec<Vec<Arc<Message>>> {
    let mut groups: Vec<Vec<Arc<Message>>> = Vec::new();
    let mut next = None;
    for message in messages {
        match groups.last_mut() {
            Some(group) if message.id.is_some() && message.id == next => {
                group.push(message.clone());
            }
            Some(_) | None => groups.push(vec![message.clone()]),
        }
        next = message
            .id
            .and_then(|id| Some(MessageId { run: id.run, index: id.index.checked_add(1)? }));
    }
    groups
}

/// Returns the row of a copied call. `result` is the position of the result, if it is in a message
/// of the copy.
fn row(
    call: SequencePosition,
    result: Option<SequencePosition>,
    invocation: ToolInvocation,
) -> ToolRecord {
    let mut row =
        ToolRecord::pending(call, invocation.round_index, invocation.call_id, invocation.name);
    row.status = invocation.status;
    row.error = invocation.error;
    row.started_at = invocation.started_at;
    row.finished_at = invocation.finished_at;
    row.result = match (result, invocation.result) {
        (Some(result), _) => RecordedResult::InMessage(result),
        (None, Some(result)) => RecordedResult::Apart(Box::new(result)),
        (None, None) => RecordedResult::None,
    };
    row.in_copy()
}
