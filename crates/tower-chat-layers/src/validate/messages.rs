//! The rules that all providers share.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use tower_chat_core::{ChatRequest, ConversationId, Message, Part, Role, ToolCall, ToolResult};

use super::{Fault, InvalidMessages};

/// Checks what all providers demand of a sequence of messages.
///
/// - Every call ([`Message::calls`]) is answered exactly once, by the tool messages directly after
///   its message; every result answers such a call.
/// - Calls have ids, and different ones within a message; the same id may come back later.
/// - Calls stand in assistant messages and results in tool messages, except for the results of
///   tools that the provider ran itself, which stand behind their calls.
/// - Nothing about approvals is left, and no assistant message is empty.
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
/// Everything that is wrong, in time linear in the number of parts.
pub fn validate_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
) -> Result<(), InvalidMessages> {
    Check::default().run(messages)
}

/// Checks the messages of a request.
///
/// One that carries a service's conversation id may begin with results: the service holds their
/// calls.
///
/// # Errors
///
/// As [`validate_messages`].
pub fn validate_request(request: &ChatRequest) -> Result<(), InvalidMessages> {
    let held_by_service = matches!(request.conversation_id, Some(ConversationId::Service(_)));
    let check = Check { may_begin_with_results: held_by_service, ..Check::default() };
    check.run(request.messages.iter().map(|message| &**message))
}

/// More calls than a round has as a rule.
const LARGE: usize = 64;

#[derive(Debug, Default)]
struct Check<'a> {
    faults: Vec<Fault>,
    /// The calls of the last assistant message, and whether each has its result.
    calls: Vec<Open<'a>>,
    by_id: HashMap<&'a str, usize>,
    /// Calls without an id that a result without one may be meant for.
    without_id: usize,
    may_begin_with_results: bool,
}

#[derive(Debug)]
struct Open<'a> {
    message: usize,
    call: &'a ToolCall,
    answered: bool,
}

impl<'a> Check<'a> {
    fn run(
        mut self,
        messages: impl IntoIterator<Item = &'a Message>,
    ) -> Result<(), InvalidMessages> {
        for (index, message) in messages.into_iter().enumerate() {
            match message.role {
                Role::Tool => {}
                // Set up anew for each request, also where the service keeps the rest.
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
                Part::ApprovalRequest(request) => {
                    self.faults.push(Fault::Approval { message, request_id: request.id.clone() });
                }
                Part::ApprovalResponse(response) => {
                    let request_id = response.request_id.clone();
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
        let tool = || call.name.clone();
        match call.id.as_deref() {
            None | Some("") => {
                self.without_id += 1;
                self.faults.push(Fault::CallWithoutId { message, tool: tool() });
                return;
            }
            Some(id) if self.by_id.contains_key(id) => {
                let call_id = id.to_owned();
                self.faults.push(Fault::RepeatedCallId { message, tool: tool(), call_id });
                return;
            }
            Some(id) => self.by_id.insert(id, self.calls.len()),
        };
        self.calls.push(Open { message, call, answered: false });
    }

    fn result(&mut self, message: usize, result: &'a ToolResult) {
        let id = result.call_id.as_deref().unwrap_or_default();
        if id.is_empty() && self.without_id > 0 {
            self.without_id -= 1;
            return;
        }
        let call = self.by_id.get(id).copied();
        match call.and_then(|call| self.calls.get_mut(call)) {
            Some(call) if !call.answered => call.answered = true,
            Some(_) => {
                self.faults.push(Fault::AnsweredTwice { message, call_id: id.to_owned() });
            }
            None if self.may_begin_with_results && !id.is_empty() => self.held_call(message, id),
            None => {
                self.faults.push(Fault::Orphan { message, call_id: result.call_id.clone() });
            }
        }
    }

    /// The service holds the call: all that can be seen is a second result for it.
    fn held_call(&mut self, message: usize, id: &'a str) {
        const HELD: usize = usize::MAX;
        if self.by_id.insert(id, HELD).is_some() {
            self.faults.push(Fault::AnsweredTwice { message, call_id: id.to_owned() });
        }
    }

    fn end_round(&mut self) {
        self.may_begin_with_results = false;
        for Open { message, call, .. } in self.calls.drain(..).filter(|open| !open.answered) {
            let (tool, call_id) = (call.name.clone(), call.id.clone());
            self.faults.push(Fault::Unanswered { message, tool, call_id });
        }
        self.without_id = 0;
        // Clearing a map costs its capacity: one large round must not slow down all after it.
        if self.by_id.capacity() > LARGE {
            self.by_id = HashMap::new();
        } else {
            self.by_id.clear();
        }
    }
}

/// The ids of the calls that the provider ran itself; it puts their results into the same message.
fn run_by_provider(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}
