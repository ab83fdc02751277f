//! Compares the requests of a conversation with its recording.

use std::sync::Arc;

use serde_json::Value;
use tower_chat::{Message, message::Messages};
use tower_chat_wire::openai_chat::{Audience, render_message};

use super::{
    comparison::differences, divergence::Difference, expected_messages::ExpectedMessages,
    recording::RecordedMessage,
};

/// The state of the comparison of a conversation's requests.
///
/// A message is not compared again if it was equal to the recorded message in the previous request
/// and has not changed since. The total time is therefore linear in the length of the conversation.
#[derive(Default)]
pub(super) struct Verification {
    expected: ExpectedMessages,
    /// The number of recorded messages in `expected`.
    recorded_count: usize,
    /// The messages of the last request, each with the end of its JSON in `found`.
    sent: Vec<(Arc<Message>, usize)>,
    found: Vec<Value>,
    /// The number of messages at the beginning of `found` that are equal to the recording.
    agreed: usize,
}

impl Verification {
    /// Returns every difference between a request and the recorded messages before an answer.
    pub(super) fn check(
        &mut self,
        recorded: &[RecordedMessage],
        answer: usize,
        sent: &Messages,
    ) -> Vec<(usize, Difference)> {
        // The results of an answer's calls are recorded before the next answer. Those of all
        // earlier answers are therefore complete.
        self.expected.extend(recorded.get(self.recorded_count..answer).unwrap_or_default());
        self.recorded_count = answer;
        let is_same = |(message, (last, _)): &(&Arc<Message>, &(Arc<Message>, usize))| {
            Arc::ptr_eq(message, last) || *message == last
        };
        let known = sent.iter().zip(&self.sent).take_while(is_same).count();
        self.sent.truncate(known);
        self.found.truncate(self.sent.last().map_or(0, |(_, end)| *end));
        let from = self.agreed.min(self.found.len());
        for message in sent.iter_from(known) {
            let json = render_message(message, Audience::Transcript);
            self.found.extend(json.iter().map(|json| json.parse().unwrap_or(Value::Null)));
            self.sent.push((message.clone(), self.found.len()));
        }
        let differences = differences(self.expected.messages(), &self.found, from);
        let end = self.found.len();
        self.agreed = differences.first().map_or(end, |(at, _)| end.min(*at));
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Recording, *};

    #[test]
    fn a_verified_message_that_changes_later_is_reported_until_it_is_restored() {
        let turn = r#"{"role":"user","content":"go"},{"role":"assistant","content":"done"}"#;
        let json = format!(r#"{{"id":"x","messages":[{turn},{turn},{turn},{turn}]}}"#);
        let recording = Recording::read(&json).unwrap();
        let sent = |upto: usize| -> Messages {
            recording.messages()[..upto].iter().map(|recorded| recorded.message.clone()).collect()
        };
        let altered = |upto: usize| -> Messages {
            let mut messages: Vec<_> = sent(upto).iter().cloned().collect();
            messages[1] = Message::assistant("gone").into();
            messages.into_iter().collect()
        };
        let mut verification = Verification::default();
        let mut positions = |answer: usize, sent: &Messages| -> Vec<usize> {
            let found = verification.check(recording.messages(), answer, sent);
            found.into_iter().map(|(at, _)| at).collect()
        };
        assert!(positions(1, &sent(1)).is_empty());
        assert!(positions(3, &sent(3)).is_empty());
        assert_eq!(positions(5, &altered(5)), [1]);
        assert_eq!(positions(5, &altered(5)), [1], "it is no less wrong the second time");
        assert!(positions(7, &sent(7)).is_empty());
        assert_eq!(positions(7, &sent(5)), [5, 6]);
        assert_eq!(positions(7, &altered(7)), [1]);
    }
}
