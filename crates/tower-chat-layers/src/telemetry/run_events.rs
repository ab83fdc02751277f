//! Reports events of runs. Each event is reported as a metric and as a log event.

use tower_chat_core::{
    ConversationKey, RunId,
    store::{HistoryStore, Lease, StoreError},
    telemetry::{
        metric::{LEASE_RENEWALS, REPAIRED_CALLS, SUMMARIES, TAKEOVERS, label},
        store_error_type,
    },
};

use crate::{replay::DanglingCall, summarize::SummaryFailure};

/// Reports that an attempt has taken over an open run from the attempt with this lease. An attempt
/// is an execution of a run. An open run is a journaled run that was neither committed nor
/// discarded.
pub(crate) fn taken_over(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    run: RunId,
    before: &Lease,
) {
    TAKEOVERS.add(1, &[(label::SYSTEM, store.handle().system())]);
    tracing::warn!(
        conversation = %key,
        attempt = before.attempt.saturating_add(1),
        left_by = before.holder,
        "open run {run} is taken over, and continues after its last stored message"
    );
}

/// Reports that the lease of an open run (the time until which no other process may take over the
/// run) was renewed, or that the renewal failed.
pub(crate) fn lease_renewed(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    run: RunId,
    failure: Option<&StoreError>,
) {
    let error = failure.map(store_error_type);
    let labels = &[(label::SYSTEM, store.handle().system()), (label::ERROR, error)];
    LEASE_RENEWALS.add(1, labels);
    tracing::debug!(
        target: "tower_chat::run",
        conversation = %key,
        error,
        "the lease of open run {run} was renewed, or its renewal failed"
    );
}

/// Reports stored calls without a result, which the replay omits or sends with an error result.
/// Earlier runs have already logged the calls in `known` as warnings.
pub(crate) fn repaired(key: &ConversationKey, new: &[DanglingCall], known: &[DanglingCall]) {
    const INTERRUPTED: &str = "stored tool calls have no result, because their runs were interrupted: the request \
                               states that they may or may not have taken effect";
    const NOT_SENT: &str = "stored tool calls have no result, and are not sent to the model";
    REPAIRED_CALLS.add((new.len() + known.len()) as u64, &[]);
    for (calls, is_new) in [(new, true), (known, false)] {
        for (is_visible, message) in [(true, INTERRUPTED), (false, NOT_SENT)] {
            let calls = calls.iter().filter(|call| call.is_visible == is_visible);
            let calls: Vec<_> =
                calls.map(|call| format!("{} ({})", call.tool, call.call_id)).collect();
            if calls.is_empty() {
                continue;
            }
            let calls = calls.join(", ");
            match is_new {
                true => tracing::warn!(conversation = %key, calls, "{message}"),
                false => tracing::debug!(conversation = %key, calls, "{message}"),
            }
        }
    }
}

pub(crate) fn summarized(key: &ConversationKey, failure: Option<&SummaryFailure>) {
    let outcome = if failure.is_some() { "failed" } else { "completed" };
    SUMMARIES.add(1, &[(label::OUTCOME, Some(outcome))]);
    match failure {
        Some(failure) => tracing::warn!(
            conversation = %key,
            error = failure as &dyn std::error::Error,
            "no summary of the conversation could be made, although it exceeds the limit: the run continues without it"
        ),
        None => tracing::debug!(
            target: "tower_chat::run",
            conversation = %key,
            "a summary of the conversation was made"
        ),
    }
}

/// Reports that a conversation exceeds the limit for a summary, but that none of its messages may
/// be summarised.
pub(crate) fn nothing_to_summarize(key: &ConversationKey) {
    tracing::warn!(
        conversation = %key,
        "the conversation exceeds the limit above which it is summarised, but no more turns can be \
         summarised: after the last summary there are only the newest turns, which are never summarised, or a call \
         waits for its result"
    );
}
