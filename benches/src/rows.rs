//! The encoded rows of a run, which a bare connection writes as the floor of a benchmark. The time
//! of a store is compared with the time of these writes.

use tower_chat::{Message, store::format};

use crate::workload::{self, CALLS};

/// The rows of one transaction.
#[derive(Debug, Clone)]
pub(crate) struct BareAppend {
    pub(crate) bodies: Vec<String>,
    pub(crate) records: Vec<BareRecord>,
}

/// A row about a tool call. The number of a message is its distance from the first message of the
/// append: 0 is the first message, and -1 is the message before the append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BareRecord {
    /// The number of the message with the call.
    pub(crate) call: i64,
    pub(crate) round: u32,
    /// The number of the message with the result, if any.
    pub(crate) result: Option<i64>,
}

impl BareAppend {
    /// Returns the appends of a run in per-service-call mode: the input and the first call, then
    /// each result and the next call, then the last result and the answer.
    pub(crate) fn of_each_call() -> Vec<Self> {
        let messages = workload::messages_of_run();
        let asked = |call, round| BareRecord { call, round, result: None };
        let answered = |round| BareRecord { call: -1, round, result: Some(0) };
        let appends = messages.chunks(2).zip(0..).map(|(messages, call): (_, u32)| {
            let is_last = call as usize == CALLS - 1;
            let answered = call.checked_sub(1).map(answered);
            let asked = (!is_last).then(|| asked(1, call));
            let bodies = messages.iter().map(|message| format::encode(message)).collect();
            Self { bodies, records: answered.into_iter().chain(asked).collect() }
        });
        appends.collect()
    }

    pub(crate) fn of_run() -> Self {
        let bodies =
            workload::messages_of_run().iter().map(|message| format::encode(message)).collect();
        let record = |(call, round)| BareRecord { call, round, result: Some(call + 1) };
        let calls = (1..).step_by(2);
        Self { bodies, records: calls.zip(0..).take(CALLS - 1).map(record).collect() }
    }

    /// Returns an append in the middle of a run, without rows about tool calls.
    pub(crate) fn of_messages(messages: &[std::sync::Arc<Message>]) -> Self {
        let bodies = messages.iter().map(|message| format::encode(message)).collect();
        Self { bodies, records: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_same_messages_in_one_append_and_in_many() {
        let each = BareAppend::of_each_call();
        assert_eq!(each.len(), CALLS);
        let bodies: Vec<String> = each.iter().flat_map(|append| append.bodies.clone()).collect();
        assert_eq!(bodies, BareAppend::of_run().bodies);
    }

    #[test]
    fn every_call_is_recorded_when_it_is_asked_and_when_it_is_answered() {
        let each = BareAppend::of_each_call();
        let records: Vec<usize> = each.iter().map(|append| append.records.len()).collect();
        assert_eq!(
            (records.first(), records.get(1), records.last()),
            (Some(&1), Some(&2), Some(&1))
        );
        assert_eq!(BareAppend::of_run().records.len(), CALLS - 1);
    }
}
