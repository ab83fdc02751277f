//! When tools had finished.

use std::{collections::HashMap, mem, ptr, sync::OnceLock, time::SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, ToolCall, ToolInvocation,
    store::{HistoryStore, InvocationQuery},
};

/// When the tool calls of a conversation had finished, as the record has it.
///
/// Replay may have left out siblings of a call, so a call is found again by the id by which the
/// model knows it, and calls of one message that share an id by their order among those; where
/// some of these were left out, the latest of their times counts.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat::{Message, MessageId, RunId, ToolCall, replay::FinishTimes};
/// let mut message = Message::tool_calls([ToolCall::new("c1", "weather", "{}")]);
/// let id = MessageId { run: RunId::new(), index: 1 };
/// message.id = Some(id);
/// let mut times = FinishTimes::new();
/// times.insert(id, 0, "c1", Some(SystemTime::UNIX_EPOCH));
/// assert_eq!(times.of(&message, 0), Some(SystemTime::UNIX_EPOCH));
/// ```
#[derive(Debug, Clone, Default)]
pub struct FinishTimes {
    /// In the order of their positions, which is nearly that of the conversation.
    calls: Vec<FinishedCall>,
    /// By the call's id alone, where only one call has it: for messages without an id.
    alone: OnceLock<HashMap<String, Option<SystemTime>>>,
}

#[derive(Debug, Clone)]
struct FinishedCall {
    message: MessageId,
    /// Its position among the calls of the message.
    index: u32,
    call_id: String,
    finished_at: Option<SystemTime>,
}

impl FinishTimes {
    /// Nothing is known of any call.
    pub fn new() -> Self {
        Self::default()
    }

    /// When the tools of a conversation had finished: what the record says, else when their results
    /// were added to the conversation. If the record cannot be read, the latter counts for all.
    ///
    /// The messages are those of the conversation, as [`Replay::view`](crate::replay::Replay::view) gives
    /// them.
    pub async fn of_conversation(
        store: &(impl HistoryStore + ?Sized),
        key: &ConversationKey,
        messages: &Messages,
    ) -> Self {
        let mut times: Self = match store.invocations(&InvocationQuery::of(key)).await {
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
                    "the record of tool calls could not be read; \
                     results are as old as their messages"
                );
                Self::new()
            }
        };
        times.complete(messages);
        times
    }

    /// Adds a call: its message, its position among the calls of that message from 0, the id by
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
        if self.calls.last().is_none_or(|last| last.position() < call.position()) {
            return self.calls.push(call);
        }
        match self.calls.binary_search_by_key(&call.position(), FinishedCall::position) {
            Ok(known) => self.calls.splice(known..=known, [call]).for_each(drop),
            Err(position) => self.calls.insert(position, call),
        }
    }

    /// Fills in the times of results of which it is not known when their tool had finished: the
    /// time at which the result was [added](Message::time) counts. Such are results that the caller
    /// has brought, that a foreign tool loop has made, and imported ones.
    ///
    /// The messages are in order and paired, as [`Replay::view`](crate::replay::Replay::view) gives
    /// them.
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

    /// Adds calls in any order. Of several of one place the last counts.
    fn extend(&mut self, calls: impl IntoIterator<Item = FinishedCall>) {
        self.alone.take();
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

    /// When the call at a position among those of a replayed message had finished, if it is known.
    pub fn of(&self, message: &Message, index: usize) -> Option<SystemTime> {
        let call = message.asked_calls().nth(index)?;
        self.walk().of(message, index, call)
    }

    /// Looks calls up one after the other, in the order of their messages.
    pub(super) fn walk(&self) -> FinishTimesWalk<'_> {
        FinishTimesWalk { times: self, at: 0, known: None, ranks: None }
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

/// More calls than a message has as a rule. So few are looked through; more are indexed once for all
/// of their message.
const FEW: usize = 8;

/// A walk over the times along with one over messages: as long as the two go in step, nothing has
/// to be searched.
#[derive(Debug)]
pub(super) struct FinishTimesWalk<'a> {
    times: &'a FinishTimes,
    /// Where the calls of a message begin.
    at: usize,
    /// The known calls of the message that was asked about last.
    known: Option<KnownCalls<'a>>,
    /// Of the last message with many calls.
    ranks: Option<Ranks>,
}

impl<'a> FinishTimesWalk<'a> {
    /// When a call, at its position among those of a replayed message, had finished, if it is known.
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
        if self.known.as_ref().is_none_or(|known| known.message != message_id) {
            self.known = Some(KnownCalls::new(message_id, self.calls_of(message_id)));
        }
        let known = self.known.as_ref()?;
        let Some(call_id) = call_id else { return known.at(index) };
        match known.of_id(call_id) {
            OfId { count: 0 | 1, latest, .. } => latest,
            of_id => {
                let rank = rank(&mut self.ranks, message, message_id, index, call_id);
                // Where some were left out, it cannot be told which.
                if of_id.count == rank.of { of_id.nth(rank.before) } else { of_id.latest }
            }
        }
    }

    /// The known calls of a message, in their order.
    fn calls_of(&mut self, message: MessageId) -> &'a [FinishedCall] {
        let calls = &self.times.calls;
        let is_before = |call: &&FinishedCall| call.message < message;
        let behind = calls.iter().skip(self.at).take(FEW).take_while(is_before).count();
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

/// The known calls of one message.
#[derive(Debug)]
struct KnownCalls<'a> {
    message: MessageId,
    /// In the order of their indexes.
    calls: &'a [FinishedCall],
    /// By their ids, if there are many.
    by_id: HashMap<&'a str, (Vec<Option<SystemTime>>, Option<SystemTime>)>,
}

/// The known calls of one id.
struct OfId<'k> {
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

    fn at(&self, index: usize) -> Option<SystemTime> {
        let found = self.calls.binary_search_by_key(&index, |call| call.index as usize).ok()?;
        self.calls.get(found)?.finished_at
    }

    fn of_id<'k>(&'k self, call_id: &'k str) -> OfId<'k> {
        if self.calls.len() > FEW {
            let (times, latest) = match self.by_id.get(call_id) {
                Some((times, latest)) => (times.as_slice(), *latest),
                None => (&[][..], None),
            };
            return OfId { count: times.len(), latest, times: Times::Indexed(times) };
        }
        let (mut count, mut latest) = (0, None);
        for call in self.calls.iter().filter(|call| call.call_id == call_id) {
            count += 1;
            latest = latest.max(call.finished_at);
        }
        OfId { count, latest, times: Times::Among(self.calls, call_id) }
    }
}

impl OfId<'_> {
    fn nth(&self, position: usize) -> Option<SystemTime> {
        match self.times {
            Times::Indexed(times) => times.get(position).copied().flatten(),
            Times::Among(calls, id) => {
                calls.iter().filter(|call| call.call_id == id).nth(position)?.finished_at
            }
        }
    }
}

/// A call among those of its message with the same id.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    before: usize,
    of: usize,
}

/// The ranks of all calls of a message, in their order.
#[derive(Debug)]
struct Ranks {
    /// Replay may have made two messages of one, which have the same id.
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
        let of = message.asked_calls().filter(|call| is_same(call)).count();
        return Rank { before, of };
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
            ranks.push(Rank { before: *count, of: 0 });
            *count += 1;
        }
        for (rank, call) in ranks.iter_mut().zip(message.asked_calls()) {
            rank.of = counts.get(&call.id.as_deref()).copied().unwrap_or_default();
        }
        Self { address, message: message_id, ranks }
    }
}
