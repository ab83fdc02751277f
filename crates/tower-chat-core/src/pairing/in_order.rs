//! The check whether results answer the calls of one message in order.

use super::{asked_call, have_distinct_ids};
use crate::{Message, Part, ToolCall};

/// Tracks how many calls of one message were answered, as long as the results answer the calls in
/// order and refer to each call by its id.
#[derive(Debug, Clone, Copy, Default)]
pub struct InOrder {
    /// The index of the first part of the message that may be a call without a result.
    part: usize,
    is_broken: bool,
}

impl InOrder {
    /// Adds the next message of results.
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

    /// Returns whether the order is broken. The order is broken if a result answered no call,
    /// answered another call than the next one, or refers to its call by position. The order is
    /// also broken if a call waits for approval, or if [`set_broken`](Self::set_broken) was called.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Marks the order as broken, for a reason that this type does not detect.
    pub fn set_broken(&mut self) {
        self.is_broken = true;
    }

    /// Returns whether all calls have their results.
    pub fn is_complete(&self, asking: &Message) -> bool {
        !self.is_broken && self.part >= asking.parts.len()
    }

    /// Returns whether these messages of results answer all calls of a message in order, and the
    /// ids of the calls are different.
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

    /// Returns the next call without a result. An approval request is not such a call.
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
