//! Branches for requests that differ from the stored conversation.

use tower_chat_layers::{
    ConversationKey, Messages, Role, RunId,
    store::{History, HistoryStore, StoreError},
    transcript::{Recognised, TranscriptError, recognise_in},
};

/// The number of turns before the difference at which the search for a common beginning ends. More
/// than one is needed only if the client does not repeat all of its own messages.
const MAX_TURNS: usize = 8;

/// Returns whether a request differs from the stored conversation, or asks for another answer to its
/// last question.
pub(crate) fn is_rewritten(
    recognised: &Result<Recognised, TranscriptError>,
    tries_again: bool,
) -> bool {
    match recognised {
        Ok(Recognised::LastAnswer) => !tries_again,
        Err(TranscriptError::Diverged { .. }) => true,
        Ok(_) | Err(_) => false,
    }
}

/// Forks a conversation after the last turn that a request repeats, and returns the branch. Returns
/// `None` if no common beginning is found, or if the store cannot fork conversations.
///
/// The key of the branch contains the run. A client that names its run and sends the request again
/// therefore continues in the same branch.
pub(crate) async fn branch(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    stored: &History,
    sent: &Messages,
    recognised: &Result<Recognised, TranscriptError>,
    run: RunId,
) -> Result<Option<(ConversationKey, History)>, StoreError> {
    let Some(maintenance) = store.maintenance() else { return Ok(None) };
    let repeated = match recognised {
        Err(TranscriptError::Diverged { position }) => sent.take(*position),
        Ok(_) | Err(_) => sent.clone(),
    };
    let Some(common) = common_beginning(stored, sent, &repeated) else { return Ok(None) };
    let first = stored.head.pruned.saturating_add(common as u64).saturating_add(1);
    let branch = ConversationKey::new(key.scope(), format!("{}~{run}", key.id()));
    match maintenance.fork_at(key, Some(first), &branch).await {
        // An earlier attempt at the run has created the branch.
        Ok(_) | Err(StoreError::Exists { .. }) => {}
        Err(error) => return Err(error),
    }
    let history = store.load(&branch).await?;
    Ok(Some((branch, history)))
}

/// Returns the number of stored messages in the whole turns that a request repeats, up to the first
/// difference. `repeated` has the messages of the request before the difference.
fn common_beginning(stored: &History, sent: &Messages, repeated: &Messages) -> Option<usize> {
    let questions =
        |messages: &Messages| messages.iter().filter(|message| message.role == Role::User).count();
    let asked = questions(repeated);
    let mut ends = vec![(0, 0)];
    let (mut run, mut seen) = (None, 0);
    for (position, message) in stored.messages.iter().enumerate() {
        let of_message = message.id.map(|id| id.run);
        if position > 0 && of_message != run {
            ends.push((position, seen));
        }
        run = of_message;
        seen += usize::from(message.role == Role::User);
    }
    let candidates = ends.into_iter().rev().filter(|(_, seen)| *seen <= asked);
    let mut candidates = candidates.map(|(end, _)| end).take(MAX_TURNS);
    candidates.find(|end| {
        let beginning = History::new(stored.head.clone(), stored.messages.take(*end));
        matches!(recognise_in(&beginning, sent, false), Ok(Recognised::New(_)))
    })
}
