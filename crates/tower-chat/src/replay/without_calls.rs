//! Leaving calls out of a replay together with their results.

use tower_chat_core::{Message, Part, Role, ToolCall};

use super::{
    call_ids::{Place, call_ids},
    edited::{Editor, Edits, Walk},
    pairing::{Answers, Asked, answers, owed_call},
    round::{drop_trailing_reasoning, has_content},
};

/// What changes where some calls go, and the results of those. A round that loses all its calls
/// disappears; its text stays.
///
/// `goes` is asked about each call that is owed a result, with its message and its place among
/// the calls of that message.
pub(super) fn without_calls(
    messages: Walk<'_>,
    mut goes: impl FnMut(&Message, usize, &ToolCall) -> bool,
) -> Edits {
    let mut editor = Editor::default();
    let mut open = Round::Whole;
    let mut position = 0;
    let mut going = Vec::new();
    messages.for_each(|message| {
        position += 1;
        if message.role == Role::Tool {
            match &mut open {
                Round::Whole => editor.keep(),
                Round::Parted(calls) => push_results(&mut editor, message, calls),
                Round::Gone => push_unanswering(&mut editor, message),
            }
            return;
        }
        open = Round::Whole;
        going.clear();
        let calls = message.parts.iter().filter_map(|part| Some((part, owed_call(part)?)));
        going.extend(calls.enumerate().map(|(index, (part, call))| {
            matches!(part, Part::ToolCall(_)) && goes(message, index, call)
        }));
        if !going.contains(&true) {
            return editor.keep();
        }
        open = match going.contains(&false) {
            true => Round::Parted(asked_calls(message, position - 1, &going)),
            false => Round::Gone,
        };
        editor.replace(without_going(message, &going));
    });
    editor.into_edits()
}

/// What becomes of the results of a round.
enum Round<'a> {
    /// They stay.
    Whole,
    /// Those of some of its calls go.
    Parted(Vec<AskedCall<'a>>),
    /// They all go.
    Gone,
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
    if going.len() == message.parts.len() && !going.contains(&false) {
        return None;
    }
    let mut going = going.iter();
    let stays = |part: &&Part| owed_call(part).is_none() || going.next() != Some(&true);
    let mut parts: Vec<Part> = message.parts.iter().filter(stays).cloned().collect();
    drop_trailing_reasoning(&mut parts);
    let rest = message.with_parts(parts);
    has_content(&rest).then_some(rest)
}

fn push_results(editor: &mut Editor, message: &Message, calls: &mut [AskedCall<'_>]) {
    let stays = |part: &Part| {
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
    let staying: Vec<bool> = message.parts.iter().map(stays).collect();
    if !staying.contains(&false) {
        return editor.keep();
    }
    let rest = message.parts.iter().zip(&staying).filter(|(_, stays)| **stays);
    let rest: Vec<Part> = rest.map(|(part, _)| part.clone()).collect();
    editor.replace((!rest.is_empty()).then(|| message.with_parts(rest)));
}

/// A message of results of a round that goes: what else it holds stays.
fn push_unanswering(editor: &mut Editor, message: &Message) {
    let rest = message.parts.iter().filter(|part| part.as_tool_result().is_none());
    let rest: Vec<Part> = rest.cloned().collect();
    editor.replace((!rest.is_empty()).then(|| message.with_parts(rest)));
}
