//! The content that a store may have after a power cut. It is computed from the notes, in which the
//! workload records when each operation began and when it was acknowledged.

use std::collections::BTreeMap;

use super::notes::{Action, Key, Note, Staging, WriteNote};

/// The messages of a conversation. If a run is open (a journaled run that is not yet committed),
/// its messages are staged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) exists: bool,
    pub(super) pruned: u64,
    /// The ids and the stored forms of all messages, including staged messages.
    pub(super) messages: Vec<(String, String)>,
    /// The number of the last visible message, if a run is open.
    pub(super) open: Option<u64>,
    pub(super) record: BTreeMap<(u64, u32), String>,
}

impl State {
    fn last(&self) -> u64 {
        self.pruned + self.messages.len() as u64
    }

    fn cut_to(&mut self, last: u64) {
        self.messages.truncate(usize::try_from(last.saturating_sub(self.pruned)).unwrap_or(0));
        self.record.retain(|(sequence, _), _| *sequence <= last);
    }

    fn write(&mut self, write: &WriteNote) {
        self.exists = true;
        let is_discard = matches!(write.staged, Staging::Discard { .. });
        if !is_discard {
            self.messages.extend(write.messages.iter().cloned());
        }
        let held = self.pruned + 1..=self.last();
        let rows = write.record.iter().filter(|((sequence, _), _)| held.contains(sequence));
        self.record.extend(rows.cloned());
        match &write.staged {
            Staging::No => {}
            Staging::Yes => self.open = Some(self.open.unwrap_or(write.after)),
            Staging::Commit => self.open = None,
            Staging::Discard { visible } => {
                self.cut_to(*visible);
                self.open = None;
            }
        }
    }

    fn prune(&mut self, count: u64) {
        self.pruned += count;
        let first = self.pruned + 1;
        self.messages.drain(..usize::try_from(count).unwrap_or(0).min(self.messages.len()));
        self.record.retain(|(sequence, _), _| *sequence >= first);
    }

    fn copied(&self) -> Self {
        let mut copy = self.clone();
        if let Some(visible) = copy.open.take() {
            copy.cut_to(visible);
        }
        if copy.messages.is_empty() { Self::default() } else { copy }
    }
}

/// One change of a conversation.
#[derive(Debug)]
struct Change {
    /// The lines of the strace output at which the change began and was acknowledged.
    began: usize,
    done: usize,
    after: State,
}

#[derive(Debug, Default)]
pub(super) struct History {
    conversations: BTreeMap<Key, Vec<Change>>,
    /// The operations that make all earlier changes durable: the lines at which each began and
    /// ended.
    durable: Vec<(usize, usize)>,
    /// The backups: the name of each, and the lines at which it began and ended.
    pub(super) backups: Vec<(String, usize, usize)>,
    pub(super) writes: Vec<usize>,
}

/// Limits the changes that a store or a backup may contain after a cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// A change that began after this line is absent.
    pub(super) until: usize,
    /// A change that was acknowledged before this line is present.
    pub(super) at_least: usize,
}

impl History {
    /// Builds the history from notes with their lines in the strace output. Returns an error if the
    /// workload broke a rule before any cut.
    pub(super) fn of(notes: &[(usize, Note)]) -> Result<Self, String> {
        let mut outcomes: BTreeMap<u64, (usize, Result<u64, &str>)> = BTreeMap::new();
        for (line, note) in notes {
            match note {
                Note::Done { number, pruned } => {
                    outcomes.insert(*number, (*line, Ok(*pruned)));
                }
                Note::Refused { number, reason } => {
                    outcomes.insert(*number, (*line, Err(reason)));
                }
                Note::Began { .. } | Note::Answered { .. } => {}
            }
        }
        let mut history = Self::default();
        for (line, note) in notes {
            match note {
                Note::Began { number, action } => {
                    let never = (usize::MAX, Ok(0));
                    let (done, outcome) = outcomes.get(number).copied().unwrap_or(never);
                    history.add(*line, done, action, outcome)?;
                }
                Note::Answered { key, run, texts } => {
                    history.check_answered(*line, key, run, texts)?;
                }
                Note::Done { .. } | Note::Refused { .. } => {}
            }
        }
        Ok(history)
    }

    fn add(
        &mut self,
        began: usize,
        done: usize,
        action: &Action,
        outcome: Result<u64, &str>,
    ) -> Result<(), String> {
        let pruned = match (action, outcome) {
            (_, Ok(pruned)) => pruned,
            (Action::MakeDurable { .. }, Err(_)) => return Ok(()),
            (action, Err(reason)) => return Err(format!("{action:?} failed: {reason}")),
        };
        let (key, after) = match action {
            Action::Write(write) => {
                let mut state = self.state(&write.key);
                if state.last() != write.after {
                    return Err(format!("{write:?} was stored after message {}", state.last()));
                }
                state.write(write);
                self.writes.push(done);
                (&write.key, state)
            }
            Action::Prune { key } => {
                let mut state = self.state(key);
                state.prune(pruned);
                (key, state)
            }
            Action::Delete { key } => (key, State::default()),
            Action::Fork { from, to } => (to, self.state(from).copied()),
            Action::MakeDurable { .. } => {
                self.durable.push((began, done));
                return Ok(());
            }
            Action::Backup { name } => {
                self.backups.push((name.clone(), began, done));
                return Ok(());
            }
        };
        self.conversations.entry(key.clone()).or_default().push(Change { began, done, after });
        Ok(())
    }

    fn state(&self, key: &Key) -> State {
        let changes = self.conversations.get(key);
        changes
            .and_then(|changes| changes.last())
            .map_or_else(State::default, |it| it.after.clone())
    }

    /// Checks that each answer was stored before its caller received it, in every mode.
    fn check_answered(
        &self,
        line: usize,
        key: &Key,
        run: &str,
        texts: &[String],
    ) -> Result<(), String> {
        let changes = self.conversations.get(key).map_or(&[][..], Vec::as_slice);
        let stored = changes.iter().rev().find(|change| change.done < line);
        let stored = stored.map(|change| &change.after).filter(|after| after.open.is_none());
        let bodies = stored.map_or(&[][..], |state| &state.messages);
        for text in texts {
            let is_stored =
                |(id, body): &&(String, String)| id.contains(run) && body.contains(text);
            if bodies.iter().filter(is_stored).count() != 1 {
                return Err(format!(
                    "a caller received the answer of run {run}, but {text:?} is not stored"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.conversations.keys()
    }

    /// Returns the bounds for a cut before this line. With full durability, the store must contain
    /// all acknowledged changes. Otherwise it must contain the changes that were acknowledged
    /// before the last completed checkpoint, vacuum or close began.
    pub(super) fn bounds(&self, line: usize, is_full: bool) -> Bounds {
        let before = self.durable.iter().filter(|(_, done)| *done < line);
        let durable = before.map(|(began, _)| *began).max().unwrap_or(0);
        Bounds { until: line, at_least: if is_full { line } else { durable } }
    }

    /// Checks that a store may be in this state, and returns the number of lost changes, which had
    /// begun and are missing. There are two rules:
    ///
    /// - Each conversation has the state after one of its changes.
    /// - If a change is present, all changes that were acknowledged before it began are present.
    pub(super) fn admits(
        &self,
        found: &BTreeMap<Key, State>,
        bounds: Bounds,
    ) -> Result<usize, String> {
        if let Some(unknown) = found.keys().find(|key| !self.conversations.contains_key(*key)) {
            return Err(format!("conversation {unknown:?} was never written"));
        }
        let mut candidates = BTreeMap::new();
        for (key, changes) in &self.conversations {
            candidates.insert(key, Candidates::of(key, changes, found.get(key), bounds)?);
        }
        // Begins with the largest number of changes for each conversation, and reduces the numbers
        // until they satisfy the second rule.
        loop {
            let begun = candidates.values().filter_map(Candidates::last_began).max().unwrap_or(0);
            let missing = candidates.values().filter(|it| it.lacks(begun)).count();
            if missing == 0 {
                return Ok(candidates.values().map(Candidates::lost).sum());
            }
            let latest =
                candidates.iter_mut().max_by_key(|(_, it)| it.last_began().unwrap_or_default());
            let lowered = latest.map(|(key, it)| (*key, it.lower()));
            if let Some((key, false)) = lowered {
                return Err(format!(
                    "the last change of conversation {key:?} is present, but a change of another \
                     conversation that was acknowledged before it began is missing"
                ));
            }
        }
    }
}

/// All numbers of changes after which a conversation would have its found state.
struct Candidates<'a> {
    changes: &'a [Change],
    /// The numbers in ascending order. The last one is the current choice.
    counts: Vec<usize>,
    begun: usize,
}

impl<'a> Candidates<'a> {
    fn of(
        key: &Key,
        changes: &'a [Change],
        found: Option<&State>,
        bounds: Bounds,
    ) -> Result<Self, String> {
        let absent = State::default();
        let found = found.unwrap_or(&absent);
        let begun = changes.partition_point(|change| change.began < bounds.until);
        let least = changes.iter().take_while(|change| change.done < bounds.at_least).count();
        let state = |count: usize| match count.checked_sub(1).and_then(|last| changes.get(last)) {
            Some(change) => &change.after,
            None => &absent,
        };
        let counts: Vec<usize> = (least..=begun).filter(|count| state(*count) == found).collect();
        if counts.is_empty() {
            let earlier = (0..least).rev().find(|count| state(*count) == found);
            let what = match earlier {
                Some(count) => format!("{} acknowledged changes are lost", least - count),
                None => format!(
                    "it never had the state {}; after {least} changes it had {}, after {begun} {}",
                    summary(found),
                    summary(state(least)),
                    summary(state(begun))
                ),
            };
            return Err(format!("conversation {key:?}: {what}"));
        }
        Ok(Self { changes, counts, begun })
    }

    fn count(&self) -> usize {
        self.counts.last().copied().unwrap_or_default()
    }

    /// Returns the line at which the last present change began.
    fn last_began(&self) -> Option<usize> {
        Some(self.changes.get(self.count().checked_sub(1)?)?.began)
    }

    /// Returns whether a change that was acknowledged before a line is missing.
    fn lacks(&self, line: usize) -> bool {
        self.changes.get(self.count()).is_some_and(|change| change.done < line)
    }

    fn lower(&mut self) -> bool {
        self.counts.pop();
        !self.counts.is_empty()
    }

    fn lost(&self) -> usize {
        self.begun.saturating_sub(self.count())
    }
}

fn summary(state: &State) -> String {
    let texts: Vec<String> = state
        .messages
        .iter()
        .map(|(id, body)| format!("{id} {}", body.chars().take(120).collect::<String>()))
        .collect();
    let State { exists, pruned, open, record, .. } = state;
    format!("exists {exists}, pruned {pruned}, open {open:?}, record {record:?}, {texts:#?}")
}
