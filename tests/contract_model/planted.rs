//! Planted faults, which the checks must detect.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat::{
    Answer, ConversationKey, Finish, HistoryStore, MemoryStore, Message, Part, Role,
    message::MessageId,
    run::RunId,
    store::{
        AddedSummary, ConversationRows, Directory, Fork, History, HistorySummary, InvocationQuery,
        Journal, Keep, Maintenance, Pruned, Revision, Rewrite, SequencePosition, StoreError,
        StoreHandle, Summaries, ToolCallQueries,
        author::{LoadFrom, RecordedResult, Slot, StoreWrapper, Ticket, ToolRecord, Write},
    },
    tool::ToolStatus,
};

/// A fault that occurred during the development of the code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// The results of two calls of an answer are exchanged before they are stored.
    WrongCall,
    /// The hook of a tool is not called for a result.
    LostHook,
    /// The end time of a call is not stored.
    StaleNumber,
    /// The stored messages of an interrupted run are returned as its answer.
    PartialAnswer,
    /// The messages that a tool has queued are not stored with its outcome.
    LostQueue,
    /// The tool loop ignores that a tool stops the run.
    MissedStop,
    /// The digest of the input of a run is not stored.
    LostInput,
    /// In a copy of a conversation, calls that wait for approval in the original can be approved.
    CopiedApproval,
    /// The arguments of a decision are not stored with the decision.
    LostArguments,
    /// The service that has created an item of an answer is not stored.
    LostIssuer,
    /// A branch contains all turns of the conversation.
    LongBranch,
    /// The media of one more turn, or one more medium, are sent again.
    OldMediumSent,
    /// A summary is sent in place of the messages that it covers, and of the next message.
    HiddenMessage,
    /// The summary in force is not removed.
    LostUndo,
}

/// Returns an answer with the stored messages of a run except the first one.
pub(crate) async fn stored_part(
    store: &MemoryStore,
    key: &ConversationKey,
    run: RunId,
) -> Option<Answer> {
    let history = store.load(key).await.ok()?;
    let of_run = history.messages.iter().filter(|it| it.id.is_some_and(|id| id.run == run));
    let answer: Vec<_> = of_run.skip(1).cloned().collect();
    (!answer.is_empty()).then(|| Answer::new(answer, Finish::stop()))
}

#[derive(Clone)]
pub(crate) struct Process {
    inner: MemoryStore,
    handle: StoreHandle,
    fault: Option<Fault>,
    loads: Loads,
}

impl Process {
    pub(crate) fn new(inner: MemoryStore, fault: Option<Fault>) -> Self {
        Self { inner, handle: StoreHandle::new(), fault, loads: Loads::All }
    }

    pub(crate) fn with_loads(mut self, loads: Loads) -> Self {
        self.loads = loads;
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loads {
    All,
    Ranges,
    /// A planted fault: ranges without their first message.
    ShortRanges,
}

fn swapped(write: &Write) -> Write {
    let messages = write.messages().iter().map(|message| match results_of(message) {
        Some((one, other)) => {
            let mut message = Message::clone(message);
            let content = |part: &mut Part| match part {
                Part::ToolResult(result) => std::mem::take(&mut result.content),
                _ => Vec::new(),
            };
            let (a, b) = (content(&mut message.parts[one]), content(&mut message.parts[other]));
            if let Part::ToolResult(result) = &mut message.parts[one] {
                result.content = b;
            }
            if let Part::ToolResult(result) = &mut message.parts[other] {
                result.content = a;
            }
            Arc::new(message)
        }
        None => message.clone(),
    });
    rebuilt(write, messages.collect(), write.tools().to_vec())
}

fn results_of(message: &Message) -> Option<(usize, usize)> {
    let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
    let mut results = (0..message.parts.len()).filter(|at| is_result(&message.parts[*at]));
    let results = (results.next()?, results.next()?);
    (message.role == Role::Tool).then_some(results)
}

fn timeless(write: &Write) -> Write {
    let mut rows = write.tools().to_vec();
    rows.iter_mut().for_each(|row| row.finished_at = None);
    rebuilt(write, write.messages().to_vec(), rows)
}

fn unqueued(write: &Write) -> Write {
    let mut rows = write.tools().to_vec();
    for row in &mut rows {
        if let RecordedResult::Apart(result) = &mut row.result {
            result.queued.clear();
        }
    }
    rebuilt(write, write.messages().to_vec(), rows)
}

/// Returns the write without metadata. Metadata contain the digest of the input of the run.
fn bare(write: &Write) -> Write {
    let messages = write.messages().iter().map(|message| {
        let mut message = message.clone();
        if message.role == Role::User {
            Arc::make_mut(&mut message).metadata.clear();
        }
        message
    });
    rebuilt(write, messages.collect(), write.tools().to_vec())
}

fn without_arguments(write: &Write) -> Write {
    with_changed_parts(write, |part| {
        if let Part::ApprovalResponse(decision) = part {
            decision.arguments = None;
        }
    })
}

fn without_issuer(write: &Write) -> Write {
    with_changed_parts(write, |part| {
        if let Part::Native(native) = part {
            native.issuer = None;
        }
    })
}

fn with_changed_parts(write: &Write, change: impl Fn(&mut Part)) -> Write {
    let messages = write.messages().iter().map(|message| {
        let mut message = Message::clone(message);
        message.parts.iter_mut().for_each(&change);
        Arc::new(message)
    });
    rebuilt(write, messages.collect(), write.tools().to_vec())
}

fn rebuilt(write: &Write, messages: Vec<Arc<Message>>, rows: Vec<ToolRecord>) -> Write {
    let mut rebuilt = Write::new(write.key().clone(), write.id(), write.expected(), messages)
        .with_tools(rows)
        .with_claims(write.claims().to_vec());
    if let Some(staged) = write.as_staged() {
        rebuilt = rebuilt.staged(staged.clone());
    }
    if write.begins_attempt() {
        rebuilt = rebuilt.beginning_attempt();
    }
    match write.service_id() {
        Some(change) => rebuilt.with_service_id(change.clone()),
        None => rebuilt,
    }
}

#[async_trait]
impl StoreWrapper for Process {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    fn handle(&self) -> &StoreHandle {
        &self.handle
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let history = self.inner.load(key).await?;
        if self.loads == Loads::All {
            return Ok(history);
        }
        let range = history.range(from);
        if self.loads == Loads::Ranges || range.is_whole() {
            return Ok(range);
        }
        let (skipped, leading) = (range.skipped(), range.leading.clone());
        let rest = History::new(range.head.clone(), range.messages.skip(1));
        Ok(rest.with_skipped(skipped + 1, leading))
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let change = match self.fault {
            Some(Fault::WrongCall) => swapped,
            Some(Fault::StaleNumber) => timeless,
            Some(Fault::LostQueue) => unqueued,
            Some(Fault::LostInput) => bare,
            Some(Fault::LostArguments) => without_arguments,
            Some(Fault::LostIssuer) => without_issuer,
            Some(
                Fault::LostHook
                | Fault::PartialAnswer
                | Fault::MissedStop
                | Fault::CopiedApproval
                | Fault::OldMediumSent
                | Fault::LongBranch
                | Fault::HiddenMessage
                | Fault::LostUndo,
            )
            | None => return self.inner.append(slot, writes),
        };
        self.inner.append(slot, writes.iter().map(change).collect())
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Summaries for Process {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.inner.history_summaries(key).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let mut summary = self.inner.history_summary(key, id).await?;
        if let Some(summary) = summary.as_mut().filter(|_| self.fault == Some(Fault::HiddenMessage))
        {
            let history = self.inner.load(key).await?;
            let next = history.message(summary.covers_to + 1).and_then(|next| next.id);
            if let Some(next) = next {
                summary.covers_to += 1;
                summary.last = next;
            }
        }
        Ok(summary)
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        self.inner.add_summary(key, summary, rewrites).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        match self.fault {
            Some(Fault::LostUndo) => Ok(true),
            _ => self.inner.remove_summary(key, id).await,
        }
    }
}

#[async_trait]
impl Maintenance for Process {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let before = before.filter(|_| self.fault != Some(Fault::LongBranch));
        let fork = self.inner.fork_at(from, before, to).await?;
        if self.fault == Some(Fault::CopiedApproval) {
            let query = InvocationQuery::of(from).with_status(ToolStatus::PendingApproval);
            let waiting = self.inner.invocations(&query).await?.found.into_iter();
            let rows = waiting.map(|(_, call)| {
                let position =
                    SequencePosition { sequence: call.sequence, index: call.sequence_index };
                let mut row =
                    ToolRecord::pending(position, call.round_index, call.call_id, call.name);
                row.status = ToolStatus::PendingApproval;
                row
            });
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(to.clone(), id, fork.revision, []).with_tools(rows.collect());
            let appended = self.inner.append(Slot::unbounded(), vec![write]).await;
            appended.map_err(|error| error.source)?;
        }
        Ok(fork)
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.inner().prune(key, keep).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner().scopes(after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.inner().rows(key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        self.inner().rewrite(rewrite).await
    }
}
