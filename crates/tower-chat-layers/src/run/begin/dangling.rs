//! When a run begins, logs the calls that have no result.

use std::sync::Arc;

use tower_chat_core::{ConversationKey, Message, Messages};

use crate::{replay::Replay, telemetry};

/// Logs the stored calls that have no result in the history or in the run's own input. Older calls
/// than those of the last run cause no warning, because an earlier run has logged it.
pub(super) fn warn_of_dangling(
    key: &ConversationKey,
    history: &Messages,
    replay: &Replay,
    own: &[Arc<Message>],
) {
    if replay.dangling_positions().is_empty() {
        return;
    }
    let mut replay = replay.clone();
    own.iter().for_each(|message| replay.push(message));
    let dangling = replay.dangling_with_visibility();
    if dangling.is_empty() {
        return;
    }
    let last_run = history.last().and_then(|last| last.id).map(|id| id.run);
    let (new, known): (Vec<_>, Vec<_>) =
        dangling.into_iter().partition(|call| call.run.is_none() || call.run == last_run);
    telemetry::repaired(key, &new, &known);
}
