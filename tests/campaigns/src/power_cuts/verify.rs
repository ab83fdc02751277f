//! Performs the checks of `tower-chat verify`, with the same functions of the library.

use std::sync::Arc;

use tower_chat::{
    Message,
    message::Messages,
    replay::{DanglingCalls, Replay},
    store::ConversationRows,
    validate::validate_messages,
};
use tower_chat_repair::{Mismatch, mismatches_of_readable};

/// Returns the first problem that `tower-chat verify` would report for a conversation.
pub(crate) fn problem(rows: &ConversationRows) -> Option<String> {
    let mut messages: Vec<(u64, Option<&Arc<Message>>)> = Vec::new();
    let first = rows.head.pruned.saturating_add(1);
    for (expected, (sequence, message)) in (first..).zip(&rows.messages) {
        if *sequence != expected {
            return Some(format!("message {expected} is missing"));
        }
        if let Err(error) = message {
            return Some(format!("message {sequence} cannot be read: {error}"));
        }
        messages.push((*sequence, message.as_ref().ok()));
    }
    let last = rows.head.open_run.as_ref().map_or(rows.head.revision.sequence, |open| open.visible);
    if rows.head.pruned + rows.messages.len() as u64 != last {
        return Some(format!("message {last} is missing"));
    }
    let read: Messages = messages.iter().filter_map(|(_, message)| message.cloned()).collect();
    // A run that a power cut has interrupted may have calls without results. This is no problem,
    // because replay adds the results.
    let is_wrong = |mismatch: &Mismatch| !matches!(mismatch, Mismatch::DanglingCall { .. });
    if let Some(mismatch) = mismatches_of_readable(messages).into_iter().find(is_wrong) {
        return Some(format!("message {}: {mismatch}", mismatch.sequence()));
    }
    let of_number = |sequence: u64| {
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        read.get(index).cloned()
    };
    for (call, record) in &rows.tools {
        let resolved = match record {
            Ok(record) => record.resolve(of_number).map(drop).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        if let Err(what) = resolved {
            return Some(format!("the record of call {} of {}: {what}", call.index, call.sequence));
        }
    }
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(&read, 0);
    let view = replay.view();
    let valid = validate_messages(view.iter().map(|message| &**message));
    valid.err().map(|invalid| format!("the replay is not valid: {invalid}"))
}
