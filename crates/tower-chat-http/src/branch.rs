//! Branches for requests that differ from the stored conversation.
//!
//! A run is the work on one request, up to the final answer. A turn is the messages that one run
//! has added to the conversation. A branch is a new conversation that begins with a copy of the
//! turns that the request repeats. The request is then answered in the branch.

use std::collections::HashSet;

use tower_chat_layers::{
    ConversationKey, Messages, Role, RunId,
    store::{History, HistoryStore, StoreError},
    transcript::{Recognised, TranscriptError, recognise_in},
};

use crate::conversation::header_of;

/// The maximum number of turns that each of the two searches in [`common_beginning`] compares.
const MAX_TURNS: usize = 8;

/// Returns whether a request must be answered in a branch: because it differs from the stored
/// conversation, or because it asks for another answer to the last question.
pub(crate) fn is_rewritten(
    recognised: &Result<Recognised, TranscriptError>,
    is_retry: bool,
) -> bool {
    match recognised {
        Ok(Recognised::LastAnswer) => !is_retry,
        Err(TranscriptError::Diverged { .. }) => true,
        Ok(_) | Err(_) => false,
    }
}

/// Copies a conversation up to the end of the last turn that a request repeats, and returns the
/// copy, the branch. Returns `None` if no common beginning is found, if the store cannot
/// copy conversations, or if the id of the branch is not valid in a header.
///
/// The key of the branch contains the run id, so that a retry with the same run id continues in the
/// same branch.
pub(crate) async fn branch(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    stored: &History,
    sent: &Messages,
    recognised: &Result<Recognised, TranscriptError>,
    run: RunId,
) -> Result<Option<(ConversationKey, History)>, StoreError> {
    let Some(maintenance) = store.maintenance() else { return Ok(None) };
    let branch = ConversationKey::new(key.scope(), format!("{}~{run}", key.id()));
    if header_of(branch.id()).is_none() {
        return Ok(None);
    }
    let repeated = match recognised {
        Err(TranscriptError::Diverged { position }) => sent.take(*position),
        Ok(_) | Err(_) => sent.clone(),
    };
    let Some(common) = common_beginning(stored, sent, &repeated) else { return Ok(None) };
    let first = stored.head.pruned.saturating_add(common as u64).saturating_add(1);
    match maintenance.fork_at(key, Some(first), &branch).await {
        // An earlier request with the same run id has created the branch.
        Ok(_) | Err(StoreError::Exists { .. }) => {}
        Err(error) => return Err(error),
    }
    let history = store.load(&branch).await?;
    Ok(Some((branch, history)))
}

/// Returns the number of stored messages that the branch copies: the whole turns before the first
/// difference between the request and the stored conversation. `repeated` has the messages of the
/// request before this difference.
///
/// If no such turn is found, returns 0, so that the branch begins empty. However, returns `None` if
/// the request repeats a stored answer. Such a request may omit older messages, which an empty
/// branch would lose.
fn common_beginning(stored: &History, sent: &Messages, repeated: &Messages) -> Option<usize> {
    let questions =
        |messages: &Messages| messages.iter().filter(|message| message.role == Role::User).count();
    let asked = questions(repeated);
    let mut ends = Vec::new();
    let (mut run, mut seen) = (None, 0);
    for (position, message) in stored.messages.iter().enumerate() {
        let of_message = message.id.map(|id| id.run);
        if position > 0 && of_message != run {
            ends.push((position, seen));
        }
        run = of_message;
        seen += usize::from(message.role == Role::User);
    }
    let is_common = |end: &usize| {
        let beginning = History::new(stored.head.clone(), stored.messages.take(*end));
        matches!(recognise_in(&beginning, sent, false), Ok(Recognised::New(_)))
    };
    let newest_first = || ends.iter().rev();
    let ends_from_start = newest_first().filter(|(_, seen)| *seen <= asked).map(|(end, _)| *end);
    // The stored turns have more questions than the request repeats if the request begins with a
    // later turn, or if tools added user messages, which the client has not received.
    let ends_of_later_turns = newest_first().filter(|(_, seen)| *seen > asked).map(|(end, _)| *end);
    let mut ends = ends_from_start.take(MAX_TURNS).chain(ends_of_later_turns.take(MAX_TURNS));
    ends.find(is_common).or_else(|| (!repeats_an_answer(&stored.messages, sent)).then_some(0))
}

/// Returns whether a message of the model in a request has the text of a stored answer, or calls a
/// tool that a stored answer calls.
fn repeats_an_answer(stored: &Messages, sent: &Messages) -> bool {
    let (mut texts, mut tools) = (HashSet::new(), HashSet::new());
    // The client receives the texts of a run as one text.
    let (mut run, mut answer) = (None, String::new());
    for message in stored.iter().filter(|message| message.role == Role::Assistant) {
        let (of_message, text) = (message.id.map(|id| id.run), message.text());
        if of_message.is_none() || of_message != run {
            answer.clear();
        }
        if !answer.is_empty() && !text.is_empty() {
            answer.push_str("\n\n");
        }
        answer.push_str(&text);
        run = of_message;
        texts.extend([text.trim().to_owned(), answer.trim().to_owned()]);
        tools.extend(message.asked_calls().map(|call| &*call.name));
    }
    texts.remove("");
    sent.iter().filter(|message| message.role == Role::Assistant).any(|message| {
        texts.contains(message.text().trim())
            || message.asked_calls().any(|call| tools.contains(&*call.name))
    })
}
