//! Finds the calls of an answer that need a result.

use std::sync::Arc;

use tower_chat_core::{Message, pairing::CallLog};

use crate::tool::PendingCall;

/// Returns the calls of an answer without a result in the answer.
pub(crate) fn pending_calls(messages: &[Arc<Message>]) -> Vec<PendingCall> {
    let calls = PendingCall::of_answer(messages);
    if calls.is_empty() || messages.iter().all(|message| message.results().next().is_none()) {
        return calls;
    }
    let log = CallLog::of(messages.iter().map(|message| &**message));
    let results = log.calls().iter().filter(|call| !call.needs_approval).map(|call| call.result);
    let open = calls.into_iter().zip(results).filter(|(_, result)| result.is_none());
    open.map(|(call, _)| call).collect()
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{CallPosition, MessageId, Part, RunId, ToolCall, ToolResult};

    use super::*;
    use crate::replay::effective_call_ids;

    fn pending(messages: impl IntoIterator<Item = Message>) -> Vec<String> {
        let messages: Vec<_> = messages.into_iter().map(Arc::new).collect();
        pending_calls(&messages).iter().map(|pending| pending.id().to_owned()).collect()
    }

    fn calls(ids: &[&str]) -> Message {
        Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "look", "{}")))
    }

    #[test]
    fn the_calls_of_all_messages_are_collected_in_order() {
        assert_eq!(
            pending([calls(&["1", "2"]), Message::assistant("x"), calls(&["3"])]),
            ["1", "2", "3"]
        );
    }

    #[test]
    fn a_stored_result_answers_the_call_at_its_position_whatever_ids_they_have() {
        let run = RunId::from_bytes([7; 16]);
        let mut asking = calls(&["", ""]);
        asking.id = Some(MessageId { run, index: 1 });
        let position = CallPosition { message: MessageId { run, index: 1 }, index: 1 };
        // The id of this result was generated when the message had another call before these two,
        // which a `persist` hook has removed since.
        let of_other = ToolResult::new("call_1_2", "found").answering(position);
        let answer = Message::tool_results([of_other]);
        let open = effective_call_ids(&asking);
        assert_eq!(pending([asking, answer]), [&*open[0]]);
    }

    #[test]
    fn a_call_that_is_answered_inside_the_response_is_not_pending() {
        let answer = Message::tool_results([ToolResult::new("1", "found")]);
        assert_eq!(pending([calls(&["1", "2"]), answer]), ["2"]);
        let mut both = calls(&["1", "2"]);
        both.parts.push(Part::ToolResult(ToolResult::new("2", "found")));
        assert_eq!(pending([both]), ["1"]);
    }

    #[test]
    fn one_result_answers_one_of_two_calls_with_the_same_id() {
        let answer = Message::tool_results([ToolResult::new("1", "found")]);
        let message = calls(&["1", "1"]);
        let second = effective_call_ids(&message).remove(1);
        assert_eq!(pending([message, answer]), [second]);
    }

    #[test]
    fn a_result_without_an_id_answers_the_first_pending_call() {
        let mut result = ToolResult::new("", "found");
        result.call_id = None;
        let mut message = calls(&["", ""]);
        message.id = Some(MessageId { run: RunId::new(), index: 1 });
        let ids = effective_call_ids(&message);
        assert_eq!(pending([message, Message::tool_results([result])]), [ids[1].clone()]);
    }

    #[test]
    fn calls_that_the_provider_executed_are_not_pending() {
        let mut call = ToolCall::new("1", "search", "{}");
        call.provider_executed = true;
        assert!(pending([Message::tool_calls([call])]).is_empty());
    }
}
