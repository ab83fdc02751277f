//! Ids for calls that came without one, or with that of a sibling.

use std::borrow::Cow;

use tower_chat_core::{Message, pairing};

/// The ids by which the tool calls of a message are answered, in the order of
/// [`Message::asked_calls`].
///
/// A call keeps the id it came with. One that came with none, with an empty one, or with that of a
/// call before it in the message, which providers refuse, gets an id made of the message's position,
/// so that every replay shows the same id on the call and its result. Generated ids use `[a-z0-9_]` and
/// have at most 40 characters, the longest id that OpenAI's Chat Completions API takes.
///
/// Where the model answered with several messages, a call that shares its id with a call of an
/// earlier one of them has a generated id too, which this function cannot tell from one message:
/// [`pairing::AnswerIds`] takes them all.
pub fn effective_call_ids(message: &Message) -> Vec<String> {
    pairing::ids_of_calls(message).into_iter().map(Cow::into_owned).collect()
}
