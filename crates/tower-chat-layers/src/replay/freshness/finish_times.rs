//! The times at which tools finished, with lookups by call.

use std::{collections::HashMap, mem, ptr, sync::OnceLock, time::SystemTime};

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
    /// The calls, sorted by their positions. Within a run, this is the order of the conversation.
    calls: Vec<FinishedCall>,
    /// The times by call id, for lookups of calls in messages without an id. The value is `None` if
    /// several calls have the id.
    by_unique_id: OnceLock<HashMap<String, Option<SystemTime>>>,
}

#[derive(Debug, Clone)]
struct FinishedCall {
    message: MessageId,
    /// The index among the calls of the message.
    index: u32,
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
            FinishTimes { calls: Vec::new(), by_unique_id: OnceLock::new() };
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
        let call = FinishedCall { message, index, call_id: call_id.into(), finished_at };
        if self.calls.last().is_none_or(|last| last.position() < call.position()) {
            return self.calls.push(call);
        }
        match self.calls.binary_search_by_key(&call.position(), FinishedCall::position) {
            Ok(known) => self.calls.splice(known..=known, [call]).for_each(drop),
            Err(position) => self.calls.insert(position, call),
        }
    }

    /// Sets the time of each call without a recorded time to the time at which the result of the
    /// call was [added](Message::time).
    ///
    /// The messages must be the output of [`Replay::view`](crate::replay::Replay::view), in which
    /// results follow their calls.
    pub fn complete(&mut self, messages: &Messages) {
        let mut walk = self.walk();
        let mut found = Vec::new();
        let mut asking = None;
        for message in messages.iter() {
            if message.calls().next().is_some() {
                asking = message.id.map(|id| (message, id, (0..).zip(message.asked_calls())));
            }
            let Some((asking, id, calls)) = &mut asking else { continue };
            for (result, (index, call)) in message.results().zip(calls) {
                if walk.of(asking, index as usize, call).is_some() {
                    continue;
                }
                let call_id = call.id.as_deref().or(result.call_id.as_deref());
                let call_id = call_id.unwrap_or_default().to_owned();
                let finished_at = message.time();
                found.push(FinishedCall { message: *id, index, call_id, finished_at });
            }
        }
        self.extend(found);
    }

    /// Adds calls in any order. The last one of several calls at the same position remains.
    fn extend(&mut self, calls: impl IntoIterator<Item = FinishedCall>) {
        self.by_unique_id.take();
        self.calls.extend(calls);
        self.calls.sort_by_key(FinishedCall::position);
        self.calls.dedup_by(|later, retained| {
            let is_same = later.position() == retained.position();
            if is_same {
                mem::swap(later, retained);
            }
            is_same
        });
    }

    /// Returns the time at which a call of a replayed message finished, or `None` if the time is
    /// unknown. `index` is the index of the call among the calls of the message.
    pub fn of(&self, message: &Message, index: usize) -> Option<SystemTime> {
        let call = message.asked_calls().nth(index)?;
        self.walk().of(message, index, call)
    }

    pub(super) fn walk(&self) -> FinishTimesWalk<'_> {
        FinishTimesWalk { times: self, message_start: 0, known: None, ranks: None }
    }

    fn by_unique_id(&self) -> &HashMap<String, Option<SystemTime>> {
        self.by_unique_id.get_or_init(|| {
            let mut by_unique_id = HashMap::new();
            for call in &self.calls {
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
        let mut times = Self::new();
        times.extend(calls.into_iter().map(|call| FinishedCall {
            message: call.message,
            index: call.sequence_index,
            call_id: call.call_id.clone(),
            finished_at: call.finished_at,
        }));
        times
    }
}

impl FinishedCall {
    fn position(&self) -> (MessageId, u32) {
        (self.message, self.index)
    }
}

/// The maximum number of calls of one message that are searched linearly.
const FEW: usize = 8;

/// A cursor for lookups of calls. If the messages are in the order of the times, a lookup needs no
/// search.
#[derive(Debug)]
pub(super) struct FinishTimesWalk<'a> {
    times: &'a FinishTimes,
    /// The index in `times.calls` of the first call of the most recently found message.
    message_start: usize,
    /// The calls in the message of the most recent lookup.
    known: Option<KnownCalls<'a>>,
    /// The ranks of the calls in the most recent message with more than [`FEW`] parts.
    ranks: Option<Ranks>,
}

impl<'a> FinishTimesWalk<'a> {
    /// Returns the time at which a call finished. `index` is the index of the call in its message.
    pub(super) fn of(
        &mut self,
        message: &Message,
        index: usize,
        call: &ToolCall,
    ) -> Option<SystemTime> {
        let call_id = call.id.as_deref().filter(|id| !id.is_empty());
        let Some(message_id) = message.id else {
            return self.times.by_unique_id().get(call_id?).copied().flatten();
        };
        if self.known.as_ref().is_none_or(|known| known.message != message_id) {
            self.known = Some(KnownCalls::new(message_id, self.calls_of(message_id)));
        }
        let known = self.known.as_ref()?;
        let Some(call_id) = call_id else { return known.finished_at(index) };
        match known.calls_with_id(call_id) {
            CallsWithId { count: 0 | 1, latest, .. } => latest,
            calls_with_id => {
                let rank = rank(&mut self.ranks, message, message_id, index, call_id);
                // If calls with this id were omitted, the rank does not identify the call.
                if calls_with_id.count == rank.count {
                    calls_with_id.nth(rank.before)
                } else {
                    calls_with_id.latest
                }
            }
        }
    }

    fn calls_of(&mut self, message: MessageId) -> &'a [FinishedCall] {
        let calls = &self.times.calls;
        let is_before = |call: &&FinishedCall| call.message < message;
        let skipped = calls.iter().skip(self.message_start).take(FEW).take_while(is_before).count();
        let is_next =
            calls.get(self.message_start + skipped).is_some_and(|call| call.message == message);
        self.message_start = match is_next {
            true => self.message_start + skipped,
            false => calls.partition_point(|call| call.message < message),
        };
        let from_start = calls.get(self.message_start..).unwrap_or_default();
        let count = from_start.iter().take_while(|call| call.message == message).count();
        from_start.get(..count).unwrap_or_default()
    }
}

/// The calls of one message for which times were added.
#[derive(Debug)]
struct KnownCalls<'a> {
    message: MessageId,
    calls: &'a [FinishedCall],
    /// For each call id, the times of its calls in order, and the latest time. Empty if there are
    /// at most [`FEW`] calls.
    by_id: HashMap<&'a str, (Vec<Option<SystemTime>>, Option<SystemTime>)>,
}

/// The calls of one message with the same id.
struct CallsWithId<'k> {
    count: usize,
    latest: Option<SystemTime>,
    times: Times<'k>,
}

enum Times<'k> {
    Indexed(&'k [Option<SystemTime>]),
    Among(&'k [FinishedCall], &'k str),
}

impl<'a> KnownCalls<'a> {
    fn new(message: MessageId, calls: &'a [FinishedCall]) -> Self {
        let mut by_id: HashMap<&str, (Vec<_>, Option<SystemTime>)> = HashMap::new();
        if calls.len() > FEW {
            for call in calls {
                let (times, latest) = by_id.entry(&call.call_id).or_default();
                times.push(call.finished_at);
                *latest = (*latest).max(call.finished_at);
            }
        }
        Self { message, calls, by_id }
    }

    fn finished_at(&self, index: usize) -> Option<SystemTime> {
        let found = self.calls.binary_search_by_key(&index, |call| call.index as usize).ok()?;
        self.calls.get(found)?.finished_at
    }

    fn calls_with_id<'k>(&'k self, call_id: &'k str) -> CallsWithId<'k> {
        if self.calls.len() > FEW {
            let (times, latest) = match self.by_id.get(call_id) {
                Some((times, latest)) => (times.as_slice(), *latest),
                None => (&[][..], None),
            };
            return CallsWithId { count: times.len(), latest, times: Times::Indexed(times) };
        }
        let (mut count, mut latest) = (0, None);
        for call in self.calls.iter().filter(|call| call.call_id == call_id) {
            count += 1;
            latest = latest.max(call.finished_at);
        }
        CallsWithId { count, latest, times: Times::Among(self.calls, call_id) }
    }
}

impl CallsWithId<'_> {
    fn nth(&self, position: usize) -> Option<SystemTime> {
        match self.times {
            Times::Indexed(times) => times.get(position).copied().flatten(),
            Times::Among(calls, id) => {
                calls.iter().filter(|call| call.call_id == id).nth(position)?.finished_at
            }
        }
    }
}

/// The position of a call among the calls of its message with the same id.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    /// The number of calls with the same id before this call.
    before: usize,
    count: usize,
}

/// The ranks of all calls of a message, in order.
#[derive(Debug)]
struct Ranks {
    /// The address of the message. The id is not sufficient, because the replay may have split a
    /// message into two with the same id.
    address: usize,
    message: MessageId,
    ranks: Vec<Rank>,
}

fn rank(
    ranks: &mut Option<Ranks>,
    message: &Message,
    id: MessageId,
    index: usize,
    call_id: &str,
) -> Rank {
    if message.parts.len() <= FEW {
        let is_same = |call: &ToolCall| call.id.as_deref() == Some(call_id);
        let before = message.asked_calls().take(index).filter(|call| is_same(call)).count();
        let count = message.asked_calls().filter(|call| is_same(call)).count();
        return Rank { before, count };
    }
    let address = ptr::from_ref(message).addr();
    let known = ranks.take().filter(|known| (known.address, known.message) == (address, id));
    let known = ranks.insert(known.unwrap_or_else(|| Ranks::new(address, id, message)));
    known.ranks.get(index).copied().unwrap_or_default()
}

impl Ranks {
    fn new(address: usize, message_id: MessageId, message: &Message) -> Self {
        let mut counts: HashMap<Option<&str>, usize> = HashMap::new();
        let mut ranks = Vec::with_capacity(message.parts.len());
        for call in message.asked_calls() {
            let count = counts.entry(call.id.as_deref()).or_default();
            ranks.push(Rank { before: *count, count: 0 });
            *count += 1;
        }
        for (rank, call) in ranks.iter_mut().zip(message.asked_calls()) {
            rank.count = counts.get(&call.id.as_deref()).copied().unwrap_or_default();
        }
        Self { address, message: message_id, ranks }
    }
}
