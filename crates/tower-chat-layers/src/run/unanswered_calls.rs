//! Finds the calls that an earlier attempt at a run has left without results.

use std::sync::Arc;

use tower_chat_core::{Message, ToolInvocation, ToolStatus};

use super::{
    Run,
    last_answer::{after_last_answer, response_at_end},
};
use crate::{
    PersistenceError, PersistenceMode, next_step::pending_calls, pending_results::recorded_calls,
    tool::PendingCall,
};

/// Returns the calls without results in the last stored round of a run in per-service-call
/// mode, with their rows. Omits calls whose results a hook did not allow to be stored.
///
/// The other modes need none: per-run mode stores no interrupted run, and a resumed journaled
/// run adds the results itself.
pub(crate) async fn unanswered_calls(
    run: &Run,
) -> Result<Vec<(PendingCall, ToolInvocation)>, PersistenceError> {
    let Some(stored) = run.stored() else { return Ok(Vec::new()) };
    match stored.stored_as {
        PersistenceMode::PerServiceCall => {}
        PersistenceMode::PerRun | PersistenceMode::Journaled => return Ok(Vec::new()),
    }
    let (calls, history) = {
        let log = run.log();
        let conversation = &log.conversation;
        let calls = pending_calls(last_round(conversation.added.as_slice()));
        (calls, conversation.history.clone())
    };
    let positions: Vec<_> = calls.iter().filter_map(PendingCall::position).collect();
    if positions.is_empty() {
        return Ok(Vec::new());
    }
    let known = recorded_calls(stored.store.as_ref(), run.key(), &history, &positions).await;
    let not_loaded = |source| PersistenceError::NotLoaded { key: run.key().clone(), source };
    let mut known = known.map_err(not_loaded)?;
    let with_row = calls.into_iter().filter_map(|call| {
        let row = known.remove(&call.position()?)?;
        Some((call, row))
    });
    let is_unanswered = |(_, row): &(PendingCall, ToolInvocation)| {
        row.result.is_some() || matches!(row.status, ToolStatus::Pending | ToolStatus::Interrupted)
    };
    Ok(with_row.filter(is_unanswered).collect())
}

fn last_round(added: &[Arc<Message>]) -> &[Arc<Message>] {
    let later = after_last_answer(added).len();
    let response = response_at_end(added.get(..added.len() - later).unwrap_or_default());
    added.get(added.len() - later - response.len()..).unwrap_or_default()
}
