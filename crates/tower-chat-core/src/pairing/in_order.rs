//! Whether results answer the calls of one message in their order.

use super::{asked_call, have_distinct_ids};
use crate::{Message, Part, ToolCall};

/// How far results answer the calls of one message in their order, each by the call's id.
#[derive(Debug, Clone, Copy, Default)]
pub struct InOrder {
    /// The first part of the message that is not known to be a call with its result, or no call.
    part: usize,
    is_broken: bool,
}

impl InOrder {
    /// Takes the next message of results.
    pub fn follow(&mut self, asking: &Message, results: &Message) {
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

    /// A result has answered another call than the next, or none, or a call waits for approval.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Something else than results has followed.
    pub fn set_broken(&mut self) {
        self.is_broken = true;
    }

    /// Whether all calls have their results.
    pub fn is_complete(&self, asking: &Message) -> bool {
        !self.is_broken && self.part >= asking.parts.len()
    }

    /// Whether these messages of results answer all calls of a message in order, and each of the
    /// calls has an id of its own.
    pub fn answers_all<'m>(
        asking: &Message,
        results: impl IntoIterator<Item = &'m Message>,
    ) -> bool {
        let mut in_order = Self::default();
        in_order.next_call(asking);
        results.into_iter().for_each(|results| in_order.follow(asking, results));
        in_order.is_complete(asking)
            && have_distinct_ids(asking.parts.iter().filter_map(asked_call))
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
