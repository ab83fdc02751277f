//! Replay: the part of the stored history that the model receives.
//!
//! The stored history is complete and append-only. These steps create the replay, which is valid
//! for every provider:
//!
//! 1. **order**: a message with calls and their results is split, so that each message contains
//!    either calls or results; calls in messages of other roles than the assistant are omitted;
//! 2. **pairing**: every call is moved directly before its result; dangling calls (calls without a
//!    result), orphan results (results without a call) and duplicate results are repaired; calls
//!    that wait for approval are omitted until they have a result;
//! 3. **summary**: if the store contains a summary of the oldest messages, its text replaces these
//!    messages ([`ReplaySummary`]);
//! 4. **freshness**: results that are too old are omitted with their calls ([`Freshness`]);
//! 5. **tools**: calls of tools that are no longer registered are omitted, and calls with
//!    unreadable arguments ([`OutdatedCalls`]);
//! 6. **citations**: sources that a tool found, and that the model did not cite, are omitted
//!    ([`Citations`]);
//! 7. **media**: old pictures and documents are replaced by a sentence ([`OldMedia`]);
//! 8. **window**: only the newest turns (the messages of one run each) are sent ([`Window`]).
//!
//! The type [`Replay`] executes the first two steps, which always run. The later steps change its
//! output, the [`view`](Replay::view). A [`ReplayPolicy`] enables steps 4 to 8 one by one.
//!
//! A result that contains the position of a stored call
//! ([`ToolResult::call`](tower_chat_core::ToolResult::call)) answers this call. Other results are
//! paired with the calls of their round by id and by order. The id alone is not sufficient, because
//! recorded conversations contain calls without ids, with empty ids, and with repeated ids. A round
//! consists of all calls of one answer of the model, in one or more messages, and their results.
//! The open round is the last one, if results may still arrive for it. All earlier rounds are
//! closed.

mod asked;
mod broken_links;
mod call_ids;
mod citations;
mod dangling;
mod fold;
mod freshness;
mod interrupted;
mod naming;
mod old_media;
mod omitted_calls;
mod order;
mod output;
mod pending;
mod policy;
mod registered;
mod retract;
mod round;
mod run_end;
mod settings;
mod sources;
mod steps;
mod summary;
mod tool_history;
mod truncate;
mod turns;
mod window;
mod without_calls;

use std::sync::Arc;

use tokio::task::yield_now;
use tower_chat_core::{Messages, RefusalMark, RunId, store::History};

pub(crate) use self::{
    asked::AskedCall,
    dangling::DanglingCall,
    pending::{PendingApproval, PendingBatch},
    run_end::{
        end_marker, ended_by, forgotten_ids, has_results_not_kept, is_end_marker, mark_ended,
        mark_ended_by, mark_not_kept, without_mark,
    },
    sources::ReplaySources,
    summary::Covered,
    turns::is_answer,
};
pub use self::{
    call_ids::effective_call_ids,
    citations::{Citations, CompactionTime, Source, Uncited},
    dangling::DanglingCallError,
    freshness::{Channel, FinishTimes, Freshness, FreshnessError},
    old_media::OldMedia,
    policy::DanglingCalls,
    registered::OutdatedCalls,
    round::INTERRUPTED,
    settings::ReplaySettingsError,
    steps::{ReplayContext, ReplayPolicy},
    summary::ReplaySummary,
    tool_history::ToolHistory,
    truncate::Truncation,
    turns::Turns,
    window::{EstimatedTokens, TokenCounter, Window},
};
use self::{
    interrupted::Retracted,
    omitted_calls::OmittedCalls,
    policy::Strictness,
    round::{Round, RoundCall},
};
use crate::yielding::LARGE;

/// A fold over the messages of a conversation, from the oldest to the newest. The
/// [`view`](Self::view) returns the messages in a form that is valid for every provider.
///
/// Messages are only added at the end. A replay can therefore be cached with a history, and
/// continued when messages are added to the history: the cost of adding a message does not depend
/// on the number of earlier messages.
///
/// ```
/// use std::sync::Arc;
/// use tower_chat::{replay::{DanglingCalls, Replay}, Message, ToolCall};
/// let mut replay = Replay::new(DanglingCalls::Drop);
/// replay.push(&Arc::new(Message::user("hi")));
/// replay.push(&Arc::new(Message::tool_calls([ToolCall::new("c1", "look", "{}")])));
/// assert_eq!(replay.view().len(), 1); // the call has no result
/// ```
#[derive(Debug, Clone)]
pub struct Replay {
    strictness: Strictness,
    /// The output for all pushed messages before the open round, or for all if no round is open.
    closed: Messages,
    open: Option<Round>,
    /// The number of pushed messages.
    pushed: usize,
    /// The position of the next message. If step 1 splits a message, each piece has its own
    /// position.
    position: usize,
    /// The calls without a result in closed rounds.
    omitted_calls: OmittedCalls,
    /// The interrupted calls (calls with an error result) in `closed` whose real results have
    /// arrived later. The view does not contain them.
    retracted: Vec<Retracted>,
    first_dangling: Option<Arc<DanglingCallError>>,
    /// The ids of the approval requests that were answered since the model's last answer. The calls
    /// of these requests have precedence when the next results are matched.
    decided: Vec<String>,
    /// The marks of content that services have refused.
    refused: Arc<Vec<RefusalMark>>,
    /// For each result of a call of an earlier round, the run of the call, or `None` if the replay
    /// has not found the call, and the run of the result.
    late_results: Vec<(Option<RunId>, RunId)>,
}

impl Replay {
    /// Creates a replay for a stored history. The first pushed message must be the first message of
    /// the history.
    pub fn new(dangling: DanglingCalls) -> Self {
        Self::with_strictness(Strictness::Repair(dangling))
    }

    /// Creates a replay for the messages of a request, which may answer calls that only the store
    /// contains. This replay generates missing ids and processes approvals. Calls without results
    /// and results without calls remain unchanged.
    pub fn lenient() -> Self {
        Self::with_strictness(Strictness::Lenient)
    }

    /// Returns this replay with `prefix` before all other messages.
    #[must_use]
    pub(crate) fn after_prefix(mut self, prefix: &Messages) -> Self {
        self.take_retracted_out();
        let own = std::mem::replace(&mut self.closed, prefix.clone());
        self.closed.append(&own);
        self
    }

    /// Returns the replay of a stored history. Processes only the messages after the cached replay.
    /// Without a cached replay, processes only those after the well-formed prefix, which a replay
    /// does not change.
    pub(crate) fn of_history(history: &History, dangling: DanglingCalls) -> Self {
        Self::known_of(history, dangling).continued(history)
    }

    /// Like `of_history`, but yields to the runtime at intervals.
    pub(crate) async fn of_long_history(history: &History, dangling: DanglingCalls) -> Self {
        let mut replay = Self::known_of(history, dangling);
        while history.messages.len() - replay.pushed > LARGE {
            let next = history.messages.take(replay.pushed + LARGE);
            replay.push_from(&next, replay.pushed);
            yield_now().await;
        }
        replay.continued(history)
    }

    /// Adds the further messages of a history, and caches the replay with the history.
    fn continued(mut self, history: &History) -> Self {
        if self.pushed < history.messages.len() {
            self.push_from(&history.messages, self.pushed);
            self.take_retracted_out();
            history.memo().set(self.clone());
        }
        self
    }

    /// Returns the cached replay, which may contain only the first messages. Without a cached
    /// replay, returns the replay of the well-formed prefix.
    fn known_of(history: &History, dangling: DanglingCalls) -> Self {
        let strictness = Strictness::Repair(dangling);
        let known = history.memo().get::<Self>().filter(|known| {
            known.strictness == strictness && known.pushed <= history.messages.len()
        });
        if let Some(known) = known {
            return (*known).clone();
        }
        let well_formed = history.well_formed_messages();
        Self {
            closed: history.messages.take(well_formed),
            pushed: well_formed,
            position: well_formed,
            ..Self::with_strictness(strictness)
        }
    }

    fn with_strictness(strictness: Strictness) -> Self {
        Self {
            strictness,
            closed: Messages::new(),
            open: None,
            pushed: 0,
            position: 0,
            omitted_calls: OmittedCalls::default(),
            retracted: Vec::new(),
            first_dangling: None,
            decided: Vec::new(),
            refused: Arc::default(),
            late_results: Vec::new(),
        }
    }

    /// Returns this replay without an open round. The results in the open round may answer calls of
    /// earlier rounds, and are matched when the round is closed.
    fn ended(&self) -> Self {
        let mut ended = self.clone();
        ended.close_round();
        ended
    }

    pub(crate) fn refused(&self) -> &[RefusalMark] {
        &self.refused
    }

    pub(crate) fn closed(&self) -> &Messages {
        &self.closed
    }

    /// Returns whether the messages from `run` on can be replayed alone, because neither they nor
    /// later messages answer calls of earlier runs.
    ///
    /// The caller must know that `run` begins after the answer of an earlier run, and that the run
    /// ids of the messages ascend.
    pub(crate) fn can_begin_with(&self, run: RunId) -> bool {
        let ended = self.ended();
        let is_earlier = |call: &RoundCall| call.named_by.message.run < run;
        let is_awaited = ended.omitted_calls.iter().any(|call| call.is_awaited && is_earlier(call));
        let is_answered = |(call, result): &(Option<RunId>, RunId)| {
            call.is_some_and(|call| call < run) && *result >= run
        };
        !is_awaited && !ended.late_results.iter().any(is_answered)
    }

    /// Returns whether there is a result whose call the replay has not found.
    pub(crate) fn has_results_without_calls(&self) -> bool {
        let ended = self.ended();
        ended.late_results.iter().any(|(call, _)| call.is_none())
    }

    /// Returns the number of pushed messages.
    pub fn pushed(&self) -> usize {
        self.pushed
    }

    /// Returns the pushed messages in a form that every provider accepts.
    pub fn view(&self) -> Messages {
        if self.open.is_none() && self.retracted.is_empty() {
            return self.closed.clone();
        }
        let mut ended = self.ended();
        ended.take_retracted_out();
        ended.closed
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
