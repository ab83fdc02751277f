//! The complete content that can be read from a store, and its comparison with the content before
//! the damage. `record` means the rows about tool calls.

use std::collections::BTreeMap;

use tower_chat::{
    ConversationKey, HistoryStore,
    store::{Directory, InvocationQuery, Journal, StoreError, ToolCallQueries},
};
use tower_chat_core::format;

type Texts = Vec<(String, String)>;

/// The parts of a conversation. A part that could not be read is an error.
#[derive(Debug)]
pub(super) struct ReadConversation {
    messages: Result<Texts, StoreError>,
    staged: Result<Texts, StoreError>,
    record: Result<String, StoreError>,
    summary: Result<String, StoreError>,
}

#[derive(Debug)]
pub(super) struct StoreContents {
    conversations: BTreeMap<String, ReadConversation>,
    listed: Result<Vec<ConversationKey>, StoreError>,
}

/// The worst damage that was found in a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    /// All content is read unchanged.
    None,
    /// Reads of damaged parts return errors, and the other parts are read unchanged.
    Reported,
    /// The record or the summary is read with changed content.
    Beside(String),
    /// Messages are missing, or messages of an uncommitted run are visible. All messages that are
    /// read are unchanged.
    Missing(String),
    /// A message is read with changed content.
    Wrong(String),
}

pub(super) async fn read_contents(
    store: &dyn HistoryStore,
    keys: &[ConversationKey],
) -> StoreContents {
    let mut conversations = BTreeMap::new();
    for key in keys {
        conversations.insert(key.id().to_owned(), read_conversation(store, key).await);
    }
    StoreContents { conversations, listed: store.list("alice", None, 1000).await }
}

async fn read_conversation(store: &dyn HistoryStore, key: &ConversationKey) -> ReadConversation {
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
    ReadConversation { messages, staged, record, summary }
}

impl StoreContents {
    /// Compares this content with the content before the damage.
    pub(super) fn damage(&self, before: &Self) -> Damage {
        let mut worst = match (&self.listed, &before.listed) {
            (Ok(now), Ok(before)) if now == before => Damage::None,
            (Ok(now), _) => Damage::Missing(format!("other conversations are listed: {now:?}")),
            (Err(_), _) => Damage::Reported,
        };
        for (id, now) in &self.conversations {
            let Some(before) = before.conversations.get(id) else { continue };
            for damage in now.damages(id, before) {
                worst = worst.max(damage);
            }
        }
        worst
    }

    pub(super) fn is_readable(&self) -> bool {
        let is_readable = |it: &ReadConversation| {
            it.messages.is_ok() && it.staged.is_ok() && it.record.is_ok() && it.summary.is_ok()
        };
        self.listed.is_ok() && self.conversations.values().all(is_readable)
    }

    /// Returns whether every conversation is a prefix of the same conversation in a later reading.
    pub(super) fn is_prefix_of(&self, later: &Self) -> bool {
        self.conversations.iter().all(|(id, now)| {
            let Some(later) = later.conversations.get(id) else { return false };
            let all = |it: &ReadConversation| -> Option<Texts> {
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

impl ReadConversation {
    fn damages(&self, id: &str, before: &Self) -> Vec<Damage> {
        let of = |text: &Result<Texts, StoreError>| text.as_ref().ok().cloned().unwrap_or_default();
        let stored: Texts = of(&before.messages).into_iter().chain(of(&before.staged)).collect();
        let mut found = Vec::new();
        for (now, before) in [(&self.messages, &before.messages), (&self.staged, &before.staged)] {
            found.push(match (now, before) {
                (Err(_), _) => Damage::Reported,
                (Ok(now), Ok(before)) if now == before => Damage::None,
                (Ok(now), _) => match now.iter().find(|message| !stored.contains(message)) {
                    Some((message, body)) => {
                        Damage::Wrong(format!("{message} of {id} is read as {body}"))
                    }
                    None => Damage::Missing(format!("{} messages of {id} are read", now.len())),
                },
            });
        }
        for (now, before) in [(&self.record, &before.record), (&self.summary, &before.summary)] {
            found.push(match (now, before) {
                (Err(_), _) => Damage::Reported,
                (Ok(now), Ok(before)) if now == before => Damage::None,
                (Ok(now), _) => Damage::Beside(format!("of {id} is read {now}")),
            });
        }
        found
    }
}
