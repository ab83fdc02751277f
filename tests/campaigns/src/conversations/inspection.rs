//! Compares a stored conversation with its model, which contains the messages that the conversation
//! may and must contain. A run is acknowledged when its caller receives the answer.

use std::collections::{BTreeMap, HashSet};

use tower_chat::{
    message::Messages,
    replay::{DanglingCalls, Replay},
    store::{History, author::OpenRunContent},
    validate::validate_messages,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::openai_chat::{self, Audience};

use super::{
    entry::Entry,
    model::ConversationModel,
    plan::{Turn, token_of},
    turn::TurnModel,
};

/// When the stored conversation was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadAt {
    /// Just now, while no run or prune was in progress.
    Now,
    /// At an unknown time after this run was acknowledged, or at any time if there is no such run.
    /// Later runs may be absent, partial or complete.
    Since(Option<u32>),
}

/// The result of an inspection, for [`ConversationModel::remember`].
#[derive(Debug)]
pub(crate) struct Inspected {
    seen: BTreeMap<u64, (u32, Entry)>,
    pruned: u64,
}

impl ConversationModel {
    /// Compares a history with the model, and also the open run if there is one (a journaled run
    /// that was neither committed nor discarded).
    pub(crate) fn inspect(
        &self,
        history: &History,
        open: Option<&OpenRunContent>,
        read_at: ReadAt,
    ) -> Result<Inspected, String> {
        let pruned = history.head.pruned;
        let mut seen: BTreeMap<u64, (u32, Entry)> = BTreeMap::new();
        let mut groups: Vec<(&TurnModel, Vec<Entry>)> = Vec::new();
        for (number, message) in history.numbered() {
            if read_at != ReadAt::Now && number <= self.pruned {
                // The message was pruned after the read.
                continue;
            }
            let entry = Entry::of(message);
            let run = message.id.map(|id| id.run);
            let Some(turn) = self.turns.iter().find(|turn| Some(turn.run) == run) else {
                return Err(format!("message {number} belongs to no run of the model: {entry:?}"));
            };
            seen.insert(number, (turn.turn.number, entry.clone()));
            match groups.last_mut() {
                Some((last, entries)) if last.run == turn.run => entries.push(entry),
                Some((last, _)) if last.turn > turn.turn => {
                    return Err(format!(
                        "message {number} belongs to an earlier run than the message before"
                    ));
                }
                _ => groups.push((turn, vec![entry])),
            }
        }
        self.check_remembered(&seen, pruned, read_at)?;
        self.check_prune(&seen, pruned, read_at)?;
        let is_bound = |turn: &TurnModel| match read_at {
            ReadAt::Now => true,
            ReadAt::Since(bound) => Some(turn.turn.number) <= bound,
        };
        for (turn, entries) in &groups {
            if is_bound(turn) {
                turn.check_visible(entries)
                    .map_err(|what| format!("run {}: {what}: {entries:?}", turn.turn.token()))?;
            }
        }
        let first = groups.first().map(|(turn, _)| turn.turn.number);
        let open_run = open.map(|open| open.open.run);
        for turn in self.turns.iter().filter(|turn| is_bound(turn)) {
            let is_visible = groups.iter().any(|(group, _)| group.run == turn.run);
            let was_pruned = pruned > 0 && first.is_none_or(|first| turn.turn.number < first);
            if !is_visible && !was_pruned && open_run != Some(turn.run) {
                let is_over = read_at == ReadAt::Now;
                turn.check_absent(is_over)
                    .map_err(|what| format!("run {}: {what}", turn.turn.token()))?;
            }
        }
        if let Some(open) = open {
            self.check_open(open, read_at)?;
        }
        check_replay(&history.messages)?;
        Ok(Inspected { seen, pruned })
    }

    /// Removes from the model the answers that a server has lost in a crash. All runs before the
    /// last stored run must be stored. A run that was in flight at the crash does not count as the
    /// last stored run, because it may have continued the history after the loss. Returns the
    /// acknowledged runs with missing messages.
    pub(crate) fn remove_lost_end(
        &mut self,
        history: &History,
        open: Option<&OpenRunContent>,
        in_flight: &HashSet<Turn>,
    ) -> Result<Vec<Turn>, String> {
        let is_there = |turn: &TurnModel| {
            let mut ids = history.messages.iter().filter_map(|message| message.id);
            ids.any(|id| id.run == turn.run) || open.is_some_and(|open| open.open.run == turn.run)
        };
        let mut before = self.turns.iter().filter(|turn| !in_flight.contains(&turn.turn));
        let last = before.rfind(|turn| is_there(turn)).map(|turn| turn.turn.number);
        self.inspect(history, None, ReadAt::Since(last.and_then(|last| last.checked_sub(1))))?;
        let mut lost = Vec::new();
        for turn in self.turns.iter_mut().filter(|turn| Some(turn.turn.number) >= last) {
            lost.extend(turn.remove_lost(|token| {
                history.messages.iter().any(|message| token_of(&message.text()) == Some(token))
            }));
        }
        self.seen.retain(|_, (turn, _)| Some(*turn) < last);
        Ok(lost)
    }

    /// Stores the inspected messages in the model. Later inspections compare the history with them.
    pub(crate) fn remember(&mut self, inspected: Inspected) {
        let Inspected { seen, pruned } = inspected;
        if let Some((first, _)) = seen.values().next()
            && pruned > 0
        {
            let first = *first;
            self.turns.retain(|turn| turn.turn.number >= first);
        }
        // If a run is not visible when a later one has been acknowledged, it never becomes visible.
        let last = self.last_acknowledged();
        self.turns.retain(|turn| {
            Some(turn.turn.number) >= last
                || seen.values().any(|(number, _)| *number == turn.turn.number)
        });
        (self.seen, self.pruned, self.kept) = (seen, pruned, None);
    }

    /// Checks that every message that was visible and not pruned has the same number and content.
    fn check_remembered(
        &self,
        seen: &BTreeMap<u64, (u32, Entry)>,
        pruned: u64,
        read_at: ReadAt,
    ) -> Result<(), String> {
        let last = seen.keys().next_back().copied().unwrap_or(pruned);
        for (number, (turn, entry)) in self.seen.range(pruned + 1..) {
            let may_be_later = match read_at {
                ReadAt::Now => false,
                ReadAt::Since(bound) => *number > last && Some(*turn) > bound,
            };
            let found = seen.get(number);
            if !may_be_later && found.map(|(_, found)| found) != Some(entry) {
                return Err(format!("message {number} was {entry:?} and is now {found:?}"));
            }
        }
        Ok(())
    }

    fn check_prune(
        &self,
        seen: &BTreeMap<u64, (u32, Entry)>,
        pruned: u64,
        read_at: ReadAt,
    ) -> Result<(), String> {
        if read_at != ReadAt::Now || pruned == self.pruned {
            return Ok(());
        }
        match self.kept {
            Some(keep) if pruned > self.pruned && seen.len() as u64 >= keep => Ok(()),
            kept => Err(format!(
                "messages up to {pruned} are pruned and {} are left, expected at least {kept:?} after {}",
                seen.len(),
                self.pruned
            )),
        }
    }

    fn check_open(&self, open: &OpenRunContent, read_at: ReadAt) -> Result<(), String> {
        let run = open.open.run;
        let Some(turn) = self.turns.iter().find(|turn| turn.run == run) else {
            return Err(format!("the open run {run} is not in the model"));
        };
        if read_at != ReadAt::Now {
            return Ok(());
        }
        let entries: Vec<Entry> = open.messages.iter().map(|message| Entry::of(message)).collect();
        turn.check_staged(&entries)
            .map_err(|what| format!("open run {}: {what}: {entries:?}", turn.turn.token()))
    }
}

/// Checks that providers accept the replay of a history.
fn check_replay(messages: &Messages) -> Result<(), String> {
    let mut replay = Replay::new(DanglingCalls::default());
    messages.iter().for_each(|message| replay.push(message));
    check_valid(&replay.view()).map_err(|invalid| format!("the replay is not valid: {invalid}"))
}

pub(crate) fn check_valid(messages: &Messages) -> Result<(), String> {
    let messages = || messages.iter().map(|message| &**message);
    validate_messages(messages()).map_err(|invalid| invalid.to_string())?;
    let mut body = Vec::new();
    for message in openai_chat::render_messages(messages(), Audience::Model) {
        body.push(message.parse::<serde_json::Value>().map_err(|error| error.to_string())?);
    }
    let body = serde_json::json!({ "messages": body });
    validate(Wire::OpenAiChat, &body).map_err(|invalid| invalid.to_string())
}
