//! Loads the part of a conversation that the next run needs, and decrypts (opens) its messages.

use tower_chat_core::{
    ConversationKey,
    store::{History, HistoryStore, StoreError, author::LoadFrom},
};

use super::{EncryptedStore, OPEN, chain_from, visible};
use crate::{
    EncryptionError,
    chain::Chain,
    digests::Digests,
    error::unopened,
    range::{Ends, SealedRange},
    sealing_cache::Moment,
};

impl<S: HistoryStore> EncryptedStore<S> {
    /// Loads the part of a conversation that `from` selects. Loads the whole conversation if the
    /// sealed form of `from` is unknown, or if the part does not open, for example after a rewrite.
    pub(super) async fn opened_range(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let known = self.sealing_cache.range(key).filter(|known| *known.opened == *from);
        let Some((range, ends)) = known.and_then(|known| Some((known.clone(), known.ends?))) else {
            return HistoryStore::load(self, key).await;
        };
        let since = self.sealing_cache.now();
        let sealed = self.inner().load_from(key, &range.sealed).await?;
        if sealed.is_whole() {
            return self.opened_whole(key, sealed, since).await;
        }
        match self.opened_part(key, sealed, &range, ends, since).await {
            Ok(Some(part)) => Ok(part),
            Err(error) if error.is_retryable() => Err(unopened(key, OPEN)(error)),
            Ok(None) | Err(_) => HistoryStore::load(self, key).await,
        }
    }

    /// Opens a part of a conversation, and omits earlier messages that the inner store may have
    /// loaded too. Returns `None` if the inner store has loaded other messages than those of the
    /// sealed value. Also returns `None` if no message follows the skipped ones, because only the
    /// last message shows whether its run was committed.
    async fn opened_part(
        &self,
        key: &ConversationKey,
        sealed: History,
        range: &SealedRange,
        ends: Ends,
        since: Moment,
    ) -> Result<Option<History>, EncryptionError> {
        let (after, from) = (range.sealed.after, range.opened.after);
        let is_part = sealed.skipped() == after && !sealed.messages.is_empty();
        if !is_part || from > visible(&sealed.head) {
            return Ok(None);
        }
        let (leading, messages) = (sealed.leading, sealed.messages);
        let pruned = sealed.head.pruned;
        let (head, [expected, _]) = self.opened_head(key, sealed.head, true, since).await?;
        let mut opener = self.opener(key, expected);
        let mut chain = chain_from(expected, pruned.saturating_add(1));
        let leading = opener.all_messages(pruned, &mut chain, leading.iter()).await?;
        if range.sealed.leading > pruned {
            opener.check_end_of_range(
                range.sealed.leading,
                chain.previous_digest(),
                ends.leading,
            )?;
        }
        let known = ends.leading.map(|digest| (range.sealed.leading, digest));
        let digests = Digests::of_range(known.into_iter().chain([(after, ends.after)]));
        let mut chain = Chain::behind(Some(ends.after)).with_digests(digests);
        let messages = opener.messages(after, &mut chain, messages.iter()).await?;
        self.learn_chain(key, &head, &chain, since);
        let surplus = usize::try_from(from.saturating_sub(after)).unwrap_or(usize::MAX);
        let mut history = History::empty();
        history.extend(messages.into_iter().skip(surplus));
        history.head = head;
        Ok(Some(history.with_skipped(from, leading.into_iter().collect())))
    }
}
