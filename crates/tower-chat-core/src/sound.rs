//! How much of a history stands as every provider wants it.

use crate::{Message, Part, Role};

/// Finds out, message by message, how long the beginning of a history is that needs no repair:
/// every call has an id of its own and is answered once, in order, right after its message.
///
/// It errs on the safe side: a beginning that it does not count may be sound too.
///
/// Ids are owned, `String`, where it is kept beside the messages, and borrowed, `&str`, where it
/// walks over them.
#[derive(Debug, Clone)]
pub(crate) struct Soundness<Id> {
    messages: usize,
    /// The ids of the open round's calls, in order, and how many of them are answered.
    calls: Vec<Id>,
    answered: usize,
    /// How many messages the open round has so far.
    open: usize,
    has_ended: bool,
}

impl<Id> Default for Soundness<Id> {
    fn default() -> Self {
        Self { messages: 0, calls: Vec::new(), answered: 0, open: 0, has_ended: false }
    }
}

impl<Id> Soundness<Id> {
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

    fn is_owed(&self) -> bool {
        self.answered < self.calls.len()
    }
}

impl<Id: AsRef<str>> Soundness<Id> {
    /// Takes the next message.
    pub(crate) fn push<'m>(&mut self, message: &'m Message)
    where
        Id: From<&'m str>,
    {
        if self.has_ended {
            return;
        }
        let is_sound = match message.role {
            Role::Tool => self.answers(message),
            Role::Assistant => !self.is_owed() && self.asks_or_says(message),
            Role::User | Role::System | Role::Developer => {
                !self.is_owed() && message.parts.iter().all(is_plain)
            }
        };
        if !is_sound {
            self.has_ended = true;
            self.calls = Vec::new();
            return;
        }
        self.open += 1;
        if !self.is_owed() {
            self.messages += std::mem::take(&mut self.open);
        }
    }

    fn asks_or_says<'m>(&mut self, message: &'m Message) -> bool
    where
        Id: From<&'m str>,
    {
        self.calls.clear();
        self.answered = 0;
        let mut says = false;
        for part in &message.parts {
            match part {
                Part::ToolCall(call) if call.provider_executed => return false,
                Part::ToolCall(call) => {
                    let id = call.id.as_deref().unwrap_or_default();
                    if id.is_empty() || self.calls.iter().any(|other| other.as_ref() == id) {
                        return false;
                    }
                    self.calls.push(id.into());
                }
                Part::Text(text) => says |= !text.text.is_empty(),
                part if !is_plain(part) => return false,
                _ => {}
            }
        }
        says || self.is_owed()
    }

    fn answers(&mut self, message: &Message) -> bool {
        for part in &message.parts {
            let Part::ToolResult(result) = part else { return false };
            let owed = self.calls.get(self.answered).map(AsRef::as_ref);
            if owed.is_none() || owed != result.call_id.as_deref() {
                return false;
            }
            self.answered += 1;
        }
        !message.parts.is_empty()
    }
}

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
        let mut soundness = Soundness::<String>::default();
        messages.into_iter().for_each(|message| soundness.push(&message));
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
