//! The well-formed prefix of a history: the messages at the beginning of the history that every
//! provider accepts.

use std::sync::Arc;

use crate::{
    Message, Part, RefusalMark, Role,
    pairing::{InOrder, asked_call, have_distinct_ids},
};

/// Counts the messages at the beginning of a history that can be sent to every provider without
/// changes: every call has a unique id and is answered once, in order, directly after its message.
/// The count may be too small, but is never too large.
#[derive(Debug, Clone, Default)]
pub(crate) struct WellFormedPrefix {
    messages: usize,
    /// The message with the calls of the open round (calls and their results), and the state of the
    /// results.
    asking: Option<(Arc<Message>, InOrder)>,
    /// The number of messages in the open round so far.
    open: usize,
    has_ended: bool,
}

impl WellFormedPrefix {
    /// Creates the prefix of messages that were not checked: it is empty and does not grow.
    pub(crate) fn unknown() -> Self {
        Self { has_ended: true, ..Self::default() }
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn push(&mut self, message: &Arc<Message>) {
        if self.has_ended {
            return;
        }
        // A refusal mark names content that a service has refused. That content is replaced before
        // the message is sent.
        let has_marks = RefusalMark::is_stored_in(message);
        let is_well_formed = !has_marks
            && match message.role {
                Role::Tool => self.answers(message),
                Role::Assistant => self.asking.is_none() && self.is_answer_well_formed(message),
                Role::User | Role::System | Role::Developer => {
                    self.asking.is_none() && message.parts.iter().all(is_plain)
                }
            };
        if !is_well_formed {
            self.has_ended = true;
            self.asking = None;
            return;
        }
        self.open += 1;
        if self.asking.is_none() {
            self.messages += std::mem::take(&mut self.open);
        }
    }

    fn is_answer_well_formed(&mut self, message: &Arc<Message>) -> bool {
        let (mut has_text, mut has_calls) = (false, false);
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if call.provider_executed => return false,
                Part::ToolCall(_) => has_calls = true,
                Part::Text(text) => has_text |= !text.text.is_empty(),
                part if !is_plain(part) => return false,
                _ => {}
            }
        }
        if !has_calls {
            return has_text;
        }
        let has_distinct_ids = have_distinct_ids(message.parts.iter().filter_map(asked_call));
        self.asking = has_distinct_ids.then(|| (message.clone(), InOrder::default()));
        has_distinct_ids
    }

    fn answers(&mut self, message: &Message) -> bool {
        let Some((asking, in_order)) = &mut self.asking else { return false };
        in_order.follow(asking, message);
        let is_in_order = !in_order.is_broken() && !message.parts.is_empty();
        if in_order.is_complete(asking) {
            self.asking = None;
        }
        is_in_order
    }
}

/// Returns whether a part can be sent without changes at every position.
fn is_plain(part: &Part) -> bool {
    match part {
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::Error(_) | Part::Native(_) => {
            true
        }
        Part::ToolCall(_)
        | Part::ToolResult(_)
        | Part::ApprovalRequest(_)
        | Part::ApprovalResponse(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolCall, ToolResult};

    fn well_formed(messages: impl IntoIterator<Item = Message>) -> usize {
        let mut prefix = WellFormedPrefix::default();
        messages.into_iter().for_each(|message| prefix.push(&message.into()));
        prefix.messages()
    }

    fn calls(ids: &[&str]) -> Message {
        Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "look", "{}")))
    }

    fn results(ids: &[&str]) -> Message {
        Message::tool_results(ids.iter().map(|id| ToolResult::new(*id, "found")))
    }

    #[test]
    fn complete_rounds_are_well_formed_and_an_open_round_is_not() {
        let turn = || [Message::user("u"), calls(&["1", "2"]), results(&["1", "2"])];
        assert_eq!(well_formed(turn()), 3);
        assert_eq!(well_formed([calls(&["1", "2"]), results(&["1"]), results(&["2"])]), 3);
        assert_eq!(well_formed([Message::user("u"), calls(&["1", "2"]), results(&["1"])]), 1);
        assert_eq!(well_formed([Message::assistant("a"), Message::assistant("b")]), 2);
    }

    #[test]
    fn anything_that_replay_changes_ends_the_well_formed_prefix() {
        let empty = Message::assistant("");
        let mut text = calls(&["1"]);
        text.parts.push(Part::ToolResult(ToolResult::new("1", "x")));
        for (messages, expected) in [
            (vec![Message::user("u"), results(&["1"]), Message::user("u")], 1),
            (vec![calls(&["1"]), Message::user("u"), Message::user("v")], 0),
            (vec![calls(&["1", "2"]), results(&["2", "1"]), Message::user("u")], 0),
            (vec![calls(&["1"]), results(&["1", "1"])], 0),
            (vec![calls(&["1"]), results(&["1"]), results(&["1"])], 2),
            (vec![calls(&["1", "1"]), results(&["1", "1"])], 0),
            (vec![calls(&[""]), results(&[""])], 0),
            (vec![Message::user("u"), empty, Message::user("u")], 1),
            (vec![text], 0),
        ] {
            assert_eq!(well_formed(messages.clone()), expected, "{messages:?}");
        }
    }
}
