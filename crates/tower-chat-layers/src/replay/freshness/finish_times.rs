//! The times at which tools finished, with lookups by call.

use std::{
    collections::{BTreeMap, HashMap},
    sync::OnceLock,
    time::SystemTime,
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, ToolCall, ToolInvocation,
    store::{CallSelection, HistoryStore},
};

/// The times at which the tool calls of a conversation finished, from the record of tool calls (one
/// row for each call).
///
/// A call is identified by its id in the replay, and not by its index, because the replay may omit
/// other calls of the message. Calls of one message with the same id are identified by their order.
/// If the replay has omitted some of these calls, the latest of their times applies to all of them.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat::{Message, ToolCall, message::MessageId, replay::FinishTimes, run::RunId};
/// let mut message = Message::tool_calls([ToolCall::new("c1", "weather", "{}")]);
/// let id = MessageId { run: RunId::new(), index: 1 };
/// message.id = Some(id);
/// let mut times = FinishTimes::new();
/// times.insert(id, 0, "c1", Some(SystemTime::UNIX_EPOCH));
/// assert_eq!(times.of(&message, 0), Some(SystemTime::UNIX_EPOCH));
/// ```
#[derive(Debug, Clone, Default)]
pub struct FinishTimes {
    /// The calls by position: the message and the index among its calls.
    calls: BTreeMap<(MessageId, u32), FinishedCall>,
    /// The times by call id, for lookups of calls in messages without an id. The value is `None` if
    /// several calls have the id.
    by_unique_id: OnceLock<HashMap<String, Option<SystemTime>>>,
}

#[derive(Debug, Clone)]
struct FinishedCall {
    call_id: String,
    finished_at: Option<SystemTime>,
}

impl FinishTimes {
    /// Creates an empty set of times.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a set without any time.
    pub(in crate::replay) fn unknown() -> &'static Self {
        static UNKNOWN: FinishTimes =
            FinishTimes { calls: BTreeMap::new(), by_unique_id: OnceLock::new() };
        &UNKNOWN
    }

    /// Reads from the record the times at which the tools of a conversation finished. For a call
    /// without a time in the record, the time at which the call's result was added to the
    /// conversation is used. If the record cannot be read, this time is used for all calls.
    ///
    /// `messages` are the messages of the conversation, as
    /// [`Replay::view`](crate::replay::Replay::view) returns them.
    pub async fn of_conversation(
        store: &(impl HistoryStore + ?Sized),
        key: &ConversationKey,
        messages: &Messages,
    ) -> Self {
        let mut times: Self = match store.calls(key, &CallSelection::All).await {
            Ok(invocations) => {
                for unreadable in &invocations.unreadable {
                    tracing::warn!("{unreadable}");
                }
                invocations.found.iter().map(|(_, invocation)| invocation).collect()
            }
            Err(error) => {
                tracing::warn!(
                    conversation = %key,
                    error = &error as &dyn std::error::Error,
                    "the record of tool calls could not be read; each result has the age of its message"
                );
                Self::new()
            }
        };
        times.complete(messages);
        times
    }

    /// Adds a call. `message` and `index` are the position of the call, where `index` counts the
    /// calls of the message from 0. `call_id` is the id of the call in replays. `finished_at` is
    /// the time at which the tool finished, or `None` if the tool has not finished.
    ///
    /// Calls that have not finished must be added too. Otherwise, the lookup of such a call could
    /// return the time of another call of the message with the same id.
    pub fn insert(
        &mut self,
        message: MessageId,
        index: u32,
        call_id: impl Into<String>,
        finished_at: Option<SystemTime>,
    ) {
        self.by_unique_id.take();
        self.calls.insert((message, index), FinishedCall { call_id: call_id.into(), finished_at });
    }

    /// Sets the time of each call without a recorded time to the time at which the result of the
    /// call was [added](Message::time).
    ///
    /// The messages must be the output of [`Replay::view`](crate::replay::Replay::view), in which
    /// results follow their calls.
    pub fn complete(&mut self, messages: &Messages) {
        let mut found = Vec::new();
        let mut asking = None;
        for message in messages.iter() {
            if message.calls().next().is_some() {
                let calls = || (0..).zip(message.asked_calls()).zip(self.of_calls(message));
                asking = message.id.map(|id| (id, calls()));
            }
            let Some((id, calls)) = &mut asking else { continue };
            for (result, ((index, call), known)) in message.results().zip(calls) {
                if known.is_some() {
                    continue;
                }
                let call_id = call.id.as_deref().or(result.call_id.as_deref());
                let call_id = call_id.unwrap_or_default().to_owned();
                found.push(((*id, index), FinishedCall { call_id, finished_at: message.time() }));
            }
        }
        self.by_unique_id.take();
        self.calls.extend(found);
    }

    /// Returns the time at which a call of a replayed message finished, or `None` if the time is
    /// unknown. `index` is the index of the call among the calls of the message.
    pub fn of(&self, message: &Message, index: usize) -> Option<SystemTime> {
        self.of_calls(message).get(index).copied().flatten()
    }

    /// Returns the time at which each call of a replayed message finished.
    pub(super) fn of_calls(&self, message: &Message) -> Vec<Option<SystemTime>> {
        let Some(id) = message.id else {
            let time = |call| self.by_unique_id().get(given_id(call)?).copied().flatten();
            return message.asked_calls().map(time).collect();
        };
        // The times of the calls with each id, the last call first.
        let mut recorded: HashMap<&str, Vec<Option<SystemTime>>> = HashMap::new();
        for (_, call) in self.calls.range((id, 0)..=(id, u32::MAX)).rev() {
            recorded.entry(&call.call_id).or_default().push(call.finished_at);
        }
        let mut asked: HashMap<&str, usize> = HashMap::new();
        for call_id in message.asked_calls().filter_map(given_id) {
            *asked.entry(call_id).or_default() += 1;
        }
        for (call_id, times) in &mut recorded {
            let asked = asked.get(call_id).copied().unwrap_or_default();
            if times.len() != asked {
                // Calls with this id were omitted, so their order does not identify the call.
                *times = vec![times.iter().max().copied().flatten(); asked];
            }
        }
        let calls = (0..).zip(message.asked_calls());
        let time = |(index, call)| match given_id(call) {
            Some(call_id) => recorded.get_mut(call_id)?.pop()?,
            None => self.calls.get(&(id, index))?.finished_at,
        };
        calls.map(time).collect()
    }

    fn by_unique_id(&self) -> &HashMap<String, Option<SystemTime>> {
        self.by_unique_id.get_or_init(|| {
            let mut by_unique_id = HashMap::new();
            for call in self.calls.values() {
                by_unique_id
                    .entry(call.call_id.clone())
                    .and_modify(|finished_at| *finished_at = None)
                    .or_insert(call.finished_at);
            }
            by_unique_id
        })
    }
}

impl<'a> FromIterator<&'a ToolInvocation> for FinishTimes {
    fn from_iter<I: IntoIterator<Item = &'a ToolInvocation>>(calls: I) -> Self {
        let finished = |call: &ToolInvocation| {
            let (call_id, finished_at) = (call.call_id.clone(), call.finished_at);
            ((call.message, call.sequence_index), FinishedCall { call_id, finished_at })
        };
        Self { calls: calls.into_iter().map(finished).collect(), ..Self::new() }
    }
}

/// Returns the call's own id, if it is not empty.
fn given_id(call: &ToolCall) -> Option<&str> {
    call.id.as_deref().filter(|id| !id.is_empty())
}
