//! Replaces tool calls by approval requests, which the caller approves or rejects in a later
//! request. Finds approval requests, the caller's decisions, and the results of approved calls.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ApprovalRequest, ApprovalResponse, CallPosition, EndedBy, Message, Part, Role, ToolCall,
    ToolDefinition, ToolResult, pairing::CallLog,
};

use crate::replay::ended_by;

/// Returns the messages of one response. If one of the called tools needs approval, approval
/// requests replace all calls, except calls whose results the response contains. Otherwise, the
/// messages are returned unchanged.
///
/// All calls of the response wait for the decision, because the results of all calls are sent
/// together. In the approval request of a call that needs no approval,
/// [`required`](ApprovalRequest::required) is `false`. The id of an approval request is generated
/// from the id of its message, and is therefore unique in the conversation. Approval requests that
/// the messages already contain are not changed.
pub(crate) fn request_approvals_of(
    messages: Vec<Arc<Message>>,
    tools: &[ToolDefinition],
) -> Vec<Arc<Message>> {
    request_pending(messages, needs_approval(tools), |_| false)
}

/// Like [`request_approvals_of`], but does not replace calls of tools for which `is_callers`
/// returns `true`.
pub(crate) fn request_pending(
    messages: Vec<Arc<Message>>,
    needs_approval: impl Fn(&str) -> bool,
    is_callers: impl Fn(&str) -> bool,
) -> Vec<Arc<Message>> {
    let log = CallLog::of(messages.iter().map(|message| &**message));
    let is_answered = log.calls().iter().filter(|call| !call.needs_approval);
    let mut is_answered = is_answered.map(|call| call.result.is_some());
    let must_ask = {
        let calls = messages.iter().filter(|message| message.role == Role::Assistant);
        let mut calls = calls.flat_map(|message| message.calls()).zip(is_answered.clone());
        // A call that was cut off never runs.
        let may_run = |call: &ToolCall| !call.is_cut_off && needs_approval(&call.name);
        calls.any(|(call, is_answered)| !is_answered && may_run(call))
    };
    if !must_ask {
        return messages;
    }
    let mut ask = |message: Arc<Message>| {
        if message.role == Role::Assistant && message.calls().next().is_some() {
            ask_for_all(message, &mut is_answered, &needs_approval, &is_callers)
        } else {
            message
        }
    };
    messages.into_iter().map(&mut ask).collect()
}

/// Returns the approval request with this id, and the index of its call in the message.
pub(crate) fn find_request<'m>(
    message: &'m Message,
    id: &str,
) -> Option<(u32, &'m ApprovalRequest)> {
    let asked = message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) if !call.provider_executed => Some(None),
        Part::ApprovalRequest(request) => Some(Some(request)),
        _ => None,
    });
    let mut requests = (0..).zip(asked).filter_map(|(index, request)| Some((index, request?)));
    requests.find(|(_, request)| request.id == id)
}

/// Returns the last decision about each approval request.
pub(crate) fn decisions_by_request<'m>(
    messages: impl IntoIterator<Item = &'m Arc<Message>>,
) -> HashMap<&'m str, &'m ApprovalResponse> {
    let decisions = messages.into_iter().flat_map(|message| decisions_of(message));
    decisions.map(|decision| (&*decision.request_id, decision)).collect()
}

/// Returns the decisions in a message.
pub(crate) fn decisions_of(message: &Message) -> impl Iterator<Item = &ApprovalResponse> {
    message.parts.iter().filter_map(|part| match part {
        Part::ApprovalResponse(decision) => Some(decision),
        _ => None,
    })
}

/// Returns the result of an approved call if the run that executed the call is incomplete: no
/// answer of the model follows the result, and the run was not stopped. `messages` are in reverse
/// order.
pub(crate) fn trailing_result_of<'m>(
    messages: impl Iterator<Item = &'m Arc<Message>>,
    call: Option<CallPosition>,
    request: &ApprovalRequest,
) -> Option<&'m ToolResult> {
    let mut messages = messages.peekable();
    let mut trailing = Vec::new();
    while let Some(message) = messages.next_if(|message| message.role != Role::Assistant) {
        trailing.push(message);
    }
    let answer: Vec<_> = messages.take_while(|message| message.role == Role::Assistant).collect();
    let parts = || answer.iter().flat_map(|message| &message.parts);
    let asks = parts()
        .any(|part| matches!(part, Part::ApprovalRequest(of_answer) if of_answer.id == request.id));
    // A result without a position belongs to a call of the last answer with the same id.
    let is_of_other = !asks
        && parts().any(|part| matches!(part, Part::ToolCall(other) if other.id == request.call.id));
    let is_it = |result: &&ToolResult| match result.call {
        Some(named) => Some(named) == call,
        None => !is_of_other && result.call_id == request.call.id,
    };
    let mut found = trailing.iter().map(|message| (message, message.results().find(is_it)));
    let (message, result) = found.find_map(|(message, result)| Some((message, result?)))?;
    // The trailing messages may include messages of an earlier run, whose stop has no effect on
    // this run.
    let run_of = |message: &Message| message.id.map(|id| id.run);
    let mut of_run = trailing.iter().filter(|other| run_of(other) == run_of(message));
    let is_stopped = of_run.any(|other| ended_by(other) == Some(EndedBy::Stop));
    (!is_stopped).then_some(result)
}

const ID_PREFIX: &str = "approval";

fn needs_approval(tools: &[ToolDefinition]) -> impl Fn(&str) -> bool {
    |name| tools.iter().any(|tool| tool.needs_approval && tool.name == name)
}

/// Replaces the calls of a message by approval requests, except the `answered` ones.
fn ask_for_all(
    message: Arc<Message>,
    answered: &mut impl Iterator<Item = bool>,
    needs_approval: impl Fn(&str) -> bool,
    is_callers: impl Fn(&str) -> bool,
) -> Arc<Message> {
    let prefix = match message.id {
        Some(id) => format!("{ID_PREFIX}_{:016x}_{}", id.run.random_half(), id.index),
        None => ID_PREFIX.to_owned(),
    };
    let mut message = Arc::unwrap_or_clone(message);
    let mut index = 0;
    for part in &mut message.parts {
        let Part::ToolCall(call) = part else { continue };
        if call.provider_executed {
            continue;
        }
        if answered.next() != Some(true) && !is_callers(&call.name) {
            let required = !call.is_cut_off && needs_approval(&call.name);
            let request = ApprovalRequest::new(format!("{prefix}_{index}"), call.clone(), required);
            *part = Part::ApprovalRequest(request);
        }
        index += 1;
    }
    Arc::new(message)
}

pub(crate) fn answers_approvals<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> bool {
    messages.into_iter().any(|message| decisions_of(message).next().is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tower_chat_core::{MessageId, RunId};

    use super::*;

    #[test]
    fn a_trailing_result_of_a_later_call_with_the_same_id_does_not_answer_the_approved_call() {
        let request = ApprovalRequest::new("approval_1", ToolCall::new("c", "pay", "{}"), true);
        let asking = Message::new(Role::Assistant, vec![request.clone().into()]);
        let approved = Message::tool_results([ToolResult::new("c", "paid")]);
        let later = Message::tool_calls([ToolCall::new("c", "look", "{}")]);
        let looked = Message::tool_results([ToolResult::new("c", "looked")]);
        let messages: Vec<_> = [asking, approved, later, looked].map(Arc::new).into();
        let found = |count: usize| {
            let messages = messages.iter().take(count).rev();
            trailing_result_of(messages, None, &request).map(ToolResult::text)
        };
        assert_eq!(found(2).as_deref(), Some("paid"));
        assert_eq!(found(4), None);
    }
    use crate::replay::{DanglingCalls, Replay, effective_call_ids, mark_ended_by};

    #[test]
    fn a_stop_hides_the_trailing_result_only_if_it_marks_the_run_of_this_result() {
        let request = ApprovalRequest::new("approval_1", ToolCall::new("c", "pay", "{}"), true);
        let asking = Message::new(Role::Assistant, vec![request.clone().into()]);
        let looking = Message::tool_calls([ToolCall::new("d", "look", "{}")]);
        let looked = Message::tool_results([ToolResult::new("d", "looked")]);
        let approved = Message::new(Role::User, vec![request.approve().into()]);
        let paid = Message::tool_results([ToolResult::new("c", "paid")]);
        for (stopped, expected) in [(2, Some("paid")), (4, None)] {
            let (first, second) = (RunId::new(), RunId::new());
            let messages = [&asking, &looking, &looked, &approved, &paid].map(Message::clone);
            let messages = (0..).zip(messages).map(|(index, mut message)| {
                let run = if index < 3 { first } else { second };
                message.id = Some(MessageId { run, index });
                let mut message = Arc::new(message);
                if index == stopped {
                    mark_ended_by(&mut message, EndedBy::Stop);
                }
                message
            });
            let messages: Vec<_> = messages.collect();
            let found = trailing_result_of(messages.iter().rev(), None, &request);
            assert_eq!(found.map(ToolResult::text).as_deref(), expected);
        }
    }

    #[test]
    fn the_last_decision_about_an_approval_request_wins() {
        let request = |id: &str| ApprovalRequest::new(id, ToolCall::new("c", "pay", "{}"), true);
        let (one, two) = (request("approval_1"), request("approval_2"));
        let messages: Vec<_> = [
            Message::approvals([one.approve(), two.reject("too dear")]),
            Message::assistant("Are you sure?"),
            Message::approvals([one.approve_with("[]")]),
        ]
        .map(Arc::new)
        .into();
        let decisions = decisions_by_request(&messages);
        assert_eq!(decisions.len(), 2);
        assert_eq!(decisions["approval_1"], &one.approve_with("[]"));
        assert_eq!(decisions["approval_2"], &two.reject("too dear"));
    }

    fn tools() -> [ToolDefinition; 1] {
        [ToolDefinition::new("pay", "", json!({})).needs_approval()]
    }

    fn calling(id: &str, tool: &str) -> Arc<Message> {
        Message::tool_calls([ToolCall::new(id, tool, "{}")]).into()
    }

    #[test]
    fn a_call_that_is_answered_inside_the_response_does_not_wait_for_approval() {
        let answer = Message::tool_results([ToolResult::new("c1", "paid")]).into();
        let response = vec![calling("c1", "pay"), answer, calling("c2", "look")];
        assert_eq!(request_approvals_of(response.clone(), &tools()), response);
    }

    #[test]
    fn one_result_answers_one_of_two_calls_with_the_same_id() {
        let answer = Message::tool_results([ToolResult::new("c1", "paid")]).into();
        let response = vec![calling("c1", "pay"), answer, calling("c1", "pay")];
        let asking = request_approvals_of(response.clone(), &tools());
        assert_eq!(asking[..2], response[..2]);
        assert_eq!((asking[2].calls().count(), asking[2].asked_calls().count()), (0, 1));
    }

    #[test]
    fn if_one_call_needs_approval_the_calls_of_all_messages_wait_for_approval() {
        let asking =
            request_approvals_of(vec![calling("c1", "look"), calling("c2", "pay")], &tools());
        assert!(asking.iter().all(|message| message.calls().next().is_none()));
        assert_eq!(request_approvals_of(asking.clone(), &tools()), asking);
    }

    #[test]
    fn a_call_that_waits_for_approval_keeps_its_id_in_the_replay() {
        let ids = [Some("c1"), None, Some(""), Some("c1")];
        let calls = ids.map(|id| {
            let mut call = ToolCall::without_id("pay", "{}");
            call.id = id.map(str::to_owned);
            call
        });
        let mut message = Message::tool_calls(calls);
        message.id = Some(MessageId { run: RunId::new(), index: 7 });
        let before = effective_call_ids(&message);
        let mut replay = Replay::new(DanglingCalls::Drop);
        for message in request_approvals_of(vec![message.into()], &tools()) {
            replay.push(&message);
        }
        let waiting: Vec<String> =
            replay.approvals_in_order().into_iter().flatten().map(|call| call.call_id).collect();
        assert_eq!(waiting, before);
    }
}
