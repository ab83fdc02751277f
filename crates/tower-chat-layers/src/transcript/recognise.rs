//! Finds the new messages of a client's transcript, which is a whole conversation that the client
//! sends with each request. A statement of the model is an assistant message with text or calls.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{Message, Messages, Role, store::History};

use super::{
    Recognised, TranscriptError,
    entry::{Entry, as_client_knows, names_of_calls},
    is_system,
    overlap::{Overlap, last_occurrence, overlap},
};

/// Returns the new messages of a request, by comparison with the stored messages.
///
/// The request repeats messages if its first messages are equal to the last messages of the stored
/// conversation. Messages are compared by their content, and calls and results by their ids if they
/// have ids. The comparison uses two forms: the unchanged messages, and the messages in the form of
/// a client that receives each answer as one message, without the calls that ran in the stack. The
/// time is linear in the lengths of both lists.
///
/// `is_retry` marks a request that the client sends again. A request that ends with the last stored
/// question, and repeats earlier answers, is also treated as a retry: a client that had received
/// the last answer would repeat this answer too.
///
/// ```
/// use tower_chat::{Message, message::Messages, transcript::{Recognised, recognise}};
/// let stored: Messages = [Message::user("1+1"), Message::assistant("2")].into_iter().collect();
/// let mut sent = stored.clone();
/// sent.push(Message::user("2+2"));
/// let Recognised::New(new) = recognise(&stored, &sent, false)? else { unreachable!() };
/// assert_eq!(new.last().unwrap().text(), "2+2");
/// assert_eq!(new.len(), 1);
/// # Ok::<(), tower_chat::transcript::TranscriptError>(())
/// ```
///
/// # Errors
///
/// Returns an error if the messages contradict the stored messages, or if there is nothing to answer.
pub fn recognise(
    stored: &Messages,
    sent: &Messages,
    is_retry: bool,
) -> Result<Recognised, TranscriptError> {
    recognise_after_cut(stored, 0, sent, is_retry)
}

/// Like [`recognise`], with the history of a store. If older messages were pruned (deleted from the
/// stored history), the request may still begin with the pruned messages. The function removes the
/// pruned messages if the rest of the request begins with the stored messages.
///
/// # Errors
///
/// Returns an error if the messages contradict the stored messages, or if there is nothing to answer.
pub fn recognise_in(
    stored: &History,
    sent: &Messages,
    is_retry: bool,
) -> Result<Recognised, TranscriptError> {
    recognise_after_cut(&stored.messages, stored.skipped(), sent, is_retry)
}

/// Like [`recognise`], for a conversation whose first `pruned` messages were pruned.
pub(super) fn recognise_after_cut(
    stored: &Messages,
    pruned: u64,
    sent: &Messages,
    is_retry: bool,
) -> Result<Recognised, TranscriptError> {
    match recognise_from(stored, sent, is_retry) {
        Err(TranscriptError::Diverged { position }) if pruned > 0 => {
            let Some(cut) = cut_in(stored, sent) else {
                return Err(TranscriptError::Diverged { position });
            };
            let leading = sent.iter().take_while(|message| is_system(message)).count();
            let mut without_pruned = sent.take(leading.min(cut));
            without_pruned.append(&sent.skip(cut));
            recognise_from(stored, &without_pruned, is_retry).map_err(|error| match error {
                TranscriptError::Diverged { .. } => TranscriptError::Diverged { position },
                TranscriptError::NothingNew => TranscriptError::NothingNew,
            })
        }
        recognised => recognised,
    }
}

/// Returns the position in a request at which the stored messages begin, after messages that were
/// pruned from the store.
fn cut_in(stored: &Messages, sent: &Messages) -> Option<usize> {
    let end = StoredEnd::of(stored);
    let views = [View::verbatim(stored, sent, &end), View::of_client(stored, sent)];
    views.iter().find_map(|view| {
        let position = view.position_of(&view.known);
        position.or_else(|| view.position_of(view.before_answer()?))
    })
}

fn recognise_from(
    stored: &Messages,
    sent: &Messages,
    is_retry: bool,
) -> Result<Recognised, TranscriptError> {
    if stored.is_empty() {
        return match sent.is_empty() {
            true => Err(TranscriptError::NothingNew),
            false => Ok(Recognised::New(sent.clone())),
        };
    }
    let end = StoredEnd::of(stored);
    let views = [View::verbatim(stored, sent, &end), View::of_client(stored, sent)];
    for view in &views {
        match view.after_repeated(&view.known, sent) {
            Some(new) if new.is_empty() && end.is_answered() => {
                return Err(TranscriptError::NothingNew);
            }
            Some(new) => return Ok(Recognised::New(new)),
            None => {}
        }
    }
    for view in &views {
        let asked_again = view.before_answer().and_then(|before| view.after_repeated(before, sent));
        match asked_again {
            Some(new) if end.may_be_unseen => return Ok(Recognised::New(new)),
            Some(new) if new.is_empty() && (is_retry || view.repeats_an_answer()) => {
                return Ok(Recognised::LastAnswer);
            }
            _ => {}
        }
    }
    let has_different_answers =
        |view: &View| view.repeats_an_answer() && view.known.iter().any(Entry::is_assistant);
    if views.iter().any(has_different_answers) {
        let position = views.iter().map(View::diverges_at).max().unwrap_or_default();
        return Err(TranscriptError::Diverged { position });
    }
    let [_, view] = &views;
    let new = view.messages_from(&view.known, sent, view.leading);
    if new.is_empty() { Err(TranscriptError::NothingNew) } else { Ok(Recognised::New(new)) }
}

/// Returns the position of the first message of a request that repeats a stored statement of the model.
pub(crate) fn first_repeated_answer(
    stored: &Messages,
    sent: impl IntoIterator<Item = (usize, Entry)>,
) -> Option<usize> {
    let sent: Vec<(usize, Entry)> =
        sent.into_iter().filter(|(_, entry)| entry.is_statement()).collect();
    if sent.is_empty() {
        return None;
    }
    let names = names_of_calls(sent.iter().map(|(_, entry)| entry));
    let of_client = as_client_knows(stored, &names);
    let known: HashSet<Entry> =
        stored.iter().map(|message| Entry::verbatim(message)).chain(of_client).collect();
    sent.into_iter().find(|(_, entry)| known.contains(entry)).map(|(position, _)| position)
}

/// The end of a stored conversation.
struct StoredEnd {
    /// Whether the last run was interrupted after the model had requested tools, so that the client
    /// may not have received the last answer.
    may_be_unseen: bool,
    /// The number of messages before the answer of the last run. `None` if the last run contains no
    /// answer of the model.
    before_answer: Option<usize>,
}

impl StoredEnd {
    fn of(stored: &Messages) -> Self {
        let run = stored.last().and_then(|last| last.id).map(|id| id.run);
        let is_of_run =
            |message: &&Arc<Message>| run.is_some() && message.id.map(|id| id.run) == run;
        let of_run = stored.iter().rev().take_while(is_of_run).count();
        let first = stored.len() - of_run;
        let is_answer = |message: &Arc<Message>| message.role == Role::Assistant;
        let answer = stored.iter_from(first).position(is_answer);
        let mut may_be_unseen = false;
        for message in stored.iter_from(first) {
            may_be_unseen = match message.role {
                Role::Assistant => message.calls().next().is_some(),
                Role::Tool => may_be_unseen,
                _ => false,
            };
        }
        // Without message ids, for example after an import, only the last message decides.
        let last_is_answer = stored.last().is_some_and(is_answer);
        let before_answer = answer
            .map(|answer| first + answer)
            .or_else(|| last_is_answer.then(|| stored.len() - 1));
        if of_run == 0 && last_is_answer {
            may_be_unseen = stored.last().is_some_and(|last| last.calls().next().is_some());
        }
        Self { may_be_unseen, before_answer }
    }

    fn is_answered(&self) -> bool {
        self.before_answer.is_some() && !self.may_be_unseen
    }
}

/// A stored conversation and a request, in one of the forms that are compared.
struct View {
    known: Vec<Entry>,
    before_answer: Option<usize>,
    entries: Vec<Entry>,
    leading: usize,
}

impl View {
    fn verbatim(stored: &Messages, sent: &Messages, end: &StoredEnd) -> Self {
        let entries = |messages: &Messages| -> Vec<Entry> {
            messages.iter().map(|message| Entry::verbatim(message)).collect()
        };
        Self::new(entries(stored), end.before_answer, entries(sent))
    }

    fn of_client(stored: &Messages, sent: &Messages) -> Self {
        let entries: Vec<Entry> =
            sent.iter().map(|message| Entry::sent_by_client(message)).collect();
        let known = as_client_knows(stored, &names_of_calls(&entries));
        let ends_with_answer = known.last().is_some_and(Entry::is_assistant);
        let before_answer = ends_with_answer.then(|| known.len() - 1);
        Self::new(known, before_answer, entries)
    }

    fn new(known: Vec<Entry>, before_answer: Option<usize>, entries: Vec<Entry>) -> Self {
        let leading = entries.iter().take_while(|entry| entry.is_system()).count();
        Self { known, before_answer, entries, leading }
    }

    fn before_answer(&self) -> Option<&[Entry]> {
        self.known.get(..self.before_answer?)
    }

    /// Returns the messages after the repeated ones, or `None` if the request does not begin with
    /// the end of `known`.
    fn after_repeated(&self, known: &[Entry], sent: &Messages) -> Option<Messages> {
        let all =
            overlap(&known.iter().collect::<Vec<_>>(), &self.entries.iter().collect::<Vec<_>>());
        if all.at_end > self.leading {
            return Some(sent.skip(all.at_end));
        }
        // The client may have changed or moved system messages.
        let (positions, overlap) = self.overlap_of_others(known);
        let last = positions.get(overlap.at_end.checked_sub(1)?)?;
        Some(self.messages_from(known, sent, last + 1))
    }

    /// Returns the positions of all messages except system messages, and how many of them repeat
    /// `known`.
    fn overlap_of_others(&self, known: &[Entry]) -> (Vec<usize>, Overlap) {
        let (positions, entries) = self.others();
        (positions, overlap(&without_system(known), &entries))
    }

    /// Returns the positions and the entries of all messages except system messages.
    fn others(&self) -> (Vec<usize>, Vec<&Entry>) {
        self.entries.iter().enumerate().filter(|(_, entry)| !entry.is_system()).unzip()
    }

    /// Returns the messages from a position on, after the leading system messages if these are new.
    fn messages_from(&self, known: &[Entry], sent: &Messages, position: usize) -> Messages {
        let system = known.iter().rev().skip_while(|known| !known.is_system());
        let mut in_force: Vec<&Entry> = system.take_while(|known| known.is_system()).collect();
        in_force.reverse();
        let is_in_force = in_force.into_iter().eq(self.entries.iter().take(self.leading));
        let mut new = if is_in_force { Messages::new() } else { sent.take(self.leading) };
        new.append(&sent.skip(position.max(self.leading)));
        new
    }

    /// Returns the last position at which the request repeats all of `known`. Without a statement
    /// of the model, messages cannot be identified.
    fn position_of(&self, known: &[Entry]) -> Option<usize> {
        let known = without_system(known);
        if !known.iter().any(|known| known.is_statement()) {
            return None;
        }
        let (positions, entries) = self.others();
        let first = last_occurrence(&known, &entries)?;
        positions.get(first).copied()
    }

    fn repeats_an_answer(&self) -> bool {
        self.entries.iter().any(Entry::is_assistant)
    }

    fn diverges_at(&self) -> usize {
        let (positions, overlap) = self.overlap_of_others(&self.known);
        positions.get(overlap.anywhere).copied().unwrap_or(self.entries.len())
    }
}

fn without_system(known: &[Entry]) -> Vec<&Entry> {
    known.iter().filter(|known| !known.is_system()).collect()
}

#[cfg(test)]
mod tests;
