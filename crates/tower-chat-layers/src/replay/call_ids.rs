//! Ids for calls without an id, and for calls that share an id with another call of their message.

use std::borrow::Cow;

use tower_chat_core::{Message, pairing};

/// Returns the ids that the results of a message's calls use, in the order of [`Message::asked_calls`].
///
/// A call keeps its own id. A call without an id, with an empty one, or with the id of an earlier call
/// in the message gets an id that is generated from the message's position, because providers refuse
/// duplicates. Every replay generates the same id for the call and its result. Generated ids use
/// `[a-z0-9_]` and have at most 40 characters, the longest id that OpenAI's Chat Completions API
/// accepts.
///
/// If the model answered with several messages, a call that shares its id with a call of an earlier
/// message of the answer also has a generated id. This function does not know the other messages;
/// [`pairing::AnswerIds`] processes all messages of an answer.
pub fn effective_call_ids(message: &Message) -> Vec<String> {
    pairing::ids_of_calls(message).into_iter().map(Cow::into_owned).collect()
}
