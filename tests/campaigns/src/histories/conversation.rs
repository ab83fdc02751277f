//! One conversation of the specification.

use super::event::{
    AppendRequest, CloseSeen, HeadSeen, LeaseSeen, MessageSeen, OpenSeen, RevisionSeen,
    SummaryOutcome, SummaryRequest, SummarySeen,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    pub(super) incarnation: Incarnation,
    /// The number of the last message, including staged ones.
    pub(super) sequence: u64,
    pub(super) pruned: u64,
    pub(super) messages: Vec<MessageSeen>,
    pub(super) open: Option<Open>,
    /// The summaries. The last one is in force.
    pub(super) summaries: Vec<SummarySeen>,
}

/// The incarnation of a conversation: a random number, which changes when the conversation is
/// created again. A prune may change it too. The specification knows the new value when an
/// operation returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Incarnation {
    Known(u64),
    Unknown { not: u64 },
}

/// An open run: a journaled run that was neither committed nor discarded. Only the holder of its
/// lease may append to the conversation. Its staged messages are not visible.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) run: String,
    pub(super) lease: LeaseSeen,
    pub(super) visible: u64,
    pub(super) staged: Vec<MessageSeen>,
}

impl Incarnation {
    /// Returns the number of the incarnation, or the number that an unknown incarnation cannot
    /// have.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Known(number) | Self::Unknown { not: number } => number,
        }
    }
}

impl Open {
    pub(super) fn is(&self, seen: &OpenSeen) -> bool {
        self.run == seen.run && self.lease == seen.lease && self.visible == seen.visible
    }
}

impl Conversation {
    pub(super) fn absent() -> Self {
        let (messages, incarnation) = (Vec::new(), Incarnation::Known(0));
        Self { incarnation, sequence: 0, pruned: 0, messages, open: None, summaries: Vec::new() }
    }

    /// Returns whether the conversation has no messages and no open run, for example because its
    /// only run was discarded.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.open.is_none()
    }

    pub(super) fn is_at(&self, revision: RevisionSeen) -> bool {
        self.incarnation == Incarnation::Known(revision.incarnation)
            && self.sequence == revision.sequence
    }

    /// Returns whether a read may return this revision now. Sets an unknown incarnation to the
    /// incarnation of the revision.
    pub(super) fn binds(&mut self, seen: RevisionSeen) -> bool {
        if let Incarnation::Unknown { not } = self.incarnation
            && seen.incarnation != not
            && seen.incarnation != 0
        {
            self.incarnation = Incarnation::Known(seen.incarnation);
        }
        self.is_at(seen)
    }

    /// Returns whether a read may return this head now.
    pub(super) fn shows_head(&mut self, head: &HeadSeen) -> bool {
        let is_same_run = match (&self.open, &head.open) {
            (None, None) => true,
            (Some(open), Some(seen)) => open.is(seen),
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same_run
            && self.pruned == head.pruned
            && self.summaries.last() == head.summary.as_ref()
            && self.binds(head.revision)
    }

    pub(super) fn message(&self, number: u64) -> Option<&MessageSeen> {
        let index = usize::try_from(number.checked_sub(self.pruned + 1)?).ok()?;
        let staged = self.open.iter().flat_map(|open| &open.staged);
        self.messages.iter().chain(staged).nth(index)
    }

    /// Returns a conversation with only the turns that end before a message, or with all visible
    /// turns. A turn is the messages of one run, because the clients store no calls.
    pub(super) fn turns_before(&self, before: Option<u64>) -> Self {
        let divides = |cut: usize| {
            let (copied, rest) = self.messages.split_at(cut);
            copied.iter().any(|one| rest.iter().any(|other| one.run == other.run))
        };
        let before = before.unwrap_or(u64::MAX);
        let precedes = |cut: &usize| self.pruned + (*cut as u64) < before.max(self.pruned + 1);
        let cuts = (0..=self.messages.len()).rev();
        let cut = cuts.filter(precedes).find(|cut| !divides(*cut)).unwrap_or(0);
        let sequence = self.pruned + cut as u64;
        let messages = self.messages.iter().take(cut).cloned().collect();
        Self { sequence, messages, open: None, summaries: Vec::new(), ..self.clone() }
    }

    /// Adds a summary, unless the conversation has it. A summary covers visible messages, and more of
    /// them than the summary in force.
    pub(super) fn add_summary(&mut self, request: &SummaryRequest) -> SummaryOutcome {
        let SummaryRequest { summary, run, index, .. } = request;
        if self.summaries.contains(summary) {
            return SummaryOutcome::Stored;
        }
        let number = summary.covers_to.checked_sub(self.pruned + 1).map(usize::try_from);
        let last = number.and_then(|number| self.messages.get(number.ok()?));
        if !last.is_some_and(|last| last.run == *run && last.index == *index) {
            return SummaryOutcome::NoSuchMessage;
        }
        if self.summaries.last().is_some_and(|last| last.covers_to >= summary.covers_to) {
            return SummaryOutcome::Superseded;
        }
        self.summaries.push(*summary);
        SummaryOutcome::Stored
    }

    /// Removes the summary in force if it has this id. Returns whether it was removed.
    pub(super) fn undo(&mut self, id: u64) -> bool {
        self.summaries.pop_if(|last| last.id == id).is_some()
    }

    /// Removes the first messages, and the summaries of removed messages except the one in force.
    pub(super) fn prune(&mut self, messages: usize) {
        self.messages.drain(..messages);
        self.pruned += messages as u64;
        let in_force = self.summaries.last().copied();
        self.summaries.retain(|it| it.covers_to > self.pruned || Some(*it) == in_force);
        self.incarnation = Incarnation::Unknown { not: self.incarnation.number() };
    }

    /// Returns whether the writer may append to the conversation. If a run is open, only the holder
    /// of its lease or a later attempt may.
    pub(super) fn admits(&self, write: &AppendRequest) -> bool {
        match (&self.open, &write.staged) {
            (None, None) => true,
            (None, Some(staged)) => !matches!(staged.close, Some(CloseSeen::Discard { .. })),
            (Some(_), None) => false,
            (Some(open), Some(staged)) => {
                let (held, asked) = (open.lease, staged.lease);
                let is_holder = asked.attempt > held.attempt
                    || (asked.attempt == held.attempt && asked.holder == held.holder);
                let is_in_position = match staged.close {
                    Some(CloseSeen::Discard { visible }) => visible == open.visible,
                    Some(CloseSeen::Commit) | None => true,
                };
                open.run == write.run && is_holder && is_in_position
            }
        }
    }

    pub(super) fn store(&mut self, write: &AppendRequest) {
        let visible = self.pruned + self.messages.len() as u64;
        match write.staged {
            None => self.messages.extend(write.messages()),
            Some(staged) => {
                let open = self.open.get_or_insert_with(|| Open {
                    run: write.run.clone(),
                    lease: staged.lease,
                    visible,
                    staged: Vec::new(),
                });
                open.lease = staged.lease;
                open.staged.extend(write.messages());
            }
        }
        match write.close() {
            None => {}
            Some(CloseSeen::Commit) => {
                self.messages.extend(self.open.take().into_iter().flat_map(|open| open.staged));
            }
            Some(CloseSeen::Discard { .. }) => self.open = None,
        }
        self.incarnation = Incarnation::Known(write.result.incarnation);
        self.sequence = write.result.sequence;
    }
}
