//! Removes calls from a replay together with their results.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, Role, ToolCall,
    pairing::{AnswerIds, AnswerKey, Answers, Candidate, IdBase, Ids, Matcher, asked_call},
};

use super::{
    broken_links,
    output::{MessageRef, after_step, changed},
    round::has_content,
};

/// Returns the messages without the calls for which `is_removed` returns `true`, and without their
/// results.
pub(super) fn without_calls(
    messages: &Messages,
    is_removed: impl FnMut(&Message, usize, &ToolCall) -> bool,
) -> Messages {
    let mut step = WithoutCalls::new(is_removed);
    after_step(messages, |message| step.pass(message))
}

/// A step that removes some calls and their results.
pub(super) struct WithoutCalls<G> {
    is_removed: G,
    /// Whether the step removes all, some or none of the results in the next messages.
    open: Round,
    position: usize,
    /// For each call of the current message, whether it is removed.
    removed: Vec<bool>,
}

impl<G: FnMut(&Message, usize, &ToolCall) -> bool> WithoutCalls<G> {
    /// Creates the step. The arguments of `is_removed` are a message, the index of a call in the
    /// message, and the call. Calls that the provider executes always remain.
    pub(super) fn new(is_removed: G) -> Self {
        Self { is_removed, open: Round::Whole, position: 0, removed: Vec::new() }
    }

    pub(super) fn pass<'a>(&mut self, message: &'a Arc<Message>) -> Option<MessageRef<'a>> {
        let position = self.position;
        self.position += 1;
        if message.role == Role::Tool {
            return match &mut self.open {
                Round::Whole => Some(Cow::Borrowed(message)),
                Round::Parted(calls) => kept_results(message, calls),
                Round::Removed => without_results(message).map(changed),
            };
        }
        self.open = Round::Whole;
        self.removed.clear();
        for part in &message.parts {
            if let Some(call) = asked_call(part) {
                let is_call = matches!(part, Part::ToolCall(_));
                self.removed.push(is_call && (self.is_removed)(message, self.removed.len(), call));
            }
        }
        if !self.removed.contains(&true) {
            return Some(Cow::Borrowed(message));
        }
        self.open = match self.removed.contains(&false) {
            true => Round::Parted(PartedRound::of(message, position, &self.removed)),
            false => Round::Removed,
        };
        without_removed(message, &self.removed).map(changed)
    }
}

/// The results of a round (the calls of one answer and their results) that are removed: none, some
/// or all.
enum Round {
    Whole,
    Parted(PartedRound),
    Removed,
}

struct PartedRound {
    calls: Matcher<String>,
    /// For each call in `calls`, whether it is removed.
    removed: Vec<bool>,
}

impl PartedRound {
    fn of(message: &Message, position: usize, removed: &[bool]) -> Self {
        let (key, base) = (AnswerKey::of(message), IdBase::of(message, position));
        let ids = AnswerIds::default().next_calls(key, message.asked_calls(), base, 0);
        // Results in a replay contain no call positions.
        let candidate =
            |(call, id): (_, Cow<'_, str>)| Candidate::new(call, None, &id).into_owned();
        let candidates = message.asked_calls().zip(ids).map(candidate).collect();
        Self { calls: Matcher::new(candidates, Ids::MayBeMissing), removed: removed.to_vec() }
    }
}

fn without_removed(message: &Message, removed: &[bool]) -> Option<Message> {
    if removed.len() == message.parts.len() && !removed.contains(&false) {
        return None;
    }
    let mut removed = removed.iter();
    let mut rest = message.clone();
    broken_links::retain(&mut rest.parts, |part| {
        asked_call(part).is_none() || removed.next() != Some(&true)
    });
    has_content(&rest).then_some(rest)
}

fn kept_results<'a>(message: &'a Arc<Message>, round: &mut PartedRound) -> Option<MessageRef<'a>> {
    let is_kept = |part: &Part| {
        let Part::ToolResult(result) = part else { return true };
        match round.calls.answer(result) {
            Answers::Call(call) => round.removed.get(call) == Some(&false),
            Answers::Again => false,
            Answers::Nothing => true,
        }
    };
    let kept: Vec<bool> = message.parts.iter().map(is_kept).collect();
    if !kept.contains(&false) {
        return Some(Cow::Borrowed(message));
    }
    let rest = message.parts.iter().zip(&kept).filter(|(_, is_kept)| **is_kept);
    let rest: Vec<Part> = rest.map(|(part, _)| part.clone()).collect();
    (!rest.is_empty()).then(|| changed(message.with_parts(rest)))
}

fn without_results(message: &Message) -> Option<Message> {
    let rest = message.parts.iter().filter(|part| part.as_tool_result().is_none());
    let rest: Vec<Part> = rest.cloned().collect();
    (!rest.is_empty()).then(|| message.with_parts(rest))
}
