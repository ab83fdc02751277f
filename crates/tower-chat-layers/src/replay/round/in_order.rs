//! Whether results answer the calls of one message in their order.

use tower_chat_core::{Message, Part, ToolCall};

/// How far the results answer the calls of the round's message in their order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InOrder {
    /// The first part of the message that is not known to be a call with its result, or no call.
    pub(super) part: usize,
    /// A result has answered another call than the next, or none.
    pub(super) is_broken: bool,
}

impl InOrder {
    /// Goes on with the next message of results.
    pub(super) fn follow(&mut self, asking: &Message, results: &Message) {
        for part in &results.parts {
            let result = part.as_tool_result().filter(|result| result.call.is_none());
            match (result, self.next_call(asking)) {
                (Some(result), Some(call)) if result.call_id == call.id => self.part += 1,
                _ => self.is_broken = true,
            }
            if self.is_broken {
                return;
            }
        }
        self.next_call(asking);
    }

    /// The next call that a result has to answer. A request for approval is none.
    fn next_call<'m>(&mut self, asking: &'m Message) -> Option<&'m ToolCall> {
        while let Some(part) = asking.parts.get(self.part) {
            match part {
                Part::ToolCall(call) if !call.provider_executed => return Some(call),
                Part::ApprovalRequest(_) => {
                    self.is_broken = true;
                    return None;
                }
                _ => self.part += 1,
            }
        }
        None
    }
}
