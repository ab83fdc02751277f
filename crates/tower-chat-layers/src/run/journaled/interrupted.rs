//! The state of an interrupted run, which the tool loop resumes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{
    Message, MessageId,
    store::{SequencePosition, author::OpenRunContent},
};

use crate::{
    run::{
        last_answer::response_at_end,
        prior_attempts::{CallOutcome, Recorded},
        redact::calls_without_arguments,
    },
    tool::CallOfRun,
};

/// The state of an interrupted run and of its last round.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterruptedRun {
    /// The response of the model at the end of the run's messages, if there is one.
    pub(crate) response: Vec<Arc<Message>>,
    /// The recorded states of the calls in `response`.
    pub(crate) calls: HashMap<CallOfRun, CallOutcome>,
    /// The number of rounds of the run, including that of `response`.
    pub(crate) rounds: usize,
    /// The number of tool calls that the run had started before the last round.
    pub(crate) tool_calls: usize,
}

impl InterruptedRun {
    pub(super) fn of(content: &OpenRunContent, input: usize) -> Self {
        let messages = &content.messages;
        let added = messages.get(input..).unwrap_or_default();
        let response = response_at_end(added).to_vec();
        let message_of = |position: SequencePosition| {
            let index = position.sequence.checked_sub(content.open.visible + 1)?;
            messages.get(usize::try_from(index).ok()?)?.id
        };
        let of_response: HashSet<MessageId> =
            response.iter().filter_map(|response| response.id).collect();
        let mut calls = HashMap::new();
        let mut tool_calls = 0;
        for row in &content.tools {
            let Some(message) = message_of(row.call) else { continue };
            if of_response.contains(&message) {
                calls.insert((message, row.call.index as usize), CallOutcome::of(row));
            } else if Recorded::from(row).has_run() {
                tool_calls += 1;
            }
        }
        for message in &response {
            for index in calls_without_arguments(message) {
                let of_run = message.id.map(|message| (message, index));
                if let Some(known) = of_run.and_then(|call| calls.get_mut(&call)) {
                    known.lose_arguments();
                }
            }
        }
        Self { response, calls, rounds: 0, tool_calls }
    }
}
