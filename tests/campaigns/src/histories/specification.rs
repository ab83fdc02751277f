//! A sequential specification of a store.
//!
//! The specification is derived from the documentation of `HistoryStore` and `Write`, and shares no
//! code with the stores. The state covers all conversations of a history, since a fork copies one
//! conversation to another. The two conversations may be on different servers without a common
//! transaction. A fork therefore takes effect at two moments.

use std::collections::{BTreeMap, BTreeSet};

use todc_utils::specifications::Specification;

use super::conversation::{Conversation, Incarnation, Open};
use super::event::{
    AppendRequest, CloseSeen, MessageSeen, Request, Response, RevisionSeen, SummaryOutcome,
};

const ABSENT: RevisionSeen = RevisionSeen { incarnation: 0, sequence: 0 };

/// An operation with its answer, if the answer is known.
#[derive(Debug, Clone)]
pub(super) struct Operation {
    pub(super) step: Step,
    pub(super) request: Request,
    pub(super) response: Option<Response>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Whole,
    /// The fork with this number reads its source.
    Reads(u64),
    /// The fork with this number creates the copy.
    Creates(u64),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    conversations: Conversations,
    /// The copied turns of the sources that forks have read, by the numbers of the forks.
    forks: BTreeMap<u64, Option<Conversation>>,
}

type Conversations = BTreeMap<String, Conversation>;

/// The specification, in the form that the checker needs.
#[derive(Debug)]
pub(super) struct Store;

impl Specification for Store {
    type State = State;
    type Operation = std::sync::Arc<Operation>;

    fn init() -> State {
        State::default()
    }

    fn apply(operation: &Self::Operation, state: &State) -> (bool, State) {
        let mut after = state.clone();
        match allows(&mut after, operation) {
            true => (true, after),
            false => (false, state.clone()),
        }
    }
}

/// Returns whether the store may give this answer in this state, and updates the state.
fn allows(state: &mut State, operation: &Operation) -> bool {
    let (conversations, response) = (&mut state.conversations, operation.response.as_ref());
    match (&operation.request, operation.step) {
        (Request::Fork { from, before, .. }, Step::Reads(fork)) => {
            let finds_none = matches!(response, Some(Response::Forked { revision: ABSENT, .. }));
            let source = conversations.get(from);
            // A conversation with only staged messages does not exist for a fork. The contract does
            // not say whether an empty conversation exists.
            let may_exist = source.filter(|it| !it.messages.is_empty() || it.open.is_none());
            let copied = may_exist.filter(|it| !(finds_none && it.is_empty()));
            state.forks.insert(fork, copied.map(|source| source.turns_before(*before)));
            !(finds_none && copied.is_some())
        }
        (Request::Fork { to, .. }, Step::Creates(fork)) => {
            let read = state.forks.remove(&fork);
            read.is_some_and(|source| create_copy(conversations, source.as_ref(), to, response))
        }
        (request, _) => allows_whole(conversations, request, response),
    }
}

fn allows_whole(state: &mut Conversations, request: &Request, response: Option<&Response>) -> bool {
    match request {
        Request::Head { key } => match response {
            Some(Response::Head(head)) => read(state, key, |it| it.shows_head(head)),
            _ => false,
        },
        Request::Load { key } => match response {
            Some(Response::Loaded { head, messages }) => {
                read(state, key, |it| it.shows_head(head) && it.messages == *messages)
            }
            _ => false,
        },
        Request::OpenRun { key } => match response {
            Some(Response::OpenRun(content)) => read(state, key, |it| match (content, &it.open) {
                (None, open) => open.is_none(),
                (Some(content), Some(open)) => {
                    open.is(&content.open)
                        && open.staged == content.messages
                        && it.shows_head(&content.head)
                }
                (Some(_), None) => false,
            }),
            _ => false,
        },
        Request::Append(write) => append(state, write, response),
        Request::Prune { key, keep } => prune(state, key, *keep, response),
        Request::Delete { key } => delete(state, key, response),
        Request::Summarize(request) => {
            let outcome = match state.get_mut(&request.key) {
                Some(conversation) => conversation.add_summary(request),
                None => SummaryOutcome::NoSuchMessage,
            };
            response.is_none_or(|it| *it == Response::Summarized(outcome))
        }
        Request::Undo { key, summary } => {
            let is_undone = state.get_mut(key).is_some_and(|it| it.undo(*summary));
            response.is_none_or(|it| *it == Response::Undone(is_undone))
        }
        // A fork has two steps, handled above.
        Request::Fork { .. } => false,
    }
}

fn delete(state: &mut Conversations, key: &str, response: Option<&Response>) -> bool {
    let deleted = state.remove(key);
    // The contract does not say whether an empty conversation exists.
    let is_certain = deleted.as_ref().is_none_or(|it| !it.is_empty());
    match response {
        Some(Response::Deleted(was_there)) => !is_certain || *was_there == deleted.is_some(),
        None => true,
        Some(_) => false,
    }
}

fn read(
    state: &mut Conversations,
    key: &str,
    check: impl FnOnce(&mut Conversation) -> bool,
) -> bool {
    match state.get_mut(key) {
        Some(conversation) => check(conversation),
        None => check(&mut Conversation::absent()),
    }
}

/// Checks the answer to a write. The write is stored if the conversation has the expected revision
/// and admits the write. Otherwise, it is acknowledged if it is already stored, and refused if not.
fn append(state: &mut Conversations, write: &AppendRequest, response: Option<&Response>) -> bool {
    let mut conversation = state.get(&write.key).cloned().unwrap_or_else(Conversation::absent);
    let is_expected = conversation.is_at(write.expected);
    if is_expected && conversation.admits(write) {
        conversation.store(write);
        state.insert(write.key.clone(), conversation);
        return response.is_none_or(|it| *it == Response::Stored(write.result));
    }
    let repetition = repetition(&conversation, write);
    match response {
        None => true,
        Some(Response::Stored(revision)) => {
            repetition != Repetition::No && *revision == write.result
        }
        Some(Response::Conflict { found, open_run }) => {
            let allowed = repetition != Repetition::Yes
                && conversation.binds(*found)
                && conversation.open.as_ref().map(|open| &open.run) == open_run.as_ref();
            if let Some(stored) = state.get_mut(&write.key).filter(|_| allowed) {
                *stored = conversation;
            }
            allowed
        }
        Some(_) => false,
    }
}

#[derive(PartialEq, Eq)]
enum Repetition {
    Yes,
    /// The messages are stored at the same positions, but the incarnation has changed. The contract
    /// allows both answers.
    InAnotherIncarnation,
    No,
}

fn repetition(conversation: &Conversation, write: &AppendRequest) -> Repetition {
    let is_same = conversation.incarnation == Incarnation::Known(write.result.incarnation);
    if write.texts.is_empty() {
        // A write is identified by its first message. The repetition of a write without messages is
        // therefore recognised only until the next write.
        let is_stored = is_same && conversation.sequence == write.result.sequence;
        return if is_stored { Repetition::Yes } else { Repetition::No };
    }
    let messages = write.messages();
    let mut numbered = messages.iter().zip(write.expected.sequence + 1..);
    match numbered.all(|(message, number)| conversation.message(number) == Some(message)) {
        true if is_same => Repetition::Yes,
        true => Repetition::InAnotherIncarnation,
        false => Repetition::No,
    }
}

/// Creates a copy of the turns that the fork has read, with a new incarnation. The fork is refused
/// if the target exists.
fn create_copy(
    state: &mut Conversations,
    source: Option<&Conversation>,
    to: &str,
    response: Option<&Response>,
) -> bool {
    let target = state.get(to);
    let (is_there, may_be_there) = (target.is_some_and(|it| !it.is_empty()), target.is_some());
    let (incarnation, pruned) = match (response, source) {
        (Some(Response::Exists), _) => return may_be_there,
        (None, Some(source)) if !may_be_there => {
            (Incarnation::Unknown { not: source.incarnation.number() }, source.pruned)
        }
        (None, _) => return true,
        (Some(Response::Forked { revision, position }), None) => {
            return *revision == ABSENT && *position == 0;
        }
        (Some(Response::Forked { revision, position }), Some(source)) => {
            if *position != source.sequence {
                return false;
            }
            let incarnation = Incarnation::Known(revision.incarnation);
            let is_own = revision.incarnation != 0 && source.incarnation != incarnation;
            // The copy of a pruned conversation numbers its messages as the source does, or from 1.
            let pruned = revision.sequence.checked_sub(source.messages.len() as u64);
            let pruned = pruned.filter(|it| [0, source.pruned].contains(it));
            match pruned {
                Some(pruned) if is_own && !is_there => (incarnation, pruned),
                Some(_) | None => return false,
            }
        }
        (Some(_), _) => return false,
    };
    let messages = source.map(|source| source.messages.clone()).unwrap_or_default();
    let sequence = pruned + messages.len() as u64;
    let copy =
        Conversation { incarnation, sequence, pruned, messages, open: None, summaries: Vec::new() };
    state.insert(to.to_owned(), copy);
    true
}

/// Removes the oldest runs completely, but never the last run.
fn prune(state: &mut Conversations, key: &str, keep: u64, response: Option<&Response>) -> bool {
    let nothing = Response::Pruned { runs: 0, messages: 0 };
    let Some(conversation) = state.get_mut(key) else {
        return response.is_none_or(|it| *it == nothing);
    };
    if let Some(Open { run, .. }) = &conversation.open {
        let under_way = Response::UnderWay { run: run.clone() };
        return response.is_none_or(|it| *it == under_way);
    }
    let removed = pruned_messages(&conversation.messages, keep);
    let messages = removed.len() as u64;
    let runs = removed.iter().map(|message| &message.run).collect::<BTreeSet<_>>().len() as u64;
    if messages > 0 {
        conversation.prune(removed.len());
    }
    response.is_none_or(|it| *it == Response::Pruned { runs, messages })
}

/// Returns the messages that a prune removes: as many as possible, while at least `keep` messages
/// and the last run remain, and no run is divided.
fn pruned_messages(messages: &[MessageSeen], keep: u64) -> Vec<MessageSeen> {
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let Some(last) = messages.last() else { return Vec::new() };
    let divides = |cut: usize| {
        let (before, after) = messages.split_at(cut);
        before.iter().any(|one| after.iter().any(|other| one.run == other.run))
    };
    let max = messages.len().saturating_sub(keep);
    let cut = (0..=max).rev().find(|cut| {
        !divides(*cut) && messages.split_at(*cut).0.iter().all(|message| message.run != last.run)
    });
    messages.iter().take(cut.unwrap_or(0)).cloned().collect()
}

impl AppendRequest {
    pub(super) fn messages(&self) -> Vec<MessageSeen> {
        let message = |(text, index): (&String, u32)| MessageSeen {
            run: self.run.clone(),
            index,
            text: text.clone(),
        };
        self.texts.iter().zip(self.index..).map(message).collect()
    }

    /// Returns how the write ends the open run, if it does.
    pub(super) fn close(&self) -> Option<CloseSeen> {
        self.staged.and_then(|staged| staged.close)
    }
}
