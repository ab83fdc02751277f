//! Encrypts (seals) and decrypts (opens) the descriptions in the directory, which contains the data
//! of conversations besides their messages.

use serde_json::{Map, Value};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationSummary, Description, Directory,
        DirectoryCursor, HistoryStore, MessagePage, StoreError, UnreadableConversation,
    },
};

use super::{EncryptedStore, OPEN, SEAL, chain_from};
use crate::{
    EncryptionError,
    envelope::json,
    error::{reported, unopened},
    seal::{Expected, Found, Position},
};

/// The only field in the metadata of a sealed description. This field contains the whole
/// description.
const SEALED: &str = "sealed";
const COLUMN: &str = "description";

/// Returns the position for which a description is sealed. Because the position contains the
/// version of the description, an earlier version that replaces the current one does not open.
fn position(version: u64) -> Position {
    Position { sequence: 0, index: version }
}

impl<S: HistoryStore> EncryptedStore<S> {
    pub(super) async fn sealed_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        version: u64,
    ) -> Result<Description, StoreError> {
        if description.is_empty() {
            return Ok(Description::new().sealed());
        }
        let failed = |error: EncryptionError| reported(SEAL)(error);
        let fetched = self.keys.writing_key(key).await;
        let (id, secret) = fetched.map_err(EncryptionError::from).map_err(failed)?;
        // A description may be set before its conversation has a life (the random value of a
        // conversation). All descriptions are therefore sealed with the same life.
        let life = RunId::from_bytes([0; 16]);
        let sealer = crate::seal::Sealer { conversation: key.clone(), id, key: secret, life };
        let sealed = sealer.seal(position(version), None, COLUMN, &json(description));
        let sealed = Value::from(sealed.map_err(failed)?);
        let metadata: Map<String, Value> = [(SEALED.to_owned(), sealed)].into_iter().collect();
        Ok(Description::from_stored(None, metadata).sealed())
    }

    /// Opens the description of a summary.
    pub(super) async fn opened_summary(
        &self,
        mut summary: ConversationSummary,
    ) -> Result<ConversationSummary, EncryptionError> {
        if summary.description.is_empty() {
            return Ok(summary);
        }
        // Former formats are accepted, because they also bind a description to its version.
        let mut opener = self.opener(&summary.key, Expected::Any).accepting_former(true);
        let found = Found::from(position(summary.description_version));
        let sealed = match (summary.description.title(), summary.description.metadata()) {
            (None, metadata) => metadata.get(SEALED).and_then(Value::as_str),
            (Some(_), _) => None,
        };
        let sealed =
            sealed.ok_or_else(|| opener.not_sealed(found, COLUMN, "it is not encrypted"))?;
        let opened = opener.open(found, None, COLUMN, sealed).await?;
        summary.description = opener.parsed(found, COLUMN, &opened.text)?;
        Ok(summary)
    }

    /// Returns the page of a query. Because the inner store cannot compare sealed metadata, this
    /// method compares the metadata, and may read several pages of the inner store.
    pub(super) async fn opened_conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let mut asked = query.clone();
        asked.metadata.clear();
        let mut page = ConversationPage::new(Vec::new(), None);
        if query.limit == 0 {
            page.next.clone_from(&query.after);
            return Ok(page);
        }
        loop {
            let mut inner = self.inner_store().conversations(&asked).await?;
            page.unreadable.append(&mut inner.unreadable);
            for summary in inner.conversations {
                let key = summary.key.clone();
                let summary = match self.opened_summary(summary).await {
                    Ok(summary) => summary,
                    Err(error) => {
                        let reason = error.to_string();
                        page.unreadable.push(UnreadableConversation::new(key, reason));
                        continue;
                    }
                };
                if !summary.description.contains(&query.metadata) {
                    continue;
                }
                if page.conversations.len() >= query.limit {
                    page.next = page.conversations.last().map(DirectoryCursor::after);
                    return Ok(page);
                }
                page.conversations.push(summary);
            }
            let Some(next) = inner.next else { return Ok(page) };
            if query.metadata.is_empty() && page.conversations.len() >= query.limit {
                page.next = Some(next);
                return Ok(page);
            }
            asked = asked.after(next);
        }
    }

    pub(super) async fn opened_messages(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let since = self.sealing_cache.now();
        let head = self.inner.head(key).await?;
        let page = self.inner_store().messages_before(key, before, limit).await?;
        let end = super::visible(&head);
        let opened = async {
            let (_, [visible, _]) = self.opened_head(key, head, true, since).await?;
            let mut opener = self.opener(key, visible);
            let mut messages = Vec::with_capacity(page.messages.len());
            let first = page.messages.first().map_or(1, |(sequence, _)| *sequence);
            let mut chain = chain_from(visible, first);
            for (sequence, envelope) in &page.messages {
                let (message, _) = opener.next_message(&mut chain, *sequence, envelope).await?;
                messages.push((*sequence, message.into()));
            }
            if let Some((last, _)) = page.messages.last().filter(|(last, _)| *last == end) {
                opener.check_end(&chain, *last)?;
            }
            Ok(MessagePage::new(messages, page.earlier))
        };
        opened.await.map_err(unopened(key, OPEN))
    }

    /// Copies the description to a conversation that was just created.
    pub(super) async fn fork_description(
        &self,
        from: Option<ConversationSummary>,
        to: &ConversationKey,
    ) -> Result<(), StoreError> {
        let Some(from) = from.filter(|from| !from.description.is_empty()) else { return Ok(()) };
        Directory::set_description(self, to, &from.description, 0).await.map(drop)
    }
}
