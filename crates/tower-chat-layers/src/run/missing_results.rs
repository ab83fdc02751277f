//! The results that a run lacks which is committed where it stands.

use tower_chat_core::{
    CallPosition, Message, MessageId, ToolResult, ToolStatus,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

use crate::replay::INTERRUPTED;

/// What the model is told of a call that was not run before its run ended.
const NEVER_RUN: &str = "The call was not run: its run was interrupted before.";

/// The results that the last round lacks, as one message in the order of its calls, with what their
/// tools have queued after it; and the rows that say where the results are: in the message at
/// `sequence`.
pub(crate) fn missing_results<'a>(
    tools: impl IntoIterator<Item = &'a ToolRecord>,
    sequence: u64,
    id_of: impl Fn(u64) -> Option<MessageId>,
) -> (Vec<Message>, Vec<ToolRecord>) {
    let mut results = Vec::new();
    let mut queued = Vec::new();
    let mut rows = Vec::new();
    let open = tools.into_iter().filter(|row| !matches!(row.result, RecordedResult::InMessage(_)));
    for row in open.filter(|row| row.status != ToolStatus::PendingApproval) {
        let mut row = row.clone();
        let mut result = match std::mem::replace(&mut row.result, RecordedResult::None) {
            RecordedResult::Apart(result) => *result,
            RecordedResult::InMessage(_) | RecordedResult::None => {
                let (status, text) = match row.started_at {
                    Some(_) => (ToolStatus::Interrupted, INTERRUPTED),
                    None => (ToolStatus::Error, NEVER_RUN),
                };
                row.status = status;
                row.error = Some(text.to_owned());
                ToolResult::error(&row.call_id, text)
            }
        };
        queued.append(&mut result.queued);
        result.call_id = Some(row.call_id.clone());
        // By position: siblings with its id may have results, and a hook may have left some out.
        let position = |message| CallPosition { message, index: row.call.index };
        result.call = id_of(row.call.sequence).map(position);
        result.name.get_or_insert_with(|| row.name.clone());
        let index = u32::try_from(results.len()).unwrap_or(u32::MAX);
        row.result = RecordedResult::InMessage(SequencePosition { sequence, index });
        results.push(result);
        rows.push(row);
    }
    let results = (!results.is_empty()).then(|| Message::tool_results(results));
    (results.into_iter().chain(queued).collect(), rows)
}
