//! Compares what is stored of a conversation with its model.

use std::collections::{BTreeMap, HashSet};

use tower_chat::{
    Messages,
    replay::{DanglingCalls, Replay},
    store::{History, author::OpenRunContent},
    validate::validate_messages,
};
use tower_chat_wire::{
    openai_chat::{self, Audience},
    validate::{Wire, validate},
};

use super::{
    entry::Entry,
    model::ConversationModel,
    plan::{Turn, token_of},
    turn::TurnModel,
};

/// Of which time the stored conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Of now; nobody is at work on it.
    Now,
    /// Of some time after this run was acknowledged, if it was one: runs after it may be whole or not.
    Since(Option<u32>),
}

/// What an inspection has found, for the model to remember.
#[derive(Debug)]
pub(crate) struct Inspected {
    seen: BTreeMap<u64, (u32, Entry)>,
    pruned: u64,
}

impl ConversationModel {
    /// Compares a history, and the open run if it was read, with the model.
    pub(crate) fn inspect(
        &self,
        history: &History,
        open: Option<&OpenRunContent>,
        asked: Asked,
    ) -> Result<Inspected, String> {
        let pruned = history.head.pruned;
        let mut seen: BTreeMap<u64, (u32, Entry)> = BTreeMap::new();
        let mut groups: Vec<(&TurnModel, Vec<Entry>)> = Vec::new();
        for (number, message) in history.numbered() {
            if asked != Asked::Now && number <= self.pruned {
                // It was pruned since, and the model has forgotten it too.
                continue;
            }
            let entry = Entry::of(message);
            let run = message.id.map(|id| id.run);
            let Some(turn) = self.turns.iter().find(|turn| Some(turn.run) == run) else {
                return Err(format!("message {number} is of no run that can be here: {entry:?}"));
            };
            seen.insert(number, (turn.turn.number, entry.clone()));
            match groups.last_mut() {
                Some((last, entries)) if last.run == turn.run => entries.push(entry),
                Some((last, _)) if last.turn > turn.turn => {
                    return Err(format!(
                        "message {number} is of an earlier run than the one before"
                    ));
                }
                _ => groups.push((turn, vec![entry])),
            }
        }
        self.check_remembered(&seen, pruned, asked)?;
        self.check_prune(&seen, pruned, asked)?;
        let is_bound = |turn: &TurnModel| match asked {
            Asked::Now => true,
            Asked::Since(bound) => Some(turn.turn.number) <= bound,
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
                let is_over = asked == Asked::Now;
                turn.check_absent(is_over)
                    .map_err(|what| format!("run {}: {what}", turn.turn.token()))?;
            }
        }
        if let Some(open) = open {
            self.check_open(open, asked)?;
        }
        check_replay(&history.messages)?;
        Ok(Inspected { seen, pruned })
    }

    /// Takes back what the caller knows of runs at the end, where the server may lose these: all of
    /// those before must be there. A run that was under way when the server crashed may have read what
    /// was left, and go on after that. Returns the acknowledged runs of which something is missing.
    pub(crate) fn lose_end(
        &mut self,
        history: &History,
        open: Option<&OpenRunContent>,
        under_way: &HashSet<Turn>,
    ) -> Result<Vec<Turn>, String> {
        let is_there = |turn: &TurnModel| {
            let mut ids = history.messages.iter().filter_map(|message| message.id);
            ids.any(|id| id.run == turn.run) || open.is_some_and(|open| open.open.run == turn.run)
        };
        let mut before = self.turns.iter().filter(|turn| !under_way.contains(&turn.turn));
        let last = before.rfind(|turn| is_there(turn)).map(|turn| turn.turn.number);
        self.inspect(history, None, Asked::Since(last.and_then(|last| last.checked_sub(1))))?;
        let mut lost = Vec::new();
        for turn in self.turns.iter_mut().filter(|turn| Some(turn.turn.number) >= last) {
            lost.extend(turn.lose(|token| {
                history.messages.iter().any(|message| token_of(&message.text()) == Some(token))
            }));
        }
        self.seen.retain(|_, (turn, _)| Some(*turn) < last);
        Ok(lost)
    }

    /// What was seen is what will be compared with from now on.
    pub(crate) fn remember(&mut self, inspected: Inspected) {
        let Inspected { seen, pruned } = inspected;
        if let Some((first, _)) = seen.values().next()
            && pruned > 0
        {
            let first = *first;
            self.turns.retain(|turn| turn.turn.number >= first);
        }
        // A run that is not visible once a later one was acknowledged never will be.
        let last = self.last_acknowledged();
        self.turns.retain(|turn| {
            Some(turn.turn.number) >= last
                || seen.values().any(|(number, _)| *number == turn.turn.number)
        });
        (self.seen, self.pruned, self.kept) = (seen, pruned, None);
    }

    /// What was visible stays, at its number, unless it was pruned.
    fn check_remembered(
        &self,
        seen: &BTreeMap<u64, (u32, Entry)>,
        pruned: u64,
        asked: Asked,
    ) -> Result<(), String> {
        let last = seen.keys().next_back().copied().unwrap_or(pruned);
        for (number, (turn, entry)) in self.seen.range(pruned + 1..) {
            let may_be_later = match asked {
                Asked::Now => false,
                Asked::Since(bound) => *number > last && Some(*turn) > bound,
            };
            let found = seen.get(number);
            if !may_be_later && found.map(|(_, found)| found) != Some(entry) {
                return Err(format!("message {number} was {entry:?}, and is {found:?}"));
            }
        }
        Ok(())
    }

    fn check_prune(
        &self,
        seen: &BTreeMap<u64, (u32, Entry)>,
        pruned: u64,
        asked: Asked,
    ) -> Result<(), String> {
        if asked != Asked::Now || pruned == self.pruned {
            return Ok(());
        }
        match self.kept {
            Some(keep) if pruned > self.pruned && seen.len() as u64 >= keep => Ok(()),
            kept => Err(format!(
                "messages up to {pruned} were pruned, which leaves {}; it was {kept:?} after {}",
                seen.len(),
                self.pruned
            )),
        }
    }

    fn check_open(&self, open: &OpenRunContent, asked: Asked) -> Result<(), String> {
        let run = open.open.run;
        let Some(turn) = self.turns.iter().find(|turn| turn.run == run) else {
            return Err(format!("the open run {run} is none that can be here"));
        };
        if asked != Asked::Now {
            return Ok(());
        }
        let entries: Vec<Entry> = open.messages.iter().map(|message| Entry::of(message)).collect();
        turn.check_staged(&entries)
            .map_err(|what| format!("open run {}: {what}: {entries:?}", turn.turn.token()))
    }
}

/// What a model would be sent is what providers take.
fn check_replay(messages: &Messages) -> Result<(), String> {
    let mut replay = Replay::new(DanglingCalls::default());
    messages.iter().for_each(|message| replay.push(message));
    check_valid(&replay.view()).map_err(|invalid| format!("the replay is not valid: {invalid}"))
}

/// Whether providers take these messages.
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
