//! Marks messages, calls and results with their stored positions, and finds the marks in the output
//! of a replay.
//!
//! A *replay* converts the stored messages to those of a request, in several *steps*.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;
use tower_chat_core::{Message, Messages, Native, Part, RawJson, Role, pairing::asked_call};
use tower_chat_layers::replay::INTERRUPTED;

/// The metadata key of the mark of a message. The mark of a part is a native item (a part in the
/// provider's own format) with this name as its format.
const TAG: &str = "tower-chat.explained";

/// The index of a message in the stored messages, and the index of a part in the message.
pub(crate) type Position = (usize, usize);

/// Returns a copy of a message with marks on its calls and results. The mark replaces the native
/// item of the part, which a replay does not read.
pub(crate) fn tagged_parts(message: &Message, position: usize) -> Message {
    let mut tagged = message.clone();
    for (index, part) in tagged.parts.iter_mut().enumerate() {
        if let Some(native) = tagged_native(part) {
            *native = tag_of((position, index));
        }
    }
    tagged
}

pub(crate) fn tag(message: &mut Message, position: usize) {
    message.metadata.insert(TAG.to_owned(), Value::from(position));
}

/// Returns a copy of a message without marks, in which the calls and results have their stored
/// native items again.
pub(crate) fn untagged(message: &Message, stored: &Messages) -> Message {
    let mut message = message.clone();
    message.metadata.remove(TAG);
    for part in &mut message.parts {
        let Some(native) = tagged_native(part) else { continue };
        if let Some((number, index)) = native.as_ref().and_then(position_of) {
            let original = stored.get(number).and_then(|message| message.parts.get(index));
            *native = original.and_then(|part| tagged_native(&mut part.clone()).cloned()).flatten();
        }
    }
    message
}

/// Restores the marks after a step that changes messages and parts, but neither adds nor removes
/// any. `before` and `after` are the messages before and after the step. Returns the messages of
/// `after` with the marks of `before`, and the stored positions of the changed parts.
pub(crate) fn tagged_like(before: &Messages, after: &Messages) -> (Messages, Vec<Position>) {
    let mut changed = Vec::new();
    let messages = before.iter().zip(after.iter()).map(|(before, after)| {
        let mut tagged = after.clone();
        for (index, part) in before.parts.iter().enumerate() {
            let is_changed = after.parts.get(index).is_some_and(|it| it != part);
            let position =
                position_of_part(part).or_else(|| Some((position_of_message(before)?, index)));
            let Some(position) = position.filter(|_| is_changed) else { continue };
            changed.push(position);
            let part = Arc::make_mut(&mut tagged).parts.get_mut(index);
            if let Some(native) = part.and_then(tagged_native) {
                *native = tag_of(position);
            }
        }
        tagged
    });
    let messages = messages.collect();
    (messages, changed)
}

/// The stored messages and parts that are sent.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    messages: BTreeSet<usize>,
    parts: BTreeSet<Position>,
    /// The calls that are sent with a result that is in no stored message. The value is `true` if
    /// the result reports an interruption.
    pub(crate) completed: BTreeMap<Position, bool>,
    /// The messages and parts that are sent at another position than the stored one. An entry is
    /// the index of the message, and the index of the part, or `None` for the whole message.
    pub(crate) moved: BTreeSet<(usize, Option<usize>)>,
}

impl Sent {
    /// Finds the marks in the messages that a replay sends.
    pub(crate) fn of(view: &Messages) -> Self {
        let mut sent = Self::default();
        let mut open: HashMap<&str, Position> = HashMap::new();
        let mut order = Vec::new();
        for message in view.iter() {
            let own = position_of_message(message);
            sent.messages.extend(own);
            order.extend(own.map(|own| (own, None)));
            if message.role != Role::Tool {
                open.clear();
            }
            for part in &message.parts {
                match (part, position_of_part(part)) {
                    (_, Some(position)) => {
                        sent.messages.insert(position.0);
                        sent.parts.insert(position);
                        order.extend(
                            (own != Some(position.0)).then_some((position.0, Some(position.1))),
                        );
                        let id = asked_call(part).and_then(|call| call.id.as_deref());
                        open.extend(id.map(|id| (id, position)));
                    }
                    (Part::ToolResult(result), None) => {
                        let call = result.call_id.as_deref().and_then(|id| open.get(id));
                        let is_interrupted = result.is_error && result.text() == INTERRUPTED;
                        sent.completed.extend(call.map(|call| (*call, is_interrupted)));
                    }
                    _ => {}
                }
            }
        }
        sent.moved.extend(moved(&order));
        sent
    }

    pub(crate) fn has_message(&self, position: usize) -> bool {
        self.messages.contains(&position)
    }

    pub(crate) fn has_part(&self, position: Position) -> bool {
        self.parts.contains(&position)
    }
}

/// Returns the messages and parts that are sent at another position than the stored one. `order`
/// lists, as they are sent, all messages, and the parts that are sent in another message than the
/// stored one. If a part and a message have changed their order, the function returns the part, and
/// not the message.
fn moved(order: &[(usize, Option<usize>)]) -> BTreeSet<(usize, Option<usize>)> {
    let mut moved = BTreeSet::new();
    let mut greatest = 0;
    for (message, part) in order {
        if part.is_some() && *message < greatest {
            moved.insert((*message, *part));
        }
        greatest = greatest.max(*message);
    }
    let mut least = usize::MAX;
    for (message, part) in order.iter().rev().filter(|it| !moved.contains(it)).collect::<Vec<_>>() {
        if *message > least {
            moved.insert((*message, *part));
        }
        least = least.min(*message);
    }
    moved
}

fn tag_of((message, part): Position) -> Option<Native> {
    let item: RawJson = format!("[{message},{part}]").parse().ok()?;
    Some(Native::new(TAG, item))
}

fn position_of(native: &Native) -> Option<Position> {
    native.item.parse().ok().filter(|_| &*native.wire == TAG)
}

fn position_of_message(message: &Message) -> Option<usize> {
    usize::try_from(message.metadata.get(TAG)?.as_u64()?).ok()
}

/// Returns the position in the mark of a part. Approval requests are not read, because
/// a replay sends them as calls.
fn position_of_part(part: &Part) -> Option<Position> {
    match part {
        Part::ToolCall(call) => call.native.as_ref().and_then(position_of),
        Part::ToolResult(result) => result.native.as_ref().and_then(position_of),
        _ => None,
    }
}

/// Returns the native item of a part that can have a mark.
fn tagged_native(part: &mut Part) -> Option<&mut Option<Native>> {
    match part {
        Part::ToolCall(call) => Some(&mut call.native),
        Part::ApprovalRequest(request) => Some(&mut request.call.native),
        Part::ToolResult(result) => Some(&mut result.native),
        _ => None,
    }
}
