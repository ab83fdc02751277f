//! How much of a history stands as every provider wants it.

use std::sync::Arc;

use crate::{Message, Part, Role};

/// Finds out, message by message, how long the beginning of a history is that needs no repair:
/// every call has an id of its own and is answered once, in order, right after its message.
///
/// It errs on the safe side: a beginning that it does not count may be sound too.
#[derive(Debug, Clone, Default)]
pub(crate) struct WellFormedPrefix {
    messages: usize,
    /// The message with the open round's calls.
    asking: Option<Arc<Message>>,
    /// How many of its calls are not answered yet.
    unanswered: usize,
    /// How many messages the open round has so far.
    open: usize,
    has_ended: bool,
}

impl WellFormedPrefix {
    /// Of messages whose beginning nobody has looked at: none counts.
    pub(crate) fn unknown() -> Self {
        Self { has_ended: true, ..Self::default() }
    }

    /// How many messages are sound.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Whether no more messages will be.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Takes the next message.
    pub(crate) fn push(&mut self, message: &Arc<Message>) {
        if self.has_ended {
            return;
        }
        let is_well_formed = match message.role {
            Role::Tool => self.answers(message),
            Role::Assistant => self.unanswered == 0 && self.asks_or_says(message),
            Role::User | Role::System | Role::Developer => {
                self.unanswered == 0 && message.parts.iter().all(is_plain)
            }
        };
        if !is_well_formed {
            self.has_ended = true;
            self.asking = None;
            return;
        }
        self.open += 1;
        if self.unanswered == 0 {
            self.asking = None;
            self.messages += std::mem::take(&mut self.open);
        }
    }

    fn asks_or_says(&mut self, message: &Arc<Message>) -> bool {
        let mut says = false;
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if call.provider_executed => return false,
                Part::ToolCall(call) => {
                    let is_id = call.id.as_deref().is_some_and(|id| !id.is_empty());
                    let mut before = message.calls().take(self.unanswered);
                    if self.unanswered == MOST_CALLS
                        || !is_id
                        || before.any(|other| other.id == call.id)
                    {
                        return false;
                    }
                    self.unanswered += 1;
                }
                Part::Text(text) => says |= !text.text.is_empty(),
                part if !is_plain(part) => return false,
                _ => {}
            }
        }
        if self.unanswered > 0 {
            self.asking = Some(message.clone());
        }
        says || self.unanswered > 0
    }

    fn answers(&mut self, message: &Message) -> bool {
        let Some(asking) = &self.asking else { return false };
        let answered = asking.calls().count() - self.unanswered;
        let mut calls = asking.calls().skip(answered);
        for part in &message.parts {
            let Part::ToolResult(result) = part else { return false };
            if result.call.is_some() || calls.next().is_none_or(|call| call.id != result.call_id) {
                return false;
            }
            self.unanswered -= 1;
        }
        !message.parts.is_empty()
    }
}

/// Each id of a message is compared with those before it, so a larger batch is not looked at.
const MOST_CALLS: usize = 256;

/// Whether a part is shown as it is wherever it stands.
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
    fn whole_rounds_are_well_formed_and_an_open_one_is_not_yet() {
        let turn = || [Message::user("u"), calls(&["1", "2"]), results(&["1", "2"])];
        assert_eq!(well_formed(turn()), 3);
        assert_eq!(well_formed([calls(&["1", "2"]), results(&["1"]), results(&["2"])]), 3);
        assert_eq!(well_formed([Message::user("u"), calls(&["1", "2"]), results(&["1"])]), 1);
        assert_eq!(well_formed([Message::assistant("a"), Message::assistant("b")]), 2);
    }

    #[test]
    fn a_batch_that_is_too_large_to_be_looked_at_does_not_count() {
        let ids: Vec<String> = (0..=MOST_CALLS).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let (most, _) = ids.split_at(MOST_CALLS);
        assert_eq!(well_formed([Message::user("u"), calls(most), results(most)]), 3);
        assert_eq!(well_formed([Message::user("u"), calls(&ids), results(&ids)]), 1);
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
