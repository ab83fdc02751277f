//! Checks the rules for messages that all providers share.

use std::{cell::LazyCell, collections::HashSet};

use tower_chat_core::{
    ApprovalRequest, ApprovalResponse, ChatRequest, HistoryOwner, Message, Part, Role, ToolCall,
    ToolResult,
    pairing::{Answers, Candidate, Ids, Matcher, Target},
};

use super::{Fault, InvalidMessages, check_content};

/// Checks a sequence of messages by the rules that all providers share.
///
/// - The tool messages directly after the message of a call ([`Message::calls`]) contain exactly
///   one result for the call. Every result in a tool message answers such a call.
/// - Each call has an id that is unique in its message. A call of a later message may have the same
///   id.
/// - Calls are in assistant messages, and results in tool messages. Only the results of tools that
///   the provider executed are in the message of their calls.
/// - No message contains approval requests or approval responses, and no assistant message is
///   empty.
///
/// ```
/// use tower_chat::{Message, ToolCall, validate::{Fault, validate_messages}};
/// let messages = [
///     Message::user("Where is my order?"),
///     Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
///     Message::user("Well?"),
/// ];
/// let invalid = validate_messages(&messages).unwrap_err();
/// assert!(matches!(invalid.first(), Fault::Unanswered { message: 1, .. }));
/// ```
///
/// # Errors
///
/// Returns all faults. The time is linear in the number of parts.
pub fn validate_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
) -> Result<(), InvalidMessages> {
    Check::new(false).run(messages)
}

/// Checks the messages of a request.
///
/// The request must contain messages, unless it continues a background answer. Each new message
/// must contain a part. A request with a service id may begin with results, because the service
/// stores the calls of these results.
///
/// ```
/// use tower_chat::{ChatRequest, Message, ToolResult, validate::validate_request};
///
/// let results = || Message::tool_results([ToolResult::new("c1", "Rain.")]);
/// assert!(validate_request(&ChatRequest::new([results()])).is_err()); // has no call
/// let kept_there = ChatRequest::new([results()]).with_service_id("resp_1");
/// assert!(validate_request(&kept_there).is_ok());
/// ```
///
/// # Errors
///
/// Returns the errors of [`validate_messages`].
pub fn validate_request(request: &ChatRequest) -> Result<(), InvalidMessages> {
    if request.messages().is_empty() && request.options.continuation.is_none() {
        return InvalidMessages::of(vec![Fault::NoMessages]);
    }
    let held_by_service = matches!(request.history_owner, Some(HistoryOwner::Service(_)));
    let check = Check::new(held_by_service);
    check.run(request.messages().iter().map(|message| &**message))?;
    check_content(request.history_len(), request.messages().iter_from(request.history_len()))
}

#[derive(Debug)]
struct Check<'a> {
    faults: Vec<Fault>,
    /// The calls of the previous assistant message with a unique id.
    calls: Matcher<&'a str>,
    /// The calls in `calls`, with the positions of their messages.
    asked: Vec<(usize, &'a ToolCall)>,
    /// The number of calls without an id that no result without an id has answered yet.
    without_id: usize,
    may_begin_with_results: bool,
}

impl<'a> Check<'a> {
    fn new(may_begin_with_results: bool) -> Self {
        Self {
            faults: Vec::new(),
            calls: Matcher::new(Vec::new(), Ids::Required),
            asked: Vec::new(),
            without_id: 0,
            may_begin_with_results,
        }
    }

    fn run(
        mut self,
        messages: impl IntoIterator<Item = &'a Message>,
    ) -> Result<(), InvalidMessages> {
        for (index, message) in messages.into_iter().enumerate() {
            match message.role {
                Role::Tool => {}
                // Results may follow these messages, which every request contains, even if the
                // service stores the history.
                Role::System | Role::Developer if self.may_begin_with_results => {}
                _ => self.end_round(),
            }
            self.message(index, message);
        }
        self.end_round();
        InvalidMessages::of(self.faults)
    }

    fn message(&mut self, message: usize, content: &'a Message) {
        let is_assistant = content.role == Role::Assistant;
        let run_by_provider = LazyCell::new(|| run_by_provider(content));
        for part in &content.parts {
            match part {
                Part::ToolCall(call) if !is_assistant => {
                    self.faults.push(Fault::MisplacedCall { message, tool: call.name.clone() });
                }
                Part::ToolCall(call) if !call.provider_executed => self.call(message, call),
                Part::ToolResult(result) if content.role == Role::Tool => {
                    self.result(message, result);
                }
                Part::ToolResult(result)
                    if !run_by_provider.contains(&result.call_id.as_deref()) =>
                {
                    let call_id = result.call_id.clone();
                    self.faults.push(Fault::MisplacedResult { message, call_id });
                }
                Part::ApprovalRequest(ApprovalRequest { id: request_id, .. })
                | Part::ApprovalResponse(ApprovalResponse { request_id, .. }) => {
                    let request_id = request_id.clone();
                    self.faults.push(Fault::Approval { message, request_id });
                }
                _ => {}
            }
        }
        if is_assistant && content.parts.iter().all(|part| part.as_text() == Some("")) {
            self.faults.push(Fault::EmptyAssistant { message });
        }
    }

    fn call(&mut self, message: usize, call: &'a ToolCall) {
        let (id, tool) = (call.id.as_deref(), call.name.clone());
        let candidate = Candidate::of_id(id);
        if candidate.given_id.is_none() {
            self.without_id += 1;
            self.faults.push(Fault::CallWithoutId { message, tool });
        } else if self.calls.has_id(id) {
            let call_id = candidate.id.to_owned();
            self.faults.push(Fault::RepeatedCallId { message, tool, call_id });
        } else {
            self.calls.push(candidate);
            self.asked.push((message, call));
        }
    }

    fn result(&mut self, message: usize, result: &'a ToolResult) {
        let target = Target::id(result.call_id.as_deref());
        let Some(id) = target.id else {
            match self.without_id.checked_sub(1) {
                Some(fewer) => self.without_id = fewer,
                None => {
                    let call_id = result.call_id.clone();
                    self.faults.push(Fault::Orphan { message, call_id });
                }
            }
            return;
        };
        match self.calls.answer(target) {
            Answers::Call(_) => {}
            Answers::Again => {
                self.faults.push(Fault::AnsweredTwice { message, call_id: id.to_owned() });
            }
            // The service stores the call of this result, so only a second result for the same call
            // can be detected.
            Answers::Nothing if self.may_begin_with_results => {
                self.calls.push(Candidate::of_id(Some(id)).answered(true));
            }
            Answers::Nothing => {
                let call_id = result.call_id.clone();
                self.faults.push(Fault::Orphan { message, call_id });
            }
        }
    }

    fn end_round(&mut self) {
        let calls = self.calls.calls().iter().zip(&self.asked);
        for (_, (message, call)) in calls.filter(|(candidate, _)| !candidate.is_answered) {
            let (message, tool, call_id) = (*message, call.name.clone(), call.id.clone());
            self.faults.push(Fault::Unanswered { message, tool, call_id });
        }
        let faults = std::mem::take(&mut self.faults);
        *self = Self { faults, ..Self::new(false) };
    }
}

/// Returns the ids of the calls that the provider executed, whose results are in the same message.
fn run_by_provider(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}
