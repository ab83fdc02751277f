//! Step 2 of the [replay](super): pairs the calls of the model with the results that answer them. A
//! round consists of the calls of one answer of the model, in one or more messages, and their
//! results.

mod call;
mod close;

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, ToolResult,
    pairing::{
        AnswerIds, AnswerKey, Answers, IdBase, InOrder, RoundMatcher, Target, asked_call,
        is_marked_ended,
    },
};

pub use self::call::INTERRUPTED;
use self::close::is_ended_by_tool;
pub(in crate::replay) use self::{
    call::{RoundCall, interrupted_id},
    close::{AfterRound, drop_trailing_reasoning, has_content},
};
use super::run_end::{ended_by, ends_with_open_calls, forgotten_ids, has_end_reason};

/// A round that may still receive results.
#[derive(Debug, Clone)]
pub(in crate::replay) struct Round {
    /// The first message of the answer that contains a call.
    message: Arc<Message>,
    position: usize,
    after: After,
}

/// The messages after a round's first message.
#[derive(Debug, Clone, Default)]
struct After {
    /// The other messages of the same answer, with their positions.
    answer: Vec<(Arc<Message>, usize)>,
    /// Whether the next message of the model belongs to another answer.
    is_answered: bool,
    results: Vec<Arc<Message>>,
    /// The messages of results, after those in `results`, to which [`naming`](super::naming) has
    /// not added call positions yet. `naming` processes many messages at once, because it reads all
    /// calls each time.
    unnamed: Vec<Arc<Message>>,
    in_order: InOrder,
    following: Vec<Following>,
    /// The indices, among all calls of the answer, of the answered calls that the replay omits.
    hidden: HashSet<usize>,
    /// Whether a marker (a message without content) after the calls shows that the run ended
    /// intentionally.
    run_ended: bool,
    /// Whether the marker also contains a reason: a stop or the limit of rounds.
    has_end_reason: bool,
}

/// A message after the results of the round.
#[derive(Debug, Clone)]
struct Following {
    message: Arc<Message>,
    results_before: usize,
}

/// A result, and the index of its message in `results`.
type PlacedResult = (usize, ToolResult);

impl Round {
    /// Returns whether a message contains calls that need results.
    pub(in crate::replay) fn opens_with(message: &Message) -> bool {
        message.parts.iter().any(|part| asked_call(part).is_some())
    }

    pub(in crate::replay) fn new(message: Arc<Message>, position: usize) -> Self {
        Self { message, position, after: After::default() }
    }

    /// Returns the first message of the answer that contains a call.
    pub(in crate::replay) fn message(&self) -> &Message {
        &self.message
    }

    pub(in crate::replay) fn position(&self) -> usize {
        self.position
    }

    /// Returns whether a message belongs to the answer that opened the round: the same run has
    /// added the message, and the answer is not complete yet.
    pub(in crate::replay) fn is_continued_by(&self, message: &Message) -> bool {
        AnswerKey::is_shared(&self.message, message) && !self.after.is_answered
    }

    pub(in crate::replay) fn push_answer(&mut self, message: Arc<Message>, position: usize) {
        self.after.answer.push((message, position));
    }

    pub(in crate::replay) fn end_answer(&mut self) {
        self.after.is_answered = true;
    }

    /// Adds a message of results, which must be [named](Self::take_unnamed) before other methods
    /// read the round.
    pub(in crate::replay) fn push_results(&mut self, message: &Arc<Message>) {
        let after = &mut self.after;
        after.is_answered = true;
        after.in_order.follow(&self.message, message);
        after.unnamed.push(message.clone());
    }

    /// Removes and returns the messages of results without call positions. The caller names them
    /// (adds the positions) and passes them to [`push_named`](Self::push_named).
    pub(in crate::replay) fn take_unnamed(&mut self) -> Vec<Arc<Message>> {
        std::mem::take(&mut self.after.unnamed)
    }

    pub(in crate::replay) fn has_unnamed(&self) -> bool {
        !self.after.unnamed.is_empty()
    }

    pub(in crate::replay) fn push_named(&mut self, messages: Vec<Arc<Message>>) {
        self.after.results.extend(messages);
    }

    /// Returns whether the round has one message with calls, and one result for each call, in
    /// order. If results are not [named](Self::take_unnamed) yet, `true` may be wrong.
    pub(in crate::replay) fn may_be_answered_in_order(&self) -> bool {
        let after = &self.after;
        after.in_order.is_complete(&self.message)
            && after.answer.is_empty()
            && after.following.is_empty()
    }

    /// Records that the calls are not answered in order, so that further results do not repeat the
    /// check, whose time is proportional to the size of the round.
    pub(in crate::replay) fn set_out_of_order(&mut self) {
        self.after.in_order.set_broken();
    }

    /// Adds a message after the results of the round. All results must be named.
    pub(in crate::replay) fn follow_with(&mut self, message: Arc<Message>) {
        self.end_answer();
        let results_before = self.after.results.len();
        self.after.following.push(Following { message, results_before });
    }

    /// Records that the run ended intentionally, as `marker` (a message without content) shows.
    pub(in crate::replay) fn end_run(&mut self, marker: &Message) {
        self.after.run_ended = true;
        self.after.has_end_reason |= ended_by(marker).is_some();
    }

    /// Returns whether the run of this round ended intentionally. If it did, each call without a
    /// result was returned to the caller, or was not run because the run had ended.
    fn is_of_ended_run(&self, calls: &[(RoundCall, Option<PlacedResult>)]) -> bool {
        self.after.run_ended
            || self.answer().any(|(message, _)| ends_with_open_calls(message))
            || self.own_results().any(|message| is_marked_ended(message))
            || is_ended_by_tool(calls)
    }

    /// Returns whether a tool, a stop or the limit of rounds has ended the run of this round. The
    /// calls without a result were then not returned to the caller.
    fn has_end_reason(&self, calls: &[(RoundCall, Option<PlacedResult>)]) -> bool {
        let answer = self.answer().map(|(message, _)| message);
        self.after.has_end_reason
            || answer.chain(self.own_results()).any(|message| has_end_reason(message))
            || is_ended_by_tool(calls)
    }

    /// Returns the messages of results that the run of this round has added. A later run may add
    /// results of earlier rounds.
    fn own_results(&self) -> impl Iterator<Item = &Arc<Message>> {
        let run = |message: &Message| message.id.map(|id| id.run);
        self.results().iter().filter(move |message| run(message) == run(&self.message))
    }

    /// Returns the ids of the calls whose results were not allowed to be stored.
    fn forgotten(&self) -> HashSet<&str> {
        self.results().iter().flat_map(|message| forgotten_ids(message)).collect()
    }

    /// Omits answered calls, together with their results. `omitted` returns, for each call of a
    /// message, whether it is omitted. Calls without a result remain, because later messages may
    /// answer them.
    pub(in crate::replay) fn hide_answered(&mut self, omitted: impl Fn(&Message) -> Vec<bool>) {
        if self.results().is_empty() {
            return;
        }
        let omitted = self.answer().flat_map(|(message, _)| omitted(message));
        let calls = self.pair().0.into_iter().zip(omitted).enumerate();
        let hidden = calls.filter(|(_, ((_, result), omitted))| *omitted && result.is_some());
        let hidden = hidden.map(|(index, _)| index).collect();
        self.after.hidden = hidden;
    }

    /// Removes all parts except calls and the parts for which `is_kept` returns `true`.
    pub(in crate::replay) fn retain_beside_calls(&mut self, is_kept: impl Fn(&Part) -> bool) {
        let is_kept = |part: &Part| asked_call(part).is_some() || is_kept(part);
        let after = &mut self.after;
        let others = after.answer.iter_mut().map(|(other, _)| other);
        for message in std::iter::once(&mut self.message).chain(others) {
            if !message.parts.iter().all(&is_kept) {
                Arc::make_mut(message).parts.retain(&is_kept);
            }
        }
        let was_broken = after.in_order.is_broken();
        after.in_order = InOrder::default();
        for results in after.results.iter().chain(&after.unnamed) {
            after.in_order.follow(&self.message, results);
        }
        if was_broken {
            after.in_order.set_broken();
        }
    }

    /// Returns the messages after the answer, in the order of the output: its results, results of
    /// earlier rounds, and messages beside approvals. The caller must not change call ids or
    /// positions.
    pub(in crate::replay) fn later_messages_mut(&mut self) -> Vec<&mut Arc<Message>> {
        self.sort_results();
        let After { results, following, .. } = &mut self.after;
        let following = following.iter_mut().map(|following| &mut following.message);
        results.iter_mut().chain(following).collect()
    }

    /// Moves the results of earlier rounds after those of this round. Splits messages that contain
    /// both.
    fn sort_results(&mut self) {
        let mut of_earlier = self.pair().1.into_iter().peekable();
        if of_earlier.peek().is_none() {
            return;
        }
        let after = &mut self.after;
        let (mut own, mut earlier) = (Vec::new(), Vec::new());
        for (position, message) in after.results.iter().enumerate() {
            let parts = message.parts.iter().cloned();
            let (moved, kept): (Vec<_>, Vec<_>) = parts.partition(|part| {
                let is_part = |(at, result): &PlacedResult| {
                    *at == position && part.as_tool_result() == Some(result)
                };
                of_earlier.next_if(is_part).is_some()
            });
            if moved.is_empty() || !kept.is_empty() {
                own.push(message.with_parts(kept));
            }
            if !moved.is_empty() {
                earlier.push((position, message.with_parts(moved)));
            }
        }
        for following in &mut after.following {
            let is_before = |(position, _): &&(usize, _)| *position < following.results_before;
            following.results_before = own.len() + earlier.iter().filter(is_before).count();
        }
        let earlier = earlier.into_iter().map(|(_, message)| message);
        after.results = own.into_iter().chain(earlier).map(Arc::new).collect();
    }

    /// Returns the messages of the answer with their positions, from the first message with a call
    /// on.
    fn answer(&self) -> impl Iterator<Item = (&Arc<Message>, usize)> {
        let others = self.after.answer.iter().map(|(message, position)| (message, *position));
        std::iter::once((&self.message, self.position)).chain(others)
    }

    pub(in crate::replay) fn is_one_message(&self) -> bool {
        self.last_asking() == 0
    }

    /// Returns the index, in the answer, of the first call of the last message with calls.
    pub(in crate::replay) fn last_asking(&self) -> usize {
        let mut before = 0;
        let mut last = 0;
        for (message, _) in self.answer() {
            let calls = message.parts.iter().filter_map(asked_call).count();
            if calls > 0 {
                last = before;
            }
            before += calls;
        }
        last
    }

    pub(in crate::replay) fn results(&self) -> &[Arc<Message>] {
        &self.after.results
    }

    /// Returns whether the round is well-formed: the ids of its calls are different, and the
    /// results answer each call once and in order.
    pub(in crate::replay) fn is_answered_in_order(&self) -> bool {
        let After { answer, following, hidden, .. } = &self.after;
        let has_more = !answer.is_empty() || !following.is_empty() || !hidden.is_empty();
        let results = self.results().iter().map(|message| &**message);
        !has_more && InOrder::answers_all(&self.message, results)
    }

    /// Returns whether the round has only one message until now, and `results` answers all its
    /// calls in order.
    pub(in crate::replay) fn is_answered_in_order_at_once(&self, results: &Message) -> bool {
        let After { answer, is_answered, run_ended, .. } = &self.after;
        let is_first = answer.is_empty() && !is_answered && !run_ended;
        is_first && InOrder::answers_all(&self.message, [results])
    }

    pub(in crate::replay) fn unanswered(&self) -> Vec<RoundCall> {
        self.pair()
            .0
            .into_iter()
            .filter(|(_, result)| result.is_none())
            .map(|(call, _)| call)
            .collect()
    }

    /// Adds an unchanged round to the output.
    pub(in crate::replay) fn append_to(self, output: &mut Messages) {
        output.push(self.message);
        output.extend(self.after.results);
    }

    pub(in crate::replay) fn asked_calls(&self) -> Vec<RoundCall> {
        let is_call = |part: &Part| matches!(part, Part::ToolCall(call) if !call.provider_executed);
        let answer_has_calls_without_approval =
            self.answer().any(|(message, _)| message.parts.iter().any(is_call));
        let mut ids = AnswerIds::default();
        let mut calls = Vec::new();
        for (message, position) in self.answer() {
            let (base, asked) = (IdBase::of(message, position), message.asked_calls());
            let ids = ids.next_calls(AnswerKey::of(message), asked, base, 0);
            let parts = message.parts.iter().filter_map(|part| Some((part, asked_call(part)?)));
            calls.extend(parts.zip(ids).enumerate().map(|(index, ((part, call), id))| {
                let approval = match part {
                    Part::ApprovalRequest(request) => Some(request.clone()),
                    _ => None,
                };
                RoundCall {
                    position: self.position,
                    call_position: message.id.map(|message| (message, index)),
                    named_by: base.call_position(index),
                    call: call.clone(),
                    answer_has_calls_without_approval,
                    is_awaited: approval.is_some(),
                    approval,
                    is_visible: false,
                    id: id.into_owned(),
                }
            }));
        }
        calls
    }

    /// Returns the calls of the round, and the match of each result in `further`.
    pub(in crate::replay) fn answered_by(
        &self,
        further: &[Arc<Message>],
    ) -> (Vec<RoundCall>, Vec<Answers>) {
        let calls = self.asked_calls();
        let before = self.results().iter().map(|message| message.results().count()).sum();
        let all = self.results().iter().chain(further).flat_map(|message| message.results());
        let found = self.matcher(&calls, all).answers().to_vec().split_off(before);
        (calls, found)
    }

    /// Returns the matcher of the calls of the round, with these results.
    pub(in crate::replay) fn matcher<'c, 'r>(
        &self,
        calls: &'c [RoundCall],
        results: impl Iterator<Item = &'r ToolResult>,
    ) -> RoundMatcher<&'c str> {
        let candidates = calls.iter().map(RoundCall::candidate).collect();
        let mut round = RoundMatcher::new(candidates, self.last_asking());
        round.extend(results.map(Target::from));
        round
    }

    /// Returns each call with its result, in order, and the results that answer no call of the
    /// round.
    fn pair(&self) -> (Vec<(RoundCall, Option<PlacedResult>)>, Vec<PlacedResult>) {
        let calls = self.asked_calls();
        let messages = self.results().iter().enumerate();
        let results: Vec<(usize, &ToolResult)> = messages
            .flat_map(|(index, message)| message.results().map(move |result| (index, result)))
            .collect();
        let found = self.matcher(&calls, results.iter().map(|(_, result)| *result));
        let found = found.answers().to_vec();
        let mut calls: Vec<(RoundCall, Option<PlacedResult>)> =
            calls.into_iter().map(|call| (call, None)).collect();
        let mut leftover = Vec::new();
        for ((message, result), found) in results.into_iter().zip(found) {
            match found {
                Answers::Call(index) => {
                    if let Some((_, answer)) = calls.get_mut(index) {
                        *answer = Some((message, result.clone()));
                    }
                }
                Answers::Again => {}
                Answers::Nothing => leftover.push((message, result.clone())),
            }
        }
        (calls, leftover)
    }
}
