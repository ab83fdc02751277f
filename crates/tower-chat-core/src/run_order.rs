//! Records whether the ids of the runs in a history ascend.

use std::sync::Arc;

use crate::{Message, Messages, RunId};

/// Tracks whether the run ids of a history ascend, message by message.
///
/// Run ids begin with their creation time, and therefore ascend, unless a clock was set back or
/// two processes wrote at the same time. If all ids ascend, the messages of a run are found by
/// binary search.
#[derive(Debug, Clone)]
pub(crate) struct RunOrder {
    last: Option<RunId>,
    is_ascending: bool,
}

impl Default for RunOrder {
    fn default() -> Self {
        Self { last: None, is_ascending: true }
    }
}

impl RunOrder {
    /// Creates the order of messages that were not checked, as if their run ids did not ascend.
    pub(crate) fn unknown() -> Self {
        Self { last: None, is_ascending: false }
    }

    pub(crate) fn is_ascending(&self) -> bool {
        self.is_ascending
    }

    pub(crate) fn push(&mut self, message: &Message) {
        let run = message.id.map(|id| id.run);
        self.is_ascending &= run.is_some() && run >= self.last;
        self.last = run;
    }

    /// Returns the number of messages up to and including the last message of a run; `None` if the
    /// run has no messages.
    pub(crate) fn end_of(&self, run: RunId, messages: &Messages) -> Option<usize> {
        let run_of = |message: &Arc<Message>| message.id.map(|id| id.run);
        if !self.is_ascending {
            return Some(messages.iter().rposition(|message| run_of(message) == Some(run))? + 1);
        }
        let (mut low, mut high) = (0, messages.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match messages.get(middle).and_then(run_of) {
                Some(other) if other > run => high = middle,
                _ => low = middle + 1,
            }
        }
        (messages.get(low.checked_sub(1)?).and_then(run_of) == Some(run)).then_some(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageId;

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 16])
    }

    fn history(runs: &[u8]) -> (RunOrder, Messages) {
        let mut order = RunOrder::default();
        let messages = runs.iter().zip(0..).map(|(number, index)| {
            let mut message = Message::user(format!("{number}.{index}"));
            message.id = Some(MessageId { run: run(*number), index });
            order.push(&message);
            Arc::new(message)
        });
        let messages = messages.collect();
        (order, messages)
    }

    #[test]
    fn the_end_of_a_run_is_found_in_every_order_of_runs() {
        let orders: [&[u8]; 6] =
            [&[], &[3], &[1, 1, 2, 4, 4, 4, 7], &[5, 5, 2, 2, 9], &[7, 1], &[2, 3, 2, 3]];
        for runs in orders {
            let (order, messages) = history(runs);
            for number in 0..10 {
                let expected = runs.iter().rposition(|run| *run == number).map(|last| last + 1);
                assert_eq!(order.end_of(run(number), &messages), expected, "{number} in {runs:?}");
            }
        }
    }

    #[test]
    fn the_end_of_a_run_is_found_by_search_if_the_run_order_is_unknown() {
        let (_, messages) = history(&[5, 2, 9]);
        assert_eq!(RunOrder::unknown().end_of(run(5), &messages), Some(1));
    }
}
