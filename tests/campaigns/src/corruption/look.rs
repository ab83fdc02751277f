//! Everything that can be read of a store, and how it differs from what was stored.

use std::collections::BTreeMap;

use tower_chat::{
    ConversationKey,
    store::{HistoryStore, InvocationQuery, StoreError},
};
use tower_chat_core::format;

/// Ids and stored forms of messages.
type Texts = Vec<(String, String)>;

/// What was read of a conversation. What could not be read is an error.
#[derive(Debug)]
pub(super) struct Seen {
    messages: Result<Texts, StoreError>,
    staged: Result<Texts, StoreError>,
    record: Result<String, StoreError>,
    summary: Result<String, StoreError>,
}

/// What was read of a store.
#[derive(Debug)]
pub(super) struct Look {
    conversations: BTreeMap<String, Seen>,
    listed: Result<Vec<ConversationKey>, StoreError>,
}

/// What is to be said of a store of which something is damaged: the worst of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    /// Everything is read as it was stored.
    None,
    /// Errors say what cannot be read; the rest is as it was stored.
    Told,
    /// Something other than a message is read as it was not stored.
    Beside(String),
    /// Messages are not found, or staged ones are seen; all that is read is as it was stored.
    Missing(String),
    /// A message is read as it was not stored.
    Wrong(String),
}

pub(super) async fn look(store: &dyn HistoryStore, keys: &[ConversationKey]) -> Look {
    let mut conversations = BTreeMap::new();
    for key in keys {
        conversations.insert(key.id().to_owned(), seen(store, key).await);
    }
    Look { conversations, listed: store.list("alice", None, 1000).await }
}

async fn seen(store: &dyn HistoryStore, key: &ConversationKey) -> Seen {
    let form =
        |message: &tower_chat::Message| (format!("{:?}", message.id), format::encode(message));
    let messages = store.load(key).await;
    let messages = messages.map(|it| it.messages.iter().map(|message| form(message)).collect());
    let staged = store.open_run(key).await.map(|open| {
        let messages = open.into_iter().flat_map(|open| open.messages);
        messages.map(|message| form(&message)).collect()
    });
    let query = InvocationQuery::of(key);
    let record = store.invocations(&query).await.and_then(|found| {
        match found.unreadable.into_iter().next() {
            None => Ok(format!("{:?}", found.found)),
            Some(unreadable) => Err(StoreError::Corrupt { reason: format!("{unreadable:?}") }),
        }
    });
    let summary = store.summary(key).await.map(|summary| format!("{summary:?}"));
    Seen { messages, staged, record, summary }
}

impl Look {
    /// How what was read now differs from what was read before.
    pub(super) fn damage(&self, before: &Self) -> Damage {
        let mut worst = match (&self.listed, &before.listed) {
            (Ok(now), Ok(before)) if now == before => Damage::None,
            (Ok(now), _) => Damage::Missing(format!("other conversations are listed: {now:?}")),
            (Err(_), _) => Damage::Told,
        };
        for (id, now) in &self.conversations {
            let Some(before) = before.conversations.get(id) else { continue };
            for damage in now.damages(id, before) {
                worst = worst.max(damage);
            }
        }
        worst
    }

    /// Everything was read.
    pub(super) fn is_whole(&self) -> bool {
        let is_whole = |it: &Seen| {
            it.messages.is_ok() && it.staged.is_ok() && it.record.is_ok() && it.summary.is_ok()
        };
        self.listed.is_ok() && self.conversations.values().all(is_whole)
    }

    /// Whether every conversation is a beginning of what it was.
    pub(super) fn is_beginning_of(&self, later: &Self) -> bool {
        self.conversations.iter().all(|(id, now)| {
            let Some(later) = later.conversations.get(id) else { return false };
            let all = |it: &Seen| -> Option<Texts> {
                let (messages, staged) = (it.messages.as_ref().ok()?, it.staged.as_ref().ok()?);
                Some(messages.iter().chain(staged).cloned().collect())
            };
            match (all(now), all(later)) {
                (Some(now), Some(later)) => later.starts_with(&now),
                _ => false,
            }
        })
    }
}

impl Seen {
    fn damages(&self, id: &str, before: &Self) -> Vec<Damage> {
        let of = |text: &Result<Texts, StoreError>| text.as_ref().ok().cloned().unwrap_or_default();
        let stored: Texts = of(&before.messages).into_iter().chain(of(&before.staged)).collect();
        let mut found = Vec::new();
        for (now, before) in [(&self.messages, &before.messages), (&self.staged, &before.staged)] {
            found.push(match (now, before) {
                (Err(_), _) => Damage::Told,
                (Ok(now), Ok(before)) if now == before => Damage::None,
                (Ok(now), _) => match now.iter().find(|message| !stored.contains(message)) {
                    Some((message, body)) => {
                        Damage::Wrong(format!("{message} of {id} is read as {body}"))
                    }
                    None => Damage::Missing(format!("of {id} {} messages are read", now.len())),
                },
            });
        }
        for (now, before) in [(&self.record, &before.record), (&self.summary, &before.summary)] {
            found.push(match (now, before) {
                (Err(_), _) => Damage::Told,
                (Ok(now), Ok(before)) if now == before => Damage::None,
                (Ok(now), _) => Damage::Beside(format!("of {id} {now}")),
            });
        }
        found
    }
}
