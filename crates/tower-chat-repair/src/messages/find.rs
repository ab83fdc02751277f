//! Finds calls without a result, and results without a call.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, Messages, Part, Role,
    pairing::{asked_call, foreign_results},
    store::{SequencePosition, author::RecordedResult},
};

use crate::extract::Extraction;

/// A stored call without its result, or a stored result without its call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// A call has no result, and was not stored as a request for approval.
    #[error("the call of tool {tool:?} (id {call_id:?}) has no result")]
    DanglingCall {
        /// The position of the call.
        call: SequencePosition,
        /// The name of the tool.
        tool: String,
        /// The id of the call in a replay.
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
        /// The id of the call that the result names, if it names one.
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

/// Returns the calls and results of a conversation that do not match, in the order of the messages. The
/// calls of a message precede its results. Calls and results are paired as in a replay. `first` is the
/// number of the first message, which is greater than 1 if earlier messages were pruned.
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

/// Returns the mismatches of a conversation in which some messages cannot be read. Each message has its
/// number; one that cannot be read is `None`. Calls and results of other messages are not reported if the
/// unreadable message may contain what they match.
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

/// Collects the messages with calls or results that may match those of a message that cannot be read.
#[derive(Debug, Default)]
struct Uncertain {
    /// The numbers of messages with calls that an unreadable message may answer.
    calls: HashSet<u64>,
    /// The numbers of messages with results that may answer calls of an unreadable message.
    results: HashSet<u64>,
    /// The message that began the current round, if the round can still receive results.
    open: Option<u64>,
    /// Whether only messages of tools follow the most recent unreadable message.
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
            // A message of the user may contain results before its text.
            self.results.insert(sequence);
        }
        let asks = message.parts.iter().any(|part| asked_call(part).is_some());
        self.open = asks.then_some(sequence);
    }
}

fn named(call_id: Option<&str>) -> String {
    call_id.map_or_else(|| "no call id".to_owned(), |id| format!("call id {id:?}"))
}
