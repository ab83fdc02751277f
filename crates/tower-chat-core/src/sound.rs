//! How much of a history stands as every provider wants it.

use std::sync::Arc;

use crate::{Message, Part, Role};

/// Finds out, message by message, how long the beginning of a history is that needs no repair:
/// every call has an id of its own and is answered once, in order, right after its message.
///
/// It errs on the safe side: a beginning that it does not count may be sound too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Soundness {
    messages: usize,
    /// The message with the open round's calls.
    asking: Option<Arc<Message>>,
    /// How many of its calls are not answered yet.
    owed: usize,
    /// How many messages the open round has so far.
    open: usize,
    has_ended: bool,
}

impl Soundness {
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
        let is_sound = match message.role {
            Role::Tool => self.answers(message),
            Role::Assistant => self.owed == 0 && self.asks_or_says(message),
            Role::User | Role::System | Role::Developer => {
                self.owed == 0 && message.parts.iter().all(is_plain)
            }
        };
        if !is_sound {
            self.has_ended = true;
            self.asking = None;
            return;
        }
        self.open += 1;
        if self.owed == 0 {
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
                    let mut before = message.calls().take(self.owed);
                    if self.owed == MOST_CALLS || !is_id || before.any(|other| other.id == call.id)
                    {
                        return false;
                    }
                    self.owed += 1;
                }
                Part::Text(text) => says |= !text.text.is_empty(),
                part if !is_plain(part) => return false,
                _ => {}
            }
        }
        if self.owed > 0 {
            self.asking = Some(message.clone());
        }
        says || self.owed > 0
    }

    fn answers(&mut self, message: &Message) -> bool {
        let Some(asking) = &self.asking else { return false };
        let answered = asking.calls().count() - self.owed;
        let mut calls = asking.calls().skip(answered);
        for part in &message.parts {
            let Part::ToolResult(result) = part else { return false };
            if result.call.is_some() || calls.next().is_none_or(|call| call.id != result.call_id) {
                return false;
            }
            self.owed -= 1;
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

    fn sound(messages: impl IntoIterator<Item = Message>) -> usize {
        let mut soundness = Soundness::default();
        messages.into_iter().for_each(|message| soundness.push(&message.into()));
        soundness.messages()
    }

    fn calls(ids: &[&str]) -> Message {
        Message::tool_calls(ids.iter().map(|id| ToolCall::new(*id, "look", "{}")))
    }

    fn results(ids: &[&str]) -> Message {
        Message::tool_results(ids.iter().map(|id| ToolResult::new(*id, "found")))
    }

    #[test]
    fn whole_rounds_are_sound_and_an_open_one_is_not_yet() {
        let turn = || [Message::user("u"), calls(&["1", "2"]), results(&["1", "2"])];
        assert_eq!(sound(turn()), 3);
        assert_eq!(sound([calls(&["1", "2"]), results(&["1"]), results(&["2"])]), 3);
        assert_eq!(sound([Message::user("u"), calls(&["1", "2"]), results(&["1"])]), 1);
        assert_eq!(sound([Message::assistant("a"), Message::assistant("b")]), 2);
    }

    #[test]
    fn a_batch_that_is_too_large_to_be_looked_at_does_not_count() {
        let ids: Vec<String> = (0..=MOST_CALLS).map(|id| id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let (most, _) = ids.split_at(MOST_CALLS);
        assert_eq!(sound([Message::user("u"), calls(most), results(most)]), 3);
        assert_eq!(sound([Message::user("u"), calls(&ids), results(&ids)]), 1);
    }

    #[test]
    fn what_replay_would_change_ends_what_is_sound() {
        let said = Message::assistant("");
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
            (vec![Message::user("u"), said, Message::user("u")], 1),
            (vec![text], 0),
        ] {
            assert_eq!(sound(messages.clone()), expected, "{messages:?}");
        }
    }
}
