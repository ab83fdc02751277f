//! [`EncryptedStore`], the store that encrypts the data of another store.
//!
//! - To seal a value means to encrypt and authenticate it, and to open a value means to verify and
//!   decrypt it.
//! - The head is everything about a conversation except its messages. The inner store contains the
//!   sealed head in place of the service id.
//! - The record has one row for each tool call.
//! - Former formats are those of older releases.

mod directory;
mod maintenance;
mod pruned;
mod ranges;
mod summaries;

use std::{collections::HashMap, fmt, sync::Arc};

use async_trait::async_trait;
use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey, Message, RunId,
    store::{
        AddedSummary, CallSelection, Conflict, ConversationPage, ConversationQuery,
        ConversationRows, ConversationSummary, Description, Directory, Fork, Head, History,
        HistoryStore, HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance,
        MessagePage, OpenRun, Parent, Pruned, Revision, Rewrite, RunSummary, ServiceIdChange,
        StoreError, Summaries, ToolCallQueries, ToolTotals, UnreadableInvocation, UsageQuery,
        UsageTotals,
        author::{
            AppendError, Forking, LoadFrom, OpenRunContent, RecordedResult, Slot, StoreWrapper,
            Ticket, ToolRecord, Write,
        },
    },
};

use crate::{
    EncryptionError, KeyError, KeyProvider,
    chain::{Chain, Digest},
    error::{reported, unopened},
    fork::{self, CopiedTurns},
    seal::{Expected, ExpectedLife, Found, Life, Opener, Sealer},
    sealing_cache::{HeadContent, Moment, SealedHead, SealingCache, SealingInput, Submission},
};

/// Encrypts the data of another store; see [the crate](crate).
///
/// The [`handle`](HistoryStore::handle) is that of the inner store. If a value cannot be opened
/// (verified and decrypted), the error is [`StoreError::Unreadable`]. If a value cannot be sealed
/// (encrypted), the error is [`StoreError::Backend`]. The source of both is an [`EncryptionError`].
#[derive(Clone)]
pub struct EncryptedStore<S> {
    inner: Arc<S>,
    keys: Arc<dyn KeyProvider>,
    sealing_cache: Arc<SealingCache>,
    accepts_former: bool,
}

impl<S: HistoryStore> EncryptedStore<S> {
    /// Wraps a store. Every conversation in the inner store must have been written through this
    /// type, because plaintext is refused.
    pub fn new(inner: S, keys: impl KeyProvider) -> Self {
        Self {
            inner: Arc::new(inner),
            keys: Arc::new(keys),
            sealing_cache: Arc::default(),
            accepts_former: true,
        }
    }

    /// Refuses all values of the formats before `tower-chat-3`, and plaintext service ids (ids
    /// under which model services have the history): see [the crate](crate#the-former-formats).
    #[must_use]
    pub fn without_former_values(mut self) -> Self {
        self.accepts_former = false;
        self
    }

    /// Returns the inner store, which contains the sealed data.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn inner_store(&self) -> &dyn HistoryStore {
        &*self.inner
    }

    fn opener<'a>(&'a self, key: &'a ConversationKey, expected: Expected) -> Opener<'a> {
        Opener::new(key, &*self.keys, expected).accepting_former(self.accepts_former)
    }

    /// Opens a head. Also returns the life (the random value of a conversation) and the formats
    /// that visible values must have, and those that values of the open run (the run that is not
    /// committed yet) must have. If `is_lenient`, removes values of the open run that do not open.
    async fn opened_head(
        &self,
        key: &ConversationKey,
        mut head: Head,
        is_lenient: bool,
        since: Moment,
    ) -> Result<(Head, [Expected; 2]), EncryptionError> {
        // A former format is accepted, because `check_head` reports a more precise error for it.
        let mut opener = self.opener(key, Expected::Any).accepting_former(true);
        let sealed = opener.head(head.service_id.as_deref()).await?;
        self.check_head(key, &head, sealed.as_ref())?;
        if let Some(sealed) = &sealed {
            head.service_id.clone_from(&sealed.content.service_id);
        }
        let open = match &head.open_run {
            Some(open) => match opener.head(staged_service_id(open)).await {
                Err(error) if is_lenient && !error.is_retryable() => None,
                open => open?,
            },
            None => None,
        };
        let visible = SealedHead::expected(sealed.as_ref());
        let staged = SealedHead::expected(open.as_ref().or(sealed.as_ref()));
        let mut opener = self.opener(key, visible);
        if let Some(run) = head.open_run.take() {
            opener.expect(staged);
            head.open_run = Some(match opener.open_run(run.clone(), open.as_ref()).await {
                Err(error) if is_lenient && !error.is_retryable() => without_content(run),
                run => run?,
            });
        }
        // If the open run has created the conversation, only the open run has a sealed head.
        opener.expect(staged);
        let range = match &head.load_from {
            Some(sealed) => match opener.range(sealed).await {
                Err(error) if !error.is_retryable() => None,
                range => Some(range?),
            },
            None => None,
        };
        head.load_from = range.as_ref().map(|range| range.opened.clone());
        opener.expect(visible);
        for request in head.pending_approvals.iter_mut().flatten() {
            *request = opener.approval_request(Found::somewhere(), None, request).await?.0;
        }
        self.sealing_cache.learn(key, &head, sealed.as_ref(), open.as_ref(), since);
        self.sealing_cache.learn_range(key, head.revision, range, since);
        Ok((head, [visible, staged]))
    }

    /// Checks that no more messages are missing at the beginning than the sealed head allows. If
    /// this store refuses former formats, also checks that the conversation has none.
    fn check_head(
        &self,
        key: &ConversationKey,
        head: &Head,
        sealed: Option<&SealedHead>,
    ) -> Result<(), EncryptionError> {
        let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
        let Some(sealed) = sealed else {
            let is_empty = visible == 0 && head.service_id.is_none();
            return match self.accepts_former || is_empty {
                true => Ok(()),
                false => Err(EncryptionError::FormerValues { key: key.clone() }),
            };
        };
        let HeadContent { unchained, pruned: (min, max), .. } = sealed.content;
        let has_former = unchained.is_none_or(|last| last > head.pruned);
        if has_former && !self.accepts_former {
            return Err(EncryptionError::FormerValues { key: key.clone() });
        }
        if (min..=max).contains(&head.pruned) {
            return Ok(());
        }
        let (missing, pruned) = (head.pruned, max);
        Err(EncryptionError::CutOff { key: key.clone(), missing, pruned })
    }

    /// Opens a whole history that was loaded.
    async fn opened_whole(
        &self,
        key: &ConversationKey,
        sealed: History,
        since: Moment,
    ) -> Result<History, StoreError> {
        if sealed.head.revision == Revision::ABSENT {
            self.sealing_cache.forget(key, since);
        }
        self.opened_history(key, sealed, since).await.map_err(unopened(key, OPEN))
    }

    async fn opened_history(
        &self,
        key: &ConversationKey,
        sealed: History,
        since: Moment,
    ) -> Result<History, EncryptionError> {
        let pruned = sealed.head.pruned;
        let (head, [visible, _]) = self.opened_head(key, sealed.head, true, since).await?;
        let mut chain = chain_from(visible, pruned.saturating_add(1));
        let messages = sealed.messages.iter();
        let messages = self.opener(key, visible).messages(pruned, &mut chain, messages).await?;
        self.learn_chain(key, &head, &chain, since);
        let mut history = History::empty();
        history.extend(messages);
        history.head = head;
        Ok(history)
    }

    /// Records the digests of the visible messages.
    fn learn_chain(&self, key: &ConversationKey, head: &Head, chain: &Chain, since: Moment) {
        if let Some(digest) = chain.previous_digest() {
            self.sealing_cache.learn_recent_digest(
                key,
                head.revision,
                visible(head),
                digest,
                since,
            );
            self.sealing_cache.learn_digests(key, head.revision, chain.digests(), since);
        }
    }

    /// Reads the digest of the last visible message, which the next message must contain. Returns
    /// `None` if no visible message exists, or if the last one has a former format.
    async fn last_digest(
        &self,
        key: &ConversationKey,
        head: &Head,
        expected: Expected,
    ) -> Result<Option<Digest>, StoreError> {
        let last = visible(head);
        let is_chained = match expected {
            Expected::Life(ExpectedLife { second_format: Some(unchained), .. }) => last > unchained,
            Expected::Life(_) | Expected::Any | Expected::First => false,
        };
        if !is_chained || last <= head.pruned {
            return Ok(None);
        }
        let before = last.checked_add(1);
        let envelope = match self.inner_store().messages_before(key, before, 1).await {
            Ok(page) => page.messages.into_iter().next_back().map(|(_, message)| message),
            Err(StoreError::MissingCapability { .. }) => {
                self.inner().load(key).await?.messages.last().cloned()
            }
            Err(error) => return Err(error),
        };
        let Some(envelope) = envelope else { return Ok(None) };
        let mut chain = Chain::behind(None);
        let mut opener = self.opener(key, expected);
        let opened = opener.next_message(&mut chain, last, &envelope).await;
        opened.map_err(unopened(key, OPEN))?;
        Ok(chain.previous_digest())
    }

    async fn opened_run(
        &self,
        key: &ConversationKey,
        sealed: OpenRunContent,
        since: Moment,
    ) -> Result<OpenRunContent, StoreError> {
        let OpenRunContent { head, open, messages, tools, .. } = sealed;
        // The inner store may return the open run separately from the head.
        let head = head.with_open_run(Some(open));
        let opened =
            self.opened_head(key, head, false, since).await.map_err(unopened(key, OPEN_RUN))?;
        let (head, [visible, staged]) = opened;
        let last_digest = self.last_digest(key, &head, visible).await?;
        if let Some(digest) = last_digest {
            self.sealing_cache.learn_recent_digest(
                key,
                head.revision,
                self::visible(&head),
                digest,
                since,
            );
        }
        let opened =
            self.opened_staged(key, (head, last_digest, staged, since), &messages, tools).await;
        opened.map_err(unopened(key, OPEN_RUN))
    }

    async fn opened_staged(
        &self,
        key: &ConversationKey,
        (mut head, last_digest, staged, since): (Head, Option<Digest>, Expected, Moment),
        messages: &[Arc<Message>],
        tools: Vec<ToolRecord>,
    ) -> Result<OpenRunContent, EncryptionError> {
        let Some(open) = head.open_run.clone() else {
            return Err(EncryptionError::RunChanged { key: key.clone() });
        };
        let is_of_run = |message: &Arc<Message>| message.id.is_some_and(|id| id.run == open.run);
        if !messages.iter().all(is_of_run) {
            return Err(EncryptionError::RunChanged { key: key.clone() });
        }
        head.open_run = Some(open.clone());
        let mut opener = self.opener(key, staged);
        // After messages of a former format, the digests begin with the first message of the run.
        let mut chain = Chain::behind(last_digest.or(Some(Digest::START)));
        let (mut opened, mut links) = (Vec::with_capacity(messages.len()), Vec::new());
        for (sequence, envelope) in (open.visible.saturating_add(1)..).zip(messages) {
            let (message, linked) = opener.next_message(&mut chain, sequence, envelope).await?;
            opened.push(Arc::new(message));
            links.push(linked);
        }
        self.sealing_cache.learn_staged(key, head.revision, open.visible, &links, since);
        let mut rows = Vec::with_capacity(tools.len());
        for row in tools {
            rows.push(opener.row(row).await?);
        }
        Ok(OpenRunContent::new(head, open, opened, rows))
    }

    /// Opens calls of the record. Reports rows that do not open as unreadable.
    async fn opened_invocations(
        &self,
        mut invocations: Invocations,
    ) -> Result<Invocations, StoreError> {
        for (key, sealed) in std::mem::take(&mut invocations.found) {
            let (sequence, index) = (sealed.sequence, sealed.sequence_index);
            match self.opener(&key, Expected::Any).invocation(sealed).await {
                Ok(opened) => invocations.found.push((key, opened)),
                Err(error) => invocations.unreadable.push(UnreadableInvocation::new(
                    key,
                    sequence,
                    index,
                    error.to_string(),
                )),
            }
        }
        Ok(invocations)
    }

    /// Seals writes until one of them cannot be sealed, and returns the sealed writes with the
    /// error for that write. Not async, because the submission of writes is not.
    fn sealed(&self, writes: &[Write]) -> (Vec<Write>, Submission, Option<EncryptionError>) {
        let mut sealed = Vec::with_capacity(writes.len());
        let mut submission = Submission::default();
        for write in writes {
            match self.sealed_write(write, &mut submission) {
                Ok(write) => sealed.push(write),
                Err(error) => return (sealed, submission, Some(error)),
            }
        }
        (sealed, submission, None)
    }

    fn sealed_write(
        &self,
        write: &Write,
        submission: &mut Submission,
    ) -> Result<Write, EncryptionError> {
        let key = write.key();
        let known = self.sealing_cache.before(write);
        let known = known.ok_or_else(|| EncryptionError::HeadNotRead { key: key.clone() })?;
        let SealingInput { life, head, mut after } = known.sealing_input(write)?;
        let sealed = self.sealer(key, life)?.write(write, head.as_ref(), &mut after)?;
        self.sealing_cache.after(write, after, submission);
        Ok(sealed)
    }

    fn sealer(&self, key: &ConversationKey, life: Life) -> Result<Sealer, EncryptionError> {
        let ready = self.keys.writing_key(key).now_or_never();
        let (id, secret) =
            ready.ok_or_else(|| EncryptionError::KeyNotCached { key: key.clone() })??;
        Ok(Sealer { conversation: key.clone(), id, key: secret, life })
    }
}

/// Returns the error for a write to a conversation whose state is unknown: a conflict if the
/// conversation does not have the revision that the write expects, and `error` otherwise.
async fn not_sealed(
    store: &(impl HistoryStore + ?Sized),
    write: &Write,
    error: EncryptionError,
) -> AppendError {
    let source = match store.head(write.key()).await {
        Ok(head) if head.revision != write.expected() => {
            let run = head.open_run.map(|open| open.run);
            let conflict = Conflict::new(write.key().clone(), write.expected(), head.revision);
            Box::new(conflict.with_open_run(run)).into()
        }
        Ok(_) => reported(SEAL)(error),
        Err(error) => error,
    };
    AppendError { completed: 0, source }
}

/// Returns an open run without its sealed values.
fn without_content(mut open: OpenRun) -> OpenRun {
    open.partial_text = None;
    open.service_id = None;
    open
}

/// Returns the sealed head that the commit of an open run stores as the service id.
fn staged_service_id(open: &OpenRun) -> Option<&str> {
    match open.service_id.as_ref()? {
        ServiceIdChange::Set(id) => Some(id),
        ServiceIdChange::Clear => None,
    }
}

/// Returns the sequence number of the last visible message.
fn visible(head: &Head) -> u64 {
    head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible)
}

/// Creates the chain of the messages from the sequence number `first` on.
fn chain_from(expected: Expected, first: u64) -> Chain {
    let unchained = match expected {
        Expected::Life(ExpectedLife { second_format: Some(unchained), .. }) => unchained,
        Expected::Life(_) | Expected::Any | Expected::First => u64::MAX,
    };
    Chain::from(first, unchained)
}

const SEAL: &str = "seal a write";
const OPEN_RUN: &str = "decrypt an open run";
const OPEN: &str = "decrypt a conversation";

#[async_trait]
impl<S: HistoryStore> StoreWrapper for EncryptedStore<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the head, and fetches the key for the next write, so that a run without a key fails
    /// before it makes a paid service call.
    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let fetched: Result<_, KeyError> = self.keys.writing_key(key).await;
        fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        let since = self.sealing_cache.now();
        let head = self.inner().head(key).await?;
        if head.revision == Revision::ABSENT {
            self.sealing_cache.forget(key, since);
            return Ok(head);
        }
        let opened = self.opened_head(key, head, true, since).await.map_err(unopened(key, OPEN))?;
        let (head, [visible, _]) = opened;
        if head.open_run.is_none()
            && !self.sealing_cache.has_stored_digest(key, head.revision, self::visible(&head))
            && let Some(digest) = self.last_digest(key, &head, visible).await?
        {
            self.sealing_cache.learn_recent_digest(
                key,
                head.revision,
                self::visible(&head),
                digest,
                since,
            );
        }
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let since = self.sealing_cache.now();
        let sealed = self.inner().load(key).await?;
        self.opened_whole(key, sealed, since).await
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.opened_range(key, from).await
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.opened_invocations(self.inner().calls(key, which).await?).await
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let (sealed, submission, error) = self.sealed(&writes);
        let Some(error) = error else {
            let ticket = self.inner().append(slot, sealed);
            self.sealing_cache.submitted(&submission);
            return Ticket::watching(async move {
                let outcome = ticket.await;
                if outcome.is_ok() {
                    submission.is_stored();
                }
                outcome
            });
        };
        let completed = sealed.len();
        let refused = writes.get(completed).cloned();
        if let (true, EncryptionError::HeadNotRead { .. }, Some(write)) =
            (sealed.is_empty(), &error, refused)
        {
            let store = self.inner.clone();
            return Ticket::watching(async move { Err(not_sealed(&*store, &write, error).await) });
        }
        let failed = AppendError { completed, source: reported(SEAL)(error) };
        if sealed.is_empty() {
            return Ticket::done(Err(failed));
        }
        let ticket = self.inner().append(slot, sealed);
        self.sealing_cache.submitted(&submission);
        Ticket::watching(async move { ticket.await.and(Err(failed)) })
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let since = self.sealing_cache.now();
        let was_there = self.inner().delete(key).await?;
        self.sealing_cache.forget(key, since);
        Ok(was_there)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner().journal()?;
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner().directory()?;
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner().tool_calls()?;
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.inner().maintenance()?;
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        self.inner().summaries()?;
        Some(self)
    }
}

#[async_trait]
impl<S: HistoryStore> Summaries for EncryptedStore<S> {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let mut opened = Vec::new();
        for sealed in self.inner_store().history_summaries(key).await? {
            opened.push(self.opened_history_summary(key, sealed).await?);
        }
        Ok(opened)
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        match self.inner_store().history_summary(key, id).await? {
            Some(sealed) => self.opened_history_summary(key, sealed).await.map(Some),
            None => Ok(None),
        }
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let sealed = self.sealed_history_summary(key, summary).await?;
        self.inner_store().add_summary(key, &sealed, rewrites).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        self.inner_store().remove_summary(key, id).await
    }
}

#[async_trait]
impl<S: HistoryStore> Journal for EncryptedStore<S> {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        let since = self.sealing_cache.now();
        match self.inner_store().open_run(key).await? {
            Some(sealed) => self.opened_run(key, sealed, since).await.map(Some),
            None => Ok(None),
        }
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner_store().open_runs(scope, after, limit).await
    }
}

impl<S: HistoryStore> EncryptedStore<S> {
    /// Returns the turns that end before the message `before`, or all turns if `before` is `None`.
    /// A turn consists of the messages of a run and of the later runs that answer calls of this
    /// run. Returns `None` if the conversation has no visible data.
    ///
    /// The end of the last turn is computed from the inner store's record of tool calls, which has
    /// the positions of results in plaintext. If the conversation is written between the reads of
    /// the record and of the messages, both are read again.
    async fn turns(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
    ) -> Result<Option<CopiedTurns>, StoreError> {
        const ATTEMPTS: usize = 64;
        for _ in 0..ATTEMPTS {
            let history = HistoryStore::load(self, from).await?;
            if history.messages.is_empty() && history.head.service_id.is_none() {
                return Ok(None);
            }
            let rows = self.inner_store().rows(from).await?;
            let Some(rows) = rows.filter(|it| it.head.revision == history.head.revision) else {
                continue;
            };
            let mut forking = Forking::new(&history.head, before);
            for (sequence, message) in history.numbered() {
                if let Some(id) = message.id {
                    forking.see_message(sequence, id.run);
                }
            }
            let mut results = HashMap::new();
            for row in rows.tools.iter().filter_map(|(_, row)| row.as_ref().ok()) {
                forking.see_record(row);
                if let RecordedResult::InMessage(result) = row.result {
                    results.insert(row.call, result);
                }
            }
            return Ok(Some(CopiedTurns { history, position: forking.end().position, results }));
        }
        let reason = "other writers changed the conversation during each attempt to read it";
        Err(StoreError::backend("copy a conversation", true, reason))
    }
}

#[async_trait]
impl<S: HistoryStore> Maintenance for EncryptedStore<S> {
    /// Reads and opens the conversation, seals the copied turns for the copy, and writes the copy,
    /// by one submission of several writes. Each write is a separate transaction.
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let slot = self.inner().reserve().await?;
        let exists = || StoreError::Exists { key: to.clone() };
        if self.inner().head(to).await?.revision != Revision::ABSENT {
            return Err(exists());
        }
        let Some(turns) = self.turns(from, before).await? else { return Ok(Fork::ABSENT) };
        let position = turns.position;
        let recorded = HistoryStore::calls(self, from, &CallSelection::All).await?;
        let recorded = recorded.found.into_iter().map(|(_, invocation)| invocation).collect();
        let original = Directory::summary(self, from).await.or_else(|error| match error {
            StoreError::MissingCapability { .. } => Ok(None),
            error => Err(error),
        })?;
        let mode = original.as_ref().and_then(|summary| summary.last_mode);
        let parent = Parent::new(from.clone(), position);
        let writes = fork::writes(to, &turns, recorded, mode, parent);
        let copied = HistoryStore::append(self, slot, writes).await;
        let revision = copied.map_err(|error| match (error.completed, error.source) {
            (0, StoreError::Conflict(_)) => exists(),
            (_, source) => source,
        })?;
        self.fork_description(original, to).await?;
        Ok(Fork::new(revision, position))
    }

    /// Prunes a conversation (deletes its oldest runs) by three writes. The first write records in
    /// the sealed head that messages are about to be deleted, the second deletes them, and the
    /// third records their number. If a crash prevents the third write, the store cannot detect,
    /// until the next prune, that an attacker deletes further messages that existed when the prune
    /// began.
    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        let head = self.inner().head(key).await?;
        if let Some(open) = head.open_run {
            return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
        }
        self.inner().handle().at_rest(key)?;
        self.seal_pruned(key, Some(head.revision.sequence)).await?;
        let pruned = self.inner_store().prune(key, keep.sealed()).await;
        self.seal_pruned(key, None).await?;
        pruned
    }

    /// Returns the rows of a conversation. A row that cannot be decrypted contains the error. If a
    /// key is not available, returns an error.
    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        let since = self.sealing_cache.now();
        let Some(sealed) = self.inner_store().rows(key).await? else { return Ok(None) };
        self.opened_rows(key, sealed, since).await.map(Some).map_err(unopened(key, OPEN))
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        self.rewrite_sealed(rewrite).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner_store().scopes(after, limit).await
    }
}

#[async_trait]
impl<S: HistoryStore> ToolCallQueries for EncryptedStore<S> {
    /// Returns the calls that match a query. Reports rows that do not open as unreadable.
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.opened_invocations(self.inner_store().invocations(query).await?).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.inner_store().tool_totals(query).await
    }
}

#[async_trait]
impl<S: HistoryStore> Directory for EncryptedStore<S> {
    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        let Some(sealed) = self.inner_store().summary(key).await? else { return Ok(None) };
        self.opened_summary(sealed).await.map(Some).map_err(unopened(key, OPEN))
    }

    /// Reports conversations whose description does not open as unreadable.
    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.opened_conversations(query).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.opened_messages(key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let version = expected_version.saturating_add(1);
        let sealed = self.sealed_description(key, description, version).await?;
        self.inner_store().set_description(key, &sealed, expected_version).await
    }

    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner_store().list(scope, after, limit).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        self.inner_store().usage(query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.inner_store().runs(key, after, limit).await
    }
}

impl<S: fmt::Debug> fmt::Debug for EncryptedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptedStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
