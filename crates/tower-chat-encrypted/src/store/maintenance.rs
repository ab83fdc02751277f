//! Decrypts (opens) the rows of a conversation, and encrypts (seals) rewrites, which change stored
//! messages.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message,
    format::FormatError,
    store::{ConversationRows, Head, HistoryStore, Maintenance, Revision, Rewrite, StoreError},
};

use super::{EncryptedStore, OPEN, SEAL, chain_from};
use crate::{
    EncryptionError,
    chain::{Digest, Kind, Link},
    error::{reported, unopened},
    seal::{Expected, Life, new_life},
    sealing_cache::{Moment, SealedHead},
};

impl<S: HistoryStore> EncryptedStore<S> {
    /// Opens the rows of a conversation. A row that does not open is reported as damaged, unless a
    /// key is not available.
    pub(super) async fn opened_rows(
        &self,
        key: &ConversationKey,
        sealed: ConversationRows,
        since: Moment,
    ) -> Result<ConversationRows, EncryptionError> {
        let first = sealed.head.pruned.saturating_add(1);
        let (head, [visible, _]) = self.opened_head(key, sealed.head, true, since).await?;
        let mut opener = self.opener(key, visible);
        let mut messages = Vec::with_capacity(sealed.messages.len());
        let mut chain = chain_from(visible, first);
        let mut next = first;
        for (sequence, envelope) in sealed.messages {
            // The digest in a message cannot be checked if the previous message is missing.
            if sequence != next {
                chain.lose();
            }
            next = sequence.saturating_add(1);
            let opened = match envelope {
                Ok(envelope) => match opener.next_message(&mut chain, sequence, &envelope).await {
                    Ok((message, _)) => Ok(Arc::new(message)),
                    Err(error @ EncryptionError::Key(_)) => return Err(error),
                    Err(error) => Err(FormatError::malformed(error)),
                },
                Err(error) => {
                    chain.lose();
                    Err(error)
                }
            };
            messages.push((sequence, opened));
        }
        if let Err(error) = opener.check_end(&chain, next.saturating_sub(1))
            && let Some((_, last)) = messages.last_mut()
        {
            *last = Err(FormatError::malformed(error));
        }
        let mut tools = Vec::with_capacity(sealed.tools.len());
        for (call, row) in sealed.tools {
            let opened = match row {
                Ok(row) => match opener.row(row).await {
                    Ok(row) => Ok(row),
                    Err(error @ EncryptionError::Key(_)) => return Err(error),
                    Err(error) => Err(error.to_string()),
                },
                Err(reason) => Err(reason),
            };
            tools.push((call, opened));
        }
        Ok(ConversationRows::new(head, messages, tools))
    }

    /// Seals a rewrite and executes it.
    pub(super) async fn rewrite_sealed(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let key = &rewrite.key;
        let Some(rows) = self.inner_store().rows(key).await? else {
            return Err(rewrite.conflict(Revision::ABSENT, None));
        };
        rewrite.check(&rows.head)?;
        for (sequence, _) in &rewrite.messages {
            let found = rows.messages.iter().find(|(number, _)| number == sequence);
            let (_, found) = found.ok_or_else(|| rewrite.missing(*sequence))?;
            if let Err(source) = found {
                let (key, source) = (key.clone(), source.clone());
                return Err(StoreError::Undecodable { key, sequence: *sequence, source });
            }
        }
        let fetched = self.keys.writing_key(key).await;
        fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        let head = self.sealed_head(key, &rows.head).await?;
        let resealed = self.resealed(&rewrite, &rows, &head).await.map_err(reported(SEAL))?;
        let sealed = self.sealed_rewrite(&rewrite, resealed, head.life)?;
        let revision = self.inner_store().rewrite(sealed).await?;
        let mut after = rows.head;
        after.revision = revision;
        let since = self.sealing_cache.now();
        self.sealing_cache.learn(key, &after, Some(&head), None, since);
        // The next write needs the digest of the last message. If that message is unreadable, a
        // writer has to read the head before the next write.
        if let Ok(Some(digest)) =
            self.last_digest(key, &after, SealedHead::expected(Some(&head))).await
        {
            self.sealing_cache.learn_recent_digest(key, revision, revision.sequence, digest, since);
        }
        Ok(revision)
    }

    fn sealed_rewrite(
        &self,
        rewrite: &Rewrite,
        messages: Vec<(u64, Message)>,
        life: Life,
    ) -> Result<Rewrite, StoreError> {
        let sealer = self.sealer(&rewrite.key, life).map_err(reported(SEAL))?;
        let mut sealed = Rewrite::new(rewrite.key.clone(), rewrite.expected);
        sealed.is_sealed = true;
        sealed.messages = messages;
        let tools = rewrite.tools.iter().map(|row| sealer.row(row));
        sealed.tools = tools.collect::<Result<_, _>>().map_err(reported(SEAL))?;
        sealed.removed_tools.clone_from(&rewrite.removed_tools);
        sealed.counts.clone_from(&rewrite.counts);
        Ok(sealed)
    }

    /// Returns the sealed messages of a rewrite: the changed messages, and all later ones, because
    /// each contains a digest of the messages before it. Messages after one that cannot be opened
    /// are not sealed again.
    async fn resealed(
        &self,
        rewrite: &Rewrite,
        rows: &ConversationRows,
        head: &SealedHead,
    ) -> Result<Vec<(u64, Message)>, EncryptionError> {
        let key = &rewrite.key;
        let changed: HashMap<u64, &Message> =
            rewrite.messages.iter().map(|(sequence, message)| (*sequence, message)).collect();
        let sealer = self.sealer(key, head.life)?;
        let mut opener = self.opener(key, SealedHead::expected(Some(head)));
        let unchained = head.content.unchained.unwrap_or(u64::MAX);
        let first = changed.keys().min().copied().unwrap_or(u64::MAX);
        let mut sealed = Vec::with_capacity(changed.len());
        // The digest of the previous message, if it is known, and whether the rewrite has changed
        // it.
        let (mut previous, mut is_other) = (None, false);
        let near = |sequence: u64| sequence.saturating_add(1) >= first;
        for (sequence, envelope) in rows.messages.iter().filter(|(sequence, _)| near(*sequence)) {
            let Ok(envelope) = envelope else {
                (previous, is_other) = (None, false);
                continue;
            };
            let opened = match opener.message(*sequence, envelope).await {
                Ok(opened) => Some(opened),
                Err(error @ EncryptionError::Key(_)) => return Err(error),
                Err(_) => None,
            };
            let found = opened.as_ref().and_then(|(_, linked)| *linked);
            let mut message = match (changed.get(sequence), opened) {
                (Some(changed), _) => Message::clone(changed),
                (None, Some((message, _))) if is_other => message,
                (None, _) => {
                    (previous, is_other) = (found.map(|found| found.digest), false);
                    continue;
                }
            };
            let before = match previous {
                _ if *sequence <= unchained.saturating_add(1) => Digest::START,
                Some(previous) => previous,
                None => found.map_or(Digest::START, |found| found.link.before),
            };
            let was = found.map(|found| found.digest);
            // Only the digest in the head shows that this message, which was staged, is committed.
            // The head does not contain the digest of the new message, which is therefore marked as
            // committed.
            let is_committed = was.is_some() && was == head.content.committed;
            let kind = found.map_or(Kind::Visible, |found| found.link.kind);
            let kind = if is_committed { Kind::Committed } else { kind };
            let link = Link { before, kind };
            message.id = envelope.id;
            let (envelope, digest) = sealer.message(*sequence, &message, link)?;
            (previous, is_other) = (Some(digest), *sequence > unchained && was != Some(digest));
            sealed.push((*sequence, envelope));
        }
        Ok(sealed)
    }

    /// Returns the sealed head, and first stores one if there is none of the current format.
    async fn sealed_head(
        &self,
        key: &ConversationKey,
        head: &Head,
    ) -> Result<SealedHead, StoreError> {
        let mut opener = self.opener(key, Expected::Any);
        let found = opener.head(head.service_id.as_deref()).await.map_err(unopened(key, OPEN))?;
        self.check_head(key, head, found.as_ref()).map_err(unopened(key, OPEN))?;
        let begun = match found {
            Some(found) if found.content.unchained.is_some() => return Ok(found),
            // Values that are written after the head have the current format.
            Some(mut found) => {
                found.content.unchained = Some(head.revision.sequence);
                found
            }
            None => SealedHead::begun(new_life().map_err(reported(SEAL))?, head),
        };
        self.put_head(key, head, &begun).await?;
        Ok(begun)
    }
}
