//! Takes an open run over from an earlier attempt.

use std::sync::Arc;

use tower_chat_core::store::{HistoryStore, Journal, StoreError, author::OpenRunContent};

use super::records::prior_attempts;
use crate::{
    PersistenceError,
    run::{Run, journaled::lease::take_over},
    telemetry,
};

/// Takes the run over from an earlier attempt, then reads the states of its calls again.
pub(super) async fn resume_run(
    store: &Arc<dyn HistoryStore>,
    run: &Run,
    content: &OpenRunContent,
    approves: bool,
) -> Result<(), PersistenceError> {
    let taken = take_over(run).await?;
    telemetry::taken_over(store.as_ref(), run.key(), run.id(), &content.open.lease);
    match read_calls_again(store, run, approves).await {
        Ok(()) => {
            taken.continue_run();
            Ok(())
        }
        Err(source) => {
            taken.fail();
            Err(PersistenceError::NotLoaded { key: run.key().clone(), source })
        }
    }
}

/// Reads the states of the calls again after the takeover, because the earlier attempt may have
/// written outcomes until then. The revision does not show a write with only the outcome of a call.
async fn read_calls_again(
    store: &Arc<dyn HistoryStore>,
    run: &Run,
    approves: bool,
) -> Result<(), StoreError> {
    let content = store.open_run(run.key()).await?;
    let (history, replay) = {
        let log = run.log();
        (log.conversation.history.clone(), log.conversation.replay.clone())
    };
    let prior = match approves {
        true => Some(prior_attempts(store, run.key(), &history, &replay).await?),
        false => None,
    };
    let mut log = run.log();
    if let Some(prior) = prior {
        log.prior_attempts = prior;
    }
    if let (Some(journal), Some(content)) = (log.journal.as_deref_mut(), content) {
        journal.read_again(&content);
    }
    Ok(())
}
