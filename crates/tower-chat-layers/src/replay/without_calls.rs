//! Removes calls from a replay together with their results.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, Role, ToolCall,
    pairing::{AnswerIds, AnswerKey, Answers, Candidate, IdBase, Ids, Matcher, asked_call},
};

use super::{
    output::{MessageRef, after_step, changed},
    round::{drop_trailing_reasoning, has_content},
};

/// Returns the messages without some of their calls; see [`WithoutCalls`].
pub(super) fn without_calls(
    messages: &Messages,
    goes: impl FnMut(&Message, usize, &ToolCall) -> bool,
) -> Messages {
    let mut step = WithoutCalls::new(goes);
    after_step(messages, |message| step.pass(message))
}

/// A step that removes some calls and their results. A round without any remaining call is removed,
/// except its text.
pub(super) struct WithoutCalls<G> {
    goes: G,
    /// The handling of the next results.
    open: Round,
    position: usize,
    /// Whether each call of a message is removed, in order.
    going: Vec<bool>,
}

impl<G: FnMut(&Message, usize, &ToolCall) -> bool> WithoutCalls<G> {
    /// Creates the step. `goes` returns whether a call is removed. Its arguments are a message, the
    /// index of a call among the calls of that message, and the call. Calls that the provider executes
    /// are not passed to `goes`.
    pub(super) fn new(goes: G) -> Self {
        Self { goes, open: Round::Whole, position: 0, going: Vec::new() }
    }

    /// Returns the next message without the removed calls and results.
    pub(super) fn pass<'a>(&mut self, message: &'a Arc<Message>) -> Option<MessageRef<'a>> {
        let position = self.position;
        self.position += 1;
        if message.role == Role::Tool {
            return match &mut self.open {
                Round::Whole => Some(Cow::Borrowed(message)),
                Round::Parted(calls) => staying_results(message, calls),
                Round::Gone => without_results(message).map(changed),
            };
        }
        self.open = Round::Whole;
        self.going.clear();
        for part in &message.parts {
            if let Some(call) = asked_call(part) {
                let is_call = matches!(part, Part::ToolCall(_));
                self.going.push(is_call && (self.goes)(message, self.going.len(), call));
            }
        }
        if !self.going.contains(&true) {
            return Some(Cow::Borrowed(message));
        }
        self.open = match self.going.contains(&false) {
            true => Round::Parted(PartedRound::of(message, position, &self.going)),
            false => Round::Gone,
        };
        without_going(message, &self.going).map(changed)
    }
}

/// The handling of the results of a round.
enum Round {
    /// All results are kept.
    Whole,
    /// The results of some calls are removed.
    Parted(PartedRound),
    /// All results are removed.
    Gone,
}

struct PartedRound {
    calls: Matcher<String>,
    /// Whether each of the calls is removed.
    going: Vec<bool>,
}

impl PartedRound {
    fn of(message: &Message, position: usize, going: &[bool]) -> Self {
        let (key, base) = (AnswerKey::of(message), IdBase::of(message, position));
        let ids = AnswerIds::default().next_calls(key, message.asked_calls(), base, 0);
        // Results in a replay do not name calls by position.
        let candidate =
            |(call, id): (_, Cow<'_, str>)| Candidate::new(call, None, &id).into_owned();
        let candidates = message.asked_calls().zip(ids).map(candidate).collect();
        Self { calls: Matcher::new(candidates, Ids::MayBeMissing), going: going.to_vec() }
    }
}

fn without_going(message: &Message, going: &[bool]) -> Option<Message> {
    if going.len() == message.parts.len() && !going.contains(&false) {
        return None;
    }
    let mut going = going.iter();
    let stays = |part: &&Part| asked_call(part).is_none() || going.next() != Some(&true);
    let mut parts: Vec<Part> = message.parts.iter().filter(stays).cloned().collect();
    drop_trailing_reasoning(&mut parts);
    let rest = message.with_parts(parts);
    has_content(&rest).then_some(rest)
}

fn staying_results<'a>(
    message: &'a Arc<Message>,
    round: &mut PartedRound,
) -> Option<MessageRef<'a>> {
    let stays = |part: &Part| {
        let Part::ToolResult(result) = part else { return true };
        match round.calls.answer(result) {
            Answers::Call(call) => round.going.get(call) == Some(&false),
            Answers::Again => false,
            Answers::Nothing => true,
        }
    };
    let staying: Vec<bool> = message.parts.iter().map(stays).collect();
    if !staying.contains(&false) {
        return Some(Cow::Borrowed(message));
    }
    let rest = message.parts.iter().zip(&staying).filter(|(_, stays)| **stays);
    let rest: Vec<Part> = rest.map(|(part, _)| part.clone()).collect();
    (!rest.is_empty()).then(|| changed(message.with_parts(rest)))
}

/// Returns a message of results of a removed round, without the results.
fn without_results(message: &Message) -> Option<Message> {
    let rest = message.parts.iter().filter(|part| part.as_tool_result().is_none());
    let rest: Vec<Part> = rest.cloned().collect();
    (!rest.is_empty()).then(|| message.with_parts(rest))
}
