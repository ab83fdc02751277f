//! What a history has of a run that is sent again.

use std::sync::Arc;

use tower_chat_core::{Conversation, Message, MessageId, Messages, RunId};

/// The messages of this run that are stored already, because it is sent again, and whether others
/// stand after them.
pub(super) fn added_before(
    history: &Messages,
    conversation: &Conversation,
) -> (Vec<Arc<Message>>, bool) {
    let others = others_after(history, conversation.run);
    let run_of = |message: &Arc<Message>| message.id.map(|id| id.run);
    let is_ours = |message: &&Arc<Message>| run_of(message) == Some(conversation.run);
    let before = (0..history.len() - others).rev().map_while(|place| history.get(place));
    let mut added: Vec<_> = before.take_while(is_ours).cloned().collect();
    added.reverse();
    let is_overtaken = others > 0 && !added.is_empty();
    (added, is_overtaken)
}

/// How many messages at the end of a history may stand after those of a run.
///
/// Run ids are ordered by the time they were made. So these are the messages of later runs, and of
/// earlier ones that another process had under way at the same time: they are looked for among a
/// few messages, of runs made not long before, so that a run which is new costs no more in a long
/// history.
fn others_after(history: &Messages, run: RunId) -> usize {
    const MOST_OF_EARLIER: usize = 64;
    const UNDER_WAY_MILLISECONDS: u64 = 3_600_000;
    let made_at = |run: RunId| {
        let bytes = run.to_bytes();
        bytes.iter().take(6).fold(0_u64, |time, byte| (time << 8) | u64::from(*byte))
    };
    let (mut others, mut of_earlier) = (0, 0);
    while let Some(stretch) = last_stretch(history, history.len() - others) {
        if stretch.run == run {
            break;
        }
        if stretch.run > run {
            others += stretch.messages;
            continue;
        }
        if made_at(stretch.run) + UNDER_WAY_MILLISECONDS < made_at(run) {
            break;
        }
        let counted = stretch.messages.min(MOST_OF_EARLIER - of_earlier);
        (others, of_earlier) = (others + counted, of_earlier + counted);
        if of_earlier == MOST_OF_EARLIER {
            break;
        }
    }
    others
}

/// Messages of one run, one after the other.
struct Stretch {
    run: RunId,
    messages: usize,
}

/// The last stretch among the first messages of a history. Of a whole run only its ends are looked
/// at.
fn last_stretch(history: &Messages, end: usize) -> Option<Stretch> {
    let last = history.get(end.checked_sub(1)?)?.id?;
    let messages = last.index as usize + 1;
    let first = end.checked_sub(messages).and_then(|first| history.get(first)?.id);
    let is_whole = first == Some(MessageId { run: last.run, index: 0 });
    Some(Stretch { run: last.run, messages: if is_whole { messages } else { 1 } })
}
