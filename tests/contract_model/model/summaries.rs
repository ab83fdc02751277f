//! Computes which summaries exist and what they cover. A summary covers entries at the beginning of
//! the conversation. The last summary is in force: requests contain its text in place of these
//! entries.

use std::collections::BTreeSet;

use super::{
    Model, RunInput,
    entry::{Entry, Form},
    outcomes,
    replay::{SentItem, replay},
};
use crate::contract_model::{
    case::{Case, Limit, SummaryChange},
    script::{self, UserMessage},
    summaries::{PROMPT, Written, added_text, request_text, written},
    tools::Hook,
};

/// A summary of the first entries of a conversation.
#[derive(Clone)]
pub(super) struct Summary {
    /// The number of entries that the summary covers.
    covers: usize,
    text: String,
}

/// The summary that a run uses.
pub(super) struct InForce {
    /// The number of entries that the summary covers.
    pub(super) covers: usize,
    /// The message that the model receives in place of these entries.
    pub(super) text: String,
}

/// Limits what the next summary covers. Sizes are numbers of texts, media and results.
struct Limits {
    /// The number of the newest turns that are not covered.
    turns: usize,
    /// The maximum size of the turns that are not covered.
    kept: usize,
    /// The maximum size of the turns that one summary covers.
    covered: usize,
}

/// The end of a turn after which another turn follows. A turn is the entries from the input of a
/// run to the input of a later run.
struct TurnEnd {
    /// The number of entries up to the end of the turn.
    entries: usize,
    /// The size of the entries up to the end of the turn that no summary covers yet.
    size: usize,
    /// Whether no call of these entries waits for a result.
    is_closed: bool,
}

/// The effect of adding or removing a summary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Changed {
    /// The service that writes summaries received these requests. The flag is set if it failed.
    Made { requests: Vec<Vec<String>>, failed: bool },
    /// A summary with this text was added. It covers this number of messages with content.
    Added { messages: usize, text: String },
    /// The summary in force covers the same messages or more.
    Superseded { messages: usize },
    /// The summary in force was removed.
    Removed,
    /// There is nothing to add or to remove.
    Nothing,
}

impl Model<'_> {
    /// Returns the summaries, each with the messages that it covers.
    pub(crate) fn summaries(&self) -> Vec<String> {
        let line = |summary: &Summary| {
            let covered = self.history[..summary.covers].iter();
            let covered: Vec<_> = covered.flat_map(|(_, entry)| entry.texts(true)).collect();
            format!("{} covers {covered:?}", summary.text)
        };
        self.summaries.iter().map(line).collect()
    }

    /// Returns the summary in force.
    pub(super) fn in_force(&self) -> Option<InForce> {
        let Summary { covers, text } = self.summaries.last()?;
        Some(InForce { covers: *covers, text: request_text(text) })
    }

    /// Makes summaries if the conversation and the input of a run are larger than the limit of the
    /// case. The entries of the run begin at `begins`, and the first `stored` of them are stored.
    /// Returns the requests to the service that writes summaries.
    pub(super) fn summarize_before(
        &mut self,
        run: usize,
        begins: usize,
        stored: usize,
    ) -> Vec<Vec<String>> {
        let Some(limit) = self.case.summarize else { return Vec::new() };
        let own = if stored == 0 { self.inputs[&run].size(self.case, run) } else { 0 };
        let all = begins + stored;
        let is_counted = |sent: &&SentItem| sent.compaction.is_none();
        let size = self.shown(all).iter().filter(is_counted).count() + own;
        if size <= limit.size {
            return Vec::new();
        }
        let kept = (limit.size / 2).saturating_sub(own);
        let limits = Limits { turns: limit.turns, kept, covered: limit.size };
        self.make_summaries(begins, all, Some(begins), &limits).0
    }

    /// Adds or removes summaries between two attempts.
    pub(crate) fn change_summaries(&mut self, change: SummaryChange) -> Changed {
        let all = self.history.len();
        match change {
            SummaryChange::Make(Limit { size, turns }) => {
                let limits = Limits { turns, kept: usize::MAX, covered: size };
                let (requests, failed) = self.make_summaries(all, all, None, &limits);
                Changed::Made { requests, failed }
            }
            SummaryChange::Add { end } => {
                let closed = self.turn_ends(0, all).into_iter().filter(|end| end.is_closed);
                let mut ends: Vec<usize> = closed.map(|end| end.entries).collect();
                ends.extend(self.is_complete().then_some(all));
                let Some(covers) = ends.get(end % ends.len().max(1)).copied() else {
                    return Changed::Nothing;
                };
                let covered = self.history[..covers].iter();
                let messages = covered.map(|(_, entry)| entry.texts(true).len()).sum();
                if self.summaries.last().is_some_and(|last| last.covers >= covers) {
                    return Changed::Superseded { messages };
                }
                let text = added_text(covers);
                self.summaries.push(Summary { covers, text: text.clone() });
                Changed::Added { messages, text }
            }
            SummaryChange::Undo => match self.summaries.pop() {
                Some(_) => Changed::Removed,
                None => Changed::Nothing,
            },
        }
    }

    /// Returns whether the last run has ended, and no call can receive a result later.
    fn is_complete(&self) -> bool {
        let last = self.history.last();
        last.is_some_and(|(run, _)| self.ended.contains(run))
            && !self.awaits_results(&self.history)
            && self.pending_results().is_empty()
    }

    /// Makes summaries of the entries before `end`, until no further turn may be covered. Returns
    /// the requests to the service that writes summaries, and whether the service has failed. A
    /// request of a run whose entries begin at `of_run` contains no old media.
    fn make_summaries(
        &mut self,
        end: usize,
        all: usize,
        of_run: Option<usize>,
        limits: &Limits,
    ) -> (Vec<Vec<String>>, bool) {
        let mut requests = Vec::new();
        loop {
            let covered = self.summaries.last().map_or(0, |summary| summary.covers);
            let Some(covers) = self.next_to_cover(covered, end, limits) else {
                return (requests, false);
            };
            let mut shown = self.shown(all);
            if let Some(begins) = of_run {
                shown = self.without_old_media(shown, begins);
            }
            shown.retain(|shown| shown.index.is_none_or(|index| index < covers));
            let mut request: Vec<_> = shown.into_iter().map(|shown| shown.text).collect();
            request.push(format!("user: {PROMPT}"));
            requests.push(request);
            self.written += 1;
            match written(self.case, self.written) {
                Written::Text(text) => self.summaries.push(Summary { covers, text }),
                Written::Nothing | Written::Half | Written::Error => return (requests, true),
            }
        }
    }

    /// Returns the first `all` entries as a request contains them.
    fn shown(&self, all: usize) -> Vec<SentItem> {
        let stored = &self.history[..all];
        let entries = stored.iter().enumerate();
        let entries = entries.map(|(index, (run, entry))| (index, *run, entry, true));
        replay(entries, &self.interrupted(stored, &[]), self.in_force().as_ref())
    }

    /// Returns the number of entries that the next summary covers. The entries before `covered` are
    /// already covered, and the entries from `end` on may not be covered.
    fn next_to_cover(&self, covered: usize, end: usize, limits: &Limits) -> Option<usize> {
        let ends = self.turn_ends(covered, end);
        let size: usize =
            self.history[covered.min(end)..end].iter().map(|(_, entry)| entry.size()).sum();
        let newest = limits.turns.max(1);
        if newest > ends.len() && size <= limits.kept {
            return None;
        }
        let fits = |(at, turn): (usize, &TurnEnd)| {
            ends.len() - at <= newest && size - turn.size <= limits.kept
        };
        let last = ends.iter().enumerate().position(fits).unwrap_or(ends.len().checked_sub(1)?);
        let closed: Vec<_> = ends[..=last].iter().filter(|end| end.is_closed).collect();
        let fitting = closed.iter().rfind(|end| end.size <= limits.covered);
        fitting.or(closed.first()).map(|end| end.entries)
    }

    /// Returns the ends of all turns of the entries from `begin` to `end`, except the last turn.
    fn turn_ends(&self, begin: usize, end: usize) -> Vec<TurnEnd> {
        let (mut ends, mut size, mut turn) = (Vec::new(), 0, None);
        for at in begin..end {
            let (run, entry) = &self.history[at];
            let is_input =
                matches!(entry, Entry::Text(_) | Entry::Approvals { .. } | Entry::Queued(_));
            if is_input && turn != Some(*run) {
                // A first turn without input ends with its final answer. It begins with a late
                // result, whose call is already covered.
                if turn.is_some() || self.history[begin..at].last().is_some_and(is_final_answer) {
                    let turn = &self.history[begin..at];
                    let is_closed = !self.awaits_results(turn) && !self.is_round_open(turn, entry);
                    ends.push(TurnEnd { entries: at, size, is_closed });
                }
                turn = Some(*run);
            }
            size += entry.size();
        }
        ends
    }

    /// Returns whether a call in these entries waits for approval or was returned to the caller,
    /// and has no result in these entries.
    fn awaits_results(&self, entries: &[(usize, Entry)]) -> bool {
        let entries = || entries.iter().map(|(_, entry)| entry);
        let answered: BTreeSet<&str> = outcomes(entries()).collect();
        let waits = |entry: &Entry| {
            // If a tool has ended the run of the answer, its result is only in the record.
            let is_ended = entry.calls().any(|call| self.in_record_alone.contains_key(&call.token));
            let mut calls = entry.calls().filter(|call| call.hook != Hook::Drop);
            calls.any(|call| {
                let is_returned = call.form == Form::Call && !call.is_over_limit && !is_ended;
                let is_awaited = is_returned || matches!(call.form, Form::Request(_));
                is_awaited && !answered.contains(&*call.token)
            })
        };
        entries().any(waits)
    }

    /// Returns whether a call of the last answer in these entries has no result, and may receive
    /// one after the next entry. After an approval, all earlier calls may still receive results.
    fn is_round_open(&self, entries: &[(usize, Entry)], next: &Entry) -> bool {
        let entries = || entries.iter().map(|(_, entry)| entry);
        let answered: BTreeSet<&str> = outcomes(entries()).collect();
        let last = entries().rfind(|entry| matches!(entry, Entry::Answer(_)));
        let calls = last.into_iter().flat_map(Entry::calls);
        let mut stored = calls.filter(|call| call.hook != Hook::Drop);
        matches!(next, Entry::Approvals { .. })
            && stored.any(|call| !answered.contains(&*call.token))
    }
}

/// Returns whether an entry is an answer whose last message has no stored calls.
fn is_final_answer((_, entry): &(usize, Entry)) -> bool {
    let Entry::Answer(messages) = entry else { return false };
    messages.last().is_some_and(|last| last.calls.iter().all(|call| call.hook == Hook::Drop))
}

impl UserMessage {
    /// Returns the number of texts and media.
    fn size(&self) -> usize {
        1 + self.media.len()
    }
}

impl RunInput {
    /// Returns the number of texts, media and results.
    fn size(&self, case: &Case, run: usize) -> usize {
        let message = script::input(case, run).size();
        let of_message = |has_text: &bool| if *has_text { message } else { 0 };
        match self {
            Self::Text => message,
            Self::Again(message) => message.size(),
            Self::Approvals { has_text, .. } => of_message(has_text),
            Self::Results { tokens, has_text, .. } => tokens.len() + of_message(has_text),
        }
    }
}

impl Entry {
    /// Returns the number of texts, media and results in the stored form of the entry.
    fn size(&self) -> usize {
        match self {
            Self::Text(message) => message.size(),
            Self::Queued(_) => 1,
            Self::Approvals { message, .. } => message.as_ref().map_or(0, UserMessage::size),
            Self::Answer(answers) => answers.iter().filter(|it| it.text.is_some()).count(),
            Self::Results(outcomes) => outcomes.iter().filter(|it| it.hook != Hook::Drop).count(),
        }
    }
}
