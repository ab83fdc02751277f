//! Finds calls without a result, and results without a call.
//!
//! A *replay* converts stored messages to the messages of a request to the model. A *round* is the
//! calls of one answer of the model, and their results.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, Role,
    pairing::{asked_call, foreign_results},
    store::{SequencePosition, author::RecordedResult},
};

use crate::extract::Extraction;

/// A stored call without a result, or a stored result without a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// A call has no result, and is not stored as an [`ApprovalRequest`](Part::ApprovalRequest).
    #[error("the call of tool {tool:?} (id {call_id:?}) has no result")]
    DanglingCall {
        /// The position of the call.
        call: SequencePosition,
        /// The name of the tool.
        tool: String,
        /// The id of the call in the replayed messages. Replay generates an id for a call that was
        /// stored without one.
        call_id: String,
    },
    /// A result answers a call that already has a result.
    #[error("a result answers call {call_id:?}, which has a result already")]
    DuplicateResult {
        /// The position of the result.
        result: SequencePosition,
        /// The id of the call.
        call_id: String,
    },
    /// A result answers no call.
    #[error("a result ({}) answers no call", named(call_id.as_deref()))]
    OrphanResult {
        /// The position of the result.
        result: SequencePosition,
        /// The call id that is stored in the result, if the result has one.
        call_id: Option<String>,
    },
}

impl Mismatch {
    /// Returns the number of the message that contains the call or the result, from 1.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::DanglingCall { call, .. } => call.sequence,
            Self::DuplicateResult { result, .. } | Self::OrphanResult { result, .. } => {
                result.sequence
            }
        }
    }
}

/// Returns the calls without a result and the results without a call in the messages of a
/// conversation. Results are matched with calls by the rules of a replay.
///
/// The mismatches are in the order of their messages. Within a message, calls precede results.
/// `first` is the number of the first message, which is greater than 1 if earlier messages were
/// pruned (deleted).
///
/// ```
/// use tower_chat::{Message, ToolResult, message::Messages, repair::{Mismatch, mismatches}};
///
/// let stored: Messages =
///     [Message::user("Hello."), Message::tool_results([ToolResult::new("c9", "Rain.")])].into();
/// let found = mismatches(&stored, 1);
/// assert!(matches!(&found[..], [Mismatch::OrphanResult { call_id: Some(id), .. }] if id == "c9"));
/// assert_eq!(found[0].sequence(), 2);
/// ```
pub fn mismatches(messages: &Messages, first: u64) -> Vec<Mismatch> {
    mismatches_of_readable((first..).zip(messages.iter().map(Some)))
}

/// Returns the mismatches of a conversation with unreadable messages. Each item of `messages` is
/// the number of a message, together with the message, or with `None` if the message is unreadable.
/// A call is not reported if an unreadable message may contain its result, and a result is not
/// reported if an unreadable message may contain its call.
pub fn mismatches_of_readable<'a>(
    messages: impl IntoIterator<Item = (u64, Option<&'a Arc<Message>>)>,
) -> Vec<Mismatch> {
    let mut extraction = Extraction::new();
    let mut results: Vec<(SequencePosition, Option<&str>)> = Vec::new();
    let mut requests: HashSet<SequencePosition> = HashSet::new();
    let mut uncertain = Uncertain::default();
    for (sequence, message) in messages {
        uncertain.next(sequence, message.map(|message| &**message));
        let Some(message) = message else { continue };
        extraction.push(sequence, message);
        let positions = (0..).map(|index| SequencePosition { sequence, index });
        let foreign = foreign_results(message);
        let parts = message.parts.iter().enumerate();
        let all = parts.filter_map(|(index, part)| Some((index, part.as_tool_result()?)));
        for (position, (index, result)) in positions.clone().zip(all) {
            if foreign.contains(&index) {
                let call_id = result.call_id.as_deref().filter(|id| !id.is_empty());
                results.push((position, call_id));
            }
        }
        let asking = message.parts.iter().filter(|part| asked_call(part).is_some());
        requests.extend(
            positions
                .zip(asking)
                .filter(|(_, part)| matches!(part, Part::ApprovalRequest(_)))
                .map(|(position, _)| position),
        );
    }
    let mut found = Vec::new();
    let (mut answering, mut answered) = (HashSet::new(), HashSet::new());
    for record in extraction.into_records() {
        match record.result {
            RecordedResult::InMessage(position) => {
                answering.insert(position);
                answered.insert(record.call_id);
            }
            RecordedResult::None | RecordedResult::Apart(_) => {
                let (call, tool, call_id) = (record.call, record.name, record.call_id);
                if !requests.contains(&call) && !uncertain.calls.contains(&call.sequence) {
                    found.push(Mismatch::DanglingCall { call, tool, call_id });
                }
            }
        }
    }
    for (result, call_id) in results {
        if answering.contains(&result) || uncertain.results.contains(&result.sequence) {
            continue;
        }
        found.push(match call_id {
            Some(id) if answered.contains(id) => {
                Mismatch::DuplicateResult { result, call_id: id.to_owned() }
            }
            call_id => Mismatch::OrphanResult { result, call_id: call_id.map(str::to_owned) },
        });
    }
    found.sort_by_key(Mismatch::sequence);
    found
}

/// Collects the numbers of the readable messages whose calls may have their results in an
/// unreadable message, or whose results may answer calls in an unreadable message.
#[derive(Debug, Default)]
struct Uncertain {
    /// The numbers of messages with calls whose results may be in an unreadable message.
    calls: HashSet<u64>,
    /// The numbers of messages with results whose calls may be in an unreadable message.
    results: HashSet<u64>,
    /// The number of the message that began the current round. `None` if no later result can belong
    /// to that round.
    open: Option<u64>,
    /// Whether all messages after the most recent unreadable message have the role `Tool`.
    after_unreadable: bool,
}

impl Uncertain {
    fn next(&mut self, sequence: u64, message: Option<&Message>) {
        let Some(message) = message else {
            self.calls.extend(self.open.take());
            self.after_unreadable = true;
            return;
        };
        if message.role == Role::Tool {
            if self.after_unreadable {
                self.results.insert(sequence);
            }
            return;
        }
        if std::mem::take(&mut self.after_unreadable) && message.role == Role::User {
            // A message with the role `User` may contain results before its text.
            self.results.insert(sequence);
        }
        let asks = message.parts.iter().any(|part| asked_call(part).is_some());
        self.open = asks.then_some(sequence);
    }
}

fn named(call_id: Option<&str>) -> String {
    call_id.map_or_else(|| "no call id".to_owned(), |id| format!("call id {id:?}"))
}
