//! Per-run mode: what the run keeps in memory until it is stored at its end, by one write.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, Message, Messages, Role};

use super::{Run, RunLog, ServiceCall, model_request::joined, run_end::response_at_end};
use crate::{
    PersistenceError,
    replay::Replay,
    transcript::{Observed, Step, StoredRun, StoredTranscript, observe},
};

/// What a run that is stored at its end keeps until then.
#[derive(Default)]
pub(super) struct WholeRun {
    /// Where the messages that the run answers are numbered from: after what is stored of it and
    /// after its input, which it takes in at its end.
    pub(super) answer_from: usize,
    /// The open end of the stored history, if the input answers approval requests in it.
    pub(super) open_replay: Option<Replay>,
    /// The messages of the request as the tool loop got it, and how many of them are not new.
    pub(super) given: (Messages, usize),
    rounds: SeenRounds,
}

/// What a persister below a tool loop that is not of this crate has seen of the run.
#[derive(Debug, Default)]
struct SeenRounds {
    /// What the service calls have added after the request of the run, in order.
    messages: Vec<Arc<Message>>,
    /// The messages of a service call did not continue those of the calls before it, so `messages` is
    /// not the whole run.
    is_broken: bool,
}

impl WholeRun {
    /// The rounds of tools that this answer does not contain, once.
    pub(super) fn take_unseen_rounds(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let SeenRounds { messages, is_broken } = &mut self.rounds;
        let has_rounds =
            |messages: &[Arc<Message>]| messages.iter().any(|it| it.role != Role::Assistant);
        match !*is_broken && has_rounds(messages) && !has_rounds(answer) {
            true => std::mem::take(messages),
            false => Vec::new(),
        }
    }
}

impl Run {
    /// Takes note of what a service call adds to a run that is written at its end, where the tool
    /// loop is not of this crate: its answer may contain the last message alone. A request that has
    /// new messages alone is made complete.
    pub(crate) fn observe_round(&self, request: &mut ChatRequest) {
        if request.extensions.get::<ServiceCall>().is_some() {
            return;
        }
        let id = self.id();
        let mut log = self.log();
        let RunLog { conversation, whole_run, calls, .. } = &mut *log;
        let ((given, new_from), rounds) = (&whole_run.given, &mut whole_run.rounds);
        if conversation.service_id.is_some() || given.is_empty() {
            return;
        }
        let has_answered = calls.is_answered;
        if !has_answered && is_same(&request.messages, given) {
            return;
        }
        let own: Vec<_> = request.messages.iter().cloned().collect();
        let run = StoredRun::Known { run: id, has_answered };
        let after = |before| {
            let added = &rounds.messages;
            observe(&StoredTranscript { before, added, is_pruned: false, run }, &own)
        };
        // The loop may remember the conversation itself, and not as the replay has put it.
        let observed = after(given.clone())
            .or_else(|_| after(joined(conversation.history.clone(), given.skip(*new_from))));
        let Ok(Observed { instructions, new, step }) = observed else {
            rounds.is_broken = true;
            return;
        };
        if step == Step::Repeat {
            // The loop goes on with the answer that comes now.
            let before = rounds.messages.len() - response_at_end(&rounds.messages).len();
            rounds.messages.truncate(before);
        }
        let first = instructions.len();
        let mut messages: Messages = instructions.into_iter().collect();
        messages.append(given);
        messages.extend(rounds.messages.iter().cloned());
        request.new_from = match has_answered {
            true => messages.len(),
            false => first + new_from,
        };
        messages.extend(new.iter().cloned());
        request.messages = messages;
        rounds.messages.extend(new);
    }

    /// A service call was answered of a run that is stored at its end. The layer that is next to the
    /// service takes note of the answer, and compares the id that it names with the one in play: a
    /// conflict ends the run before a tool of that answer runs and before the next service call is paid
    /// for.
    ///
    /// Under a foreign tool loop, with no layer below it, nothing is compared until the end of the run,
    /// and then only the last answer.
    ///
    /// # Errors
    ///
    /// If the id does not fit, by policy. The error carries the answer.
    pub(crate) fn observe_answer(
        &self,
        answer: &Answer,
        is_of_own_loop: bool,
    ) -> Result<(), PersistenceError> {
        let mut log = self.log();
        if !is_of_own_loop {
            log.whole_run.rounds.messages.extend(answer.messages.iter().cloned());
        }
        log.calls.is_answered = true;
        log.note_usage(answer, self.policy().prices.as_ref());
        let adopted = self.adopt_service_id(&log, answer)?;
        log.conversation.service_id = adopted.service_id;
        log.conversation.recording = adopted.recording;
        Ok(())
    }
}

/// Whether two lists are clones of one.
fn is_same(one: &Messages, other: &Messages) -> bool {
    let is_last = |(one, other)| Arc::ptr_eq(one, other);
    one.len() == other.len() && one.last().zip(other.last()).is_some_and(is_last)
}

impl RunLog {
    /// Whether layers have seen every service call of the run.
    pub(crate) fn has_seen_rounds(&self) -> bool {
        self.calls.is_answered && !self.whole_run.rounds.is_broken
    }

    /// The open end of the stored history, where the input answers approval requests in it: a
    /// tool loop pushes its own messages to it and sends the view.
    pub(crate) fn open_replay(&self) -> Option<Replay> {
        self.whole_run.open_replay.clone()
    }

    /// The index of the first message that the tool loop adds to a run that is written at its end.
    /// The request does not say it: among its messages may be some of the history, which the input
    /// answers.
    pub(crate) fn answer_from(&self) -> usize {
        self.whole_run.answer_from
    }
}
