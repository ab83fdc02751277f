//! A whole answer, and its assembly from the updates of a response.

use std::{collections::HashSet, sync::Arc};

use crate::{
    ApprovalRequest, ChatUpdate, Finish, FinishReason, Message, Part, RawJson, Role, ToolCall,
    pairing::{CallLog, LoggedCall},
};

/// A whole answer: its messages, in order, and its end.
///
/// ```
/// use tower_chat_core::{Answer, Finish, Message, ToolCall, ToolResult, Usage};
///
/// // The answer of a tool loop: the call, its result, and the final text of the model.
/// let messages = [
///     Message::tool_calls([ToolCall::new("call_1", "weather", "{}")]),
///     Message::tool_results([ToolResult::new("call_1", "Rain.")]),
///     Message::assistant("Take a coat."),
/// ];
/// let finish = Finish::stop().with_usage(Usage::new(120, 30));
/// let answer = Answer::new(messages.map(Into::into).to_vec(), finish);
///
/// assert_eq!(answer.text(), "Take a coat.");
/// assert_eq!(answer.tool_calls().count(), 0, "the loop has answered it");
/// assert_eq!(answer.finish.usage.total_tokens(), 150);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The messages that the answer adds to the conversation: the messages of the model, and, if a
    /// tool loop ran, the tool results and the messages that were
    /// [queued](crate::RunHandle::queue) during the run.
    pub messages: Vec<Arc<Message>>,
    /// The end of the answer: its reason, its tokens, and the number of stored messages.
    pub finish: Box<Finish>,
}

impl Answer {
    /// Creates an answer from its messages and its end.
    ///
    /// The final message of the model gets the [reason](Finish::reason) of the end, unless the
    /// message already has a reason.
    pub fn new(mut messages: Vec<Arc<Message>>, finish: impl Into<Box<Finish>>) -> Self {
        let finish = finish.into();
        note_end(&mut messages, &finish);
        Self { messages, finish }
    }

    /// Returns the text of the final message of the model; empty if there is none.
    pub fn text(&self) -> String {
        self.messages
            .iter()
            .rev()
            .find(|message| message.role == Role::Assistant)
            .map(|message| message.text())
            .unwrap_or_default()
    }

    /// Iterates over the tool calls that the caller has to answer, in order. If a tool loop ran,
    /// the caller has to answer only calls of tools that are declared without code to run. Without
    /// a tool loop, the caller has to answer all calls. Calls that the run has answered, and calls
    /// that wait for [approval](Self::approval_requests), are not included.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let log = CallLog::of(self.messages.iter().map(|message| &**message));
        let is_open = |call: &&LoggedCall| call.result.is_none() && !call.needs_approval;
        let open = log.calls().iter().filter(is_open).map(|call| (call.message, call.index));
        let open: HashSet<(u64, u32)> = open.collect();
        let asked = (0..).zip(&self.messages).flat_map(|(number, message)| {
            (0..).zip(message.asked_calls()).map(move |(index, call)| ((number, index), call))
        });
        asked.filter(move |(position, _)| open.contains(position)).map(|(_, call)| call)
    }

    /// Iterates over the calls that wait for approval.
    pub fn approval_requests(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.messages.iter().flat_map(|message| &message.parts).filter_map(|part| match part {
            Part::ApprovalRequest(request) => Some(request),
            _ => None,
        })
    }
}

/// Marks the last answer of the model among these messages with its finish reason, and marks the
/// calls that were cut off. A finish reason that the answer already has is not changed, because
/// `finish` may belong to a whole run instead of this answer.
pub(super) fn note_end(messages: &mut [Arc<Message>], finish: &Finish) {
    let Some(reason) = &finish.reason else { return };
    let of_answer = messages.iter().rev().take_while(|it| it.role == Role::Assistant).count();
    let first = messages.len() - of_answer;
    let Some(answer) = messages.get_mut(first..) else { return };
    if answer.last().is_none_or(|last| last.finish_reason.is_some()) {
        return;
    }
    if matches!(reason, FinishReason::Length | FinishReason::ContentFilter) {
        for message in answer.iter_mut().filter(|message| message.calls().any(is_incomplete)) {
            for part in &mut Arc::make_mut(message).parts {
                if let Part::ToolCall(call) = part {
                    call.is_cut_off |= !call.provider_executed && is_incomplete(call);
                }
            }
        }
    }
    if let Some(last) = answer.last_mut() {
        Arc::make_mut(last).finish_reason = Some(reason.clone());
    }
}

/// Returns whether the arguments of a call are `null`, or invalid JSON, such as an empty text.
fn is_incomplete(call: &ToolCall) -> bool {
    let arguments = call.arguments.trim();
    arguments == "null" || arguments.parse::<RawJson>().is_err()
}

/// Assembles an [`Answer`] from the updates of a response.
#[derive(Debug, Default)]
pub(super) struct Fold {
    messages: Vec<Arc<Message>>,
    finish: Option<Box<Finish>>,
}

impl Fold {
    /// Adds one update. Deltas are ignored, because the complete message follows them.
    pub(super) fn push(&mut self, update: ChatUpdate) {
        match update {
            ChatUpdate::TextDelta(_)
            | ChatUpdate::ReasoningDelta(_)
            | ChatUpdate::ToolCallDelta(_) => {}
            ChatUpdate::Message(message) => self.messages.push(message),
            ChatUpdate::Finish(finish) => self.finish = Some(finish),
        }
    }

    /// Returns the answer, or `None` if the response had no end.
    pub(super) fn finish(self) -> Option<Answer> {
        Some(Answer::new(self.messages, self.finish?))
    }
}
