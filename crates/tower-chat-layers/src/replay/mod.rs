//! Replay: what the model is shown of what is stored.
//!
//! The record is complete and append-only; the replay is a pure projection of it, and always valid:
//!
//! 1. **order**: a row that holds calls and their results is split into one message per kind, and
//!    calls in messages that are not the assistant's are left out;
//! 2. **pairing**: every call stands in front of its result; dangling calls, orphan results and
//!    duplicates are repaired; calls that wait for approval are left out until they are answered;
//! 3. **freshness**: results that are too old leave, with their calls ([`Freshness`]);
//! 4. **tools**: calls that no tool of today could have answered leave ([`OutdatedCalls`]);
//! 5. **citations**: sources that were found and not cited leave ([`Citations`]);
//! 6. **window**: only the newest turns stay ([`Window`]).
//!
//! The first two always run, as the fold [`Replay`]; the others run where a [`ReplayPolicy`] asks
//! for them, over what the fold shows.
//!
//! A result that names the stored call which it answers
//! ([`ToolResult::call`](tower_chat_core::ToolResult::call)) answers that call.
//! Other results are paired with calls by occurrence within their round, never by id alone: real
//! traffic has calls without ids, with empty ids, and with ids that come back later. A round is
//! everything that one answer of the model asks for, in however many messages.

mod asked;
mod broken_links;
mod call_ids;
mod citations;
mod dangling;
mod fold;
mod freshness;
mod interrupted;
mod left_out;
mod naming;
mod order;
mod output;
mod pending;
mod policy;
mod registered;
mod retract;
mod round;
mod run_end;
mod settings;
mod steps;
mod tool_history;
mod truncate;
mod turns;
mod window;
mod without_calls;

use std::sync::Arc;

use tokio::task::yield_now;
use tower_chat_core::{Messages, RefusalMark, store::History};

pub(crate) use self::{
    asked::AskedCall,
    dangling::DanglingCall,
    pending::{PendingApproval, PendingBatch},
    run_end::{
        end_marker, ended_by, forgotten_ids, has_results_not_kept, is_end_marker, mark_ended,
        mark_ended_by, mark_not_kept, without_mark,
    },
};
pub use self::{
    call_ids::effective_call_ids,
    citations::{Citations, CompactionTime, Source, Uncited},
    dangling::DanglingCallError,
    freshness::{Channel, FinishTimes, Freshness, FreshnessError},
    policy::DanglingCalls,
    registered::OutdatedCalls,
    round::INTERRUPTED,
    settings::ReplaySettingsError,
    steps::{ReplayContext, ReplayPolicy},
    tool_history::ToolHistory,
    truncate::Truncation,
    turns::Turns,
    window::{EstimatedTokens, TokenCounter, Window},
};
use self::{interrupted::Retracted, left_out::LeftOut, policy::Strictness, round::Round};
use crate::yielding::LARGE;

/// A fold over the messages of a conversation, oldest first, whose [`view`](Self::view) is what a
/// provider accepts.
///
/// The fold only ever adds at the end, so it can be kept beside a history and continued: the cost
/// of a message does not depend on how many came before it.
///
/// ```
/// use std::sync::Arc;
/// use tower_chat::{replay::{DanglingCalls, Replay}, Message, ToolCall};
/// let mut replay = Replay::new(DanglingCalls::Drop);
/// replay.push(&Arc::new(Message::user("hi")));
/// replay.push(&Arc::new(Message::tool_calls([ToolCall::new("c1", "look", "{}")])));
/// assert_eq!(replay.view().len(), 1); // the call was never answered
/// ```
#[derive(Debug, Clone)]
pub struct Replay {
    strictness: Strictness,
    closed: Messages,
    open: Option<Round>,
    pushed: usize,
    position: usize,
    /// The calls that nothing answered.
    left_out: LeftOut,
    /// Calls in `closed` that are not shown any more.
    retracted: Vec<Retracted>,
    /// What the policy [`DanglingCalls::Fail`] objects to.
    first_dangling: Option<Arc<DanglingCallError>>,
    /// The requests for approval that were answered since the model spoke last: the results that
    /// come next are those of their calls.
    decided: Vec<String>,
    /// The marks of content that services have refused.
    refused: Arc<Vec<RefusalMark>>,
}

impl Replay {
    /// A replay of a stored history, from its first message on.
    pub fn new(dangling: DanglingCalls) -> Self {
        Self::with_strictness(Strictness::Repair(dangling))
    }

    /// A replay of messages whose other half may be stored below: it fills in ids and resolves
    /// approvals, but leaves dangling calls and orphan results alone.
    pub fn lenient() -> Self {
        Self::with_strictness(Strictness::Lenient)
    }

    /// This replay with messages before everything it shows.
    #[must_use]
    pub(crate) fn after(mut self, prefix: &Messages) -> Self {
        self.take_retracted_out();
        let own = std::mem::replace(&mut self.closed, prefix.clone());
        self.closed.append(&own);
        self
    }

    /// The replay of a stored history. Where the store keeps histories in memory, only the
    /// messages since the last replay are looked at, and at the first only those that are not
    /// known to be sound.
    pub(crate) fn of_history(history: &History, dangling: DanglingCalls) -> Self {
        let mut replay = Self::known_of(history, dangling);
        if replay.pushed < history.messages.len() {
            replay.push_from(&history.messages, replay.pushed);
            replay.take_retracted_out();
            history.memo().set(replay.clone());
        }
        replay
    }

    /// The same, yielding between stretches of many messages.
    pub(crate) async fn of_long_history(history: &History, dangling: DanglingCalls) -> Self {
        let mut replay = Self::known_of(history, dangling);
        let all = history.messages.len();
        while all - replay.pushed > LARGE {
            let next = history.messages.take(replay.pushed + LARGE);
            replay.push_from(&next, replay.pushed);
            yield_now().await;
        }
        if replay.pushed < all {
            replay.push_from(&history.messages, replay.pushed);
            replay.take_retracted_out();
            history.memo().set(replay.clone());
        }
        replay
    }

    /// What is known of the replay of a history: its beginning, or all of it.
    fn known_of(history: &History, dangling: DanglingCalls) -> Self {
        let strictness = Strictness::Repair(dangling);
        let known = history.memo().get::<Self>().filter(|known| {
            known.strictness == strictness && known.pushed <= history.messages.len()
        });
        match known {
            Some(known) => (*known).clone(),
            None => Self::after_well_formed(strictness, history),
        }
    }

    /// The replay after the messages that are shown as they are.
    fn after_well_formed(strictness: Strictness, history: &History) -> Self {
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
            left_out: LeftOut::default(),
            retracted: Vec::new(),
            first_dangling: None,
            decided: Vec::new(),
            refused: Arc::default(),
        }
    }

    /// The marks of content that services have refused, in the messages so far.
    pub(crate) fn refused(&self) -> &[RefusalMark] {
        &self.refused
    }

    /// How many messages were taken.
    pub fn pushed(&self) -> usize {
        self.pushed
    }

    /// What a provider accepts of the messages so far.
    pub fn view(&self) -> Messages {
        if self.open.is_none() && self.retracted.is_empty() {
            return self.closed.clone();
        }
        let mut ended = self.clone();
        ended.close_round();
        ended.take_retracted_out();
        ended.closed
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
