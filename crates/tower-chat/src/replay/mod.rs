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
//! A result that names the stored call which it answers ([`ToolResult::call`]) answers that call.
//! Other results are paired with calls by occurrence within their round, never by id alone: real
//! traffic has calls without ids, with empty ids, and with ids that come back later. A round is
//! everything that one answer of the model asks for, in however many messages.

mod broken_links;
mod call_ids;
mod citations;
mod extract;
mod freshness;
pub mod import;
mod interrupted;
mod json;
mod left_out;
mod naming;
mod order;
mod pairing;
mod policy;
mod registered;
pub mod repair;
mod round;
mod run_end;
mod settings;
mod shown;
mod steps;
mod tool_history;
mod truncate;
mod turns;
mod window;
mod without_calls;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::task::yield_now;
use tower_chat_core::{
    ApprovalRequest, CallPosition, Message, MessageId, Messages, Part, Role, ToolCall, ToolResult,
    store::History,
};

use self::{
    call_ids::IdBase,
    interrupted::Retracted,
    left_out::LeftOut,
    naming::Naming,
    order::{Ordered, in_order},
    pairing::{Answers, pending_call},
    policy::Strictness,
    round::{AfterRound, Round, Unanswered},
};
pub use self::{
    call_ids::effective_call_ids,
    citations::{Citations, CompactionTime, Source, Uncited},
    extract::{Extraction, extract},
    freshness::{Channel, FinishTimes, Freshness, FreshnessError},
    policy::DanglingCalls,
    registered::OutdatedCalls,
    settings::ReplaySettingsError,
    steps::{ReplayContext, ReplayPolicy},
    tool_history::ToolHistory,
    truncate::Truncation,
    window::{Boundary, EstimatedTokens, TokenCounter, Window},
};
pub(crate) use self::{
    call_ids::{AnswerIds, has_distinct_ids, ids_of_calls},
    round::INTERRUPTED,
    run_end::{
        end_marker, is_end_marker, is_marked_ended, is_of_same_answer, mark_ended, mark_not_kept,
        without_mark,
    },
};
use crate::yielding::LARGE;

/// A fold over the messages of a conversation, oldest first, whose [`view`](Self::view) is what a
/// provider accepts.
///
/// The fold only ever adds at the end, so it can be kept beside a history and continued: the cost
/// of a message does not depend on how many came before it.
///
/// ```
/// use std::sync::Arc;
/// use tower_chat::{replay::{DanglingCalls, Replay}, core::{Message, ToolCall}};
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
}

/// A call that was asked for, with the id by which its result names it.
#[derive(Debug, Clone)]
pub(crate) struct AskedCall {
    /// The message that holds it, and its position among the calls of that message.
    pub(crate) call_position: (MessageId, usize),
    pub(crate) call: ToolCall,
    /// It waited for approval.
    pub(crate) needed_approval: bool,
    /// The result must name its call by position: it does not stand behind the only message of the
    /// answer that asked.
    pub(crate) must_be_named: bool,
}

/// A call that waits for approval.
#[derive(Debug, Clone)]
pub(crate) struct PendingApproval {
    /// The message that holds the call, if it has an id, and the call's position in it.
    pub(crate) call_position: Option<(MessageId, usize)>,
    pub(crate) request: ApprovalRequest,
    /// The id by which its result names it.
    pub(crate) call_id: String,
}

/// The calls of one answer of which some wait for approval.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingBatch {
    pub(crate) waiting: Vec<PendingApproval>,
    /// The tools and ids of those that wait for nobody's approval and have no result.
    pub(crate) returned: Vec<(String, String)>,
    /// The caller executes a part of it, answered or not.
    pub(crate) has_returned: bool,
}

/// A stored call without a stored result, as a replay treats it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DanglingCall {
    pub(crate) tool: String,
    pub(crate) call_id: String,
    /// It is shown, with a result that says it was interrupted; else it is left out.
    pub(crate) is_shown: bool,
}

/// A stored tool call has no stored result, and the policy is to fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stored call of tool {tool:?} (id {call_id}) has no result: \
     give its result as input, or choose another policy for dangling calls"
)]
#[non_exhaustive]
pub struct DanglingCallError {
    /// The tool that was called.
    pub tool: String,
    /// The call's id, as replays show it.
    pub call_id: String,
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
    pub(crate) fn after(mut self, shown: &Messages) -> Self {
        self.take_retracted_out();
        let own = std::mem::replace(&mut self.closed, shown.clone());
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
            history.memo.set(replay.clone());
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
            history.memo.set(replay.clone());
        }
        replay
    }

    /// What is known of the replay of a history: its beginning, or all of it.
    fn known_of(history: &History, dangling: DanglingCalls) -> Self {
        let strictness = Strictness::Repair(dangling);
        let known = history.memo.get::<Self>().filter(|known| {
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
        }
    }

    /// Takes the next message.
    pub fn push(&mut self, message: &Arc<Message>) {
        self.pushed += 1;
        match in_order(message) {
            Ordered::Unchanged => self.push_ordered(message),
            Ordered::Split(messages) => {
                messages.iter().for_each(|message| self.push_piece(message));
            }
        }
    }

    /// Takes all messages of a sequence from a position on.
    ///
    /// Stretches that stand as a provider wants them already are shared, not copied.
    pub fn push_from(&mut self, messages: &Messages, from: usize) {
        let mut from = from;
        while from < messages.len() {
            if self.open.is_none() {
                let well_formed = messages.well_formed_from(from);
                self.closed.append_range(messages, from..from + well_formed);
                self.pushed += well_formed;
                self.position += well_formed;
                from += well_formed;
            }
            // Whatever ended the stretch is looked at up to the end of its round.
            for message in messages.iter_from(from) {
                self.push(message);
                from += 1;
                if self.open.is_none() {
                    break;
                }
            }
        }
    }

    /// Takes the next message where it is part of a model's answer: whatever the messages before
    /// it lack, its own calls are answered after it or nowhere, so from here on the replay repairs.
    pub(crate) fn push_answer(&mut self, message: &Arc<Message>) {
        if self.strictness == Strictness::Lenient && message.role == Role::Assistant {
            self.close_round();
            self.strictness = Strictness::Repair(DanglingCalls::Drop);
        }
        self.push(message);
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

    /// The dangling call that the policy [`DanglingCalls::Fail`] objects to, if the messages
    /// ended here.
    ///
    /// # Errors
    ///
    /// The first dangling call.
    pub fn check(&self) -> Result<(), DanglingCallError> {
        if self.strictness != Strictness::Repair(DanglingCalls::Fail) {
            return Ok(());
        }
        let mut ended = self.clone();
        ended.close_round();
        ended.first_dangling.map_or(Ok(()), |dangling| Err(Arc::unwrap_or_clone(dangling)))
    }

    /// The approval requests that nobody has answered yet, oldest first; those of one answer are
    /// one batch.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let batches = self.approvals_in_order().into_iter();
        batches.map(|batch| batch.into_iter().map(|call| call.request).collect()).collect()
    }

    /// The same with the places of the calls, where their messages have ids.
    pub(crate) fn approvals_in_order(&self) -> Vec<Vec<PendingApproval>> {
        self.pending_batches().into_iter().map(|batch| batch.waiting).collect()
    }

    /// The batches of calls of which some wait for approval, oldest first, with those of their
    /// calls that the caller executes.
    pub(crate) fn pending_batches(&self) -> Vec<PendingBatch> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let mut calls: Vec<Arc<Unanswered>> = ended.left_out.iter().cloned().collect();
        // Dangling calls of the open round are left out, or shown, by policy.
        let left_out: HashSet<CallPosition> = calls.iter().map(|call| call.named_by).collect();
        let open = self.unanswered_of_open().into_iter();
        calls.extend(open.filter(|call| !left_out.contains(&call.named_by)));
        let mut batches: Vec<PendingBatch> = Vec::new();
        let mut positions: HashMap<usize, usize> = HashMap::new();
        for call in calls {
            let batch = *positions.entry(call.position).or_insert_with(|| {
                batches.push(PendingBatch::default());
                batches.len() - 1
            });
            let Some(batch) = batches.get_mut(batch) else { continue };
            batch.has_returned |= call.is_beside_calls;
            let call_id = call.id().to_owned();
            match call.approval.clone() {
                Some(request) => {
                    batch.waiting.push(PendingApproval {
                        call_position: call.call_position,
                        request,
                        call_id,
                    });
                }
                None => batch.returned.push((call.call.name.clone(), call_id)),
            }
        }
        batches.retain(|batch| !batch.waiting.is_empty());
        batches
    }

    /// Takes messages, and gives for each of them the open calls that its results answer, result by
    /// result.
    ///
    /// Messages of results that follow each other are looked at together: whether results without
    /// ids fit the calls of a round is seen from all of them.
    pub(crate) fn push_answering(
        &mut self,
        messages: &[Arc<Message>],
    ) -> Vec<Vec<Option<AskedCall>>> {
        let mut answered = Vec::with_capacity(messages.len());
        while let Some(message) = messages.get(answered.len()) {
            let rest = messages.get(answered.len()..).unwrap_or_default();
            let next = rest.iter().skip(1).take_while(|message| message.role == Role::Tool).count();
            let together = rest.get(..=next).unwrap_or_default();
            let found = self.calls_answered_by(together);
            if message.role != Role::Tool {
                answered.extend(found.into_iter().take(1));
                self.push(message);
                continue;
            }
            let had_open_round = self.open.is_some();
            for (message, found) in together.iter().zip(found) {
                answered.push(found);
                self.push(message);
                if !had_open_round || self.open.is_none() {
                    // What comes next answers calls from before the round.
                    break;
                }
            }
        }
        answered
    }

    /// The open calls that messages of results answer, which follow each other directly; without an
    /// open round, those that the first of them answers.
    fn calls_answered_by(&self, messages: &[Arc<Message>]) -> Vec<Vec<Option<AskedCall>>> {
        let settled = self.settled();
        let Some(open) = &settled.open else {
            let first = messages.first().map(|first| settled.named(std::slice::from_ref(first)));
            let asked = |message: &Arc<Message>| {
                let found = std::iter::repeat(Answers::Nothing);
                settled.asked_calls(message, found, &mut Vec::new(), true)
            };
            return first.iter().flatten().map(asked).collect();
        };
        let messages = settled.named(messages);
        let (calls, found) = open.answered_by(&messages);
        let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
        let mut found = found.into_iter();
        let is_one_message = open.is_one_message();
        let asked = |message: &Arc<Message>| {
            settled.asked_calls(message, found.by_ref(), &mut calls, is_one_message)
        };
        messages.iter().map(asked).collect()
    }

    /// The calls that the results of a message answer, by what they are to those of the open round.
    fn asked_calls(
        &self,
        message: &Message,
        found: impl Iterator<Item = Answers>,
        round: &mut [Option<Unanswered>],
        is_one_message: bool,
    ) -> Vec<Option<AskedCall>> {
        let mut earlier = self.left_out.clone();
        let asked = |(result, found): (&ToolResult, Answers)| -> Option<AskedCall> {
            let (call, must_be_named) = match found {
                Answers::Again => return None,
                Answers::Call(index) => (round.get_mut(index)?.take()?, !is_one_message),
                Answers::Nothing => {
                    let number = earlier.find(result)?;
                    (Arc::unwrap_or_clone(earlier.remove(number)?), true)
                }
            };
            let call_position = call.call_position?;
            let needed_approval = call.approval.is_some();
            Some(AskedCall {
                call_position,
                call: call.into_call(),
                needed_approval,
                must_be_named,
            })
        };
        message.results().zip(found).map(asked).collect()
    }

    /// The messages, of which the results name the calls that they answer where the open round would
    /// take them for those of its own calls.
    fn named(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        if messages.is_empty() || (self.decided.is_empty() && self.left_out.is_empty()) {
            return messages.to_vec();
        }
        let calls = self.open.as_ref().map(Round::asked).unwrap_or_default();
        let round = self.open.as_ref();
        let round = round.map(|round| (&*calls, round.last_asking(), round.results()));
        let mut naming = Naming::new(&self.left_out, round, &self.decided);
        messages.iter().map(|message| naming.name(message)).collect()
    }

    /// Names the calls in the results that came since this was last done.
    fn settle(&mut self) {
        let Some(round) = self.open.as_mut().filter(|round| round.has_unnamed()) else { return };
        let unnamed = round.take_unnamed();
        let named = self.named(&unnamed);
        if let Some(round) = &mut self.open {
            round.push_named(named);
        }
    }

    /// This replay, with all results of the open round named.
    fn settled(&self) -> Cow<'_, Self> {
        if !self.open.as_ref().is_some_and(Round::has_unnamed) {
            return Cow::Borrowed(self);
        }
        let mut settled = self.clone();
        settled.settle();
        Cow::Owned(settled)
    }

    fn unanswered_of_open(&self) -> Vec<Arc<Unanswered>> {
        let settled = self.settled();
        settled.open.iter().flat_map(Round::unanswered).map(Arc::new).collect()
    }

    /// The places of the calls that nothing has answered and that wait for nobody's approval.
    pub(crate) fn dangling_calls(&self) -> Vec<(MessageId, usize)> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let is_dangling = |call: &&Arc<Unanswered>| call.approval.is_none();
        let positions =
            ended.left_out.iter().filter(is_dangling).filter_map(|call| call.call_position);
        let mut positions: Vec<_> = positions.collect();
        let left_out: HashSet<_> =
            ended.left_out.iter().filter_map(|call| call.call_position).collect();
        let open = self.unanswered_of_open();
        let open = open.iter().filter(is_dangling).filter_map(|call| call.call_position);
        positions.extend(open.filter(|call_position| !left_out.contains(call_position)));
        positions
    }

    /// Those of the calls that nothing has answered yet which further messages answer.
    pub(crate) fn dangling_calls_answered_by(
        &self,
        further: &[Arc<Message>],
    ) -> Vec<(MessageId, usize)> {
        if further.iter().all(|message| message.results().next().is_none()) {
            return Vec::new();
        }
        let answered = self.clone().push_answering(further);
        answered.into_iter().flatten().flatten().map(|call| call.call_position).collect()
    }

    /// What becomes of the calls that nothing has answered and that wait for nobody's approval, if
    /// the messages ended here.
    pub(crate) fn dangling(&self) -> Vec<DanglingCall> {
        let mut ended = self.clone();
        ended.close_round();
        let of_call = |call: &Arc<Unanswered>| {
            let (tool, call_id) = call.dangling()?;
            Some(DanglingCall { tool, call_id, is_shown: call.is_shown })
        };
        ended.left_out.iter().filter_map(of_call).collect()
    }

    /// Does not show the calls any more that were said to be interrupted and that these messages
    /// answer: they will stand with their results where those are pushed, after a
    /// [split](Self::split_open) too.
    pub(crate) fn retract_answered_by(&mut self, messages: &[Arc<Message>]) {
        for result in messages.iter().flat_map(|message| message.results()) {
            let Some(number) = self.left_out.find(result) else { continue };
            let shown = self.left_out.get(number).filter(|call| call.is_shown);
            let Some(call) = shown.cloned() else { continue };
            self.left_out.set(number, Arc::new(call.hidden()));
            self.retract(call);
        }
    }

    /// Marks a call that was shown as interrupted: the next view is without it.
    fn retract(&mut self, call: Arc<Unanswered>) {
        self.retracted.push(Retracted { call, within: self.closed.len() });
    }

    fn take_retracted_out(&mut self) {
        let retracted = std::mem::take(&mut self.retracted);
        if !retracted.is_empty() {
            self.closed = interrupted::without(&self.closed, &retracted);
        }
    }

    /// Hides the calls that results in the open round answer, as
    /// [`retract_answered_by`](Self::retract_answered_by) does, before the round is
    /// [split off](Self::split_open_round).
    pub(crate) fn retract_answered_by_open_round(&mut self) {
        self.settle();
        let leftover = self.open.as_ref().map(Round::leftover).unwrap_or_default();
        if !leftover.is_empty() {
            self.retract_answered_by(&[Arc::new(Message::tool_results(leftover))]);
        }
    }

    /// Changes what is shown of everything that is closed.
    pub(crate) fn edit_closed(&mut self, edit: impl FnOnce(&Messages) -> Messages) {
        self.take_retracted_out();
        self.closed = edit(&self.closed);
    }

    /// Changes what is shown of the round that is still open, if there is one.
    fn edit_open(&mut self, edit: impl FnOnce(&mut Round)) {
        self.settle();
        if let Some(round) = &mut self.open {
            edit(round);
        }
    }

    /// Splits off what may still change: `self` keeps what is closed, and the returned replay
    /// starts with the open round, or before it with the first call that is shown as interrupted
    /// and may still be answered.
    ///
    /// The view of the first followed by that of the second is the view of the whole, whatever is
    /// pushed to the second.
    #[must_use]
    pub fn split_open(&mut self) -> Self {
        self.take_retracted_out();
        let shown = self.left_out.iter().filter(|call| call.is_shown).map(|call| &**call);
        let first = interrupted::first_position(&self.closed, shown);
        let mut open = self.split_open_round();
        if let Some(first) = first {
            open.closed = self.closed.skip(first);
            self.closed = self.closed.take(first);
        }
        open
    }

    /// The same, but `self` keeps everything before the open round: what is pushed to the returned
    /// replay must not answer a call that is shown as interrupted, unless it was
    /// [retracted](Self::retract_answered_by).
    #[must_use]
    pub(crate) fn split_open_round(&mut self) -> Self {
        Self {
            strictness: self.strictness,
            closed: Messages::new(),
            open: self.open.take(),
            pushed: self.pushed,
            position: self.position,
            left_out: std::mem::take(&mut self.left_out),
            retracted: Vec::new(),
            first_dangling: self.first_dangling.take(),
            decided: self.decided.clone(),
        }
    }

    fn push_piece(&mut self, message: &Arc<Message>) {
        if message.parts.is_empty() && message.role != Role::Tool {
            // It held calls alone, and they are left out; it ends a round as any input does.
            self.position += 1;
            return self.close_round();
        }
        self.push_ordered(message);
    }

    fn push_ordered(&mut self, message: &Arc<Message>) {
        let position = self.position;
        self.position += 1;
        let holds_marks = message.role == Role::Tool && run_end::has_results_not_kept(message);
        if message.parts.is_empty()
            && !holds_marks
            && matches!(message.role, Role::Assistant | Role::Tool)
        {
            // All it held was not to be stored, or it only says that its run has ended.
            if let Some(round) = &mut self.open {
                if message.role == Role::Tool {
                    round.end_answer();
                }
                if run_end::is_marked_ended(message) {
                    round.end_run();
                }
            }
            return;
        }
        if message.role == Role::Tool {
            self.push_results(message);
            return;
        }
        if message.parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_))) {
            self.push_approvals(message);
            return;
        }
        if message.role == Role::Assistant {
            // The results so far may answer what was decided.
            self.settle();
            self.decided.clear();
        }
        match &mut self.open {
            Some(round) if round.is_continued_by(message) => {
                if !is_empty_answer(message) {
                    round.push_answer(message.clone(), position);
                }
                return;
            }
            Some(_) | None => self.close_round(),
        }
        if Round::opens_with(message) {
            self.open = Some(Round::new(message.clone(), position));
        } else if !is_empty_answer(message) {
            self.closed.push(message.clone());
        }
    }

    fn push_results(&mut self, message: &Arc<Message>) {
        let may_be_named = !self.decided.is_empty() || !self.left_out.is_empty();
        let is_whole =
            |round: &mut Round| !may_be_named && round.is_answered_in_order_at_once(message);
        if let Some(round) = self.open.take_if(is_whole) {
            round.show_in(&mut self.closed);
            self.closed.push(message.clone());
            return;
        }
        let Some(round) = &mut self.open else {
            if !message.parts.is_empty() {
                for message in self.named(std::slice::from_ref(message)) {
                    self.push_late_results(message.results().cloned().collect(), &message);
                }
            }
            return;
        };
        round.push_results(message);
        if !round.may_be_answered_in_order() {
            return;
        }
        self.settle();
        match self.open.take_if(|round| round.is_answered_in_order()) {
            Some(round) => round.show_in(&mut self.closed),
            None => self.open.iter_mut().for_each(Round::set_out_of_order),
        }
    }

    /// Answers to approval requests leave the replay; what stands beside them is shown after the
    /// results of the round they belong to. A call beside them opens no round, so it leaves too.
    fn push_approvals(&mut self, message: &Arc<Message>) {
        self.settle();
        let mut rest = (**message).clone();
        rest.parts.retain(|part| match part {
            Part::ApprovalResponse(response) => {
                self.decided.push(response.request_id.clone());
                false
            }
            part => pending_call(part).is_none(),
        });
        match &mut self.open {
            // They belong to a round before it.
            Some(round) if round.unanswered().is_empty() => self.close_round(),
            Some(round) => round.end_answer(),
            None => {}
        }
        let is_shown = !rest.parts.is_empty() && !is_empty_answer(&rest);
        let rest = is_shown.then(|| Arc::new(rest));
        match &mut self.open {
            Some(round) => rest.into_iter().for_each(|rest| round.follow_with(rest)),
            None => self.closed.extend(rest),
        }
    }

    fn close_round(&mut self) {
        self.settle();
        let Some(round) = self.open.take() else { return };
        if round.is_answered_in_order() {
            return round.show_in(&mut self.closed);
        }
        let closed = round.close(self.strictness);
        self.closed.extend(closed.messages);
        if !closed.unanswered.is_empty() {
            self.leave_out(closed.unanswered);
        }
        for after in closed.after {
            match after {
                AfterRound::Leftover(results, message) => self.push_late_results(results, &message),
                AfterRound::Message(message) => self.closed.push(message),
            }
        }
    }

    fn leave_out(&mut self, calls: Vec<Unanswered>) {
        if let (Strictness::Repair(DanglingCalls::Fail), None) =
            (self.strictness, &self.first_dangling)
        {
            let dangling = calls.iter().find_map(Unanswered::dangling);
            self.first_dangling =
                dangling.map(|(tool, call_id)| Arc::new(DanglingCallError { tool, call_id }));
        }
        calls.into_iter().for_each(|call| self.left_out.push(call));
    }

    /// Takes the call that a late result answers from those that are not shown.
    fn take_answered_by(&mut self, result: &ToolResult) -> Option<Arc<Unanswered>> {
        let number = self.left_out.find(result)?;
        let call = self.left_out.remove(number)?;
        if call.is_shown {
            self.retract(call.clone());
        }
        Some(call)
    }

    /// Results that answer no call of the open round: they may answer one that was left out
    /// before, which then stands again right in front of its result.
    fn push_late_results(&mut self, results: Vec<ToolResult>, message: &Arc<Message>) {
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut ids: HashSet<Option<String>> = HashSet::new();
        let mut answers = Vec::new();
        let mut orphans = Vec::new();
        for result in results {
            match self.take_answered_by(&result).map(Arc::unwrap_or_clone) {
                Some(unanswered) => {
                    let result = unanswered.answer(result);
                    if !ids.insert(result.call_id.clone()) {
                        // Calls of different messages, which may share an id as those of one may not.
                        ids = HashSet::from([result.call_id.clone()]);
                        self.push_round(std::mem::take(&mut calls), std::mem::take(&mut answers));
                    }
                    answers.push(result);
                    calls.push(unanswered.into_call());
                }
                None => orphans.push(Part::ToolResult(result)),
            }
        }
        if !calls.is_empty() {
            self.push_round(calls, answers);
        }
        if self.strictness == Strictness::Lenient && !orphans.is_empty() {
            let mut message = (**message).clone();
            message.parts = orphans;
            self.closed.push(message);
        }
    }

    fn push_round(&mut self, calls: Vec<ToolCall>, results: Vec<ToolResult>) {
        self.closed.push(Message::tool_calls(calls));
        self.closed.push(Message::tool_results(results));
    }
}

/// Whether a message of the model says nothing at all: no provider takes such a message.
fn is_empty_answer(message: &Message) -> bool {
    message.role == Role::Assistant && message.parts.iter().all(|part| part.as_text() == Some(""))
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
