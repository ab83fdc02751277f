//! Step 2: one assistant message with calls, and the results that answer them.

mod close;
mod unanswered;

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, ToolCall, ToolResult,
    pairing::{AnswerIds, AnswerKey, Answers, IdBase, InOrder, RoundMatcher, Target, asked_call},
};

pub use self::unanswered::INTERRUPTED;
pub(in crate::replay) use self::{
    close::{AfterRound, drop_trailing_reasoning, has_content},
    unanswered::{Unanswered, interrupted_id},
};
use super::run_end::{ends_with_open_calls, forgotten_ids};

/// A round that may still get results.
#[derive(Debug, Clone)]
pub(in crate::replay) struct Round {
    /// The first message of the answer that asks for something.
    message: Arc<Message>,
    position: usize,
    /// `None` until the first: most rounds are whole with their first results, and are not kept.
    after: Option<Box<After>>,
}

/// What came after a round's message.
#[derive(Debug, Clone, Default)]
struct After {
    /// The other messages of the same answer, with their positions.
    answer: Vec<(Arc<Message>, usize)>,
    /// The answer is complete: what the model says next is another one.
    is_answered: bool,
    results: Vec<Arc<Message>>,
    /// Messages after those of `results` of which it was not looked at yet which calls their results
    /// name. That is done for many messages at once, since it takes a look at all calls.
    unnamed: Vec<Arc<Message>>,
    in_order: InOrder,
    following: Vec<Following>,
    /// The calls that are not shown any more, although they are answered, by their places among
    /// all calls of the answer.
    hidden: Vec<usize>,
    /// A message after the round says that its run ended on purpose.
    run_ended: bool,
}

/// A message that is shown after the results of its own run.
#[derive(Debug, Clone)]
struct Following {
    message: Arc<Message>,
    /// How many messages of results came before it.
    results_before: usize,
}

/// A result that answers no call of the round, with the position of its message among those of
/// results.
type Leftover = (usize, ToolResult);

impl Round {
    /// Whether a message owes results.
    pub(in crate::replay) fn opens_with(message: &Message) -> bool {
        message.parts.iter().any(|part| asked_call(part).is_some())
    }

    pub(in crate::replay) fn new(message: Arc<Message>, position: usize) -> Self {
        Self { message, position, after: None }
    }

    /// The position of its first message.
    pub(in crate::replay) fn position(&self) -> usize {
        self.position
    }

    /// Whether a message belongs to the answer that opened the round: no result or decision stands
    /// between them, the same run has added both, and it does not end with one of them alone.
    pub(in crate::replay) fn is_continued_by(&self, message: &Message) -> bool {
        AnswerKey::is_shared(&self.message, message)
            && self.after.as_ref().is_none_or(|after| !after.is_answered)
    }

    /// Takes another message of the same answer.
    pub(in crate::replay) fn push_answer(&mut self, message: Arc<Message>, position: usize) {
        self.after.get_or_insert_default().answer.push((message, position));
    }

    /// The answer is complete, although nothing is shown after it yet.
    pub(in crate::replay) fn end_answer(&mut self) {
        self.after.get_or_insert_default().is_answered = true;
    }

    /// Takes a message of results. Those that it holds are [to be named](Self::take_unnamed) before
    /// anything is asked of the round.
    pub(in crate::replay) fn push_results(&mut self, message: &Arc<Message>) {
        let after = self.after.get_or_insert_default();
        after.is_answered = true;
        after.in_order.follow(&self.message, message);
        after.unnamed.push(message.clone());
    }

    /// The messages of results that came since this was last called; they are to be given
    /// [back](Self::push_named).
    pub(in crate::replay) fn take_unnamed(&mut self) -> Vec<Arc<Message>> {
        self.after.as_mut().map(|after| std::mem::take(&mut after.unnamed)).unwrap_or_default()
    }

    /// Whether there are messages of results that were not named yet.
    pub(in crate::replay) fn has_unnamed(&self) -> bool {
        self.after.as_ref().is_some_and(|after| !after.unnamed.is_empty())
    }

    pub(in crate::replay) fn push_named(&mut self, messages: Vec<Arc<Message>>) {
        self.after.get_or_insert_default().results.extend(messages);
    }

    /// Whether the results, as they came, have answered all calls of the only message in order.
    pub(in crate::replay) fn may_be_answered_in_order(&self) -> bool {
        self.after.as_ref().is_some_and(|after| {
            after.in_order.is_complete(&self.message)
                && after.answer.is_empty()
                && after.following.is_empty()
        })
    }

    /// Does not look any more whether the calls are answered in order: they are not. Each look
    /// names the results again, which takes time by the size of the round.
    pub(in crate::replay) fn set_out_of_order(&mut self) {
        self.after.get_or_insert_default().in_order.set_broken();
    }

    /// Shows a message after the round's results, which are all named.
    pub(in crate::replay) fn follow_with(&mut self, message: Arc<Message>) {
        self.end_answer();
        let after = self.after.get_or_insert_default();
        let results_before = after.results.len();
        after.following.push(Following { message, results_before });
    }

    /// The run of this round ended on purpose after it.
    pub(in crate::replay) fn end_run(&mut self) {
        self.after.get_or_insert_default().run_ended = true;
    }

    /// Whether the run of this round ended on purpose: its calls without results were returned to
    /// the caller, or not run because the run had ended.
    fn is_of_ended_run(&self) -> bool {
        self.after.as_ref().is_some_and(|after| after.run_ended)
            || self.answer().any(|(message, _)| ends_with_open_calls(message))
            || self.results().iter().any(|message| ends_with_open_calls(message))
    }

    /// The ids of the calls that were answered by results that were not to be stored.
    fn forgotten(&self) -> HashSet<&str> {
        self.results().iter().flat_map(|message| forgotten_ids(message)).collect()
    }

    /// Leaves out those of the answered calls that go, with their results. The others stay: what
    /// comes may still answer them.
    pub(in crate::replay) fn hide_answered(
        &mut self,
        mut goes: impl FnMut(&Message, usize, &ToolCall) -> bool,
    ) {
        if self.results().is_empty() {
            return;
        }
        let (paired, _) = self.pair();
        let messages = self.answer().flat_map(|(message, _)| {
            let calls = message.parts.iter().filter(|part| asked_call(part).is_some());
            calls.enumerate().map(move |(index, _)| (message, index))
        });
        let calls = paired.iter().zip(messages).enumerate();
        let answered = calls.filter(|(_, ((_, result), _))| result.is_some());
        let hidden = answered
            .filter(|(_, ((call, _), (message, index)))| goes(message, *index, &call.call))
            .map(|(index, _)| index)
            .collect();
        self.after.get_or_insert_default().hidden = hidden;
    }

    /// Leaves out parts of the message other than calls that wait for a result.
    pub(in crate::replay) fn retain_beside_calls(&mut self, stays: impl Fn(&Part) -> bool) {
        let stays = |part: &Part| asked_call(part).is_some() || stays(part);
        let others = self.after.iter_mut().flat_map(|after| &mut after.answer);
        for message in std::iter::once(&mut self.message).chain(others.map(|(other, _)| other)) {
            if !message.parts.iter().all(&stays) {
                Arc::make_mut(message).parts.retain(&stays);
            }
        }
        if let Some(after) = &mut self.after {
            let was_broken = after.in_order.is_broken();
            after.in_order = InOrder::default();
            for results in after.results.iter().chain(&after.unnamed) {
                after.in_order.follow(&self.message, results);
            }
            if was_broken {
                after.in_order.set_broken();
            }
        }
    }

    /// The messages of the answer from the first on that asks for something, with their positions.
    fn answer(&self) -> impl Iterator<Item = (&Arc<Message>, usize)> {
        let others = self.after.iter().flat_map(|after| &after.answer);
        std::iter::once((&self.message, self.position))
            .chain(others.map(|(message, position)| (message, *position)))
    }

    /// Whether one message of the answer alone asks for something.
    pub(in crate::replay) fn is_one_message(&self) -> bool {
        self.last_asking() == 0
    }

    /// Where the calls of the last message that asks for something begin among all calls.
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
        self.after.as_ref().map_or(&[], |after| &after.results)
    }

    /// Whether the round stands as a provider wants it already: each call with an id of its own
    /// and answered once, in order. Nothing has to be copied then.
    pub(in crate::replay) fn is_answered_in_order(&self) -> bool {
        let has_more = |after: &After| {
            !after.answer.is_empty() || !after.following.is_empty() || !after.hidden.is_empty()
        };
        let results = self.results().iter().map(|message| &**message);
        !self.after.as_deref().is_some_and(has_more) && InOrder::answers_all(&self.message, results)
    }

    /// The same with one message of results, for a round that has nothing else yet.
    pub(in crate::replay) fn is_answered_in_order_at_once(&self, results: &Message) -> bool {
        self.after.is_none() && InOrder::answers_all(&self.message, [results])
    }

    /// The calls that nothing answers so far.
    pub(in crate::replay) fn unanswered(&self) -> Vec<Unanswered> {
        self.pair()
            .0
            .into_iter()
            .filter(|(_, result)| result.is_none())
            .map(|(call, _)| call)
            .collect()
    }

    /// Shows a round that [is answered in order](Self::is_answered_in_order) as it is.
    pub(in crate::replay) fn append_to(self, output: &mut Messages) {
        output.push(self.message);
        if let Some(after) = self.after {
            output.extend(after.results);
        }
    }

    /// All calls of the answer.
    pub(in crate::replay) fn asked(&self) -> Vec<Unanswered> {
        let is_call = |part: &Part| matches!(part, Part::ToolCall(call) if !call.provider_executed);
        let is_beside_calls = self.answer().any(|(message, _)| message.parts.iter().any(is_call));
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
                Unanswered {
                    position: self.position,
                    call_position: message.id.map(|message| (message, index)),
                    named_by: base.call_position(index),
                    call: call.clone(),
                    is_beside_calls,
                    approval,
                    is_visible: false,
                    id: id.into_owned(),
                }
            }));
        }
        calls
    }

    /// The calls of the round that messages of results, after those it has, answer: for each of
    /// their results what it is to the calls.
    pub(in crate::replay) fn answered_by(
        &self,
        further: &[Arc<Message>],
    ) -> (Vec<Unanswered>, Vec<Answers>) {
        let calls = self.asked();
        let before = self.results().iter().map(|message| message.results().count()).sum();
        let all = self.results().iter().chain(further).flat_map(|message| message.results());
        let all: Vec<&ToolResult> = all.collect();
        let found = self.paired(&calls, &all).split_off(before);
        (calls, found)
    }

    fn paired(&self, calls: &[Unanswered], results: &[&ToolResult]) -> Vec<Answers> {
        let candidates = calls.iter().map(Unanswered::candidate).collect();
        let mut round = RoundMatcher::new(candidates, self.last_asking());
        round.extend(results.iter().map(|result| Target::from(*result)));
        round.answers().to_vec()
    }

    /// Each call of the round with its result, in call order, and the results of no call.
    fn pair(&self) -> (Vec<(Unanswered, Option<ToolResult>)>, Vec<Leftover>) {
        let calls = self.asked();
        let messages = self.results().iter().enumerate();
        let results: Vec<(usize, &ToolResult)> = messages
            .flat_map(|(index, message)| message.results().map(move |result| (index, result)))
            .collect();
        let found: Vec<_> = results.iter().map(|(_, result)| *result).collect();
        let found = self.paired(&calls, &found);
        let mut calls: Vec<(Unanswered, Option<ToolResult>)> =
            calls.into_iter().map(|call| (call, None)).collect();
        let mut leftover = Vec::new();
        for ((message, result), found) in results.into_iter().zip(found) {
            match found {
                Answers::Call(index) => {
                    if let Some((_, answer)) = calls.get_mut(index) {
                        *answer = Some(result.clone());
                    }
                }
                Answers::Again => {}
                Answers::Nothing => leftover.push((message, result.clone())),
            }
        }
        (calls, leftover)
    }
}
