//! Explains the changes that the fold makes to stored messages, and the content that a hook
//! ([`Tool::persist`](tower_chat_layers::Tool::persist)) removed before the messages were stored. A
//! replay converts the stored messages to those of a request. The fold is the part of a replay that
//! every policy executes: the fold pairs calls with results, and omits content that no provider
//! accepts.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{Message, Messages, Part, Role, pairing::asked_call};
use tower_chat_layers::{
    replay::{DanglingCalls, Replay, Truncation},
    run::NotKept,
};
use tower_chat_repair::{Mismatch, mismatches};

use crate::{
    reason::{ReasonKind, Reasons},
    tags::{Sent, tag, tagged_parts},
};

/// A fold of messages, each of which has a mark with its stored position.
pub(crate) struct Folded {
    pub(crate) replay: Replay,
}

impl Folded {
    pub(crate) fn of(stored: &Messages, dangling: DanglingCalls) -> Self {
        let mut folded = Self { replay: Replay::new(dangling) };
        stored.iter().enumerate().for_each(|(position, message)| folded.push(message, position));
        folded
    }

    pub(crate) fn push(&mut self, message: &Message, position: usize) {
        let marked = Arc::new(tagged_parts(message, position));
        self.replay.push_marked(&marked, |piece| tag(piece, position));
    }

    /// Adds a message with results from the record of tool calls.
    pub(crate) fn push_from_record(&mut self, message: &Arc<Message>) {
        self.replay.push(message);
    }

    /// Adds a reason for each difference between the stored messages and the output of the fold.
    pub(crate) fn explain(&self, stored: &Messages, reasons: &mut Reasons) {
        let sent = Sent::of(&self.replay.view());
        let mut repeated = None;
        for (position, message) in stored.iter().enumerate() {
            explain_stored_marks(message, position, reasons);
            for (index, part) in message.parts.iter().enumerate() {
                let here = (position, index);
                let kind = match part {
                    Part::ApprovalResponse(_) => Some(ReasonKind::Decision),
                    part if sent.has_part(here) => {
                        let is_interrupted = sent.completed.get(&here);
                        completed_as(part, is_interrupted.copied())
                    }
                    part if is_misplaced(message.role, part) => Some(ReasonKind::Misplaced),
                    Part::ApprovalRequest(_) => Some(ReasonKind::AwaitingApproval),
                    Part::ToolCall(call) => {
                        let is_result_not_stored =
                            is_result_not_stored(stored, position, call.id.as_deref());
                        Some(if is_result_not_stored {
                            ReasonKind::NotStored
                        } else {
                            ReasonKind::Dangling
                        })
                    }
                    Part::ToolResult(_) => {
                        let repeated = repeated.get_or_insert_with(|| repeated_results(stored));
                        let is_repeated = repeated.contains(&result_position(message, here));
                        Some(if is_repeated { ReasonKind::Repeated } else { ReasonKind::Orphan })
                    }
                    _ => None,
                };
                if let Some(kind) = kind {
                    reasons.add(position, kind, Some(index));
                }
            }
            if !sent.has_message(position) && !reasons.has_any(position) {
                reasons.add(position, ReasonKind::Empty, None);
            }
        }
        for (position, part) in &sent.moved {
            reasons.add(*position, ReasonKind::Moved, *part);
        }
    }
}

/// Returns the reason for a call in [`Sent::completed`]; `None` for any other part.
/// `is_interrupted` is the value of the call there.
fn completed_as(part: &Part, is_interrupted: Option<bool>) -> Option<ReasonKind> {
    asked_call(part)?;
    is_interrupted.map(|is_interrupted| match is_interrupted {
        true => ReasonKind::Interrupted,
        false => ReasonKind::FromRecord,
    })
}

/// Adds the reasons for content that was not stored or was changed before it was stored. The hook
/// or the truncation that changed the content has recorded this in the stored message.
fn explain_stored_marks(message: &Message, position: usize, reasons: &mut Reasons) {
    let not_kept = NotKept::in_message(message);
    if not_kept.calls || not_kept.results.is_some() {
        reasons.add(position, ReasonKind::NotStored, None);
    }
    let asking = message.parts.iter().enumerate().filter(|(_, part)| asked_call(part).is_some());
    let asking: Vec<usize> = asking.map(|(index, _)| index).collect();
    for call in not_kept.arguments {
        if let Some(index) = asking.get(call) {
            reasons.add(position, ReasonKind::Redacted, Some(*index));
        }
    }
    for (index, part) in message.parts.iter().enumerate() {
        let result = part.as_tool_result().filter(|_| message.role == Role::Tool);
        let is_cut = result.is_some_and(|result| result.text().ends_with(Truncation::MARKER));
        if is_cut {
            reasons.add(position, ReasonKind::Truncated, Some(index));
        }
    }
}

fn is_misplaced(role: Role, part: &Part) -> bool {
    role != Role::Assistant && matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_))
}

/// Returns whether a hook prevented the storage of a call's result. The metadata of the messages
/// with results after the answer at `position` then contain the id of the call, `id`.
fn is_result_not_stored(stored: &Messages, position: usize, id: Option<&str>) -> bool {
    let Some(id) = id else { return false };
    let following = stored.iter_from(position).skip_while(|it| it.role == Role::Assistant);
    let mut results = following.take_while(|message| message.role == Role::Tool);
    results.any(|message| {
        NotKept::in_message(message).results.is_some_and(|ids| ids.iter().any(|it| it == id))
    })
}

/// Returns the results whose call already has a result. Each result is given as the index of its
/// message, and its index among the results of the message.
fn repeated_results(stored: &Messages) -> HashSet<(usize, usize)> {
    let found = mismatches(stored, 0).into_iter();
    found
        .filter_map(|mismatch| match mismatch {
            Mismatch::DuplicateResult { result, .. } => {
                Some((usize::try_from(result.sequence).ok()?, result.index as usize))
            }
            _ => None,
        })
        .collect()
}

/// Converts the position of a result to the index of its message, and its index among the results
/// of the message.
fn result_position(message: &Message, (position, part): (usize, usize)) -> (usize, usize) {
    let before = message.parts.iter().take(part);
    (position, before.filter(|part| part.as_tool_result().is_some()).count())
}
