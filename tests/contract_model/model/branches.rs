//! Computes which turns a branch of a conversation contains.

use std::collections::BTreeSet;

use super::{
    Model,
    entry::{Entry, Form},
    outcomes,
};
use crate::contract_model::script::UserMessage;

/// The turns at the beginning of a conversation that a branch contains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BranchEnd {
    /// The number of entries.
    entries: usize,
    /// The number of messages with content.
    pub(crate) messages: usize,
}

/// The cause for which a question cannot be asked again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NotAsked {
    NoQuestion,
    UnclearInput,
    JoinedTurns,
}

impl<'a> Model<'a> {
    /// Returns the number of messages with content.
    pub(crate) fn messages(&self) -> usize {
        self.history.iter().map(|(_, entry)| entry.texts(true).len()).sum()
    }

    /// Returns the index of the entry that contains a message with content.
    fn entry_of(&self, message: usize) -> usize {
        let mut before = 0;
        let contains = |(_, entry): &(usize, Entry)| {
            before += entry.texts(true).len();
            message < before
        };
        self.history.iter().position(contains).unwrap_or(self.history.len())
    }

    /// Returns the end of a branch that contains only turns before a message, or all turns. A run is
    /// not divided, and a call is not separated from its result.
    pub(crate) fn branch_end(&self, before: Option<usize>) -> BranchEnd {
        let last = before.map_or(self.history.len(), |message| self.entry_of(message));
        let entries = (0..=last).rev().find(|end| self.divides_no_turn(*end)).unwrap_or(0);
        let copied = self.history[..entries].iter();
        let messages = copied.map(|(_, entry)| entry.texts(true).len()).sum();
        BranchEnd { entries, messages }
    }

    fn divides_no_turn(&self, end: usize) -> bool {
        let (before, after) = self.history.split_at(end);
        let run = |entry: Option<&(usize, Entry)>| entry.map(|(run, _)| *run);
        let divides_run = !before.is_empty() && run(before.last()) == run(after.first());
        let later: BTreeSet<&str> = outcomes(after.iter().map(|(_, entry)| entry)).collect();
        let mut calls = before.iter().flat_map(|(_, entry)| entry.calls());
        !divides_run && !calls.any(|call| later.contains(&*call.token))
    }

    /// Returns the conversation in a branch.
    pub(crate) fn branch(&self, end: BranchEnd) -> Self {
        let mut branch = self.clone();
        branch.history.truncate(end.entries);
        branch.open = None;
        branch.summaries.clear();
        branch.known.clear();
        let requested: Vec<_> =
            branch.history.iter().flat_map(|(_, entry)| entry.calls()).collect();
        let requested = requested.iter().filter(|call| matches!(call.form, Form::Request(_)));
        let requested: Vec<String> = requested.map(|call| call.token.clone()).collect();
        let answered: BTreeSet<String> = branch.outcomes().map(str::to_owned).collect();
        let is_waiting = |token: &String| {
            !answered.contains(token) && !branch.in_record_alone.contains_key(token)
        };
        branch.not_approved = requested.into_iter().filter(is_waiting).collect();
        branch
    }

    /// Returns the end of the branch for an `edit` or a `regenerate` of a message, and the question
    /// that the request in the branch repeats. An `edit` requires that the message is this question.
    pub(crate) fn asked_again(
        &self,
        message: usize,
        edits: bool,
    ) -> Result<(BranchEnd, UserMessage), NotAsked> {
        let at = self.entry_of(message);
        let end = self.branch_end(Some(message));
        let after = &self.history[end.entries..];
        let run = after[0].0;
        let question = match &after[0].1 {
            Entry::Text(message) => Some(message),
            _ => None,
        };
        let is_input = |entry: &Entry| matches!(entry, Entry::Text(_) | Entry::Queued(_));
        let mut of_run = after.iter().take_while(|(of, _)| *of == run).skip(1);
        if of_run.any(|(_, entry)| is_input(entry)) {
            return Err(NotAsked::UnclearInput);
        }
        let mut up_to_message = after.iter().take(at + 1 - end.entries);
        if up_to_message.any(|(of, entry)| *of != run && is_input(entry)) {
            return Err(NotAsked::JoinedTurns);
        }
        match question {
            Some(question) if !edits || at == end.entries => Ok((end, question.clone())),
            _ => Err(NotAsked::NoQuestion),
        }
    }
}
