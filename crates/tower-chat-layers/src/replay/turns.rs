//! Finds the beginnings of turns. A turn is the messages of one run, from the input to the final
//! answer.

use tower_chat_core::{Message, Role, RunId, pairing::asked_call};

/// Finds the beginnings of turns in the messages of a conversation.
///
/// Inputs are user, system and developer messages. An input begins a turn if it follows a final
/// answer, or if another run than the run of the turn has added it. Inputs that were queued during
/// a run belong to the turn of this run. If messages have no ids, consecutive inputs belong to one
/// turn.
///
/// ```
/// use tower_chat::{Message, replay::Turns};
/// let mut turns = Turns::default();
/// assert!(turns.begins_with(&Message::user("one")));
/// assert!(!turns.begins_with(&Message::assistant("answer")));
/// assert!(turns.begins_with(&Message::user("two")));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Turns {
    run: Option<RunId>,
    after_answer: bool,
    after_any: bool,
}

impl Turns {
    /// Returns whether the next message begins a turn. The first message always begins a turn.
    pub fn begins_with(&mut self, message: &Message) -> bool {
        let is_first = !std::mem::replace(&mut self.after_any, true);
        let after_answer = std::mem::replace(&mut self.after_answer, is_answer(message));
        if !is_input(message) {
            return is_first;
        }
        let run = message.id.map(|id| id.run);
        let of_other_run = self.run.zip(run).is_some_and(|(before, now)| before != now);
        let begins = is_first || after_answer || of_other_run;
        if begins || self.run.is_none() {
            self.run = run;
        }
        begins
    }
}

pub(super) fn is_input(message: &Message) -> bool {
    !matches!(message.role, Role::Assistant | Role::Tool)
}

/// Returns whether a message is an answer of the model without calls.
pub(crate) fn is_answer(message: &Message) -> bool {
    message.role == Role::Assistant && !message.parts.iter().any(|part| asked_call(part).is_some())
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{MessageId, ToolCall, ToolResult};

    use super::*;

    fn beginnings(messages: &[Message]) -> Vec<usize> {
        let mut turns = Turns::default();
        (0..messages.len()).filter(|&index| turns.begins_with(&messages[index])).collect()
    }

    fn in_run(mut message: Message, run: RunId) -> Message {
        message.id = Some(MessageId { run, index: 0 });
        message
    }

    fn round() -> [Message; 2] {
        let call = Message::tool_calls([ToolCall::new("c", "look", "{}")]);
        [call, Message::tool_results([ToolResult::new("c", "found")])]
    }

    #[test]
    fn a_turn_lasts_from_its_input_to_its_final_answer() {
        let [call, result] = round();
        let user = || Message::user("u");
        let answer = || Message::assistant("a");
        let messages = [Message::system("s"), user(), call, result, answer(), user(), answer()];
        assert_eq!(beginnings(&messages), [0, 5]);
    }

    #[test]
    fn a_message_queued_between_rounds_stays_in_the_turn() {
        let [call, result] = round();
        let messages = [Message::user("u"), call, result, Message::user("hurry")];
        assert_eq!(beginnings(&messages), [0]);
    }

    #[test]
    fn a_run_without_an_answer_is_a_separate_turn() {
        let (first, second) = (RunId::new(), RunId::from_bytes([7; 16]));
        let messages = [in_run(Message::user("u"), first), in_run(Message::user("again"), second)];
        assert_eq!(beginnings(&messages), [0, 1]);
    }
}
