//! Step 2: one assistant message with calls, and the results that answer them.

use std::sync::Arc;

use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Messages, Part, Role, ToolCall, ToolResult,
};

use super::{
    DanglingCalls, Place,
    call_ids::{call_ids, have_distinct_ids},
    pairing::{Answers, Asked, answers, is_named, owed_call},
    policy::Strictness,
};

/// A round that may still get results.
#[derive(Debug, Clone)]
pub(super) struct Round {
    message: Arc<Message>,
    position: usize,
    /// `None` until the first: most rounds are whole with their first results, and are not kept.
    after: Option<Box<After>>,
}

/// What came after a round's message.
#[derive(Debug, Clone, Default)]
struct After {
    results: Vec<Arc<Message>>,
    following: Vec<Arc<Message>>,
    /// The calls that are not shown any more, although they are answered, by their places.
    hidden: Vec<usize>,
}

/// A call that was left out because nothing answered it.
#[derive(Debug, Clone)]
pub(super) struct Unanswered {
    /// Where its message stood; the same for all calls of a batch.
    pub(super) position: usize,
    /// The message that holds the call, and the call's place in it.
    pub(super) place: Option<(MessageId, usize)>,
    pub(super) call: ToolCall,
    /// The request for consent that it waits for, if it does.
    pub(super) approval: Option<ApprovalRequest>,
    /// The id by which results name it.
    id: String,
}

/// What a round comes to when nothing more can belong to it.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) unanswered: Vec<Unanswered>,
    /// Results that answer none of its calls, with the message they came in.
    pub(super) leftover: Option<(Vec<ToolResult>, Arc<Message>)>,
    pub(super) following: Vec<Arc<Message>>,
}

impl Round {
    /// Whether a message owes results.
    pub(super) fn opens_with(message: &Message) -> bool {
        message.parts.iter().any(|part| owed_call(part).is_some())
    }

    pub(super) fn new(message: Arc<Message>, position: usize) -> Self {
        Self { message, position, after: None }
    }

    pub(super) fn push_results(&mut self, message: &Arc<Message>) {
        self.after.get_or_insert_default().results.push(message.clone());
    }

    /// Shows a message after the round's results.
    pub(super) fn follow_with(&mut self, message: Arc<Message>) {
        self.after.get_or_insert_default().following.push(message);
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
        let calls = paired.iter().enumerate();
        let answered = calls.filter(|(_, (_, result))| result.is_some());
        let hidden = answered.filter(|(index, (call, _))| goes(&self.message, *index, &call.call));
        let hidden = hidden.map(|(index, _)| index).collect();
        self.after.get_or_insert_default().hidden = hidden;
    }

    /// Leaves out parts of the message that are no calls owed a result.
    pub(super) fn retain_beside_calls(&mut self, stays: impl Fn(&Part) -> bool) {
        let stays = |part: &Part| owed_call(part).is_some() || stays(part);
        if !self.message.parts.iter().all(stays) {
            Arc::make_mut(&mut self.message).parts.retain(stays);
        }
    }

    fn results(&self) -> &[Arc<Message>] {
        self.after.as_ref().map_or(&[], |after| &after.results)
    }

    /// Whether the round stands as a provider wants it already: each call with an id of its own
    /// and answered once, in order. Nothing has to be copied then.
    pub(super) fn is_answered_in_order(&self) -> bool {
        self.is_answered_in_order_with(None)
    }

    /// The same, with one more message of results.
    pub(super) fn is_answered_in_order_with(&self, last: Option<&Arc<Message>>) -> bool {
        let has_more = |after: &After| !after.following.is_empty() || !after.hidden.is_empty();
        if self.after.as_deref().is_some_and(has_more) {
            return false;
        }
        match (self.results(), last) {
            ([], Some(only)) => self.is_answered_in_order_by(only.parts.iter()),
            (results, last) => self.is_answered_in_order_by(
                results.iter().chain(last).flat_map(|message| &message.parts),
            ),
        }
    }

    fn is_answered_in_order_by<'a>(&self, mut results: impl Iterator<Item = &'a Part>) -> bool {
        let all_answered = self.message.parts.iter().all(|part| match part {
            Part::ApprovalRequest(_) => false,
            Part::ToolCall(call) if !call.provider_executed => match results.next() {
                Some(Part::ToolResult(result)) => result.call_id == call.id,
                _ => false,
            },
            _ => true,
        });
        all_answered && results.next().is_none() && have_distinct_ids(self.calls())
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

    /// What a round comes to that is not answered in order.
    pub(super) fn close(self, strictness: Strictness) -> Closed {
        let (calls, leftover) = self.pair();
        let mut unanswered = Vec::new();
        let mut results = Vec::new();
        let hidden = self.after.as_ref().map_or(&[][..], |after| &after.hidden);
        let mut calls = calls.into_iter().enumerate();
        let mut message = (*self.message).clone();
        let mut dropped_a_call = false;
        message.parts.retain_mut(|part| {
            if owed_call(part).is_none() {
                return true;
            }
            let Some((index, (call, result))) = calls.next() else { return true };
            let keep = !hidden.contains(&index)
                && match (result, call.is_pending_approval(), strictness) {
                    (Some(result), _, _) => {
                        results.push(Part::ToolResult(call.answer(result)));
                        true
                    }
                    (None, false, Strictness::Lenient) => true,
                    (None, false, Strictness::Repair(DanglingCalls::Interrupted)) => {
                        results.push(Part::ToolResult(call.interrupted()));
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
                dropped_a_call = true;
            }
            keep
        });
        if dropped_a_call {
            drop_trailing_reasoning(&mut message.parts);
        }
        let mut messages = Vec::new();
        if has_content(&message) || !dropped_a_call {
            messages.push(Arc::new(message));
        }
        if !results.is_empty() {
            messages.push(Arc::new(self.results_message(results)));
        }
        let leftover = match self.results().last() {
            Some(message) if !leftover.is_empty() => Some((leftover, message.clone())),
            _ => None,
        };
        let following = self.after.map(|after| after.following).unwrap_or_default();
        Closed { messages, unanswered, leftover, following }
    }

    /// The calls of the round that owe results.
    fn calls(&self) -> impl Iterator<Item = &ToolCall> + Clone {
        self.message.parts.iter().filter_map(owed_call)
    }

    /// Each call of the round with its result, in call order, and the results of no call.
    fn pair(&self) -> (Vec<(Unanswered, Option<ToolResult>)>, Vec<ToolResult>) {
        let ids = call_ids(self.calls(), Place::of(&self.message, self.position), 0);
        let mut calls: Vec<(Unanswered, Option<ToolResult>)> = self
            .message
            .parts
            .iter()
            .filter_map(|part| Some((part, owed_call(part)?)))
            .zip(ids)
            .enumerate()
            .map(|(index, ((part, call), id))| {
                let approval = match part {
                    Part::ApprovalRequest(request) => Some(request.clone()),
                    _ => None,
                };
                let unanswered = Unanswered {
                    position: self.position,
                    place: self.message.id.map(|message| (message, index)),
                    call: call.clone(),
                    approval,
                    id: id.into_owned(),
                };
                (unanswered, None)
            })
            .collect();
        let mut leftover = Vec::new();
        for result in self.results().iter().flat_map(|message| message.results()) {
            let asked = calls.iter().map(|(call, answer)| call.asked(answer.is_some()));
            match answers(result, asked) {
                Answers::Call(index) => {
                    if let Some((_, answer)) = calls.get_mut(index) {
                        *answer = Some(result.clone());
                    }
                }
                Answers::Again => {}
                Answers::Nothing => leftover.push(result.clone()),
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

impl Unanswered {
    /// Whether a result names this call.
    pub(super) fn is_answered_by(&self, result: &ToolResult) -> bool {
        is_named(result, &self.call, &self.id)
    }

    pub(super) fn asked(&self, is_answered: bool) -> Asked<'_> {
        Asked { call: &self.call, id: &self.id, is_answered }
    }

    /// The result, naming the call as the replay shows it.
    pub(super) fn answer(&self, mut result: ToolResult) -> ToolResult {
        result.call_id = Some(self.id.clone());
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
