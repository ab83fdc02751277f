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
mod json;
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

use std::{borrow::Cow, sync::Arc};

use imbl::Vector;
use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Messages, Part, Role, ToolCall, ToolResult, store::History,
};

use self::{
    call_ids::Place,
    order::{Ordered, in_order},
    pairing::{Answers, answers, owed_call},
    policy::Strictness,
    round::{Round, Unanswered},
};
pub use self::{
    call_ids::effective_call_ids,
    citations::{Citations, CompactionTime, Source, Uncited},
    extract::{Extraction, extract},
    freshness::{Channel, FinishTimes, Freshness, FreshnessError},
    policy::DanglingCalls,
    registered::OutdatedCalls,
    settings::ReplaySettingsError,
    steps::{Facts, ReplayPolicy},
    tool_history::ToolHistory,
    truncate::Truncation,
    window::{Boundary, EstimatedTokens, TokenCounter, Window},
};
pub(crate) use self::{
    call_ids::{AnswerIds, has_distinct_ids, ids_of_calls, ids_of_calls_after},
    round::INTERRUPTED,
    run_end::{
        end_marker, is_end_marker, is_marked_ended, is_of_same_answer, mark_ended, mark_not_kept,
        without_mark,
    },
};

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
    /// `None` where every call was answered.
    left_out: Option<Arc<LeftOut>>,
    /// The requests for approval that were answered since the model spoke last: the results that
    /// come next are those of their calls.
    decided: Vec<String>,
}

/// The calls that nothing answered: they are not shown, or with a result that says so.
#[derive(Debug, Clone, Default)]
struct LeftOut {
    calls: Vector<Arc<Unanswered>>,
    /// What the policy [`DanglingCalls::Fail`] objects to.
    dangling: Option<DanglingCallError>,
}

/// A call that was asked for, with the id by which its result names it.
#[derive(Debug, Clone)]
pub(crate) struct AskedCall {
    /// The message that holds it, and its place among the calls of that message.
    pub(crate) place: (MessageId, usize),
    pub(crate) call: ToolCall,
    /// It waited for approval.
    pub(crate) needed_approval: bool,
    /// The result must name its call by position: it does not stand behind the only message of the
    /// answer that asked.
    pub(crate) must_be_named: bool,
}

/// A call that waits for approval.
#[derive(Debug, Clone)]
pub(crate) struct WaitingCall {
    /// The message that holds the call, if it has an id, and the call's place in it.
    pub(crate) place: Option<(MessageId, usize)>,
    pub(crate) request: ApprovalRequest,
    /// The id by which its result names it.
    pub(crate) call_id: String,
}

/// The calls of one answer of which some wait for approval.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingBatch {
    pub(crate) waiting: Vec<WaitingCall>,
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
        let own = std::mem::replace(&mut self.closed, shown.clone());
        self.closed.append(&own);
        self
    }

    /// The replay of a stored history. Where the store keeps histories in memory, only the
    /// messages since the last replay are looked at, and at the first only those that are not
    /// known to be sound.
    pub(crate) fn of_history(history: &History, dangling: DanglingCalls) -> Self {
        let strictness = Strictness::Repair(dangling);
        let known = history.memo.get::<Self>().filter(|known| {
            known.strictness == strictness && known.pushed <= history.messages.len()
        });
        let mut replay = match known {
            Some(known) if known.pushed == history.messages.len() => return (*known).clone(),
            Some(known) => (*known).clone(),
            None => Self::after_sound(strictness, history),
        };
        replay.push_from(&history.messages, replay.pushed);
        history.memo.set(replay.clone());
        replay
    }

    /// The replay after the messages that are shown as they are.
    fn after_sound(strictness: Strictness, history: &History) -> Self {
        let sound = history.sound_messages();
        Self {
            closed: history.messages.take(sound),
            pushed: sound,
            position: sound,
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
            left_out: None,
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
                let sound = messages.sound_from(from);
                self.closed.append_range(messages, from..from + sound);
                self.pushed += sound;
                self.position += sound;
                from += sound;
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
        if self.open.is_none() {
            return self.closed.clone();
        }
        let mut ended = self.clone();
        ended.close_round();
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
        ended.left_out.and_then(|left_out| left_out.dangling.clone()).map_or(Ok(()), Err)
    }

    /// The approval requests that nobody has answered yet, oldest first; those of one answer are
    /// one batch.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let batches = self.waiting_calls().into_iter();
        batches.map(|batch| batch.into_iter().map(|call| call.request).collect()).collect()
    }

    /// The same with the places of the calls, where their messages have ids.
    pub(crate) fn waiting_calls(&self) -> Vec<Vec<WaitingCall>> {
        self.pending_batches().into_iter().map(|batch| batch.waiting).collect()
    }

    /// The batches of calls of which some wait for approval, oldest first, with those of their
    /// calls that the caller executes.
    pub(crate) fn pending_batches(&self) -> Vec<PendingBatch> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let mut calls: Vec<_> = ended.unanswered().into_iter().collect();
        // Dangling calls of the open round are left out, or shown, by policy.
        let is_left_out =
            |call: &Unanswered| calls.iter().any(|known| known.named_by == call.named_by);
        let open = self.open.iter().flat_map(Round::unanswered);
        let shown: Vec<_> = open.filter(|call| !is_left_out(call)).map(Arc::new).collect();
        calls.extend(shown);
        let mut batches: Vec<(usize, PendingBatch)> = Vec::new();
        for call in calls {
            let found = batches.iter().position(|(position, _)| *position == call.position);
            let place = found.unwrap_or_else(|| {
                batches.push((call.position, PendingBatch::default()));
                batches.len() - 1
            });
            let Some((_, batch)) = batches.get_mut(place) else { continue };
            batch.has_returned |= call.is_beside_calls;
            let call_id = call.id().to_owned();
            match call.approval.clone() {
                Some(request) => {
                    batch.waiting.push(WaitingCall { place: call.place, request, call_id });
                }
                None => batch.returned.push((call.call.name.clone(), call_id)),
            }
        }
        let batches = batches.into_iter().map(|(_, batch)| batch);
        batches.filter(|batch| !batch.waiting.is_empty()).collect()
    }

    /// The open calls that the results of a message answer, result by result.
    ///
    /// `next` are messages of results that follow the message directly: whether results without
    /// ids fit the calls of a round is seen from all of them.
    pub(crate) fn calls_answered_by<'m>(
        &self,
        message: &Message,
        next: impl IntoIterator<Item = &'m Message>,
    ) -> Vec<Option<AskedCall>> {
        let own = self.naming_calls(message);
        let next: Vec<_> = next.into_iter().map(|next| self.naming_calls(next)).collect();
        let mut results: Vec<&ToolResult> = own.results().collect();
        let own = results.len();
        results.extend(next.iter().flat_map(|next| next.results()));
        let (mut round, found, is_one_message) = match &self.open {
            Some(open) => {
                let (calls, found) = open.answered_by(&results);
                (calls.into_iter().map(Some).collect(), found, open.is_one_message())
            }
            None => (Vec::new(), vec![Answers::Nothing; own], true),
        };
        let mut earlier = self.unanswered();
        let asked = |(result, found): (&&ToolResult, Answers)| -> Option<AskedCall> {
            let (call, must_be_named) = match found {
                Answers::Again => return None,
                Answers::Call(index) => (round.get_mut(index)?.take()?, !is_one_message),
                Answers::Nothing => {
                    let index = last_answered(&earlier, result)?;
                    (Arc::unwrap_or_clone(earlier.remove(index)), true)
                }
            };
            let place = call.place?;
            let needed_approval = call.approval.is_some();
            Some(AskedCall { place, call: call.into_call(), needed_approval, must_be_named })
        };
        results.iter().take(own).zip(found).map(asked).collect()
    }

    /// A message whose results name the calls that they answer, where the open round would take
    /// them for those of its own calls.
    fn naming_calls<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        match self.naming_decided(message) {
            Cow::Borrowed(message) => self.naming_earlier(message),
            Cow::Owned(message) => Cow::Owned(self.naming_earlier(&message).into_owned()),
        }
    }

    /// A message whose results name earlier calls that were left out: those whose ids say so,
    /// where the open round could take them for calls of its own that have no ids.
    fn naming_earlier<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        let mut earlier = self.unanswered();
        let Some(round) = self.open.as_ref().filter(|_| !earlier.is_empty()) else {
            return Cow::Borrowed(message);
        };
        let is_late = |result: &ToolResult| {
            result.call.is_none()
                && last_answered(&earlier, result).is_some()
                && !round.has_call_named_by(result)
        };
        if !message.results().any(is_late) {
            return Cow::Borrowed(message);
        }
        let mut message = message.clone();
        for part in &mut message.parts {
            let Part::ToolResult(result) = part else { continue };
            if result.call.is_none()
                && !round.has_call_named_by(result)
                && let Some(index) = last_answered(&earlier, result)
            {
                result.call = earlier.remove(index).asked(true).position;
            }
        }
        Cow::Owned(message)
    }

    /// A message whose results name the calls that were approved or rejected right before it,
    /// where they would be taken for those of other calls with the same ids.
    fn naming_decided<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        if self.decided.is_empty() || message.results().all(|result| result.call.is_some()) {
            return Cow::Borrowed(message);
        }
        let open = self.open.iter().flat_map(Round::unanswered).map(Arc::new);
        let is_decided = |call: &Arc<Unanswered>| {
            call.approval.as_ref().is_some_and(|request| self.decided.contains(&request.id))
        };
        let decided: Vec<_> =
            self.unanswered().into_iter().chain(open).filter(is_decided).collect();
        let mut asked: Vec<_> = decided.iter().map(|call| call.asked(false)).collect();
        let mut message = message.clone();
        for part in &mut message.parts {
            let Part::ToolResult(result) = part else { continue };
            if let Answers::Call(index) = answers(result, asked.iter().copied())
                && let Some(call) = asked.get_mut(index)
            {
                call.is_answered = true;
                result.call = call.position;
            }
        }
        Cow::Owned(message)
    }

    /// The places of the calls that nothing has answered and that wait for nobody's approval.
    pub(crate) fn dangling_calls(&self) -> Vec<(MessageId, usize)> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let mut calls = ended.unanswered();
        for open in self.open.iter().flat_map(Round::unanswered) {
            if calls.iter().all(|call| call.named_by != open.named_by) {
                calls.push_back(Arc::new(open));
            }
        }
        let dangling = calls.iter().filter(|call| call.approval.is_none());
        dangling.filter_map(|call| call.place).collect()
    }

    /// Those of the calls that nothing has answered yet which further messages answer.
    pub(crate) fn dangling_calls_answered_by(
        &self,
        further: &[Arc<Message>],
    ) -> Vec<(MessageId, usize)> {
        let mut answered = Vec::new();
        if further.iter().all(|message| message.results().next().is_none()) {
            return answered;
        }
        let mut replay = self.clone();
        for (place, message) in further.iter().enumerate() {
            answered.extend(
                replay
                    .calls_answered_by(message, results_after(further, place))
                    .into_iter()
                    .flatten()
                    .map(|it| it.place),
            );
            replay.push(message);
        }
        answered
    }

    /// What becomes of the calls that nothing has answered and that wait for nobody's approval, if
    /// the messages ended here.
    pub(crate) fn dangling(&self) -> Vec<DanglingCall> {
        let mut ended = self.clone();
        ended.close_round();
        let of_call = |call: Arc<Unanswered>| {
            let (tool, call_id) = call.dangling()?;
            Some(DanglingCall { tool, call_id, is_shown: call.is_shown })
        };
        ended.unanswered().into_iter().filter_map(of_call).collect()
    }

    /// Does not show the calls any more that were said to be interrupted and that these messages
    /// answer: they will stand with their results where those are pushed, after a
    /// [split](Self::split_open) too.
    pub(crate) fn retract_answered_by(&mut self, messages: &[Arc<Message>]) {
        for result in messages.iter().flat_map(|message| message.results()) {
            let calls = self.unanswered();
            let Some(index) = last_answered(&calls, result) else { continue };
            let Some(call) = calls.get(index).filter(|call| call.is_shown) else { continue };
            if let Some(shown) = call.retracted_from(&self.closed) {
                self.closed = shown;
            }
            let hidden = Arc::new(call.hidden());
            if let Some(left_out) = &mut self.left_out {
                Arc::make_mut(left_out).calls.set(index, hidden);
            }
        }
    }

    /// Hides the calls that results in the open round answer, as
    /// [`retract_answered_by`](Self::retract_answered_by) does, before the round is
    /// [split off](Self::split_open_round).
    pub(crate) fn retract_answered_by_open_round(&mut self) {
        let leftover = self.open.as_ref().map(Round::leftover).unwrap_or_default();
        if !leftover.is_empty() {
            self.retract_answered_by(&[Arc::new(Message::tool_results(leftover))]);
        }
    }

    /// Changes what is shown of everything that is closed.
    pub(crate) fn edit_closed(&mut self, edit: impl FnOnce(&Messages) -> Messages) {
        self.closed = edit(&self.closed);
    }

    /// Changes what is shown of the round that is still open, if there is one.
    fn edit_open(&mut self, edit: impl FnOnce(&mut Round)) {
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
        let interrupted = self.unanswered().into_iter().filter(|call| call.is_shown);
        let first = interrupted.filter_map(|call| call.shown_at(&self.closed)).min();
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
            left_out: self.left_out.take(),
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
            let named = match self.naming_calls(message) {
                Cow::Borrowed(_) => None,
                Cow::Owned(named) => Some(Arc::new(named)),
            };
            let message = named.as_ref().unwrap_or(message);
            match self.open.take() {
                Some(round) if round.is_answered_in_order_with(Some(message)) => {
                    round.show_in(&mut self.closed);
                    self.closed.push(message.clone());
                }
                Some(mut round) => {
                    round.push_results(message);
                    self.open = Some(round);
                }
                None if message.parts.is_empty() => {}
                None => self.push_late_results(message.results().cloned().collect(), message),
            }
            return;
        }
        if message.parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_))) {
            self.push_approvals(message);
            return;
        }
        if message.role == Role::Assistant {
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

    /// Answers to approval requests leave the replay; what stands beside them is shown after the
    /// results of the round they belong to. A call beside them opens no round, so it leaves too.
    fn push_approvals(&mut self, message: &Arc<Message>) {
        let mut rest = (**message).clone();
        rest.parts.retain(|part| match part {
            Part::ApprovalResponse(response) => {
                self.decided.push(response.request_id.clone());
                false
            }
            part => owed_call(part).is_none(),
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
        let Some(round) = self.open.take() else { return };
        if round.is_answered_in_order() {
            return round.show_in(&mut self.closed);
        }
        let closed = round.close(self.strictness);
        self.closed.extend(closed.messages);
        if !closed.unanswered.is_empty() {
            self.leave_out(closed.unanswered);
        }
        if let Some((results, message)) = closed.leftover {
            self.push_late_results(results, &message);
        }
        self.closed.extend(closed.following);
    }

    fn leave_out(&mut self, calls: Vec<Unanswered>) {
        let left_out = Arc::make_mut(self.left_out.get_or_insert_default());
        if let (Strictness::Repair(DanglingCalls::Fail), None) =
            (self.strictness, &left_out.dangling)
        {
            left_out.dangling = calls
                .iter()
                .find_map(Unanswered::dangling)
                .map(|(tool, call_id)| DanglingCallError { tool, call_id });
        }
        left_out.calls.extend(calls.into_iter().map(Arc::new));
    }

    /// The calls that nothing answered.
    fn unanswered(&self) -> Vector<Arc<Unanswered>> {
        self.left_out.as_ref().map(|left_out| left_out.calls.clone()).unwrap_or_default()
    }

    /// Takes the call that a late result answers from those that are not shown.
    fn take_answered_by(&mut self, result: &ToolResult) -> Option<Arc<Unanswered>> {
        let calls = &mut Arc::make_mut(self.left_out.as_mut()?).calls;
        let index = last_answered(calls, result)?;
        let call = calls.remove(index);
        if call.is_shown
            && let Some(shown) = call.retracted_from(&self.closed)
        {
            self.closed = shown;
        }
        Some(call)
    }

    /// Results that answer no call of the open round: they may answer one that was left out
    /// before, which then stands again right in front of its result.
    fn push_late_results(&mut self, results: Vec<ToolResult>, message: &Arc<Message>) {
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut answers = Vec::new();
        let mut orphans = Vec::new();
        for result in results {
            match self.take_answered_by(&result).map(Arc::unwrap_or_clone) {
                Some(unanswered) => {
                    let result = unanswered.answer(result);
                    if calls.iter().any(|call| call.id == result.call_id) {
                        // Calls of different messages, which may share an id as those of one may not.
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

/// The messages of results that directly follow the message at a place.
pub(crate) fn results_after(
    messages: &[Arc<Message>],
    place: usize,
) -> impl Iterator<Item = &Message> {
    let next = messages.get(place + 1..).unwrap_or_default().iter();
    next.take_while(|message| message.role == Role::Tool).map(|message| &**message)
}

/// Whether a message of the model says nothing at all: no provider takes such a message.
fn is_empty_answer(message: &Message) -> bool {
    message.role == Role::Assistant && message.parts.iter().all(|part| part.as_text() == Some(""))
}

/// The call that a late result answers: of the last message that it names a call of, the first.
fn last_answered(calls: &Vector<Arc<Unanswered>>, result: &ToolResult) -> Option<usize> {
    let last = calls.iter().rposition(|call| call.is_answered_by(result))?;
    let position = calls.get(last)?.position;
    calls.iter().position(|call| call.position == position && call.is_answered_by(result))
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
