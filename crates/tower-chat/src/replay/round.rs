//! Step 2: one assistant message with calls, and the results that answer them.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    ApprovalRequest, CallPosition, Message, MessageId, Messages, Part, Role, RunId, ToolCall,
    ToolResult,
};

use super::{
    DanglingCalls, IdBase, broken_links,
    call_ids::{AnswerIds, have_distinct_ids},
    pairing::{Answers, Asked, RoundPairing, pending_call},
    policy::Strictness,
    run_end::{ends_with_open_calls, forgotten_ids, is_of_same_answer},
};

/// A round that may still get results.
#[derive(Debug, Clone)]
pub(super) struct Round {
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

/// How far the results answer the calls of the round's message in their order.
#[derive(Debug, Clone, Copy, Default)]
struct InOrder {
    /// The first part of the message that is not known to be a call with its result, or no call.
    part: usize,
    /// A result has answered another call than the next, or none.
    is_broken: bool,
}

/// A result that answers no call of the round, with the position of its message among those of
/// results.
type Leftover = (usize, ToolResult);

/// A call that was left out because nothing answered it.
#[derive(Debug, Clone)]
pub(super) struct Unanswered {
    /// Where the first message of its answer stood; the same for all calls of a batch.
    pub(super) position: usize,
    /// The message that holds the call, and the call's place in it.
    pub(super) call_position: Option<(MessageId, usize)>,
    /// The same for results that name the call, also where its message has no id.
    pub(super) named_by: CallPosition,
    pub(super) call: ToolCall,
    /// Its answer holds calls too that wait for nobody's approval.
    pub(super) is_beside_calls: bool,
    /// The request for approval that it waits for, if it does.
    pub(super) approval: Option<ApprovalRequest>,
    /// The call is shown, with a result that says it was interrupted.
    pub(super) is_shown: bool,
    /// The id by which results name it.
    id: String,
}

/// What a round comes to when nothing more can belong to it.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) unanswered: Vec<Unanswered>,
    /// What stands after the round, in the order in which it came.
    pub(super) after: Vec<AfterRound>,
}

/// What stands after a closed round.
#[derive(Debug)]
pub(super) enum AfterRound {
    /// Results that answer none of its calls, with the last message they came in.
    Leftover(Vec<ToolResult>, Arc<Message>),
    Message(Arc<Message>),
}

impl Round {
    /// Whether a message owes results.
    pub(super) fn opens_with(message: &Message) -> bool {
        message.parts.iter().any(|part| pending_call(part).is_some())
    }

    pub(super) fn new(message: Arc<Message>, position: usize) -> Self {
        Self { message, position, after: None }
    }

    /// Whether a message belongs to the answer that opened the round: no result or decision stands
    /// between them, the same run has added both, and it does not end with one of them alone.
    pub(super) fn is_continued_by(&self, message: &Message) -> bool {
        is_of_same_answer(&self.message, message)
            && self.after.as_ref().is_none_or(|after| !after.is_answered)
    }

    /// Takes another message of the same answer.
    pub(super) fn push_answer(&mut self, message: Arc<Message>, position: usize) {
        self.after.get_or_insert_default().answer.push((message, position));
    }

    /// The answer is complete, although nothing is shown after it yet.
    pub(super) fn end_answer(&mut self) {
        self.after.get_or_insert_default().is_answered = true;
    }

    /// Takes a message of results. Those that it holds are [to be named](Self::take_unnamed) before
    /// anything is asked of the round.
    pub(super) fn push_results(&mut self, message: &Arc<Message>) {
        let after = self.after.get_or_insert_default();
        after.is_answered = true;
        after.in_order.follow(&self.message, message);
        after.unnamed.push(message.clone());
    }

    /// The messages of results that came since this was last called; they are to be given
    /// [back](Self::push_named).
    pub(super) fn take_unnamed(&mut self) -> Vec<Arc<Message>> {
        self.after.as_mut().map(|after| std::mem::take(&mut after.unnamed)).unwrap_or_default()
    }

    /// Whether there are messages of results that were not named yet.
    pub(super) fn has_unnamed(&self) -> bool {
        self.after.as_ref().is_some_and(|after| !after.unnamed.is_empty())
    }

    pub(super) fn push_named(&mut self, messages: Vec<Arc<Message>>) {
        self.after.get_or_insert_default().results.extend(messages);
    }

    /// Whether the results, as they came, have answered all calls of the only message in order.
    pub(super) fn may_be_answered_in_order(&self) -> bool {
        self.after.as_ref().is_some_and(|after| {
            !after.in_order.is_broken
                && after.in_order.part >= self.message.parts.len()
                && after.answer.is_empty()
                && after.following.is_empty()
        })
    }

    /// Does not look any more whether the calls are answered in order: they are not.
    pub(super) fn set_out_of_order(&mut self) {
        self.after.get_or_insert_default().in_order.is_broken = true;
    }

    /// Shows a message after the round's results.
    pub(super) fn follow_with(&mut self, message: Arc<Message>) {
        self.end_answer();
        let after = self.after.get_or_insert_default();
        let results_before = after.results.len() + after.unnamed.len();
        after.following.push(Following { message, results_before });
    }

    /// The run of this round ended on purpose after it.
    pub(super) fn end_run(&mut self) {
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
    pub(super) fn hide_answered(
        &mut self,
        mut goes: impl FnMut(&Message, usize, &ToolCall) -> bool,
    ) {
        if self.results().is_empty() {
            return;
        }
        let (paired, _) = self.pair();
        let messages = self.answer().flat_map(|(message, _)| {
            let calls = message.parts.iter().filter(|part| pending_call(part).is_some());
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
    pub(super) fn retain_beside_calls(&mut self, stays: impl Fn(&Part) -> bool) {
        let stays = |part: &Part| pending_call(part).is_some() || stays(part);
        let others = self.after.iter_mut().flat_map(|after| &mut after.answer);
        for message in std::iter::once(&mut self.message).chain(others.map(|(other, _)| other)) {
            if !message.parts.iter().all(&stays) {
                Arc::make_mut(message).parts.retain(&stays);
            }
        }
        if let Some(after) = &mut self.after {
            after.in_order = InOrder { part: 0, is_broken: after.in_order.is_broken };
            for results in after.results.iter().chain(&after.unnamed) {
                after.in_order.follow(&self.message, results);
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
    pub(super) fn is_one_message(&self) -> bool {
        self.last_asking() == 0
    }

    /// Where the calls of the last message that asks for something begin among all calls.
    pub(super) fn last_asking(&self) -> usize {
        let mut before = 0;
        let mut last = 0;
        for (message, _) in self.answer() {
            let calls = message.parts.iter().filter_map(pending_call).count();
            if calls > 0 {
                last = before;
            }
            before += calls;
        }
        last
    }

    pub(super) fn results(&self) -> &[Arc<Message>] {
        self.after.as_ref().map_or(&[], |after| &after.results)
    }

    /// Whether the round stands as a provider wants it already: each call with an id of its own
    /// and answered once, in order. Nothing has to be copied then.
    pub(super) fn is_answered_in_order(&self) -> bool {
        let has_more = |after: &After| {
            !after.answer.is_empty() || !after.following.is_empty() || !after.hidden.is_empty()
        };
        !self.after.as_deref().is_some_and(has_more)
            && self
                .is_answered_in_order_by(self.results().iter().flat_map(|message| &message.parts))
    }

    /// The same with one message of results, for a round that has nothing else yet.
    pub(super) fn is_answered_in_order_at_once(&self, results: &Message) -> bool {
        self.after.is_none() && self.is_answered_in_order_by(results.parts.iter())
    }

    fn is_answered_in_order_by<'a>(&self, mut results: impl Iterator<Item = &'a Part>) -> bool {
        let all_answered = self.message.parts.iter().all(|part| match part {
            Part::ApprovalRequest(_) => false,
            Part::ToolCall(call) if !call.provider_executed => match results.next() {
                Some(Part::ToolResult(result)) => {
                    result.call_id == call.id && result.call.is_none()
                }
                _ => false,
            },
            _ => true,
        });
        all_answered && results.next().is_none() && have_distinct_ids(self.calls())
    }

    /// The results that answer none of its calls.
    pub(super) fn leftover(&self) -> Vec<ToolResult> {
        if self.results().is_empty() {
            return Vec::new();
        }
        self.pair().1.into_iter().map(|(_, result)| result).collect()
    }

    /// The calls that nothing answers so far.
    pub(super) fn unanswered(&self) -> Vec<Unanswered> {
        self.pair()
            .0
            .into_iter()
            .filter(|(_, result)| result.is_none())
            .map(|(call, _)| call)
            .collect()
    }

    /// Shows a round that [is answered in order](Self::is_answered_in_order) as it is.
    pub(super) fn show_in(self, shown: &mut Messages) {
        shown.push(self.message);
        if let Some(after) = self.after {
            shown.extend(after.results);
        }
    }

    /// What a round comes to that is not answered in order. Each message of the answer is followed
    /// by the results of its own calls.
    pub(super) fn close(self, strictness: Strictness) -> Closed {
        let (calls, leftover) = self.pair();
        let shows_interrupted = match strictness {
            Strictness::Repair(DanglingCalls::Interrupted | DanglingCalls::FromRecord) => {
                !self.is_of_ended_run()
            }
            Strictness::Repair(_) | Strictness::Lenient => false,
        };
        let hidden = self.after.iter().flat_map(|after| &after.hidden).copied();
        let hidden: HashSet<usize> = hidden.collect();
        let forgotten = if shows_interrupted { self.forgotten() } else { HashSet::new() };
        let mut calls = calls.into_iter().enumerate().map(|(index, (call, result))| PairedCall {
            is_hidden: hidden.contains(&index),
            is_interrupted: shows_interrupted && !forgotten.contains(&*call.id),
            call,
            result,
        });
        let mut unanswered = Vec::new();
        let mut shown: Vec<ShownMessage> = Vec::new();
        for (message, _) in self.answer() {
            shown.push(shown_message(message, &mut calls, strictness, &mut unanswered));
        }
        if let Some(last) = shown.iter().rposition(|shown| shown.is_answered) {
            // No provider takes a request that ends with words of the model: those behind the last
            // calls that were answered go before them, in their order.
            let behind = shown.split_off(last + 1);
            let (words, asking) = behind.into_iter().partition(|shown| shown.results.is_empty());
            let words: Vec<_> = words;
            shown.splice(last..last, words);
            shown.extend::<Vec<_>>(asking);
        }
        let mut messages = Vec::new();
        for ShownMessage { message, results, .. } in shown {
            messages.extend(message);
            if !results.is_empty() {
                messages.push(Arc::new(self.results_message(results)));
            }
        }
        let after = self.after(leftover);
        Closed { messages, unanswered, after }
    }

    /// What stands after the round: each message after the results of its own run, and before those
    /// of a later one.
    fn after(self, leftover: Vec<Leftover>) -> Vec<AfterRound> {
        let Some(After { results, following, .. }) = self.after.map(|after| *after) else {
            return Vec::new();
        };
        let run = |message: &Message| message.id.map(|id| id.run);
        let mut following = following.into_iter().peekable();
        let mut all = Vec::new();
        for (position, result) in leftover {
            let Some(message) = results.get(position) else { continue };
            let is_earlier = |next: &Following| {
                next.results_before <= position && run(&next.message) != run(message)
            };
            while let Some(next) = following.next_if(is_earlier) {
                all.push(AfterRound::Message(next.message));
            }
            match all.last_mut() {
                Some(AfterRound::Leftover(results, last)) => {
                    results.push(result);
                    last.clone_from(message);
                }
                Some(AfterRound::Message(_)) | None => {
                    all.push(AfterRound::Leftover(vec![result], message.clone()));
                }
            }
        }
        all.extend(following.map(|next| AfterRound::Message(next.message)));
        all
    }

    /// The calls of the round's first message that owe results.
    fn calls(&self) -> impl Iterator<Item = &ToolCall> + Clone {
        self.message.parts.iter().filter_map(pending_call)
    }

    /// All calls of the answer.
    pub(super) fn asked(&self) -> Vec<Unanswered> {
        let is_call = |part: &Part| matches!(part, Part::ToolCall(call) if !call.provider_executed);
        let is_beside_calls = self.answer().any(|(message, _)| message.parts.iter().any(is_call));
        let mut ids = AnswerIds::default();
        let mut calls = Vec::new();
        for (message, position) in self.answer() {
            let run = message.id.map(|id| id.run);
            let pending = message.parts.iter().filter_map(pending_call);
            let ids = ids.next_calls(message.role, run, pending, IdBase::of(message, position), 0);
            let parts = message.parts.iter().filter_map(|part| Some((part, pending_call(part)?)));
            calls.extend(parts.zip(ids).enumerate().map(|(index, ((part, call), id))| {
                let approval = match part {
                    Part::ApprovalRequest(request) => Some(request.clone()),
                    _ => None,
                };
                Unanswered {
                    position: self.position,
                    call_position: message.id.map(|message| (message, index)),
                    named_by: named_by(message, position, index),
                    call: call.clone(),
                    is_beside_calls,
                    approval,
                    is_shown: false,
                    id: id.into_owned(),
                }
            }));
        }
        calls
    }

    /// The calls of the round that messages of results, after those it has, answer: for each of
    /// their results what it is to the calls.
    pub(super) fn answered_by(&self, further: &[Arc<Message>]) -> (Vec<Unanswered>, Vec<Answers>) {
        let calls = self.asked();
        let before = self.results().iter().map(|message| message.results().count()).sum();
        let all = self.results().iter().chain(further).flat_map(|message| message.results());
        let all: Vec<&ToolResult> = all.collect();
        let found = self.paired(&calls, &all).split_off(before);
        (calls, found)
    }

    fn paired(&self, calls: &[Unanswered], results: &[&ToolResult]) -> Vec<Answers> {
        let asked = calls.iter().map(|call| call.asked(false)).collect();
        RoundPairing::of(asked, self.last_asking(), results).1
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

    /// One tool message with all results, under the name of the first that brought one.
    fn results_message(&self, results: Vec<Part>) -> Message {
        let mut message = match self.results().first() {
            Some(first) => (**first).clone(),
            None => Message::new(Role::Tool, Vec::new()),
        };
        message.parts = results;
        message
    }
}

/// A call of a round with what answers it.
struct PairedCall {
    call: Unanswered,
    result: Option<ToolResult>,
    is_hidden: bool,
    /// Without a result it is shown with one that says so: its run was interrupted.
    is_interrupted: bool,
}

/// What is shown of a message of the answer.
struct ShownMessage {
    /// `None` if nothing of it is left.
    message: Option<Arc<Message>>,
    results: Vec<Part>,
    /// A result of its calls has come, and is shown.
    is_answered: bool,
}

/// What is shown of a message of the answer, which takes its own from the calls of the round.
fn shown_message(
    message: &Arc<Message>,
    calls: &mut impl Iterator<Item = PairedCall>,
    strictness: Strictness,
    unanswered: &mut Vec<Unanswered>,
) -> ShownMessage {
    let mut results = Vec::new();
    if !Round::opens_with(message) {
        return ShownMessage { message: Some(message.clone()), results, is_answered: false };
    }
    let mut message = (**message).clone();
    let (mut kept, mut gaps, mut is_answered) = (0, Vec::new(), false);
    message.parts.retain_mut(|part| {
        kept += 1;
        if pending_call(part).is_none() {
            return true;
        }
        let Some(PairedCall { call, result, is_hidden, is_interrupted }) = calls.next() else {
            return true;
        };
        let keep = !is_hidden
            && match (result, call.is_pending_approval(), strictness) {
                (Some(result), _, _) => {
                    is_answered = true;
                    results.push(Part::ToolResult(call.answer(result)));
                    true
                }
                (None, false, Strictness::Lenient) => true,
                (None, false, _) if is_interrupted => {
                    results.push(Part::ToolResult(call.interrupted()));
                    unanswered.push(Unanswered { is_shown: true, ..call.clone() });
                    true
                }
                (None, _, _) => {
                    unanswered.push(call.clone());
                    false
                }
            };
        if keep {
            *part = Part::ToolCall(call.into_call());
        } else {
            kept -= 1;
            gaps.push(kept);
        }
        keep
    });
    let dropped_a_call = !gaps.is_empty();
    if dropped_a_call {
        broken_links::unlink(&mut message.parts, &gaps);
        drop_trailing_reasoning(&mut message.parts);
    }
    let is_shown = has_content(&message) || !dropped_a_call;
    let message = is_shown.then(|| Arc::new(message));
    ShownMessage { message, results, is_answered }
}

/// How results name a call. The run of a message without an id is one that no run has.
pub(super) fn named_by(message: &Message, position: usize, index: usize) -> CallPosition {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let of_position = || MessageId { run: RunId::from_bytes([0; 16]), index: small(position) };
    CallPosition { message: message.id.unwrap_or_else(of_position), index: small(index) }
}

impl InOrder {
    /// Goes on with the next message of results.
    fn follow(&mut self, asking: &Message, results: &Message) {
        for part in &results.parts {
            let result = part.as_tool_result().filter(|result| result.call.is_none());
            match (result, self.next_call(asking)) {
                (Some(result), Some(call)) if result.call_id == call.id => self.part += 1,
                _ => self.is_broken = true,
            }
            if self.is_broken {
                return;
            }
        }
        self.next_call(asking);
    }

    /// The next call that a result has to answer. A request for approval is none.
    fn next_call<'m>(&mut self, asking: &'m Message) -> Option<&'m ToolCall> {
        while let Some(part) = asking.parts.get(self.part) {
            match part {
                Part::ToolCall(call) if !call.provider_executed => return Some(call),
                Part::ApprovalRequest(_) => {
                    self.is_broken = true;
                    return None;
                }
                _ => self.part += 1,
            }
        }
        None
    }
}

impl Unanswered {
    pub(super) fn asked(&self, is_answered: bool) -> Asked<&str> {
        Asked::new(&self.call, Some(self.named_by), &self.id, is_answered)
    }

    /// The ids by which results may name it.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.asked(false).into_ids()
    }

    /// The id by which results name it, as replays show it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The result, naming the call as the replay shows it: it stands right behind the call, which
    /// no position has to say.
    pub(super) fn answer(&self, mut result: ToolResult) -> ToolResult {
        result.call_id = Some(self.id.clone());
        result.call = None;
        result
    }

    /// The call, named as its result names it.
    pub(super) fn into_call(self) -> ToolCall {
        let mut call = self.call;
        call.id = Some(self.id);
        call
    }

    /// The tool and the id of a call that is dangling: not one that waits for approval.
    pub(super) fn dangling(&self) -> Option<(String, String)> {
        (!self.is_pending_approval()).then(|| (self.call.name.clone(), self.id.clone()))
    }

    /// The same call, not shown any more.
    pub(super) fn hidden(&self) -> Self {
        Self { is_shown: false, ..self.clone() }
    }

    fn is_pending_approval(&self) -> bool {
        self.approval.is_some()
    }

    fn interrupted(&self) -> ToolResult {
        let mut result = ToolResult::error(&self.id, INTERRUPTED);
        result.name = Some(self.call.name.clone());
        result
    }
}

/// What the model is told of a call whose outcome is unknown.
pub const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

/// The id of the call of which a part says that it was interrupted.
pub(super) fn interrupted_id(part: &Part) -> Option<&str> {
    let result = part.as_tool_result().filter(|it| it.is_error && it.text() == INTERRUPTED)?;
    result.call_id.as_deref().filter(|id| !id.is_empty())
}

/// Reasoning belongs to the part after it; where that was dropped, it goes too.
pub(super) fn drop_trailing_reasoning(parts: &mut Vec<Part>) {
    while matches!(parts.last(), Some(Part::Reasoning(_) | Part::Native(_))) {
        parts.pop();
    }
}

/// Whether a message says something. What a provider keeps beside its words says nothing by itself.
pub(super) fn has_content(message: &Message) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text(text) => !text.text.is_empty(),
        Part::Reasoning(_) | Part::Native(_) => false,
        _ => true,
    })
}
