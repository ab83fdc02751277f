//! Ids for calls that came without one, or with that of a sibling.

use std::{borrow::Cow, collections::HashSet, vec};

use tower_chat_core::{Message, Role, RunId, ToolCall};

use super::pairing::pending_call;

/// The ids by which the tool calls of a message are answered, in the order of
/// [`Message::asked_calls`].
///
/// A call keeps the id it came with. One that came with none, with an empty one, or with that of a
/// call before it in the message, which providers refuse, gets an id made of the message's position,
/// so that every replay shows the same id on the call and its result. Generated ids use `[a-z0-9_]` and
/// have at most 40 characters, the longest id that OpenAI's Chat Completions API takes.
///
/// Where the model answered with several messages, a call that shares its id with a call of an
/// earlier one of them has a generated id too, which this function cannot tell from one message.
pub fn effective_call_ids(message: &Message) -> Vec<String> {
    ids_of_calls(message).map(Cow::into_owned).collect()
}

/// The [`effective_call_ids`] without copies of those that calls came with.
pub(crate) fn ids_of_calls(message: &Message) -> impl Iterator<Item = Cow<'_, str>> {
    let calls = message.parts.iter().filter_map(pending_call);
    call_ids(calls, IdBase::of(message, 0), 0, &HashSet::new())
}

/// Where a message stands: by its id, or by its position where it has none yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdBase {
    Id(tower_chat_core::MessageId),
    Position(usize),
}

impl IdBase {
    pub(super) fn of(message: &Message, position: usize) -> Self {
        message.id.map_or(Self::Position(position), Self::Id)
    }
}

/// The ids by which the calls of one answer are answered, message by message: all different, also
/// where calls of two of its messages came with the same id.
#[derive(Debug, Clone, Default)]
pub(crate) struct AnswerIds {
    /// The run whose answer it is, once a message was taken.
    run: Option<Option<RunId>>,
    /// The ids of the calls of the messages before.
    taken: HashSet<String>,
}

impl AnswerIds {
    /// Whether a message belongs to the same answer as the ones taken so far: consecutive messages
    /// of the model that one run has added.
    pub(super) fn is_continued_by(&self, role: Role, run: Option<RunId>) -> bool {
        role == Role::Assistant && self.run == Some(run)
    }

    /// The ids of the calls of the next message of a conversation. One that does not belong to the
    /// answer so far begins another.
    pub(crate) fn next<'m>(&mut self, message: &'m Message) -> Vec<Cow<'m, str>> {
        let calls = message.parts.iter().filter_map(pending_call);
        let run = message.id.map(|id| id.run);
        self.next_calls(message.role, run, calls, IdBase::of(message, 0), 0)
    }

    /// The ids of the calls of the next message, or of a piece of one, before which `first` calls
    /// of the message stand.
    pub(super) fn next_calls<'m>(
        &mut self,
        role: Role,
        run: Option<RunId>,
        calls: impl Iterator<Item = &'m ToolCall> + Clone,
        base: IdBase,
        first: usize,
    ) -> Vec<Cow<'m, str>> {
        if !self.is_continued_by(role, run) {
            self.taken.clear();
        }
        self.run = (role == Role::Assistant).then_some(run);
        let ids: Vec<_> = call_ids(calls, base, first, &self.taken).collect();
        self.taken.extend(ids.iter().map(|id| id.clone().into_owned()));
        ids
    }
}

/// The ids by which calls of one message are answered, all different, and none of those that are
/// taken; `first` calls of the message stand before them.
pub(super) fn call_ids<'a, I: Iterator<Item = &'a ToolCall> + Clone>(
    calls: I,
    base: IdBase,
    first: usize,
    taken_before: &HashSet<String>,
) -> impl Iterator<Item = Cow<'a, str>> + use<'a, I> {
    let is_free = |id: &str| !taken_before.contains(id);
    if have_distinct_ids(calls.clone())
        && (taken_before.is_empty() || calls.clone().filter_map(given_id).all(is_free))
    {
        return CallIds::Given(calls);
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
    let ids: Vec<String> = (first..).zip(calls).map(id).collect();
    CallIds::Made(ids.into_iter())
}

enum CallIds<I> {
    /// Each call has one that is its own.
    Given(I),
    Made(vec::IntoIter<String>),
}

impl<'a, I: Iterator<Item = &'a ToolCall>> Iterator for CallIds<I> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        match self {
            Self::Given(calls) => calls.next().and_then(given_id).map(Cow::Borrowed),
            Self::Made(ids) => ids.next().map(Cow::Owned),
        }
    }
}

/// Whether each of the calls has an id, and none that of another.
pub(super) fn have_distinct_ids<'a>(calls: impl Iterator<Item = &'a ToolCall> + Clone) -> bool {
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

fn given_id(call: &ToolCall) -> Option<&str> {
    call.id.as_deref().filter(|id| !id.is_empty())
}

fn generated_id(base: IdBase, index: usize) -> String {
    match base {
        IdBase::Id(id) => format!("call_{:016x}_{}_{index}", id.run.random_half(), id.index),
        IdBase::Position(position) => format!("call_{position}_{index}"),
    }
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{MessageId, RunId};

    use super::*;

    #[test]
    fn a_call_keeps_the_id_it_came_with() {
        let message = Message::tool_calls([ToolCall::new("call_7", "a", "{}")]);
        assert_eq!(effective_call_ids(&message), ["call_7"]);
    }

    #[test]
    fn missing_and_empty_ids_are_generated_distinct_and_stable() {
        let calls = [ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")];
        let mut message = Message::tool_calls(calls);
        message.id = Some(MessageId { run: RunId::new(), index: u32::MAX });
        let ids = effective_call_ids(&message);
        assert_eq!(ids, effective_call_ids(&message));
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| id.len() <= 40), "{ids:?}");
    }

    #[test]
    fn calls_of_one_message_never_share_an_id() {
        let ids = ["x", "x", "call_0_1", ""];
        let message = Message::tool_calls(ids.map(|id| ToolCall::new(id, "look", "{}")));
        assert_eq!(effective_call_ids(&message), ["x", "call_0_1_1", "call_0_1", "call_0_3"]);
        assert!(!have_distinct_ids(message.parts.iter().filter_map(pending_call)));
        let calls: Vec<ToolCall> =
            (0..40).map(|id| ToolCall::new(id.to_string(), "look", "{}")).collect();
        assert!(have_distinct_ids(calls.iter()) && have_distinct_ids(calls[..3].iter()));
        assert!(!have_distinct_ids(calls.iter().chain(&calls[..1])));
        assert!(!have_distinct_ids(calls[..2].iter().chain(&calls[..1])));
    }
}
