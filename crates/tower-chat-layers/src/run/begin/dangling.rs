//! What is logged of calls without a result when a run begins.

use std::sync::Arc;

use tower_chat_core::{ConversationKey, Message};

use crate::{replay::Replay, telemetry};

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
    if !visible.is_empty() || !left_out.is_empty() {
        telemetry::repaired(key, &visible, &left_out);
    }
}
