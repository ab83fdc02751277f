//! Finds the stored messages in a service call's request, for a tool loop of another crate.
//!
//! With each service call, such a loop sends the whole transcript of its run, or only new messages.
//! Its message types may lose ids, reasoning and provider items.
//!
//! The request is compared with the stored messages: roles, texts, media, the ids and names of
//! calls, and the calls that results answer. Arguments and the contents of results are not
//! compared, because the `persist` hooks of tools and truncation may have changed the stored ones.
//! The comparison uses nothing but the request and the stored messages, so that another process can
//! continue the run.

mod align;
mod atom;
mod difference;

use std::sync::Arc;

use tower_chat_core::{Message, Messages, RunId, ToolResult};

pub use self::difference::{DifferenceKind, TranscriptDifference};
use self::{
    align::{Alignment, align, first_difference},
    atom::{Atom, Atoms, Content, have_same_text, is_answer, is_statement, without_results},
};
use super::is_system;

/// The messages that are stored when a request arrives.
pub(crate) struct StoredTranscript<'m> {
    /// The stored messages before `added`.
    pub(crate) before: Messages,
    pub(crate) added: &'m [Arc<Message>],
    /// Whether older messages were pruned (deleted from the store).
    pub(crate) is_pruned: bool,
    pub(crate) run: StoredRun,
}

/// The stored state of the run that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredRun {
    /// No message of this run is stored: the run is new, or the types of the loop do not preserve
    /// run ids.
    Unknown,
    Known {
        run: RunId,
        /// Whether this attempt at the run has received an answer of the model.
        has_answered: bool,
    },
}

/// The part of a request that is not stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observed {
    /// The system messages at the beginning of the request, if they differ from the last stored ones.
    pub(crate) instructions: Vec<Arc<Message>>,
    pub(crate) new: Vec<Arc<Message>>,
    pub(crate) step: Step,
}

/// The position of a service call relative to the stored conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The first service call after new input.
    Begin,
    /// The service call after the last stored message.
    Continue,
    /// A repeated service call: the whole request is stored, and further messages follow it.
    Repeat,
}

pub(crate) fn leading_system(sent: &[Arc<Message>]) -> usize {
    sent.iter().take_while(|message| is_system(message)).count()
}

/// Compares a request with the stored messages. Returns an error if the request repeats stored
/// messages with differences.
pub(crate) fn observe(
    stored: &StoredTranscript<'_>,
    sent: &[Arc<Message>],
) -> Result<Observed, TranscriptDifference> {
    let tail = stored.tail(sent);
    let is_whole = tail.len() == stored.len();
    match Comparison::of(stored, &tail, sent).observe() {
        Some(observed) => observed,
        None if is_whole => Comparison::of(stored, &tail, sent).unaligned(),
        None => {
            let all: Vec<_> = stored.iter().collect();
            Comparison::of(stored, &all, sent).unaligned()
        }
    }
}

impl StoredTranscript<'_> {
    fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Message>> {
        self.before.iter().chain(self.added)
    }

    fn len(&self) -> usize {
        self.before.len() + self.added.len()
    }

    /// Returns the newest stored messages, as many as the request `sent` can repeat.
    fn tail(&self, sent: &[Arc<Message>]) -> Vec<&Arc<Message>> {
        let answers = sent.iter().filter(|message| is_answer(message)).count();
        let mut tail: Vec<&Arc<Message>> = Vec::new();
        let mut ends_of_answers = 0;
        for message in self.iter().rev() {
            let after = tail.last();
            let ends_answer = is_statement(message) && !after.is_some_and(|after| is_answer(after));
            // The loop may not have received an answer whose calls have no results.
            let is_cut_off = message.asked_calls().next().is_some()
                && after.is_some_and(|after| after.results().next().is_none());
            ends_of_answers += usize::from(ends_answer && !is_cut_off);
            if ends_of_answers > answers + 2 {
                break;
            }
            tail.push(message);
        }
        tail.reverse();
        tail
    }

    /// Returns whether the newest stored system messages have these texts.
    fn is_in_force(&self, system: &[Arc<Message>]) -> bool {
        let stored = self.iter().rev().skip_while(|message| !is_system(message));
        let mut stored = stored.take_while(|message| is_system(message));
        let mut sent = system.iter().rev();
        sent.all(|sent| stored.next().is_some_and(|stored| have_same_text(stored, sent)))
    }
}

/// A request and the stored messages that it is compared with.
struct Comparison<'c> {
    stored: &'c StoredTranscript<'c>,
    sent: &'c [Arc<Message>],
    leading: usize,
    known: Atoms<'c>,
    request: Atoms<'c>,
    /// Whether the first atom in `known` follows messages that were pruned (deleted from the
    /// store).
    begins_at_cut: bool,
}

impl<'c> Comparison<'c> {
    fn of(
        stored: &'c StoredTranscript<'c>,
        tail: &[&'c Arc<Message>],
        sent: &'c [Arc<Message>],
    ) -> Self {
        let leading = leading_system(sent);
        let without_leading: Vec<_> = sent.iter().skip(leading).collect();
        Self {
            stored,
            sent,
            leading,
            known: Atoms::of_stored(tail),
            request: Atoms::of_request(&without_leading),
            begins_at_cut: stored.is_pruned && tail.len() == stored.len(),
        }
    }

    /// Returns the new part of the request, or `None` if the request does not repeat the end of the
    /// stored conversation.
    fn observe(&self) -> Option<Result<Observed, TranscriptDifference>> {
        let request = &*self.request.all;
        if request.is_empty() {
            let step = match self.stored.run {
                StoredRun::Unknown => Step::Begin,
                StoredRun::Known { has_answered: true, .. } => Step::Continue,
                StoredRun::Known { has_answered: false, .. } => Step::Repeat,
            };
            return Some(Ok(self.new_from(0, step)));
        }
        let align = |by_id| align(&self.known, &self.request, by_id, self.begins_at_cut);
        let has_open_calls = self.known.has_open_calls_for(request);
        if self.known.all.is_empty() || (has_open_calls && !self.ends_with_stored_input(align)) {
            return Some(Ok(self.new_from(0, self.step_of_new(request))));
        }
        let by_id = self.request.names_some_of(&self.known).then(|| align(true));
        let by_id = by_id.filter(|it| it.at_end.is_some() || it.covered_before.is_some());
        let has_ids = by_id.is_some();
        let alignment = by_id.unwrap_or_else(|| align(false));
        if self.repeats(&alignment, has_ids) {
            return Some(Ok(self.new_from(request.len(), Step::Repeat)));
        }
        Some(self.observe_after(alignment.at_end?))
    }

    /// Returns whether the whole request repeats the final stored messages and ends with a message
    /// of the user: its service call failed after the messages were stored. The contents of results
    /// are compared too, because several calls may have the same id or no id.
    fn ends_with_stored_input(&self, align: impl Fn(bool) -> Alignment) -> bool {
        let request = &*self.request.all;
        let is_input = |atom: &Atom<'_>| matches!(atom.content, Content::User { .. });
        let mut stored = results_from_the_end(self.stored.iter());
        request.last().is_some_and(is_input)
            && align(false).at_end == Some(request.len())
            && results_from_the_end(self.sent.iter()).all(|sent| {
                stored.next().is_some_and(|stored| {
                    (&stored.content, stored.is_error) == (&sent.content, sent.is_error)
                })
            })
    }

    /// Returns whether the request was made before: all its messages are stored, and further stored
    /// messages follow them.
    fn repeats(&self, alignment: &Alignment, has_ids: bool) -> bool {
        let Some(covered) = alignment.covered_before else { return false };
        let request = &*self.request.all;
        // The alignment at the end is wrong if the rest of the request contains an answer that is
        // not stored.
        let after_repeated = alignment.at_end.and_then(|end| request.get(end..));
        let after_repeated =
            after_repeated.filter(|after_repeated| !after_repeated.iter().any(Atom::is_statement));
        if after_repeated
            .is_some_and(|after_repeated| self.known.has_open_calls_for(after_repeated))
        {
            return false;
        }
        let shows_answers = has_ids || request.iter().any(|atom| !atom.is_of_caller());
        match self.stored.run {
            StoredRun::Known { run, has_answered } => {
                self.known.first_of(run).is_some_and(|first| covered > first)
                    && (shows_answers || !has_answered)
            }
            // The request may also be new, because a user may send the same text twice.
            StoredRun::Unknown => {
                after_repeated.is_none()
                    && self.known.last_user().is_none_or(|last| covered > last)
                    && (shows_answers || !self.known.is_answered())
            }
        }
    }

    fn observe_after(&self, end: usize) -> Result<Observed, TranscriptDifference> {
        let new = self.request.all.get(end..).unwrap_or_default();
        let is_known = matches!(self.stored.run, StoredRun::Known { .. });
        match new.iter().find(|atom| atom.is_statement()) {
            Some(added) if is_known => Err(self.difference(added, None)),
            Some(_) | None => Ok(self.new_from(end, self.step_of_new(new))),
        }
    }

    fn step_of_new(&self, new: &[Atom<'_>]) -> Step {
        let is_known = matches!(self.stored.run, StoredRun::Known { .. });
        let adds_input = new.first().is_some_and(|first| !first.is_result());
        let is_open = !self.known.all.is_empty() && !self.known.is_ended;
        if is_known || (is_open && !adds_input) { Step::Continue } else { Step::Begin }
    }

    /// Returns the new part of a request that does not repeat the end of the stored conversation.
    fn unaligned(&self) -> Result<Observed, TranscriptDifference> {
        let request = &*self.request.all;
        let is_known = matches!(self.stored.run, StoredRun::Known { .. });
        let Some(statement) = request.iter().find(|atom| atom.is_statement()) else {
            return Ok(self.new_from(0, self.step_of_new(request)));
        };
        let furthest = align(&self.known, &self.request, false, false).furthest;
        let repeats_some = furthest.sent > 0 || self.known.has_statement_of(&self.request);
        if !is_known && !repeats_some {
            return Ok(self.new_from(0, Step::Begin));
        }
        let (sent, stored) = first_difference(&self.known, &self.request, furthest);
        let sent = request.get(sent).unwrap_or(statement);
        let stored = stored.and_then(|position| self.known.all.get(position));
        Err(self.difference(sent, stored))
    }

    fn new_from(&self, end: usize, step: Step) -> Observed {
        let request = &*self.request.all;
        let mut new = Vec::new();
        let mut from = self.sent.len();
        if let Some(first) = request.get(end) {
            from = self.leading + first.message;
            let before = end.checked_sub(1).and_then(|before| request.get(before));
            if let Some(message) = self.sent.get(from)
                && let Some(before) = before.filter(|before| before.last == first.message)
            {
                // The first results of the message are already stored.
                let results = request.iter().take(end).rev();
                let results = results.take_while(|it| it.message == before.message).count();
                new.push(without_results(message, results));
                from += 1;
            }
        }
        new.extend(self.sent.get(from..).unwrap_or_default().iter().cloned());
        let system = self.sent.get(..self.leading).unwrap_or_default();
        let instructions = match system.is_empty() || self.stored.is_in_force(system) {
            true => Vec::new(),
            false => system.to_vec(),
        };
        Observed { instructions, new, step }
    }

    fn difference(&self, sent: &Atom<'_>, stored: Option<&Atom<'_>>) -> TranscriptDifference {
        TranscriptDifference::between(self.leading + sent.message, sent, stored)
    }
}

fn results_from_the_end<'m>(
    messages: impl DoubleEndedIterator<Item = &'m Arc<Message>>,
) -> impl Iterator<Item = &'m ToolResult> {
    messages.rev().flat_map(|message| {
        let mut results: Vec<_> = message.results().collect();
        results.reverse();
        results
    })
}

#[cfg(test)]
mod tests;
