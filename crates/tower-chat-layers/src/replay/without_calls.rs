//! Removes calls from a replay together with their results.

use std::{borrow::Cow, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, Role,
    pairing::{AnswerIds, AnswerKey, Answers, Candidate, IdBase, Ids, Matcher, asked_call},
};

use super::{
    broken_links,
    output::{MessageRef, after_step, changed},
    round::has_content,
};

/// Returns the messages without omitted calls and their results. `omitted` returns, for each call
/// of a message, whether it is omitted. Calls that the provider executes, and calls that wait for
/// approval, always remain.
pub(super) fn without_calls(
    messages: &Messages,
    omitted: impl Fn(&Message) -> Vec<bool>,
) -> Messages {
    let mut round: Option<ReducedRound> = None;
    let mut next_position = 0;
    after_step(messages, |message| {
        let position = next_position;
        next_position += 1;
        if message.role == Role::Tool {
            return match &mut round {
                Some(round) => round.kept_results(message),
                None => Some(Cow::Borrowed(message)),
            };
        }
        let asked = message.parts.iter().filter(|part| asked_call(part).is_some());
        let removed = omitted(message).into_iter().zip(asked);
        let removed = removed.map(|(omitted, part)| omitted && matches!(part, Part::ToolCall(_)));
        let removed: Vec<bool> = removed.collect();
        if !removed.contains(&true) {
            round = None;
            return Some(Cow::Borrowed(message));
        }
        round = Some(ReducedRound::of(message, position, &removed));
        without_removed(message, &removed).map(changed)
    })
}

/// A round (the calls of one answer and their results) from which calls are removed.
struct ReducedRound {
    calls: Matcher<String>,
    /// For each call in `calls`, whether it is removed.
    removed: Vec<bool>,
    /// Whether a call remains. If none remains, results that answer no call and empty messages are
    /// removed too.
    keeps_some: bool,
}

impl ReducedRound {
    fn of(message: &Message, position: usize, removed: &[bool]) -> Self {
        let (key, base) = (AnswerKey::of(message), IdBase::of(message, position));
        let ids = AnswerIds::default().next_calls(key, message.asked_calls(), base, 0);
        // Results in a replay contain no call positions.
        let calls = message.asked_calls().zip(&ids);
        let calls = calls.map(|(call, id)| Candidate::new(call, None, id).into_owned()).collect();
        Self {
            calls: Matcher::new(calls, Ids::MayBeMissing),
            removed: removed.to_vec(),
            keeps_some: removed.contains(&false),
        }
    }

    fn kept_results<'a>(&mut self, message: &'a Arc<Message>) -> Option<MessageRef<'a>> {
        let mut is_kept = |part: &&Part| {
            let Part::ToolResult(result) = part else { return true };
            match self.calls.answer(result) {
                Answers::Call(call) => self.removed.get(call) == Some(&false),
                Answers::Again => false,
                Answers::Nothing => self.keeps_some,
            }
        };
        let kept: Vec<&Part> = message.parts.iter().filter(&mut is_kept).collect();
        if kept.len() == message.parts.len() && (self.keeps_some || !kept.is_empty()) {
            return Some(Cow::Borrowed(message));
        }
        let kept: Vec<Part> = kept.into_iter().cloned().collect();
        (!kept.is_empty()).then(|| changed(message.with_parts(kept)))
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
