//! Which waiting calls a request answers.

use std::collections::HashMap;

use tower_chat_core::{ApprovalRequest, ApprovalResponse, Message, Part};

use super::batch::PlannedCall;
use crate::{
    approval::waiting_call_id,
    run::CallOfRun,
    tool::{OwedCall, Tools},
};

/// The answers to approval requests in these messages. The first answer to a request counts.
pub(super) fn answers<'a>(
    messages: impl Iterator<Item = &'a std::sync::Arc<Message>>,
) -> HashMap<&'a str, &'a ApprovalResponse> {
    let mut answers = HashMap::new();
    for part in messages.flat_map(|message| &message.parts) {
        if let Part::ApprovalResponse(answer) = part {
            answers.entry(answer.request_id.as_str()).or_insert(answer);
        }
    }
    answers
}

/// The waiting calls that the answers let run, or refuse, in the order in which they were asked.
///
/// Batches without any answer go on waiting; answers to anything else do nothing. What runs is
/// the call of the request, never anything out of an answer.
///
/// # Errors
///
/// The ids of the requests without an answer, in batches that have some.
pub(super) fn decide(
    pending: impl IntoIterator<Item = Vec<(Option<CallOfRun>, ApprovalRequest)>>,
    mut answers: HashMap<&str, &ApprovalResponse>,
    tools: &Tools,
) -> Result<Vec<PlannedCall>, Vec<String>> {
    let mut calls = Vec::new();
    let mut missing = Vec::new();
    for batch in pending {
        let before = calls.len();
        let mut unanswered = Vec::new();
        for (place, request) in batch {
            // Taken out, so that a request that is both stored and sent again counts once.
            match answers.remove(request.id.as_str()) {
                Some(answer) => calls.push(decided(place, request, answer, tools)),
                None => unanswered.push(request.id),
            }
        }
        if calls.len() > before {
            missing.append(&mut unanswered);
        }
    }
    if missing.is_empty() { Ok(calls) } else { Err(missing) }
}

fn decided(
    place: Option<CallOfRun>,
    request: ApprovalRequest,
    answer: &ApprovalResponse,
    tools: &Tools,
) -> PlannedCall {
    let id = waiting_call_id(&request);
    let owed = OwedCall::alone(request.call, id, place);
    if answer.approved {
        PlannedCall::run(owed, tools)
    } else {
        PlannedCall::rejected(owed, answer.reason.clone())
    }
}
