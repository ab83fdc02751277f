//! What is logged of calls without a result when a run begins.

use std::sync::Arc;

use tower_chat_core::{ConversationKey, Message};

use crate::replay::{DanglingCall, Replay};

/// Logs what the model is shown, or not shown, of stored calls that neither the history nor the
/// run's own input answers.
pub(super) fn warn_of_dangling(key: &ConversationKey, replay: &Replay, own: &[Arc<Message>]) {
    if replay.dangling_calls().is_empty() {
        return;
    }
    let mut replay = replay.clone();
    own.iter().for_each(|message| replay.push(message));
    let (visible, left_out): (Vec<_>, Vec<_>) =
        replay.dangling().into_iter().partition(|call| call.is_visible);
    let names = |calls: &[DanglingCall]| {
        let names = calls.iter().map(|call| format!("{} ({})", call.tool, call.call_id));
        names.collect::<Vec<_>>().join(", ")
    };
    if !visible.is_empty() {
        tracing::warn!(
            conversation = %key,
            calls = names(&visible),
            "stored tool calls have no result, since their runs were interrupted: the model is \
             told that they may or may not have taken effect"
        );
    }
    if !left_out.is_empty() {
        tracing::warn!(
            conversation = %key,
            calls = names(&left_out),
            "stored tool calls have no result, and are not shown to the model"
        );
    }
}
