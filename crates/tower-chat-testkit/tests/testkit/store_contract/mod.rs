//! Tests that the contract of stores detects every kind of faulty store.

mod directory;
mod forks;
mod maintenance;
mod pruning;
mod summaries;

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, Messages, RunId, ToolStatus,
    store::{
        CallSelection, ConversationPage, ConversationQuery, ConversationRows, ConversationSummary,
        Description, Directory, Fork, Head, History, HistoryStore, InvocationQuery, Invocations,
        Journal, Keep, LeaseEnd, Maintenance, MessagePage, OpenRun, Pruned, Revision, Rewrite,
        RunSummary, SequencePosition, StoreError, StoreHandle, Summaries, ToolCallQueries,
        ToolTotals, UsageQuery, UsageTotals,
        author::{
            AppendError, Close, LoadFrom, OpenRunContent, RecordedResult, Slot, Staged, Ticket,
            ToolRecord, Write,
        },
    },
};
use tower_chat_testkit::store_contract::{self, Runtime};

/// The fault of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    JoinsScopeAndId,
    FoldsCase,
    LosesIds,
    WritesAtAnyRevision,
    StoresRepeatsAgain,
    DropsEqualMessages,
    GoesOnAfterAFailure,
    WritesWhenTheTicketIsAwaited,
    ForgetsTheServiceId,
    WritesAfterClose,
    ListsBackwards,
    ListsAfterInclusively,
    SplitsWrites,
    ReturnsMessagesBackwards,
    ForgetsRows,
    RecordsRefusedWrites,
    KeepsTheFirstRow,
    RecordsRepeats,
    LosesResultsApart,
    LosesRowsWithoutMessages,
    DeletesNothing,
    CutsTimesToSeconds,
    AsksAnyScope,
    IgnoresTheTool,
    IgnoresTheStatus,
    IgnoresTheTime,
    IgnoresTheLimit,
    TakesAnEmptyListForAll,
    FindsBackwards,
    FindsFifty,
    HidesWhatCannotBeRead,
    FailsOnWhatCannotBeRead,
    CountsUpToTheLimit,
    CountsOpenCallsAsErrors,
    StagesVisibly,
    CommitsEveryStagedWrite,
    CommitsWhatIsDiscarded,
    WritesForAnyRun,
    DiscardsWithoutARun,
    ForgetsStagedServiceIds,
    ForgetsPartialText,
    ForgetsStagedRows,
    ForgetsUntilWhen,
    IgnoresAttempts,
    TakesAttemptsForOneAnother,
    CommitsInPlace,
    IgnoresClaims,
    ForgetsApprovals,
    SplitsBatches,
    ListsOpenRuns,
    HidesOpenRuns,
    ListsOpenRunsAfterInclusively,
    ForksNothing,
    ForksOverOthers,
    CommitsBeforeForks,
    ForksApprovals,
    ForksAll,
    ForksInTheMiddle,
    ForgetsParents,
    IgnoresParents,
    OrdersByRun,
    DeletesInSteps,
    PrunesNothing,
    PrunesAll,
    PrunesOneMessageMore,
    PrunesOverOtherNumbers,
    PrunesForApprovals,
    LosesUsage,
    LosesModes,
    MixesModels,
    HidesStagedConversations,
    ForgetsWhenItBegan,
    CountsTheRunsOfMessages,
    ListsEveryScope,
    IgnoresMetadata,
    IgnoresActivity,
    IgnoresStates,
    ListsByKey,
    EndsAfterAPage,
    GroupsByScope,
    CountsUsageOfAnyTime,
    ListsRunsOldestFirst,
    PagesBackwards,
    PagesInclusively,
    IgnoresVersions,
    ForgetsMetadata,
    ForksNoDescription,
    ListsScopesBackwards,
    ListsScopesAfterInclusively,
    HidesStagedScopes,
    HidesTheRecord,
    CountsRowsFromOne,
    ShowsStagedRows,
    RewritesAtAnyRevision,
    RewritesInSteps,
    RewritesMessagesAlone,
    RewritesNoCounts,
    RewritesNothing,
    RewritesOverOpenRuns,
    HidesTheSummaryInForce,
    ForgetsRewrites,
    CountsRewritesOfRows,
    ListsSummariesBackwards,
    FindsAnySummary,
    ForgetsTheModelOfSummaries,
    CoversAnyMessage,
    CoversStagedMessages,
    AddsSummariesAfterRewrites,
    AddsOlderSummaries,
    AddsSummariesAgain,
    AddsSummariesInSteps,
    SummariesChangeTheRevision,
    RemovesTheLastSummary,
    KeepsRewrittenSummaries,
    KeepsPrunedSummaries,
    PrunesTheSummaryInForce,
    ForksSummaries,
    SkipsOneMessageMore,
    LoadsAnyRange,
    LosesLeadingMessages,
    KeepsTheFirstRange,
    LoadsPrunedRanges,
}

/// Returns whether a staged write is the first write of its attempt. Such a write results in
/// another incarnation than an equal write that does not begin an attempt.
fn begins_attempt(write: &Write) -> bool {
    let messages = write.messages().iter().cloned();
    let plain = Write::new(write.key().clone(), write.id(), write.expected(), messages);
    let staged = write.as_staged().cloned();
    staged.is_some_and(|staged| plain.staged(staged).result() != write.result())
}

struct Broken {
    inner: MemoryStore,
    fault: Fault,
}

impl Broken {
    fn key(&self, key: &ConversationKey) -> ConversationKey {
        match self.fault {
            Fault::JoinsScopeAndId => ConversationKey::new("", key.to_string()),
            Fault::FoldsCase => ConversationKey::new(key.scope(), key.id().to_lowercase()),
            _ => key.clone(),
        }
    }

    fn append_one(&self, write: &Write) -> Ticket {
        let slot = Slot::unbounded();
        let key = self.key(write.key());
        let again = |expected: Revision, messages: Vec<_>, id| {
            let made = Write::new(key.clone(), self.writer(&key, id), expected, messages);
            let made = directory::with_activity(self.fault, made, write);
            let made = self.stage(made.with_tools(self.rows(write)), write);
            let made = made.with_load_from(self.range(&key, write));
            match write.service_id() {
                Some(change) if self.fault != Fault::ForgetsTheServiceId => {
                    made.with_service_id(change.clone())
                }
                _ => made,
            }
        };
        let found = || {
            let head = futures_util::FutureExt::now_or_never(self.inner.head(&key));
            head.expect("at once").expect("a head").revision
        };
        let mut messages = write.messages().to_vec();
        let record_again = |rows: Vec<ToolRecord>| {
            let found = found();
            if found != Revision::ABSENT {
                let rows = Write::new(key.clone(), write.id(), found, []).with_tools(rows);
                drop(self.inner.append(Slot::unbounded(), vec![rows]));
            }
        };
        match self.fault {
            Fault::DiscardsWithoutARun
                if matches!(write.close(), Some(Close::Discard { .. }))
                    && self.open(&key).is_none() =>
            {
                Ticket::done(Ok(write.result()))
            }
            Fault::RecordsRefusedWrites if found() != write.expected() => {
                let is_repeat = found().sequence >= write.result().sequence
                    && found().incarnation == write.result().incarnation;
                if !is_repeat {
                    record_again(write.tools().to_vec());
                }
                self.inner.append(slot, vec![write.clone()])
            }
            Fault::RecordsRepeats => {
                let ticket = self.inner.append(slot, vec![write.clone()]);
                record_again(write.tools().to_vec());
                ticket
            }
            Fault::WritesAtAnyRevision => {
                self.inner.append(slot, vec![again(found(), messages, write.id())])
            }
            Fault::StoresRepeatsAgain if found().sequence > write.expected().sequence => {
                let found = found();
                drop(self.inner.append(slot, vec![again(found, messages, write.id())]));
                Ticket::done(Ok(write.result()))
            }
            Fault::DropsEqualMessages => {
                messages.dedup_by(|left, right| left.parts == right.parts);
                self.inner.append(slot, vec![again(write.expected(), messages, write.id())])
            }
            _ => self.inner.append(slot, vec![again(write.expected(), messages, write.id())]),
        }
    }

    fn open(&self, key: &ConversationKey) -> Option<OpenRun> {
        let head = futures_util::FutureExt::now_or_never(self.inner.head(key));
        head.unwrap().unwrap().open_run
    }

    /// Returns the id of a write.
    fn writer(&self, key: &ConversationKey, id: MessageId) -> MessageId {
        let open = self.open(key).filter(|_| self.fault == Fault::WritesForAnyRun);
        open.map_or(id, |open| MessageId { run: open.run, ..id })
    }

    /// Adds the claims and the staged properties of `write` to `made`.
    fn stage(&self, made: Write, write: &Write) -> Write {
        let claims = match self.fault {
            Fault::IgnoresClaims => Vec::new(),
            _ => write.claims().to_vec(),
        };
        let made = made.with_claims(claims);
        let open = self.open(made.key());
        let Some(mut staged) = write.as_staged().cloned() else { return made };
        match (self.fault, staged.close) {
            (Fault::StagesVisibly, None) => return made,
            (Fault::CommitsEveryStagedWrite, None)
            | (Fault::CommitsWhatIsDiscarded, Some(Close::Discard { .. })) => {
                staged.close = Some(Close::Commit);
            }
            (Fault::ForgetsStagedServiceIds, _) => staged.service_id = None,
            (Fault::ForgetsPartialText, _) => staged.partial_text = None,
            (Fault::ForgetsUntilWhen, _) => staged.lease.until = LeaseEnd::NotHeld,
            (Fault::IgnoresAttempts | Fault::WritesForAnyRun, _)
            | (Fault::CommitsInPlace, Some(Close::Commit)) => {
                if let Some(open) = open {
                    staged.lease = open.lease;
                }
            }
            _ => {}
        }
        let made = made.staged(staged);
        match begins_attempt(write) && self.fault != Fault::TakesAttemptsForOneAnother {
            true => made.beginning_attempt(),
            false => made,
        }
    }

    /// Returns the value in a write that selects the messages for the next run.
    fn range(&self, key: &ConversationKey, write: &Write) -> Option<Arc<LoadFrom>> {
        let head = futures_util::FutureExt::now_or_never(self.inner.head(key));
        let known = head.unwrap().unwrap().load_from;
        let keeps = self.fault == Fault::KeepsTheFirstRange && known.is_some();
        write.load_from().filter(|_| !keeps).cloned()
    }

    /// Returns the rows of a write.
    fn rows(&self, write: &Write) -> Vec<ToolRecord> {
        let mut rows = write.tools().to_vec();
        let query = InvocationQuery::of(&self.key(write.key()));
        match self.fault {
            Fault::ForgetsRows => rows.clear(),
            Fault::ForgetsStagedRows if write.as_staged().is_some() => rows.clear(),
            Fault::LosesRowsWithoutMessages if write.messages().is_empty() => rows.clear(),
            Fault::KeepsTheFirstRow => {
                let known = futures_util::FutureExt::now_or_never(self.inner.invocations(&query));
                let known = known.unwrap().unwrap().found;
                let is_known = |row: &ToolRecord| {
                    known.iter().any(|(_, call)| {
                        (call.sequence, call.sequence_index) == (row.call.sequence, row.call.index)
                    })
                };
                rows.retain(|row| !is_known(row));
            }
            Fault::LosesResultsApart => {
                for row in &mut rows {
                    if matches!(row.result, RecordedResult::Apart(_)) {
                        row.result = RecordedResult::None;
                    }
                }
            }
            _ => {}
        }
        rows
    }

    /// Returns the query that the faulty store executes instead of `query`.
    fn query(&self, query: &InvocationQuery) -> InvocationQuery {
        let mut query = query.clone();
        match self.fault {
            Fault::AsksAnyScope => query.scope = query.scope.trim().to_lowercase(),
            Fault::IgnoresTheTool => query.tool = None,
            Fault::IgnoresTheStatus => query.status = None,
            Fault::IgnoresTheTime => query.started = None,
            Fault::IgnoresTheLimit => query.limit = None,
            Fault::TakesAnEmptyListForAll => {
                query.sequences = query.sequences.filter(|list| !list.is_empty());
            }
            Fault::FindsFifty => query.limit = Some(query.limit.map_or(50, |limit| limit.min(50))),
            _ => {}
        }
        query
    }

    fn append_now(&self, writes: &[Write]) -> Ticket {
        let mut outcome = Ok(Revision::ABSENT);
        for (completed, write) in writes.iter().enumerate() {
            let ticket = self.append_one(write);
            let done = futures_util::FutureExt::now_or_never(ticket).expect("at once");
            let failed = done.is_err();
            outcome = done.map_err(|error| AppendError { completed, ..error });
            if failed && self.fault != Fault::GoesOnAfterAFailure {
                break;
            }
        }
        Ticket::done(outcome)
    }
}

#[async_trait]
impl HistoryStore for Broken {
    fn handle(&self) -> &StoreHandle {
        self.inner.handle()
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let mut head = self.inner.head(&self.key(key)).await?;
        match self.fault {
            Fault::ForgetsApprovals => head.pending_approvals.clear(),
            Fault::HidesTheSummaryInForce => head.summary = None,
            Fault::ForgetsRewrites => head.rewrites = 0,
            Fault::SplitsBatches => {
                let requests = head.pending_approvals.into_iter().flatten();
                head.pending_approvals = requests.map(|request| vec![request]).collect();
            }
            _ => {}
        }
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let mut history = self.inner.load(&self.key(key)).await?;
        match self.fault {
            Fault::LosesIds => {
                let without = |message: &Message| {
                    let mut message = message.clone();
                    message.id = None;
                    message
                };
                history.messages = history.messages.iter().map(|m| without(m)).collect();
            }
            Fault::OrdersByRun => {
                let mut messages: Vec<_> = history.messages.iter().cloned().collect();
                messages.sort_by_key(|message| message.id);
                history.messages = messages.into_iter().collect();
            }
            Fault::ReturnsMessagesBackwards => {
                history.messages = history.messages.iter().rev().cloned().collect::<Messages>();
            }
            _ => {}
        }
        Ok(history)
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let history = self.inner.load(&self.key(key)).await?;
        let mut range = history.range(from);
        let pruned = history.head.pruned;
        match self.fault {
            Fault::SkipsOneMessageMore if !range.is_whole() => {
                range.messages = range.messages.skip(1);
                Ok(range.clone().with_skipped(range.skipped(), range.leading))
            }
            Fault::LosesLeadingMessages => {
                Ok(range.clone().with_skipped(range.skipped(), Messages::new()))
            }
            Fault::LoadsAnyRange => {
                let stored = history.head.load_from.clone();
                Ok(stored.map_or(history.clone(), |stored| history.range(&stored)))
            }
            Fault::LoadsPrunedRanges if pruned > from.after => {
                range.messages = range.messages.skip(1);
                Ok(range.with_skipped(pruned + 1, Messages::new()))
            }
            _ => Ok(range),
        }
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.invocations(&which.query(key)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.inner.reserve().await
    }

    fn append(&self, _slot: Slot, writes: Vec<Write>) -> Ticket {
        match self.fault {
            Fault::WritesWhenTheTicketIsAwaited => {
                let inner = Self { inner: self.inner.clone(), fault: Fault::Nothing };
                Ticket::watching(async move { inner.append_now(&writes).await })
            }
            Fault::SplitsWrites => {
                let inner = self.inner.clone();
                Ticket::watching(async move {
                    let mut outcome = Ok(Revision::ABSENT);
                    for write in &writes {
                        let mut expected = write.expected();
                        for message in write.messages().iter().cloned() {
                            let id = message.id.expect("an id");
                            let part = Write::new(write.key().clone(), id, expected, [message]);
                            expected = part.result();
                            outcome = inner.append(Slot::unbounded(), vec![part]).await;
                            tokio::task::yield_now().await;
                        }
                    }
                    outcome
                })
            }
            _ => self.append_now(&writes),
        }
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        if self.fault == Fault::DeletesNothing {
            return Ok(true);
        }
        if self.fault == Fault::DeletesInSteps {
            self.inner.prune(&self.key(key), Keep::Messages(1)).await?;
            tokio::task::yield_now().await;
        }
        self.inner.delete(&self.key(key)).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.inner.flush().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        match self.fault {
            Fault::WritesAfterClose => Ok(()),
            _ => self.inner.close().await,
        }
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Journal for Broken {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.inner.open_run(&self.key(key)).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let mut found = self.inner.open_runs(scope, after, limit).await?;
        match (self.fault, after) {
            (Fault::HidesOpenRuns, _) => found.clear(),
            (Fault::ListsOpenRunsAfterInclusively, Some(after)) => {
                let key = ConversationKey::new(scope, after);
                found.extend(self.open(&key).map(|_| key));
                found.sort();
                found.truncate(limit);
            }
            _ => {}
        }
        Ok(found)
    }
}

#[async_trait]
impl Maintenance for Broken {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        match self.fault {
            Fault::ForksNothing => return Ok(Fork::ABSENT),
            Fault::ForksInTheMiddle if before.is_some() => {
                return forks::in_the_middle(self, from, before, to).await;
            }
            Fault::ForksOverOthers if from != to => {
                self.inner.delete(to).await?;
            }
            Fault::CommitsBeforeForks => {
                if let Some(OpenRunContent { head, open, .. }) = self.inner.open_run(from).await? {
                    let id = MessageId { run: open.run, index: u32::MAX };
                    let (lease, close) = (open.lease, Some(Close::Commit));
                    let commit = Staged { lease, close, service_id: None, partial_text: None };
                    let write = Write::new(from.clone(), id, head.revision, []).staged(commit);
                    drop(self.inner.append(Slot::unbounded(), vec![write]));
                }
            }
            _ => {}
        }
        let forked = {
            let before = before.filter(|_| self.fault != Fault::ForksAll);
            self.inner.fork_at(&self.key(from), before, &self.key(to)).await?
        };
        if self.fault == Fault::ForksApprovals {
            let query = InvocationQuery::of(from).with_status(ToolStatus::PendingApproval);
            for (_, call) in self.inner.invocations(&query).await?.found {
                let position =
                    SequencePosition { sequence: call.sequence, index: call.sequence_index };
                let mut row = ToolRecord::pending(position, 0, call.call_id, call.name);
                row.status = ToolStatus::PendingApproval;
                let id = MessageId { run: RunId::new(), index: 0 };
                let write = Write::new(to.clone(), id, forked.revision, []).with_tools(vec![row]);
                drop(self.inner.append(Slot::unbounded(), vec![write]));
            }
        }
        if self.fault == Fault::ForksSummaries {
            summaries::forked(self, &self.key(from), &self.key(to)).await?;
        }
        if self.fault == Fault::ForksNoDescription
            && let Some(copy) = self.inner.summary(to).await?
        {
            let version = copy.description_version;
            self.inner.set_description(to, &Description::new(), version).await?;
        }
        Ok(forked)
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        pruning::prune(self, &self.key(key), keep).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        maintenance::scopes(self, after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        maintenance::rows(self, &self.key(key)).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        maintenance::rewrite(self, rewrite).await
    }
}

#[async_trait]
impl ToolCallQueries for Broken {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let mut answer = self.inner.invocations(&self.query(query)).await?;
        match self.fault {
            Fault::FindsBackwards => answer.found.reverse(),
            Fault::HidesWhatCannotBeRead => answer.unreadable.clear(),
            Fault::FailsOnWhatCannotBeRead => {
                if let Some(row) = answer.unreadable.pop() {
                    return Err(StoreError::backend("read a row", false, row));
                }
            }
            Fault::CutsTimesToSeconds => {
                for (_, call) in &mut answer.found {
                    call.started_at = call.started_at.map(|time| {
                        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                        std::time::UNIX_EPOCH + std::time::Duration::from_secs(since.as_secs())
                    });
                }
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        let mut totals = self.inner.tool_totals(&self.query(query)).await?;
        match self.fault {
            Fault::CountsUpToTheLimit => {
                let limit = query.limit.map_or(u64::MAX, |limit| limit as u64);
                totals.iter_mut().for_each(|tool| tool.calls = tool.calls.min(limit));
            }
            Fault::CountsOpenCallsAsErrors => {
                totals.iter_mut().for_each(|tool| tool.errors += tool.open);
            }
            _ => {}
        }
        Ok(totals)
    }
}

#[async_trait]
impl Directory for Broken {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let mut keys = self.inner.list(scope, after, usize::MAX).await?;
        if let (Fault::ListsAfterInclusively, Some(after)) = (self.fault, after) {
            keys.insert(0, ConversationKey::new(scope, after));
        }
        if self.fault == Fault::ListsOpenRuns {
            let open = self.inner.open_runs(scope, after, usize::MAX).await?;
            keys.extend(open);
            keys.dedup();
        }
        if self.fault == Fault::ListsBackwards {
            keys.reverse();
        }
        keys.truncate(limit);
        Ok(keys)
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        directory::summary(self, &self.key(key)).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        directory::conversations(self, query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        directory::usage(self, query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        directory::runs(self, &self.key(key), after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        directory::messages_before(self, &self.key(key), before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let key = self.key(key);
        directory::set_description(self, &key, description, expected_version).await
    }
}

macro_rules! noticed {
    ($($test:ident: $fault:ident breaks $promise:ident;)*) => { $(
        #[test]
        #[should_panic]
        fn $test() {
            store_contract::check(
                Runtime::OneThread,
                || async { (Broken { inner: MemoryStore::new(), fault: Fault::$fault }, ()) },
                store_contract::boxed::$promise as fn(_) -> _,
            );
        }
    )* };
}

noticed! {
    joined_keys: JoinsScopeAndId breaks keys_that_look_alike_are_different_conversations;
    folded_keys: FoldsCase breaks keys_that_look_alike_are_different_conversations;
    lost_ids: LosesIds breaks loaded_messages_carry_their_ids;
    ignored_revisions: WritesAtAnyRevision
        breaks a_write_at_another_revision_is_a_conflict_and_stores_nothing;
    two_winners: WritesAtAnyRevision
        breaks of_concurrent_writers_to_one_conversation_exactly_one_wins;
    repeats: StoresRepeatsAgain breaks a_repeated_write_stores_nothing_twice;
    equal_messages: DropsEqualMessages breaks equal_messages_of_different_writes_are_all_stored;
    later_writes: GoesOnAfterAFailure breaks a_submission_stops_at_the_first_write_that_fails;
    lazy_writes: WritesWhenTheTicketIsAwaited breaks a_dropped_ticket_cancels_nothing;
    late_writes: WritesWhenTheTicketIsAwaited breaks a_load_sees_what_was_submitted_before_it;
    service_ids: ForgetsTheServiceId breaks a_service_id_is_set_kept_and_cleared;
    closed_stores: WritesAfterClose breaks a_closed_store_keeps_what_it_has_and_takes_nothing_more;
    list_order: ListsBackwards
        breaks conversations_are_listed_in_the_byte_order_of_their_ids;
    list_start: ListsAfterInclusively
        breaks conversations_are_listed_in_the_byte_order_of_their_ids;
    split_writes: SplitsWrites breaks readers_never_see_part_of_a_write;
    order: ReturnsMessagesBackwards breaks what_is_appended_is_returned_in_order;
    no_record: ForgetsRows breaks a_tool_call_is_recorded_with_the_write_of_its_message;
    split_rows: SplitsWrites breaks readers_see_messages_and_rows_of_a_write_together;
    refused_rows: RecordsRefusedWrites breaks a_write_that_is_refused_records_nothing;
    first_rows: KeepsTheFirstRow breaks a_later_row_replaces_what_was_known_of_a_call;
    repeated_rows: RecordsRepeats breaks a_repeated_write_does_not_bring_older_rows_back;
    results_apart: LosesResultsApart
        breaks results_are_returned_from_messages_and_from_the_record;
    rows_alone: LosesRowsWithoutMessages breaks rows_can_be_written_without_messages;
    range_ends: SkipsOneMessageMore breaks a_range_is_the_end_of_the_history;
    leading_messages: LosesLeadingMessages breaks a_range_is_the_end_of_the_history;
    any_range: LoadsAnyRange breaks another_value_loads_the_whole_history;
    first_ranges: KeepsTheFirstRange breaks a_write_sets_the_range_once;
    pruned_ranges: LoadsPrunedRanges breaks a_range_has_no_pruned_messages;
    late_rows: WritesWhenTheTicketIsAwaited breaks a_question_sees_what_was_submitted_before_it;
    rows_left: DeletesNothing breaks a_deleted_conversation_takes_its_record_along;
    times: CutsTimesToSeconds breaks times_are_kept_to_the_millisecond;
    scopes: AsksAnyScope breaks questions_never_cross_a_scope;
    tools: IgnoresTheTool breaks calls_are_found_by_everything_a_query_can_name;
    statuses: IgnoresTheStatus breaks calls_are_found_by_everything_a_query_can_name;
    ranges: IgnoresTheTime breaks calls_are_found_by_everything_a_query_can_name;
    limits: IgnoresTheLimit breaks calls_are_found_by_everything_a_query_can_name;
    empty_lists: TakesAnEmptyListForAll breaks a_question_for_nothing_finds_nothing;
    call_order: FindsBackwards breaks calls_come_in_the_order_of_conversation_message_and_position;
    fifty_calls: FindsFifty breaks any_number_of_calls_and_messages_can_be_asked_for;
    hidden_rows: HidesWhatCannotBeRead breaks a_row_that_cannot_be_read_does_not_hide_the_others;
    bad_rows: FailsOnWhatCannotBeRead breaks a_row_that_cannot_be_read_does_not_hide_the_others;
    limited_totals: CountsUpToTheLimit breaks tool_calls_are_counted_per_tool;
    totals: CountsOpenCallsAsErrors breaks tool_calls_are_counted_per_tool;
    visible_staging: StagesVisibly breaks staged_messages_are_invisible_to_readers;
    listed_staging: ListsOpenRuns breaks staged_messages_are_invisible_to_readers;
    hidden_runs: HidesOpenRuns breaks an_open_run_knows_its_lease;
    early_commits: CommitsEveryStagedWrite breaks a_commit_shows_the_whole_run_at_once;
    lost_staged_rows: ForgetsStagedRows breaks a_commit_shows_the_whole_run_at_once;
    kept_discards: CommitsWhatIsDiscarded breaks a_discarded_run_leaves_nothing;
    listed_discards: CommitsWhatIsDiscarded
        breaks a_conversation_that_was_discarded_whole_is_not_listed;
    late_staging: WritesAtAnyRevision breaks nothing_late_matches_after_a_discard;
    staged_repeats: StoresRepeatsAgain breaks a_repeated_staged_write_stores_nothing_twice;
    foreign_writes: WritesForAnyRun breaks only_the_open_run_writes;
    empty_discards: DiscardsWithoutARun breaks a_discard_without_an_open_run_is_a_conflict;
    staged_service_ids: ForgetsStagedServiceIds breaks a_staged_service_id_is_set_by_the_commit;
    partial_text: ForgetsPartialText breaks partial_text_stays_with_the_open_run;
    delayed_rows: ForgetsStagedRows breaks rows_of_calls_that_are_seen_are_put_at_once;
    open_runs_left: DeletesNothing breaks a_deleted_conversation_takes_its_open_run_along;
    leases: ForgetsUntilWhen breaks an_open_run_knows_its_lease;
    no_fence: IgnoresAttempts breaks a_later_attempt_fences_off_those_before_it;
    two_holders: IgnoresAttempts breaks of_two_that_take_a_run_over_one_holds_it;
    other_attempts: TakesAttemptsForOneAnother breaks the_first_write_of_an_attempt_is_its_own;
    attempts_in_one_write: TakesAttemptsForOneAnother breaks a_run_in_one_write_is_its_own;
    attempts_in_turn: TakesAttemptsForOneAnother breaks attempts_in_one_write_follow_each_other;
    reopened_runs: CommitsInPlace breaks a_run_that_was_taken_over_and_ended_stays_ended;
    open_run_list: HidesOpenRuns breaks open_runs_are_listed_by_scope;
    open_run_pages: ListsOpenRunsAfterInclusively breaks open_runs_are_listed_by_scope;
    two_claims: IgnoresClaims breaks of_two_claims_to_a_call_one_holds;
    any_claims: IgnoresClaims breaks only_calls_that_wait_can_be_claimed;
    staged_claims: IgnoresClaims breaks an_open_run_claims_calls_that_are_seen;
    approvals: ForgetsApprovals breaks calls_that_wait_for_approval_come_with_the_head;
    batches: SplitsBatches breaks calls_that_wait_for_approval_come_with_the_head;
    no_forks: ForksNothing breaks a_fork_has_what_readers_see_and_a_life_of_its_own;
    forked_approvals: ForksApprovals breaks a_fork_does_not_wait_for_approvals;
    staged_forks: CommitsBeforeForks breaks a_fork_has_nothing_that_is_staged;
    forked_over: ForksOverOthers breaks a_fork_makes_nothing_of_nothing_and_replaces_nothing;
    forked_whole: ForksAll breaks a_fork_ends_between_turns;
    forked_whole_again: ForksAll breaks a_fork_of_a_pruned_conversation_ends_between_turns;
    forked_in_the_middle: ForksInTheMiddle breaks a_fork_ends_between_turns;
    forked_from_results: ForksInTheMiddle breaks a_fork_keeps_calls_with_their_results;
    forked_at_random: ForksInTheMiddle breaks generated_forks_end_as_in_memory;
    forked_open_runs: CommitsBeforeForks breaks a_fork_ends_before_an_open_run;
    lost_parents: ForgetsParents breaks branches_are_found_by_their_parent;
    lost_first_parents: ForgetsParents breaks a_parent_is_set_by_the_first_write;
    any_parent: IgnoresParents breaks branches_are_found_by_their_parent;
    clocks: OrdersByRun breaks messages_keep_their_order_when_clocks_are_set_back;
    dropped_tickets: WritesWhenTheTicketIsAwaited
        breaks a_ticket_dropped_at_any_await_cancels_nothing;
    dropped_deletions: DeletesInSteps breaks a_deletion_dropped_at_any_await_is_done_or_not;
    no_pruning: PrunesNothing breaks the_oldest_runs_are_pruned_whole;
    all_pruned: PrunesAll breaks the_last_run_is_never_pruned;
    too_much_pruned: PrunesOneMessageMore breaks a_run_that_was_continued_is_pruned_whole;
    other_numbers: PrunesOverOtherNumbers breaks the_oldest_runs_are_pruned_whole;
    other_rows: PrunesOverOtherNumbers breaks rows_are_pruned_with_their_messages;
    pruned_approvals: PrunesForApprovals breaks calls_that_wait_are_not_pruned;
    late_pruning: WritesWhenTheTicketIsAwaited breaks a_prune_sees_what_was_submitted_before_it;
    lost_usage: LosesUsage breaks usage_is_added_up_once;
    lost_modes: LosesModes breaks the_directory_has_a_conversation_from_its_first_write_on;
    mixed_models: MixesModels breaks usage_is_grouped_as_a_query_asks;
    hidden_staging: HidesStagedConversations breaks staged_runs_are_in_the_directory_at_once;
    moved_beginnings: ForgetsWhenItBegan
        breaks the_directory_has_a_conversation_from_its_first_write_on;
    forgotten_arrivals: ForgetsWhenItBegan breaks a_run_begins_when_its_request_arrived;
    runs_of_messages: CountsTheRunsOfMessages breaks a_prune_leaves_counts_and_usage;
    every_scope: ListsEveryScope breaks conversations_are_listed_by_their_last_activity;
    metadata: IgnoresMetadata breaks conversations_are_found_by_times_and_metadata;
    activity: IgnoresActivity breaks conversations_are_found_by_times_and_metadata;
    states: IgnoresStates breaks the_directory_tells_what_continues;
    directory_order: ListsByKey breaks conversations_are_listed_by_their_last_activity;
    one_page: EndsAfterAPage breaks conversations_are_listed_by_their_last_activity;
    groups: GroupsByScope breaks usage_is_grouped_as_a_query_asks;
    usage_times: CountsUsageOfAnyTime breaks usage_is_grouped_as_a_query_asks;
    run_order: ListsRunsOldestFirst breaks runs_are_listed_newest_first;
    page_order: PagesBackwards breaks messages_are_paged_from_the_end;
    overlapping_pages: PagesInclusively breaks messages_are_paged_from_the_end;
    versions: IgnoresVersions breaks a_description_is_set_by_who_knows_its_version;
    lost_metadata: ForgetsMetadata breaks a_description_is_set_by_who_knows_its_version;
    plain_forks: ForksNoDescription breaks a_fork_has_the_description_and_has_used_nothing;
    late_directory: WritesWhenTheTicketIsAwaited
        breaks the_directory_sees_what_was_submitted_before;
    described_later: WritesAfterClose breaks a_closed_store_keeps_its_directory;
    entries_left: DeletesNothing breaks a_deleted_conversation_leaves_the_directory;
    scope_order: ListsScopesBackwards breaks scopes_are_listed_in_byte_order;
    scope_pages: ListsScopesAfterInclusively breaks scopes_are_listed_in_byte_order;
    staged_scopes: HidesStagedScopes breaks a_scope_is_there_while_it_has_a_conversation;
    scopes_left: DeletesNothing breaks a_scope_is_there_while_it_has_a_conversation;
    late_scopes: WritesWhenTheTicketIsAwaited
        breaks a_list_of_scopes_sees_what_was_submitted_before_it;
    record_in_rows: HidesTheRecord breaks rows_are_what_readers_see;
    staged_in_rows: ShowsStagedRows breaks rows_are_what_readers_see;
    conversations_left: DeletesNothing breaks rows_are_what_readers_see;
    pruned_rows: CountsRowsFromOne breaks rows_of_a_pruned_conversation_have_their_numbers;
    rewritten_late: RewritesAtAnyRevision breaks a_rewrite_at_another_revision_is_a_conflict;
    not_rewritten: RewritesNothing breaks a_rewrite_keeps_numbers_and_ids;
    rewritten_in_part: RewritesInSteps breaks a_rewrite_is_done_whole_or_not_at_all;
    dropped_rewrites: RewritesInSteps breaks a_rewrite_dropped_at_any_await_is_done_or_not;
    record_not_rewritten: RewritesMessagesAlone breaks a_rewrite_changes_the_record;
    counts_not_rewritten: RewritesNoCounts breaks a_rewrite_sets_counts_of_the_directory;
    rewritten_under_a_run: RewritesOverOpenRuns breaks an_open_run_is_not_rewritten;
    late_rewrites: WritesWhenTheTicketIsAwaited
        breaks a_rewrite_sees_what_was_submitted_before_it;
    late_forks: WritesWhenTheTicketIsAwaited breaks a_fork_sees_what_was_submitted_before_it;
    hidden_summaries: HidesTheSummaryInForce breaks an_added_summary_is_in_force;
    summary_order: ListsSummariesBackwards breaks an_added_summary_is_in_force;
    any_summary: FindsAnySummary breaks an_added_summary_is_in_force;
    summary_models: ForgetsTheModelOfSummaries breaks an_added_summary_is_in_force;
    summaries_change_revisions: SummariesChangeTheRevision breaks an_added_summary_is_in_force;
    covered_foreign_messages: CoversAnyMessage breaks a_summary_of_other_messages_is_refused;
    older_summaries: AddsOlderSummaries breaks a_summary_covers_more_than_the_one_in_force;
    older_raced_summaries: AddsOlderSummaries
        breaks of_concurrent_summaries_the_longest_is_in_force;
    repeated_summaries: AddsSummariesAgain breaks a_repeated_addition_stores_nothing_twice;
    other_summary_removed: RemovesTheLastSummary breaks the_summary_in_force_is_removed;
    rewrites_not_counted: ForgetsRewrites breaks a_rewrite_deletes_the_summaries_of_its_messages;
    rows_counted: CountsRewritesOfRows breaks a_rewrite_deletes_the_summaries_of_its_messages;
    rewritten_summaries: KeepsRewrittenSummaries
        breaks a_rewrite_deletes_the_summaries_of_its_messages;
    late_summaries_of_rewrites: AddsSummariesAfterRewrites
        breaks a_rewrite_deletes_the_summaries_of_its_messages;
    pruned_summaries: PrunesTheSummaryInForce breaks a_prune_leaves_the_summary_in_force;
    unpruned_summaries: KeepsPrunedSummaries breaks a_prune_leaves_the_summary_in_force;
    summaries_left: DeletesNothing breaks a_deleted_conversation_takes_its_summaries_along;
    forked_summaries: ForksSummaries breaks a_fork_has_no_summaries;
    staged_summaries: CoversStagedMessages breaks staged_messages_are_not_covered;
    summaries_disturb_writes: SummariesChangeTheRevision
        breaks writes_and_summaries_do_not_disturb_each_other;
    late_writes_of_summaries: WritesWhenTheTicketIsAwaited
        breaks a_summary_sees_what_was_submitted_before_it;
    summarized_later: WritesAfterClose breaks a_summary_sees_what_was_submitted_before_it;
    dropped_summaries: AddsSummariesInSteps
        breaks an_addition_dropped_at_any_await_is_done_or_not;
    generated_summaries: AddsOlderSummaries breaks generated_summaries_are_decided_as_in_memory;
    generated_rewrites: KeepsRewrittenSummaries
        breaks generated_summaries_are_decided_as_in_memory;
}

mod residual_data;

mod without_a_fault {
    use super::{Broken, Fault, MemoryStore};

    tower_chat_testkit::store_contract!(Broken {
        inner: MemoryStore::new(),
        fault: Fault::Nothing
    };
        one_runtime: "the wrapped memory store is tested on both runtimes";
        heavy: "the wrapped memory store runs the slow tests"
    );
}
