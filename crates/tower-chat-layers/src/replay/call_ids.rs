//! Generates ids for calls without an id, and for calls with the id of another call in the same
//! message.

use std::borrow::Cow;

use tower_chat_core::{Message, pairing};

/// Returns for each call of a message the id by which results refer to the call in replays, in the
/// order of [`Message::asked_calls`].
///
/// A call keeps its own id. If the id is missing, empty, or the id of an earlier call in the
/// message, the call gets an id that is generated from the message's position, because providers
/// refuse such calls. Every replay generates the same id for the call and its result. Generated ids
/// use `[a-z0-9_]` and have at most 40 characters, the longest id that OpenAI's Chat Completions
/// API accepts.
///
/// An answer of the model may have several messages. If a call has the id of a call in an earlier
/// message of the same answer, replays also use a generated id. This function reads only one
/// message and does not detect this case; [`pairing::AnswerIds`] reads all messages of an answer.
pub fn effective_call_ids(message: &Message) -> Vec<String> {
    pairing::ids_of_calls(message).into_iter().map(Cow::into_owned).collect()
}
