//! When tools had finished.

use std::{collections::HashMap, sync::OnceLock, time::SystemTime};

use tower_chat_core::{Message, MessageId, ToolCall, ToolInvocation};

/// When the tool calls of a conversation had finished, as the record has it.
///
/// Replay may have left out siblings of a call, so a call is found again by the id by which the
/// model knows it, and calls of one message that share an id by their order among those; where
/// some of these were left out, the latest of their times counts.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat::{core::{Message, MessageId, RunId, ToolCall}, replay::FinishTimes};
/// let mut message = Message::tool_calls([ToolCall::new("c1", "weather", "{}")]);
/// let id = MessageId { run: RunId::new(), index: 1 };
/// message.id = Some(id);
/// let mut times = FinishTimes::new();
/// times.insert(id, 0, "c1", Some(SystemTime::UNIX_EPOCH));
/// assert_eq!(times.of(&message, 0), Some(SystemTime::UNIX_EPOCH));
/// ```
#[derive(Debug, Clone, Default)]
pub struct FinishTimes {
    calls: HashMap<MessageId, Vec<FinishedCall>>,
    /// By the call's id alone, where only one call has it: for messages without an id.
    alone: OnceLock<HashMap<String, Option<SystemTime>>>,
}

#[derive(Debug, Clone)]
struct FinishedCall {
    index: u32,
    call_id: String,
    finished_at: Option<SystemTime>,
}

impl FinishTimes {
    /// Nothing is known of any call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call: its message, its place among the calls of that message from 0, the id by
    /// which the model knows it, and when its tool had finished, if it has.
    ///
    /// Calls that have not finished belong here too, or siblings that share their id are taken
    /// for them.
    pub fn insert(
        &mut self,
        message: MessageId,
        index: u32,
        call_id: impl Into<String>,
        finished_at: Option<SystemTime>,
    ) {
        self.alone.take();
        let call = FinishedCall { index, call_id: call_id.into(), finished_at };
        let calls = self.calls.entry(message).or_default();
        let place = calls.partition_point(|known| known.index < index);
        match calls.get_mut(place) {
            Some(known) if known.index == index => *known = call,
            _ => calls.insert(place, call),
        }
    }

    /// When the call at a place among those of a replayed message had finished, if it is known.
    pub fn of(&self, message: &Message, index: usize) -> Option<SystemTime> {
        let call = message.asked_calls().nth(index)?;
        let call_id = call.id.as_deref().filter(|id| !id.is_empty());
        let Some(message_id) = message.id else {
            return self.alone().get(call_id?).copied().flatten();
        };
        let calls = self.calls.get(&message_id)?;
        let Some(call_id) = call_id else {
            return calls.iter().find(|known| known.index as usize == index)?.finished_at;
        };
        let mut known = calls.iter().filter(|known| known.call_id == call_id);
        let same_id = |call: &&ToolCall| call.id.as_deref() == Some(call_id);
        if known.clone().count() != message.asked_calls().filter(same_id).count() {
            // Which of them was left out cannot be told.
            return known.filter_map(|known| known.finished_at).max();
        }
        let before = message.asked_calls().take(index).filter(same_id).count();
        known.nth(before)?.finished_at
    }

    fn alone(&self) -> &HashMap<String, Option<SystemTime>> {
        self.alone.get_or_init(|| {
            let mut alone = HashMap::new();
            for call in self.calls.values().flatten() {
                alone
                    .entry(call.call_id.clone())
                    .and_modify(|finished_at| *finished_at = None)
                    .or_insert(call.finished_at);
            }
            alone
        })
    }
}

impl<'a> FromIterator<&'a ToolInvocation> for FinishTimes {
    fn from_iter<I: IntoIterator<Item = &'a ToolInvocation>>(calls: I) -> Self {
        let mut times = Self::new();
        for call in calls {
            times.insert(call.message, call.sequence_index, &call.call_id, call.finished_at);
        }
        times
    }
}
