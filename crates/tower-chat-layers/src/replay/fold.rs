//! Adds messages to a replay one after the other.
//!
//! A round consists of the calls of one answer of the model and their results. The open round is
//! the last one, if results may still arrive for it. Results without call positions are matched
//! with the calls of their round by id and order. If this match would be wrong,
//! [`name_unnamed_results`](Replay::name_unnamed_results) adds the position of the call to the result.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Messages, Part, RefusalMark, Role, ToolCall, ToolResult,
    pairing::{asked_call, is_marked_ended},
};

use super::{
    DanglingCalls, Replay, ReplaySummary, broken_links,
    naming::Naming,
    order::in_order,
    policy::Strictness,
    round::{AfterRound, Round, RoundCall},
    run_end,
};

impl Replay {
    /// Adds the next message.
    pub fn push(&mut self, message: &Arc<Message>) {
        self.pushed += 1;
        if RefusalMark::is_stored_in(message) {
            Arc::make_mut(&mut self.refused).extend(RefusalMark::stored_in(message));
        }
        match in_order(message) {
            Some(pieces) => pieces.iter().for_each(|piece| self.push_piece(piece)),
            None => self.push_ordered(message),
        }
    }

    /// Adds the next message like [`push`](Self::push). `mark` adds a mark to the message, by which
    /// the caller recognises the message in the [`view`](Self::view). If the message contains calls
    /// and results, it is split into several messages, and `mark` is called for each of these.
    pub fn push_marked(&mut self, message: &Arc<Message>, mark: impl Fn(&mut Message)) {
        let marked = |message: &Arc<Message>| {
            let mut message = Message::clone(message);
            mark(&mut message);
            Arc::new(message)
        };
        self.pushed += 1;
        match in_order(message) {
            Some(pieces) => pieces.iter().for_each(|piece| self.push_piece(&marked(piece))),
            None => self.push_ordered(&marked(message)),
        }
    }

    /// Adds the messages of a sequence, starting at the position `from`.
    ///
    /// Well-formed ranges of messages are shared with the sequence instead of copied.
    pub fn push_from(&mut self, messages: &Messages, from: usize) {
        let mut from = from;
        while from < messages.len() {
            if self.open.is_none() {
                let well_formed = messages.well_formed_from(from);
                self.closed.append_range(messages, from..from + well_formed);
                self.pushed += well_formed;
                self.position += well_formed;
                from += well_formed;
            }
            for message in messages.iter_from(from) {
                self.push(message);
                from += 1;
                if self.open.is_none() {
                    break;
                }
            }
        }
    }

    /// Adds the next message of a model's answer. From this message on, a lenient replay repairs
    /// calls and results like the replay of a stored history: all results of the new calls are in
    /// later messages of this replay.
    pub(crate) fn push_answer(&mut self, message: &Arc<Message>) {
        if self.strictness == Strictness::Lenient && message.role == Role::Assistant {
            self.close_round();
            self.strictness = Strictness::Repair(DanglingCalls::Drop);
        }
        self.push(message);
    }

    fn push_piece(&mut self, message: &Arc<Message>) {
        if message.parts.is_empty() && message.role != Role::Tool {
            // The piece contained only calls that step 1 has removed, in a message that is no
            // answer of the model. Like a message of the user, the piece ends the open round.
            self.position += 1;
            return self.close_round();
        }
        self.push_ordered(message);
    }

    fn push_ordered(&mut self, message: &Arc<Message>) {
        let position = self.position;
        self.position += 1;
        let holds_marks = message.role == Role::Tool && run_end::has_results_not_kept(message);
        if message.parts.is_empty()
            && !holds_marks
            && matches!(message.role, Role::Assistant | Role::Tool)
        {
            // The message has no content: a `persist` hook removed it, or the message only marks
            // the end of its run.
            if let Some(round) = &mut self.open {
                if message.role == Role::Tool {
                    round.end_answer();
                }
                if is_marked_ended(message) {
                    round.end_run(message);
                }
            }
            return;
        }
        if message.role == Role::Tool {
            self.push_results(message);
            return;
        }
        if message.parts.iter().any(|part| matches!(part, Part::ApprovalResponse(_))) {
            self.push_approvals(message);
            return;
        }
        if message.role == Role::Assistant {
            // The results before this message must be matched before `decided` is cleared.
            self.name_unnamed_results();
            self.decided.clear();
        }
        if let Some(round) = &mut self.open
            && round.is_continued_by(message)
        {
            if !is_empty_answer(message) {
                round.push_answer(message.clone(), position);
            }
            return;
        }
        self.close_round();
        if Round::opens_with(message) {
            self.open = Some(Round::new(message.clone(), position));
        } else if !is_empty_answer(message) {
            self.closed.push(message.clone());
        }
    }

    pub(super) fn push_results(&mut self, message: &Arc<Message>) {
        // If the first message of results answers all calls by id and in order, no call positions
        // are needed.
        if let Some(round) = self.open.take_if(|round| round.is_answered_in_order_at_once(message))
        {
            round.append_to(&mut self.closed);
            self.closed.push(message.clone());
            return;
        }
        let Some(round) = &mut self.open else {
            if !message.parts.is_empty() {
                for message in self.named(std::slice::from_ref(message)) {
                    self.push_late_results(message.results().cloned().collect(), &message);
                }
            }
            return;
        };
        round.push_results(message);
        if !round.may_be_answered_in_order() {
            return;
        }
        self.name_unnamed_results();
        match self.open.take_if(|round| round.is_answered_in_order()) {
            Some(round) => round.append_to(&mut self.closed),
            None => self.open.iter_mut().for_each(Round::set_out_of_order),
        }
    }

    /// Adds a message with responses to approval requests. The replay omits the responses, and all
    /// calls in this message. The other parts are added after the results of the open round.
    pub(super) fn push_approvals(&mut self, message: &Arc<Message>) {
        self.name_unnamed_results();
        let mut rest = (**message).clone();
        rest.parts.retain(|part| match part {
            Part::ApprovalResponse(response) => {
                self.decided.push(response.request_id.clone());
                false
            }
            part => asked_call(part).is_none(),
        });
        match &mut self.open {
            // Each call of the open round has a result, so the responses are for calls of an
            // earlier round.
            Some(round) if round.unanswered().is_empty() => self.close_round(),
            Some(round) => round.end_answer(),
            None => {}
        }
        let is_visible = !rest.parts.is_empty() && !is_empty_answer(&rest);
        let rest = is_visible.then(|| Arc::new(rest));
        match &mut self.open {
            Some(round) => rest.into_iter().for_each(|rest| round.follow_with(rest)),
            None => self.closed.extend(rest),
        }
    }

    pub(super) fn close_round(&mut self) {
        self.name_unnamed_results();
        let Some(round) = self.open.take() else { return };
        if round.is_answered_in_order() {
            return round.append_to(&mut self.closed);
        }
        let (messages, unanswered, after) = round.close(self.strictness);
        self.closed.extend(messages);
        self.omit_calls(unanswered);
        for after in after {
            match after {
                AfterRound::Leftover(results, message) => self.push_late_results(results, &message),
                AfterRound::Message(message) => self.closed.push(message),
            }
        }
    }

    /// Closes the open round if a summary covers the first message with its calls.
    pub(super) fn close_covered_round(&mut self, summary: &ReplaySummary) {
        if self.open.as_ref().is_some_and(|round| summary.covers(round.message())) {
            self.close_round();
        }
    }

    /// Removes and returns the omitted call that a late result answers.
    pub(super) fn take_answered_by(&mut self, result: &ToolResult) -> Option<Arc<RoundCall>> {
        let number = self.omitted_calls.find(result)?;
        let call = self.omitted_calls.remove(number)?;
        if call.is_visible {
            self.retract(call.clone());
        }
        Some(call)
    }

    /// Adds results that answer no call of the open round. The omitted calls that they answer are
    /// added before them. Only a lenient replay contains orphans.
    pub(super) fn push_late_results(&mut self, results: Vec<ToolResult>, message: &Arc<Message>) {
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut ids: HashSet<Option<String>> = HashSet::new();
        let mut answers = Vec::new();
        let mut orphans = Vec::new();
        for result in results {
            let unanswered = self.take_answered_by(&result).map(Arc::unwrap_or_clone);
            let call_run = unanswered.as_ref().map(|call| call.named_by.message.run);
            self.late_results.extend(message.id.map(|id| (call_run, id.run)));
            match unanswered {
                Some(unanswered) => {
                    let result = unanswered.answer(result);
                    if !ids.insert(result.call_id.clone()) {
                        // The calls of one message must have different ids.
                        ids = HashSet::from([result.call_id.clone()]);
                        let results = std::mem::take(&mut answers);
                        self.push_late_round(std::mem::take(&mut calls), results, message.id);
                    }
                    answers.push(result);
                    let mut call = unanswered.into_call();
                    broken_links::unlink_call(&mut call);
                    calls.push(call);
                }
                None => orphans.push(Part::ToolResult(result)),
            }
        }
        if !calls.is_empty() {
            self.push_late_round(calls, answers, message.id);
        }
        if self.strictness == Strictness::Lenient && !orphans.is_empty() {
            let mut message = (**message).clone();
            message.parts = orphans;
            self.closed.push(message);
        }
    }

    /// Adds omitted calls, followed by their late results. `id` is the id of the message that
    /// contains the results.
    fn push_late_round(
        &mut self,
        calls: Vec<ToolCall>,
        results: Vec<ToolResult>,
        id: Option<MessageId>,
    ) {
        let mut results = Message::tool_results(results);
        results.id = id;
        self.closed.push(Message::tool_calls(calls));
        self.closed.push(results);
    }

    /// Returns the messages, with call positions in the results that the open round would match
    /// with a wrong call.
    pub(super) fn named(&self, messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        if messages.is_empty() || (self.decided.is_empty() && self.omitted_calls.is_empty()) {
            return messages.to_vec();
        }
        let calls = self.open.as_ref().map(Round::asked_calls).unwrap_or_default();
        let round = self.open.as_ref().map(|round| (&*calls, round));
        let mut naming = Naming::new(&self.omitted_calls, round, &self.decided);
        messages.iter().map(|message| naming.name(message)).collect()
    }

    /// Adds the necessary call positions to the results that the open round has received since the
    /// last `name_unnamed_results`.
    pub(super) fn name_unnamed_results(&mut self) {
        let Some(round) = self.open.as_mut().filter(|round| round.has_unnamed()) else { return };
        let unnamed = round.take_unnamed();
        let named = self.named(&unnamed);
        if let Some(round) = &mut self.open {
            round.push_named(named);
        }
    }

    pub(super) fn with_named_results(&self) -> Cow<'_, Self> {
        if !self.open.as_ref().is_some_and(Round::has_unnamed) {
            return Cow::Borrowed(self);
        }
        let mut named_replay = self.clone();
        named_replay.name_unnamed_results();
        Cow::Owned(named_replay)
    }

    pub(super) fn unanswered_of_open_round(&self) -> Vec<Arc<RoundCall>> {
        let named_replay = self.with_named_results();
        named_replay.open.iter().flat_map(Round::unanswered).map(Arc::new).collect()
    }
}

/// Returns whether an assistant message has no content. No provider accepts such a message.
fn is_empty_answer(message: &Message) -> bool {
    message.role == Role::Assistant && message.parts.iter().all(|part| part.as_text() == Some(""))
}
