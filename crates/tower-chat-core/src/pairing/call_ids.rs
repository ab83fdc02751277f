//! Ids for calls that have no id, or that have the id of another call of the same answer.

use std::{borrow::Cow, collections::HashSet};

use super::{AnswerKey, asked_call, given_id};
use crate::{CallPosition, Message, MessageId, RunId, ToolCall};

/// Returns the ids by which results refer to the tool calls of a message that is the only message
/// of its answer. An id that the call already has is borrowed from the message.
pub fn ids_of_calls(message: &Message) -> Vec<Cow<'_, str>> {
    let calls = message.parts.iter().filter_map(asked_call);
    call_ids(calls, IdBase::of(message, 0), 0, &HashSet::new())
}

/// The position of a message: its id, or its index if it has no id yet. The generated ids of the
/// calls of the message depend on this position.
#[derive(Debug, Clone, Copy)]
pub enum IdBase {
    /// The id of the message.
    Id(MessageId),
    /// The index of the message.
    Position(usize),
}

impl IdBase {
    /// Returns the position of a message with this index.
    pub fn of(message: &Message, position: usize) -> Self {
        message.id.map_or(Self::Position(position), Self::Id)
    }

    /// Returns the position by which results refer to a call of the message. If the message has no
    /// id, the position contains the index of the message, and a run id that no run has.
    pub fn call_position(self, index: usize) -> CallPosition {
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let message = match self {
            Self::Id(id) => id,
            Self::Position(position) => {
                MessageId { run: RunId::from_bytes([0; 16]), index: small(position) }
            }
        };
        CallPosition { message, index: small(index) }
    }
}

/// Assigns the ids by which results refer to the calls of one answer, message by message. All ids
/// are different, even if calls in two messages of the answer have the same id.
///
/// A call keeps its own id, unless this id is missing, empty or the id of an earlier call of the
/// answer. Providers refuse such calls, so that the call gets a generated id instead. The generated
/// id is computed from the position of the message. Each time the history is sent to a model, the
/// call and its result therefore have the same id. A generated id consists of `[a-z0-9_]` and has
/// at most 40 characters, the maximum of OpenAI's Chat Completions API.
///
/// ```
/// use tower_chat_core::{Message, ToolCall, pairing::AnswerIds};
/// let [one, two] = ["one", "two"].map(|name| Message::tool_calls([ToolCall::new("c", name, "{}")]));
/// let mut ids = AnswerIds::default();
/// assert_eq!(ids.next(&one), ["c"]);
/// assert_ne!(ids.next(&two), ["c"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct AnswerIds {
    /// The key of the current answer, which is the key of the previous message. `None` before the
    /// first message, and if the previous message is not a message of the model.
    answer: Option<AnswerKey>,
    /// The ids of the calls in the earlier messages of the current answer.
    taken: HashSet<String>,
}

impl AnswerIds {
    /// Returns whether a message with this key belongs to the current answer.
    pub fn is_continued_by(&self, key: Option<AnswerKey>) -> bool {
        key.is_some() && self.answer == key
    }

    /// Returns the ids of the calls in the next message of a conversation. A message that does not
    /// belong to the current answer begins another answer.
    pub fn next<'m>(&mut self, message: &'m Message) -> Vec<Cow<'m, str>> {
        let calls = message.parts.iter().filter_map(asked_call);
        self.next_calls(AnswerKey::of(message), calls, IdBase::of(message, 0), 0)
    }

    /// Returns the ids of the calls in the next message, or in a piece of a message whose earlier
    /// pieces contain `first` calls.
    pub fn next_calls<'m>(
        &mut self,
        key: Option<AnswerKey>,
        calls: impl Iterator<Item = &'m ToolCall> + Clone,
        base: IdBase,
        first: usize,
    ) -> Vec<Cow<'m, str>> {
        if !self.is_continued_by(key) {
            self.taken.clear();
        }
        self.answer = key;
        let ids = call_ids(calls, base, first, &self.taken);
        self.taken.extend(ids.iter().map(|id| id.clone().into_owned()));
        ids
    }
}

/// Returns the ids by which results refer to the calls of one message. All of these ids are
/// different, and none of them is in `taken`. Earlier pieces of the message contain `first` calls.
fn call_ids<'a>(
    calls: impl Iterator<Item = &'a ToolCall> + Clone,
    base: IdBase,
    first: usize,
    taken_before: &HashSet<String>,
) -> Vec<Cow<'a, str>> {
    let is_free = |id: &str| !taken_before.contains(id);
    if have_distinct_ids(calls.clone())
        && (taken_before.is_empty() || calls.clone().filter_map(given_id).all(is_free))
    {
        return calls.filter_map(given_id).map(Cow::Borrowed).collect();
    }
    let given: HashSet<&str> = calls.clone().filter_map(given_id).collect();
    let mut taken: HashSet<String> = HashSet::new();
    let mut take = |id: &str| !taken_before.contains(id) && taken.insert(id.to_owned());
    let id = |(index, call): (usize, &'a ToolCall)| {
        if let Some(id) = given_id(call).filter(|id| take(id)) {
            return id.to_owned();
        }
        let generated = generated_id(base, index);
        let mut id = generated.clone();
        let mut more = 0_usize;
        while given.contains(id.as_str()) || !take(&id) {
            more += 1;
            id = format!("{generated}_{more}");
        }
        id
    };
    (first..).zip(calls).map(id).map(Cow::Owned).collect()
}

/// Returns whether every call has an id, and all ids are different.
pub fn have_distinct_ids<'a>(calls: impl Iterator<Item = &'a ToolCall> + Clone) -> bool {
    /// The maximum number of calls that are compared without a hash set. Few messages have more
    /// calls.
    const MANY: usize = 16;
    let mut rest = calls.clone();
    let first = rest.next();
    if rest.next().is_none() {
        return first.is_none_or(|only| given_id(only).is_some());
    }
    if calls.clone().any(|call| given_id(call).is_none()) {
        return false;
    }
    if calls.clone().nth(MANY).is_some() {
        let mut seen = HashSet::new();
        return calls.filter_map(given_id).all(|id| seen.insert(id));
    }
    let before = |index| calls.clone().take(index);
    calls.clone().enumerate().all(|(index, call)| before(index).all(|other| other.id != call.id))
}

fn generated_id(base: IdBase, index: usize) -> String {
    match base {
        IdBase::Id(id) => format!("call_{:016x}_{}_{index}", id.run.random_half(), id.index),
        IdBase::Position(position) => format!("call_{position}_{index}"),
    }
}
