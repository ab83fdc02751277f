//! When tools had finished.

use std::{
    collections::HashMap,
    ptr,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use tower_chat_core::{Message, MessageId, Messages, ToolCall, ToolInvocation};

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
    /// In the order of their places, which is nearly that of the conversation.
    calls: Vec<FinishedCall>,
    /// By the call's id alone, where only one call has it: for messages without an id.
    alone: OnceLock<HashMap<String, Option<SystemTime>>>,
}

#[derive(Debug, Clone)]
struct FinishedCall {
    message: MessageId,
    /// Its place among the calls of the message.
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
        let call = FinishedCall { message, index, call_id: call_id.into(), finished_at };
        // As a rule calls are added in their order.
        if self.calls.last().is_none_or(|last| last.place() < call.place()) {
            return self.calls.push(call);
        }
        match self.calls.binary_search_by_key(&call.place(), FinishedCall::place) {
            Ok(known) => self.calls.splice(known..=known, [call]).for_each(drop),
            Err(place) => self.calls.insert(place, call),
        }
    }

    /// Fills in the times of results of which it is not known when their tool had finished: the
    /// time at which the result was [added](Message::time) counts. Such are results that the caller
    /// has brought, that a foreign tool loop has made, and imported ones.
    ///
    /// The messages are in order and paired, as [`Replay::view`](crate::replay::Replay::view) gives
    /// them.
    pub fn complete(&mut self, messages: &Messages) {
        let mut asking: Option<&Arc<Message>> = None;
        let mut answered = 0;
        for message in messages.iter() {
            if message.calls().next().is_some() {
                (asking, answered) = (Some(message), 0);
            }
            let Some((asking, id)) = asking.and_then(|asking| Some((asking, asking.id?))) else {
                continue;
            };
            for result in message.results() {
                let Some(call) = asking.asked_calls().nth(answered) else { break };
                let is_unknown = self.walk().of(asking, answered, call).is_none();
                if let (true, Ok(index)) = (is_unknown, u32::try_from(answered)) {
                    let call_id = call.id.as_deref().or(result.call_id.as_deref());
                    self.insert(id, index, call_id.unwrap_or_default(), message.time());
                }
                answered += 1;
            }
        }
    }

    /// When the call at a place among those of a replayed message had finished, if it is known.
    pub fn of(&self, message: &Message, index: usize) -> Option<SystemTime> {
        let call = message.asked_calls().nth(index)?;
        self.walk().of(message, index, call)
    }

    /// Looks calls up one after the other, in the order of their messages.
    pub(super) fn walk(&self) -> FinishTimesWalk<'_> {
        FinishTimesWalk { times: self, at: 0 }
    }

    fn alone(&self) -> &HashMap<String, Option<SystemTime>> {
        self.alone.get_or_init(|| {
            let mut alone = HashMap::new();
            for call in &self.calls {
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

impl FinishedCall {
    fn place(&self) -> (MessageId, u32) {
        (self.message, self.index)
    }
}

/// A walk over the times along with one over messages: as long as the two go in step, nothing has
/// to be searched.
#[derive(Debug)]
pub(super) struct FinishTimesWalk<'a> {
    times: &'a FinishTimes,
    /// Where the calls of a message begin.
    at: usize,
}

impl<'a> FinishTimesWalk<'a> {
    /// When a call, at its place among those of a replayed message, had finished, if it is known.
    pub(super) fn of(
        &mut self,
        message: &Message,
        index: usize,
        call: &ToolCall,
    ) -> Option<SystemTime> {
        let call_id = call.id.as_deref().filter(|id| !id.is_empty());
        let Some(message_id) = message.id else {
            return self.times.alone().get(call_id?).copied().flatten();
        };
        let known = self.calls_of(message_id);
        let Some(call_id) = call_id else {
            return known.iter().find(|known| known.index as usize == index)?.finished_at;
        };
        let (mut same_id, mut same_id_before) = (0, 0);
        for (place, asked) in message.asked_calls().enumerate() {
            let is_same = ptr::eq(asked, call) || asked.id.as_deref() == Some(call_id);
            same_id += usize::from(is_same);
            same_id_before += usize::from(is_same && place < index);
        }
        let (mut same_id_known, mut its_own, mut latest) = (0, None, None);
        for call in known.iter().filter(|call| call.call_id == call_id) {
            if same_id_known == same_id_before {
                its_own = call.finished_at;
            }
            latest = latest.max(call.finished_at);
            same_id_known += 1;
        }
        // Where some were left out, it cannot be told which.
        if same_id_known == same_id { its_own } else { latest }
    }

    /// The known calls of a message, in their order.
    fn calls_of(&mut self, message: MessageId) -> &'a [FinishedCall] {
        /// More calls than a message has as a rule.
        const NEAR: usize = 8;
        let calls = &self.times.calls;
        let is_before = |call: &&FinishedCall| call.message < message;
        let behind = calls.iter().skip(self.at).take(NEAR).take_while(is_before).count();
        let is_there = calls.get(self.at + behind).is_some_and(|call| call.message == message);
        self.at = match is_there {
            true => self.at + behind,
            false => calls.partition_point(|call| call.message < message),
        };
        let ahead = calls.get(self.at..).unwrap_or_default();
        let count = ahead.iter().take_while(|call| call.message == message).count();
        ahead.get(..count).unwrap_or_default()
    }
}
