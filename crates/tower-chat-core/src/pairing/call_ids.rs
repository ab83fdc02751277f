//! Ids for calls that came without one, or with that of a sibling.

use std::{borrow::Cow, collections::HashSet};

use super::{AnswerKey, asked_call, given_id};
use crate::{CallPosition, Message, MessageId, RunId, ToolCall};

/// The ids by which the tool calls of a message are answered that is an answer by itself, without
/// copies of those that calls came with.
pub fn ids_of_calls(message: &Message) -> Vec<Cow<'_, str>> {
    let calls = message.parts.iter().filter_map(asked_call);
    call_ids(calls, IdBase::of(message, 0), 0, &HashSet::new())
}

/// Where a message stands: by its id, or by its position where it has none yet.
#[derive(Debug, Clone, Copy)]
pub enum IdBase {
    /// Under this id.
    Id(MessageId),
    /// At this position.
    Position(usize),
}

impl IdBase {
    /// Of a message at a position.
    pub fn of(message: &Message, position: usize) -> Self {
        message.id.map_or(Self::Position(position), Self::Id)
    }

    /// How results name a call of the message. The run of a message without an id is one that no run
    /// has.
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

/// The ids by which the calls of one answer are answered, message by message: all different, also
/// where calls of two of its messages came with the same id.
///
/// A call keeps the id it came with. One that came with none, with an empty one, or with that of a
/// call before it in the answer, which providers refuse, gets an id made of the message's position,
/// so that every replay shows the same id on the call and its result. Generated ids use `[a-z0-9_]`
/// and have at most 40 characters, the longest id that OpenAI's Chat Completions API takes.
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
    /// The answer, once a message was taken; `None` if that was not the model's.
    answer: Option<AnswerKey>,
    /// The ids of the calls of the messages before.
    taken: HashSet<String>,
}

impl AnswerIds {
    /// Whether a message belongs to the same answer as the ones taken so far.
    pub fn is_continued_by(&self, key: Option<AnswerKey>) -> bool {
        key.is_some() && self.answer == key
    }

    /// The ids of the calls of the next message of a conversation. One that does not belong to the
    /// answer so far begins another.
    pub fn next<'m>(&mut self, message: &'m Message) -> Vec<Cow<'m, str>> {
        let calls = message.parts.iter().filter_map(asked_call);
        self.next_calls(AnswerKey::of(message), calls, IdBase::of(message, 0), 0)
    }

    /// The ids of the calls of the next message, or of a piece of one, before which `first` calls
    /// of the message stand.
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

/// The ids by which calls of one message are answered, all different, and none of those that are
/// taken; `first` calls of the message stand before them.
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

/// Whether each of the calls has an id, and none that of another.
pub fn have_distinct_ids<'a>(calls: impl Iterator<Item = &'a ToolCall> + Clone) -> bool {
    /// More calls than a message has as a rule.
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
