//! Reduces messages to atoms: the smallest parts that a tool loop repeats as a unit. Atoms do not
//! depend on the loop's message types.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{
    MediaSource, Message, MessageId, Part, Role, RunId,
    pairing::{AnswerKey, ids_of_calls, is_marked_ended},
};

use crate::{
    run::{hooks_were_called, is_marked_interrupted},
    transcript::{approval, is_system, media_source},
};

pub(super) struct Atoms<'m> {
    pub(super) all: Vec<Atom<'m>>,
    open_calls: Vec<Call<'m>>,
    /// Whether the final answer is marked as the end of its run, or waits for approval.
    pub(super) is_ended: bool,
}

/// The smallest part of a transcript that a loop sends or repeats as a unit.
pub(super) struct Atom<'m> {
    /// The position of the atom's first message.
    pub(super) message: usize,
    /// The position of the atom's last message.
    pub(super) last: usize,
    ids: Vec<MessageId>,
    pub(super) content: Content<'m>,
    /// Whether a loop may omit the atom when it repeats stored messages.
    pub(super) is_optional: bool,
}

pub(super) enum Content<'m> {
    System(&'m Message),
    User {
        text: &'m Message,
        media: Vec<&'m MediaSource>,
    },
    /// For each decision, the id of the approval request, whether it was approved, and the
    /// arguments.
    Approvals(Vec<(&'m str, bool, Option<&'m str>)>),
    /// The messages of one answer, which a loop may have joined into one message.
    Answer(Vec<Utterance<'m>>),
    /// One result, identified by the id of its call. A loop may send several results in one
    /// message.
    Result(Option<&'m str>),
}

/// One message of an answer.
pub(super) struct Utterance<'m> {
    message: &'m Message,
    calls: Vec<Call<'m>>,
    /// Whether the `persist` hook of a tool may have removed calls of the message.
    lacks_calls: bool,
    /// Whether the message is a partial response, whose stream ended early.
    is_partial: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Call<'m> {
    id: Option<&'m str>,
    /// The id that is unique in the message.
    unique_id: Cow<'m, str>,
    name: &'m str,
}

impl<'m> Atoms<'m> {
    /// Returns the atoms of a request, without answers that have neither text nor calls.
    pub(super) fn of_request(messages: &[&'m Arc<Message>]) -> Self {
        let mut atoms = Self::of(messages);
        atoms.all.retain(|atom| !matches!(atom.content, Content::Answer(_)) || atom.is_statement());
        atoms
    }

    fn of(messages: &[&'m Arc<Message>]) -> Self {
        let mut all: Vec<Atom<'m>> = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            push_atoms(&mut all, position, message);
        }
        let open_calls = open_calls(&all);
        let last = messages.iter().rev().find(|message| is_statement(message));
        let is_ended = last.is_some_and(|last| is_ended(last));
        Self { all, open_calls, is_ended }
    }

    /// Returns the atoms of stored messages, and marks those that a loop may omit: system messages,
    /// approvals, assistant messages without content, partial responses, user messages that are
    /// followed by another user message, and answers whose calls have no results.
    pub(super) fn of_stored(messages: &[&'m Arc<Message>]) -> Self {
        let mut atoms = Self::of(messages);
        let mut is_before_user = false;
        let mut is_before_result = true;
        for atom in atoms.all.iter_mut().rev() {
            let is_user = matches!(atom.content, Content::User { .. });
            atom.is_optional = match &atom.content {
                Content::System(_) | Content::Approvals(_) => true,
                Content::User { .. } => is_before_user,
                Content::Answer(uttered) => {
                    let is_cut_off = uttered.iter().any(|uttered| !uttered.calls.is_empty());
                    !atom.is_statement()
                        || uttered.iter().all(|uttered| uttered.is_partial)
                        || (is_cut_off && !is_before_result)
                }
                Content::Result(_) => false,
            };
            if !atom.is_optional {
                is_before_user = is_user;
            }
            if !matches!(atom.content, Content::System(_)) {
                is_before_result = matches!(atom.content, Content::Result(_));
            }
        }
        atoms
    }

    /// Returns whether the request contains the id of a stored message.
    pub(super) fn names_some_of(&self, stored: &Atoms<'_>) -> bool {
        let mut ids = self.all.iter().flat_map(|atom| &atom.ids).peekable();
        ids.peek().is_some() && {
            let stored = stored.ids();
            ids.any(|id| stored.contains(id))
        }
    }

    pub(super) fn ids(&self) -> HashSet<MessageId> {
        self.all.iter().flat_map(|atom| &atom.ids).copied().collect()
    }

    /// Returns whether the atoms begin with results that answer different open calls, and contain
    /// no answer.
    pub(super) fn has_open_calls_for(&self, atoms: &[Atom<'_>]) -> bool {
        let results = atoms.iter().take_while(|atom| atom.is_result());
        let mut open: Vec<&Call<'_>> = self.open_calls.iter().collect();
        let mut count = 0;
        for atom in results {
            let Content::Result(id) = atom.content else { continue };
            let Some(position) = open.iter().position(|call| call.is_answered_by(id)) else {
                return false;
            };
            open.remove(position);
            count += 1;
        }
        count > 0 && atoms.iter().skip(count).all(Atom::is_of_caller)
    }

    pub(super) fn first_of(&self, run: RunId) -> Option<usize> {
        self.all.iter().position(|atom| atom.ids.iter().any(|id| id.run == run))
    }

    pub(super) fn last_user(&self) -> Option<usize> {
        self.all.iter().rposition(|atom| matches!(atom.content, Content::User { .. }))
    }

    /// Returns whether the conversation ends with an answer that has no open calls.
    pub(super) fn is_answered(&self) -> bool {
        let last = self.all.iter().rev().find(|atom| !atom.is_optional);
        last.is_some_and(Atom::is_statement) && (self.open_calls.is_empty() || self.is_ended)
    }

    pub(super) fn has_statement_of(&self, request: &Atoms<'_>) -> bool {
        let mut sent = request.all.iter().filter(|atom| atom.is_statement());
        sent.any(|sent| self.all.iter().any(|stored| stored.is_repeated_by(sent)))
    }
}

fn push_atoms<'m>(all: &mut Vec<Atom<'m>>, position: usize, message: &'m Message) {
    let ids: Vec<MessageId> = message.id.into_iter().collect();
    if is_answer(message)
        && let Some(Atom { last, ids: known, content: Content::Answer(answer), .. }) =
            all.last_mut()
    {
        *last = position;
        known.extend(ids);
        answer.push(Utterance::of(message));
        return;
    }
    let mut push = |content| {
        let (message, last, ids) = (position, position, ids.clone());
        all.push(Atom { message, last, ids, content, is_optional: false });
    };
    if is_system(message) {
        return push(Content::System(message));
    }
    if is_answer(message) {
        return push(Content::Answer(vec![Utterance::of(message)]));
    }
    let mut has_results = false;
    for result in message.results() {
        has_results = true;
        push(Content::Result(result.call_id.as_deref().filter(|id| !id.is_empty())));
    }
    let media: Vec<_> = message.parts.iter().filter_map(media_source).collect();
    let approvals: Vec<_> = message.parts.iter().filter_map(approval).collect();
    let has_text = texts(message).next().is_some();
    if has_text || !media.is_empty() {
        push(Content::User { text: message, media });
    } else if !approvals.is_empty() {
        push(Content::Approvals(approvals));
    } else if !has_results && message.role != Role::Tool {
        push(Content::User { text: message, media });
    }
}

/// Returns the calls of the last answer that have no result after this answer.
fn open_calls<'m>(all: &[Atom<'m>]) -> Vec<Call<'m>> {
    let answer = all.iter().enumerate().rev().find_map(|(position, atom)| match &atom.content {
        Content::Answer(uttered) => Some((position, uttered)),
        Content::System(_) | Content::User { .. } | Content::Approvals(_) | Content::Result(_) => {
            None
        }
    });
    let Some((last, uttered)) = answer else { return Vec::new() };
    // Earlier answers with calls without results were interrupted.
    let mut answers =
        uttered.chunk_by(|before, next| AnswerKey::is_shared(before.message, next.message));
    let uttered = answers.next_back().unwrap_or_default();
    let mut open: Vec<Call<'m>> =
        uttered.iter().flat_map(|uttered| uttered.calls.iter().cloned()).collect();
    for atom in all.iter().skip(last + 1) {
        let Content::Result(id) = atom.content else { continue };
        if let Some(position) = open.iter().position(|call| call.is_answered_by(id)) {
            open.remove(position);
        }
    }
    open
}

impl Atom<'_> {
    pub(super) fn is_result(&self) -> bool {
        matches!(self.content, Content::Result(_))
    }

    pub(super) fn is_statement(&self) -> bool {
        match &self.content {
            Content::Answer(uttered) => uttered.iter().any(|uttered| is_statement(uttered.message)),
            Content::System(_)
            | Content::User { .. }
            | Content::Approvals(_)
            | Content::Result(_) => false,
        }
    }

    pub(super) fn is_of_caller(&self) -> bool {
        !self.is_result() && !matches!(self.content, Content::Answer(_))
    }

    /// Returns whether all stored ids of `sent` belong to this atom.
    pub(super) fn is_named_by(&self, sent: &Atom<'_>, stored: &HashSet<MessageId>) -> bool {
        let mut named = sent.ids.iter().filter(|id| stored.contains(id));
        named.all(|id| self.ids.contains(id))
    }

    pub(super) fn is_repeated_by(&self, sent: &Atom<'_>) -> bool {
        match (&self.content, &sent.content) {
            (Content::System(stored), Content::System(sent)) => have_same_text(stored, sent),
            (
                Content::User { text: stored, media },
                Content::User { text: sent, media: sent_media },
            ) => media == sent_media && have_same_text(stored, sent),
            (Content::Approvals(stored), Content::Approvals(sent)) => stored == sent,
            (Content::Answer(stored), Content::Answer(sent)) => is_same_answer(stored, sent),
            (Content::Result(stored), Content::Result(sent)) => match (stored, sent) {
                (Some(stored), Some(sent)) => stored == sent,
                _ => true,
            },
            _ => false,
        }
    }

    /// Returns whether a result of a request answers a call that a hook has removed.
    pub(super) fn lacks_call_of(&self, sent: &Atom<'_>) -> bool {
        let (Content::Answer(uttered), Content::Result(id)) = (&self.content, &sent.content) else {
            return false;
        };
        let answered =
            uttered.iter().flat_map(|uttered| &uttered.calls).any(|call| call.is_answered_by(*id));
        uttered.iter().any(|uttered| uttered.lacks_calls) && !answered
    }
}

impl<'m> Utterance<'m> {
    fn of(message: &'m Message) -> Self {
        let ids = ids_of_calls(message);
        let calls = message.asked_calls().zip(ids).map(|(call, unique_id)| {
            let id = call.id.as_deref().filter(|id| !id.is_empty());
            Call { id, unique_id, name: &call.name }
        });
        Self {
            message,
            calls: calls.collect(),
            lacks_calls: hooks_were_called(message),
            is_partial: is_marked_interrupted(message),
        }
    }
}

impl Call<'_> {
    fn is_answered_by(&self, result: Option<&str>) -> bool {
        match (self.id, result) {
            (Some(id), Some(result)) => id == result || self.unique_id == result,
            _ => true,
        }
    }

    fn is_repeated_by(&self, sent: &Call<'_>) -> bool {
        self.name == sent.name && self.is_answered_by(sent.id)
    }
}

/// Returns whether a loop that sends `sent` may have received the answer `stored`, or only its
/// final messages if the loop was restarted.
fn is_same_answer(stored: &[Utterance<'_>], sent: &[Utterance<'_>]) -> bool {
    let whole: Vec<&Utterance<'_>> = stored.iter().filter(|uttered| !uttered.is_partial).collect();
    let is_sent = |stored: &[&Utterance<'_>]| {
        is_same_text(stored.iter().flat_map(|uttered| texts(uttered.message)), texts_of(sent))
            && are_same_calls(stored, sent)
    };
    let is_end_sent =
        (0..whole.len().max(1)).any(|from| is_sent(whole.get(from..).unwrap_or_default()));
    is_end_sent || (whole.len() < stored.len() && is_sent(&stored.iter().collect::<Vec<_>>()))
}

fn are_same_calls(stored: &[&Utterance<'_>], sent: &[Utterance<'_>]) -> bool {
    let lacks_calls = stored.iter().any(|uttered| uttered.lacks_calls);
    let mut stored = stored.iter().flat_map(|uttered| &uttered.calls).peekable();
    for sent in sent.iter().flat_map(|uttered| &uttered.calls) {
        if stored.next_if(|stored| stored.is_repeated_by(sent)).is_none() && !lacks_calls {
            return false;
        }
    }
    stored.next().is_none()
}

pub(super) fn texts_of<'s>(uttered: &'s [Utterance<'_>]) -> impl Iterator<Item = &'s str> {
    uttered.iter().flat_map(|uttered| texts(uttered.message))
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(Part::as_text).filter(|text| !text.trim().is_empty())
}

pub(super) fn have_same_text(first: &Message, second: &Message) -> bool {
    is_same_text(texts(first), texts(second))
}

/// Compares texts without the white space around each part, because loops join the parts with
/// different white space.
pub(super) fn is_same_text<'t>(
    first: impl Iterator<Item = &'t str>,
    second: impl Iterator<Item = &'t str>,
) -> bool {
    let mut first = first.map(str::trim).filter(|text| !text.is_empty());
    let mut second = second.map(str::trim).filter(|text| !text.is_empty());
    let (mut left, mut right) = ("", "");
    loop {
        if left.is_empty() {
            left = first.next().unwrap_or_default();
            right = right.trim_start();
        }
        if right.is_empty() {
            right = second.next().unwrap_or_default();
            left = left.trim_start();
        }
        if left.is_empty() || right.is_empty() {
            return left.is_empty() && right.is_empty();
        }
        let length = left.len().min(right.len());
        match (left.split_at_checked(length), right.split_at_checked(length)) {
            (Some((begin, left_rest)), Some((same, right_rest))) if begin == same => {
                (left, right) = (left_rest, right_rest);
            }
            _ => return false,
        }
    }
}

pub(super) fn is_answer(message: &Message) -> bool {
    message.role == Role::Assistant
}

/// Returns whether an assistant message has text or calls. The types of a loop may not represent
/// other content.
pub(super) fn is_statement(message: &Message) -> bool {
    is_answer(message)
        && (texts(message).next().is_some() || message.asked_calls().next().is_some())
}

fn is_ended(message: &Message) -> bool {
    let is_request = |part: &Part| matches!(part, Part::ApprovalRequest(_));
    is_marked_ended(message) || message.parts.iter().any(is_request)
}

/// Returns the message without its first `stored` results, which are already stored.
pub(super) fn without_results(message: &Message, stored: usize) -> Arc<Message> {
    let mut left = stored;
    let mut parts = message.parts.clone();
    parts.retain(|part| {
        let is_stored = left > 0 && matches!(part, Part::ToolResult(_));
        left -= usize::from(is_stored);
        !is_stored
    });
    Arc::new(message.with_parts(parts))
}
