//! Ids for calls that came without one.

use tower_chat_core::{Message, ToolCall};

/// The ids by which the tool calls of a message are answered, in the order of
/// [`Message::asked_calls`].
///
/// A call keeps the id it came with. One that came with none, or with an empty one, gets an id
/// made of the message's place, so that every replay shows the same id on the call and its
/// result. Generated ids use `[a-z0-9_]` and have at most 40 characters, the longest id that
/// OpenAI's Chat Completions API takes.
pub fn effective_call_ids(message: &Message) -> Vec<String> {
    let place = Place::of(message, 0);
    let calls = message.asked_calls().enumerate();
    calls.map(|(index, call)| effective_call_id(call, place, index)).collect()
}

/// Where a message stands: by its id, or by its position where it has none yet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Id(tower_chat_core::MessageId),
    Position(usize),
}

impl Place {
    pub(super) fn of(message: &Message, position: usize) -> Self {
        message.id.map_or(Self::Position(position), Self::Id)
    }
}

/// The id by which one call is answered; `index` counts all calls of its message.
pub(super) fn effective_call_id(call: &ToolCall, place: Place, index: usize) -> String {
    match (call.id.as_deref(), place) {
        (Some(id), _) if !id.is_empty() => id.to_owned(),
        (_, Place::Id(id)) => format!("call_{:016x}_{}_{index}", id.run.random_half(), id.index),
        (_, Place::Position(position)) => format!("call_{position}_{index}"),
    }
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{MessageId, RunId};

    use super::*;

    #[test]
    fn a_call_keeps_the_id_it_came_with() {
        let message = Message::tool_calls([ToolCall::new("call_7", "a", "{}")]);
        assert_eq!(effective_call_ids(&message), ["call_7"]);
    }

    #[test]
    fn missing_and_empty_ids_are_generated_distinct_and_stable() {
        let calls = [ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")];
        let mut message = Message::tool_calls(calls);
        message.id = Some(MessageId { run: RunId::new(), index: u32::MAX });
        let ids = effective_call_ids(&message);
        assert_eq!(ids, effective_call_ids(&message));
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| id.len() <= 40), "{ids:?}");
    }
}
