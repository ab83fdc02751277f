//! The state of a run of the loop. A persister is a layer below the loop that stores the messages
//! of each service call, such as `PerServiceCallPersistence`.

use std::{collections::VecDeque, sync::Arc};

use tower_chat_core::{
    BoxError, ChatOptions, ChatResponse, ChatUpdate, Finish, Message, MessageId, Role,
};

use super::{
    counters::RunCounters, outcomes::Outcomes, settings::Settings, transcript::Transcript,
};
use crate::{
    PersistenceError, UnansweredInputs,
    next_step::PlannedCall,
    run::{
        BegunBy, Event, LeaveCause, Run, WritePoint, number_message, submit_unstored_outcomes,
        withdraw_claims,
    },
    tool::{RunContext, Tools},
};

/// An active run. If the queue of updates is empty, the run performs its next step.
pub(super) struct LoopRun<S> {
    pub(super) service: S,
    pub(super) is_ready: bool,
    pub(super) settings: Arc<Settings>,
    /// The options of the caller that apply to the next service call.
    pub(super) options: Arc<ChatOptions>,
    pub(super) context: Arc<RunContext>,
    /// The run. Its events have no effect before a persister has begun the run.
    pub(super) run: Run,
    pub(super) extensions: http::Extensions,
    pub(super) transcript: Transcript,
    /// The tools that the most recent service call has declared. Before the first service call, the
    /// tools that the loop had when the run began.
    pub(super) tools: Tools,
    pub(super) phase: Phase,
    pub(super) updates: VecDeque<ChatUpdate>,
    pub(super) outcomes: Outcomes,
    /// The messages from the run's queue that the service call in flight sends as its last
    /// messages.
    pub(super) queued_in_flight: Vec<Message>,
    pub(super) counters: RunCounters,
}

/// The next step of the run.
pub(super) enum Phase {
    Calling,
    Reading(Reading),
    /// Records that these approved calls are refused, then fails the run.
    Refusing(Vec<PlannedCall>),
    Running {
        calls: Vec<PlannedCall>,
        finish: Box<Finish>,
    },
    Finishing(Box<Finish>),
    Ended,
}

pub(super) struct Reading {
    pub(super) response: ChatResponse,
    pub(super) messages: Vec<Arc<Message>>,
    /// The text that was streamed after the last of `messages`.
    pub(super) text: String,
    /// Whether the first message with calls and all later updates wait for the end of the response.
    /// The calls may become approval requests.
    pub(super) holds_updates: bool,
}

impl<S> LoopRun<S> {
    pub(super) fn add_message(&mut self, message: Message) -> Option<MessageId> {
        let message = number_message(&self.run, Arc::new(message));
        self.transcript.push_unsent(&message);
        let id = message.id;
        self.updates.push_back(ChatUpdate::Message(message));
        id
    }

    /// Returns the error that ends the run. If the run is stored at its end, adds the run's earlier
    /// messages to the answer in the error, because these messages would otherwise be lost.
    pub(super) fn with_added_messages(&mut self, mut error: BoxError) -> BoxError {
        let refused = error.downcast_mut().and_then(PersistenceError::answer_mut);
        if let Some(answer) = refused
            && self.run.write_point() == WritePoint::End
        {
            // Without the queued messages of the refused service call, which return to their queue.
            let added = self.transcript.added();
            let count = added.len().saturating_sub(self.queued_in_flight.len());
            answer.messages.splice(..0, added.take(count).cloned());
        }
        error
    }

    /// If a persister below stores the run, the loop sends only new messages from now on.
    pub(super) fn find_persister(&mut self) {
        if self.run.log().persister.is_found() {
            self.transcript.keep_below();
        }
    }

    /// Returns the queued messages of a failed service call to their queue, except stored ones. If
    /// no persister has received the service call, submits the tool results among its messages. The
    /// future of the service call must be dropped first, because its drop stores the inputs.
    fn requeue_unsent(&mut self) {
        let in_flight = self.transcript.take_in_flight();
        let mut queued = std::mem::take(&mut self.queued_in_flight);
        let unsubmitted = self.unsubmitted_inputs();
        let has_results = in_flight.iter().any(|message| message.role == Role::Tool);
        if has_results
            && self.submits_results()
            && unsubmitted.is_none()
            && self.run.policy().inputs_of_failed_call != UnansweredInputs::None
        {
            let count = in_flight.len().saturating_sub(queued.len());
            let messages = in_flight.into_iter().take(count).collect();
            self.run.note(Event::ResultsUnsent { messages });
        }
        if let Some(unsubmitted) = unsubmitted {
            queued.drain(..queued.len().saturating_sub(unsubmitted));
        }
        self.context.handle.put_back(queued);
    }

    /// Returns how many of the last messages of the most recent service call the persister has not
    /// stored. `None` if the persister has not received this service call.
    pub(super) fn unsubmitted_inputs(&self) -> Option<usize> {
        let ordinal = self.counters.service_calls.checked_sub(1)?;
        self.run.log().calls.unsubmitted_inputs(ordinal)
    }

    /// Ends the run in its current state. Queued messages that no answered service call has sent
    /// return to their queue.
    pub(super) fn end_now(&mut self) {
        // Drops the service call in flight first, because the layers below then store its inputs.
        self.phase = Phase::Ended;
        self.find_persister();
        self.requeue_unsent();
        let interrupted = self.outcomes.unfinished();
        submit_unstored_outcomes(&self.run);
        if self.submits_results() {
            self.submit_results();
        }
        self.run.note(Event::ToolsDropped { calls: interrupted });
        withdraw_claims(&self.run);
        if self.run.begun_by() == BegunBy::ToolLoop {
            self.run.note(Event::Left { cause: LeaveCause::Disconnected });
        }
    }
}

impl<S> Drop for LoopRun<S> {
    /// Stores the results of finished tools, which must not run again.
    fn drop(&mut self) {
        self.end_now();
    }
}
