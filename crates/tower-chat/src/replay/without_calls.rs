//! Leaving calls out of a replay together with their results.

use std::sync::Arc;

use tower_chat_core::{Message, Messages, Part, Role, ToolCall};

use super::{
    call_ids::{Place, call_ids},
    edited::Edited,
    pairing::{Answers, Asked, answers, owed_call},
    round::{drop_trailing_reasoning, has_content},
};

/// The messages without some calls, and without the results of those. A round that loses all its
/// calls disappears; its text stays.
///
/// `goes` is asked about each call that is owed a result, with its message and its place among
/// the calls of that message.
pub(super) fn without_calls(
    messages: &Messages,
    mut goes: impl FnMut(&Message, usize, &ToolCall) -> bool,
) -> Messages {
    let mut edited = Edited::of(messages);
    let mut open: Option<Vec<AskedCall<'_>>> = None;
    for (position, message) in messages.iter().enumerate() {
        if message.role == Role::Tool {
            match &mut open {
                Some(calls) => push_results(&mut edited, message, calls),
                None => edited.keep(message),
            }
            continue;
        }
        open = None;
        let going: Vec<bool> = message
            .parts
            .iter()
            .filter_map(|part| Some((part, owed_call(part)?)))
            .enumerate()
            .map(|(index, (part, call))| {
                matches!(part, Part::ToolCall(_)) && goes(message, index, call)
            })
            .collect();
        if !going.contains(&true) {
            edited.keep(message);
            continue;
        }
        open = Some(asked_calls(message, position, &going));
        edited.replace(without_going(message, &going));
    }
    edited.finish()
}

struct AskedCall<'a> {
    call: &'a ToolCall,
    id: String,
    goes: bool,
    is_answered: bool,
}

fn asked_calls<'a>(message: &'a Message, position: usize, going: &[bool]) -> Vec<AskedCall<'a>> {
    let calls = || message.parts.iter().filter_map(owed_call);
    let ids = call_ids(calls(), Place::of(message, position), 0);
    let calls = calls().zip(ids).zip(going);
    calls.map(|((call, id), &goes)| AskedCall { call, id, goes, is_answered: false }).collect()
}

fn without_going(message: &Message, going: &[bool]) -> Option<Message> {
    let mut going = going.iter();
    let stays = |part: &&Part| owed_call(part).is_none() || going.next() != Some(&true);
    let mut parts: Vec<Part> = message.parts.iter().filter(stays).cloned().collect();
    drop_trailing_reasoning(&mut parts);
    let rest = message.with_parts(parts);
    has_content(&rest).then_some(rest)
}

fn push_results(edited: &mut Edited<'_>, message: &Arc<Message>, calls: &mut [AskedCall<'_>]) {
    let stays = |part: &&Part| {
        let Part::ToolResult(result) = part else { return true };
        let asked = calls.iter().map(|asked| Asked {
            call: asked.call,
            id: &asked.id,
            is_answered: asked.is_answered,
        });
        match answers(result, asked) {
            Answers::Call(index) => calls.get_mut(index).is_some_and(|asked| {
                asked.is_answered = true;
                !asked.goes
            }),
            Answers::Again => false,
            Answers::Nothing => true,
        }
    };
    let rest: Vec<Part> = message.parts.iter().filter(stays).cloned().collect();
    match rest.len() {
        0 => edited.replace(None),
        left if left == message.parts.len() => edited.keep(message),
        _ => edited.replace(Some(message.with_parts(rest))),
    }
}
