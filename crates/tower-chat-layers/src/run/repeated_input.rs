//! Compares the input of a request that is sent again with the stored messages of its run.
//!
//! A request that is sent again may have other system messages, or none, because they may contain
//! the current time. A partial response after which the run continues is only in the store. A
//! message of the request therefore corresponds to a stored message if equally many messages of
//! other kinds precede both.

use std::sync::Arc;

use tower_chat_core::{Message, Role};

use super::partial_text::is_continued;
use crate::transcript::is_system;

/// Returns whether a request that is sent again repeats a message.
pub(super) fn is_repeated(message: &Message) -> bool {
    !is_system(message) && !is_continued(message)
}

/// Returns whether a stored message ends the input of its run.
pub(super) fn ends_input(message: &Message) -> bool {
    message.role == Role::Assistant && !is_continued(message)
}

/// Returns the number of messages that a request repeats.
fn count(messages: &[Arc<Message>]) -> usize {
    messages.iter().filter(|message| is_repeated(message)).count()
}

/// Returns the length of the shortest prefix with `count` messages that a request repeats.
fn prefix_len(messages: &[Arc<Message>], count: usize) -> usize {
    let Some(before_last) = count.checked_sub(1) else { return 0 };
    let mut others = messages.iter().enumerate().filter(|(_, message)| is_repeated(message));
    others.nth(before_last).map_or(messages.len(), |(last, _)| last + 1)
}

/// Returns the number of consecutive system messages from a position on.
fn instructions_at(messages: &[Arc<Message>], position: usize) -> usize {
    messages.iter().skip(position).take_while(|message| is_system(message)).count()
}

/// Returns how many of the stored messages `added` of a run belong to its input. `own` contains the
/// messages of the request, or nothing if the request only resumes the run. The input then ends
/// before the first answer.
pub(super) fn input_len(added: &[Arc<Message>], own: &[Arc<Message>]) -> usize {
    if own.is_empty() {
        return added.iter().take_while(|message| !ends_input(message)).count();
    }
    let len = prefix_len(added, count(own));
    len + instructions_at(added, len)
}

/// Returns how many messages at the beginning of `own`, the messages of a request, need not be
/// stored: those that `added`, the stored messages of the run, contain already, and the system
/// messages between them. `None` if the input of the run is not stored, because the service stores
/// the history. The first stored message then has a later index.
pub(super) fn repeated_len(added: &[Arc<Message>], own: &[Arc<Message>]) -> Option<usize> {
    added.first().and_then(|first| first.id).filter(|id| id.index == 0)?;
    let stored = count(added);
    if stored >= count(own) {
        return Some(own.len());
    }
    let len = prefix_len(own, stored);
    let stored_at_end = instructions_at(added, prefix_len(added, stored));
    Some(len + instructions_at(own, len).min(stored_at_end))
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{MessageId, RunId};

    use super::*;
    use crate::{replay::mark_ended, run::partial_text::partial_message};

    fn ended(message: Message) -> Message {
        let mut message = Arc::new(message);
        mark_ended(&mut message);
        Arc::unwrap_or_clone(message)
    }

    /// Returns a message for each letter, with its index as its id: `s`ystem, `u`ser, `a`ssistant,
    /// `p`artial response, `t`ool, or `x` for a partial response that ends the run.
    fn messages(first: u32, roles: &str) -> Vec<Arc<Message>> {
        let with_role = |(index, role)| {
            let mut message = match role {
                's' => Message::system("now"),
                'u' => Message::user("question"),
                'a' => Message::assistant("answer"),
                'p' => partial_message("ans"),
                'x' => ended(partial_message("ans")),
                _ => Message::tool_results([]),
            };
            message.id = Some(MessageId { run: RunId::from_bytes([1; 16]), index });
            Arc::new(message)
        };
        (first..).zip(roles.chars()).map(with_role).collect()
    }

    #[test]
    fn system_messages_of_a_repeated_request_do_not_change_its_input() {
        // The stored messages, the messages of the request, and the lengths of the input in both.
        let table = [
            ("u", "u", 1, 1),
            ("su", "su", 2, 2),
            ("su", "u", 2, 1),
            ("u", "su", 1, 2),
            ("us", "u", 2, 1),
            ("u", "us", 1, 2),
            ("sua", "u", 2, 1),
            ("ua", "su", 1, 2),
            ("uata", "su", 1, 2),
            ("utat", "u", 1, 1),
            ("uau", "suau", 3, 4),
            ("uua", "usu", 2, 3),
            ("s", "s", 1, 1),
            // The request has further messages.
            ("s", "u", 1, 0),
            ("s", "su", 1, 1),
            ("s", "ssu", 1, 1),
            ("u", "usu", 1, 1),
            ("us", "usu", 2, 2),
            ("us", "uu", 2, 1),
            ("u", "uu", 1, 1),
            ("u", "susu", 1, 2),
            ("su", "uu", 2, 1),
            // The request only resumes the run.
            ("sua", "", 2, 0),
            ("uut", "", 3, 0),
            ("upsua", "", 4, 0),
            // The run contains a partial response.
            ("up", "u", 1, 1),
            ("up", "us", 1, 2),
            ("up", "usu", 2, 1),
            ("upua", "uu", 3, 2),
            ("uatp", "u", 1, 1),
            ("upapa", "u", 1, 1),
            ("ux", "uu", 2, 2),
            ("ux", "", 1, 0),
            ("uspua", "usu", 4, 3),
        ];
        for (added, own, of_added, of_own) in table {
            let (added, own) = (messages(0, added), messages(0, own));
            assert_eq!(input_len(&added, &own), of_added, "{added:?} {own:?}");
            assert_eq!(repeated_len(&added, &own), Some(of_own), "{added:?} {own:?}");
        }
    }

    #[test]
    fn a_request_repeats_no_message_if_its_input_is_not_stored() {
        assert_eq!(repeated_len(&[], &messages(0, "su")), None);
        assert_eq!(repeated_len(&messages(1, "ta"), &messages(0, "u")), None);
    }
}
