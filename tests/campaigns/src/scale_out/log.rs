//! The acknowledged writes of each writer, and their comparison with the store.

use std::time::Duration;

use tower_chat_core::{
    ConversationKey, MessageId,
    store::{History, HistoryStore},
};

use super::{Search, writers::until_answered};
use crate::{Failure, Figures};

pub(super) type Entry = (MessageId, String);

pub(super) struct WriterLog {
    pub(super) key: ConversationKey,
    /// The acknowledged messages, which must be stored in this order.
    messages: Vec<Entry>,
    /// The number of messages after each write.
    ends: Vec<usize>,
    writes: u64,
    lost_writes: u64,
    pub(super) conflicts: u64,
    pub(super) retries: u64,
    longest: Duration,
}

impl WriterLog {
    pub(super) fn new(key: ConversationKey) -> Self {
        Self {
            key,
            messages: Vec::new(),
            ends: Vec::new(),
            writes: 0,
            lost_writes: 0,
            conflicts: 0,
            retries: 0,
            longest: Duration::ZERO,
        }
    }

    pub(super) fn acknowledge(&mut self, added: Vec<Entry>) {
        self.messages.extend(added);
        self.ends.push(self.messages.len());
        self.writes += 1;
    }

    /// Records how long a write took, including all its attempts.
    pub(super) fn record_duration(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
    }

    /// Removes the acknowledged messages that are not stored. Only complete writes at the end of
    /// the conversation may be missing.
    pub(super) fn remove_lost(&mut self, stored: &[Entry]) -> Result<(), String> {
        if !self.messages.starts_with(stored) {
            return Err(difference(&self.messages, stored));
        }
        let remaining = self.ends.iter().take_while(|end| **end <= stored.len()).count();
        let whole = remaining.checked_sub(1).and_then(|last| self.ends.get(last));
        if whole.copied().unwrap_or_default() != stored.len() {
            return Err(format!(
                "{} messages are stored, which is a part of a write",
                stored.len()
            ));
        }
        self.lost_writes += (self.ends.len() - remaining) as u64;
        self.messages.truncate(stored.len());
        self.ends.truncate(remaining);
        Ok(())
    }
}

/// Returns the messages of a history. A message without an id gets one that no writer uses.
pub(super) fn entries(history: &History) -> Vec<Entry> {
    let id = |message: &tower_chat_core::Message| {
        message.id.unwrap_or(MessageId {
            run: tower_chat_core::RunId::from_bytes([0; 16]),
            index: u32::MAX,
        })
    };
    history.messages.iter().map(|message| (id(message), message.text())).collect()
}

/// Checks that the store contains exactly the acknowledged messages, each once and in order.
pub(super) async fn check(
    search: Search,
    store: &impl HistoryStore,
    logs: &[WriterLog],
) -> Result<(), Failure> {
    for log in logs {
        let history = until_answered(|| store.load(&log.key)).await?;
        let stored = entries(&history);
        if stored != log.messages {
            let what = difference(&log.messages, &stored);
            return Err(search.found(format!("conversation {}: {what}", log.key)));
        }
    }
    Ok(())
}

/// Describes the first difference of two lists of messages.
fn difference(acknowledged: &[Entry], stored: &[Entry]) -> String {
    let same = acknowledged.iter().zip(stored).take_while(|(one, other)| one == other).count();
    let name = |entry: Option<&Entry>| {
        entry.map_or("nothing".to_owned(), |(id, text)| {
            format!("{id:?} `{}`", text.chars().take(40).collect::<String>())
        })
    };
    format!(
        "{} messages were acknowledged and {} are stored; number {} was acknowledged as {} and is \
         stored as {}",
        acknowledged.len(),
        stored.len(),
        same + 1,
        name(acknowledged.get(same)),
        name(stored.get(same)),
    )
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) writes: u64,
    pub(super) lost_writes: u64,
    pub(super) conversations_with_loss: u64,
    pub(super) conflicts: u64,
    pub(super) retries: u64,
    pub(super) longest: Duration,
}

impl Totals {
    pub(super) fn of(logs: &[WriterLog]) -> Self {
        let mut totals = Self::default();
        for log in logs {
            totals.writes += log.writes;
            totals.lost_writes += log.lost_writes;
            totals.conversations_with_loss += u64::from(log.lost_writes > 0);
            totals.conflicts += log.conflicts;
            totals.retries += log.retries;
            totals.longest = totals.longest.max(log.longest);
        }
        totals
    }

    pub(super) fn figures(&self, name: &str, figures: &mut Figures) {
        figures.add(format!("{name}: writes acknowledged"), self.writes);
        figures.add(format!("{name}: acknowledged and lost"), self.lost_writes);
        figures.add(format!("{name}: conversations with a loss"), self.conversations_with_loss);
        figures.add(format!("{name}: conflicts"), self.conflicts);
        figures.add(format!("{name}: longest write"), format!("{} ms", self.longest.as_millis()));
    }
}
