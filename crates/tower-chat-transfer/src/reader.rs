//! Reading one conversation from a store.
//!
//! A conversation is read as [`Record`]s: runs, messages, rows of the record of tool calls,
//! summaries of the first messages, and the open run, whose messages are not part of the history
//! yet.

use std::{collections::VecDeque, mem, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message, RunId,
    store::{
        CallSelection, ConversationSummary, Directory, Head, HistoryStore, Journal, OpenRun,
        RunSummary, StoreError, Summaries, author::is_sealed_message,
    },
};

use crate::{
    TransferError, TransferRefusal,
    record::{Beginning, Record},
    waiting_results::WaitingResults,
};

/// The maximum number of messages, or of runs, on a page.
const PAGE: usize = 100;

/// The reason why a conversation could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The conversation changed while it was read.
    Changed,
    /// The stored data of the conversation cannot be read. The text is the reason.
    Unreadable(String),
    /// An error that ends the whole transfer.
    Failed(TransferError),
}

impl ReadError {
    /// Converts the error to a refusal of the conversation, unless the whole transfer has failed.
    pub(crate) fn into_refusal(self, attempts: u32) -> Result<TransferRefusal, TransferError> {
        match self {
            Self::Changed => Ok(TransferRefusal::Changing { attempts }),
            Self::Unreadable(reason) => Ok(TransferRefusal::Unreadable { reason }),
            Self::Failed(error) => Err(error),
        }
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Undecodable { ref source, .. } => {
                Self::Unreadable(format!("{error}: {source}"))
            }
            StoreError::Unreadable { ref source, .. } => {
                Self::Unreadable(format!("{error}: {source}"))
            }
            StoreError::Corrupt { .. } => Self::Unreadable(error.to_string()),
            other => Self::Failed(other.into()),
        }
    }
}

/// Reads a conversation page by page, and checks at the end that it has not changed meanwhile.
pub(crate) struct Reader<'a> {
    store: &'a dyn HistoryStore,
    key: ConversationKey,
    moment: Moment,
    next: Next,
    records: VecDeque<Record>,
    waiting: WaitingResults,
}

/// The state of a conversation at one time. If the states before and after the reading are equal,
/// the conversation has not changed.
#[derive(Debug, Clone, PartialEq)]
struct Moment {
    head: Head,
    summary: ConversationSummary,
}

impl Moment {
    async fn of(
        store: &dyn HistoryStore,
        key: &ConversationKey,
    ) -> Result<Option<Self>, StoreError> {
        let head = store.head(key).await?;
        let summary = store.summary(key).await?;
        Ok(summary.map(|summary| Self { head, summary }))
    }

    fn visible(&self) -> u64 {
        self.head.open_run.as_ref().map_or(self.head.revision.sequence, |open| open.visible)
    }
}

/// The next page: the runs after `after`, the messages from `number` on, the summaries, or the open
/// run.
enum Next {
    Runs { after: Option<RunId> },
    Message { number: u64 },
    Summaries,
    OpenRun,
    End,
}

impl<'a> Reader<'a> {
    /// Begins to read a conversation. Returns `None` if the conversation does not exist.
    pub(crate) async fn begin(
        store: &'a dyn HistoryStore,
        key: &ConversationKey,
    ) -> Result<Option<Self>, ReadError> {
        let Some(moment) = Moment::of(store, key).await? else { return Ok(None) };
        Ok(Some(Self {
            store,
            key: key.clone(),
            moment,
            next: Next::Runs { after: None },
            records: VecDeque::new(),
            waiting: WaitingResults::default(),
        }))
    }

    pub(crate) fn head(&self) -> &Head {
        &self.moment.head
    }

    pub(crate) fn open_run(&self) -> Option<&OpenRun> {
        self.moment.head.open_run.as_ref()
    }

    pub(crate) fn summary(&self) -> &ConversationSummary {
        &self.moment.summary
    }

    pub(crate) fn beginning(&self) -> Beginning {
        let Moment { head, summary } = &self.moment;
        Beginning {
            created_at: summary.created_at,
            last_active_at: summary.last_active_at,
            runs: summary.runs,
            last_mode: summary.last_mode,
            service_id: head.service_id.clone(),
            pruned: head.pruned,
            visible: self.moment.visible(),
            description: summary.description.clone(),
            parent: summary.parent.clone(),
        }
    }

    /// Returns the next record; `None` at the end. Returns [`ReadError::Changed`] if the
    /// conversation has changed since [`begin`](Self::begin); this may be detected only at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            match self.next {
                Next::Runs { after } => self.read_runs(after).await?,
                Next::Message { number } => self.read_messages(number).await?,
                Next::Summaries => self.read_summaries().await?,
                Next::OpenRun => self.read_open_run().await?,
                Next::End => {
                    let now = Moment::of(self.store, &self.key).await?;
                    let is_same = now.as_ref() == Some(&self.moment);
                    return if is_same { Ok(None) } else { Err(ReadError::Changed) };
                }
            }
        }
    }

    async fn read_runs(&mut self, after: Option<RunId>) -> Result<(), ReadError> {
        let page = self.store.runs(&self.key, after, PAGE).await?;
        self.next = match page.last() {
            Some(last) if page.len() == PAGE => Next::Runs { after: Some(last.run) },
            Some(_) | None => Next::Message { number: self.moment.head.pruned.saturating_add(1) },
        };
        self.records.extend(page.into_iter().map(Record::Run));
        Ok(())
    }

    async fn read_messages(&mut self, number: u64) -> Result<(), ReadError> {
        let end = self.moment.visible().saturating_add(1);
        if number >= end {
            let apart = mem::take(&mut self.waiting).apart();
            self.records
                .extend(apart.into_iter().map(|row| Record::Tool { row, is_staged: false }));
            self.next = Next::Summaries;
            return Ok(());
        }
        let before = number.saturating_add(PAGE as u64).min(end);
        let limit = usize::try_from(before - number).unwrap_or(PAGE);
        let page = self.store.messages_before(&self.key, Some(before), limit).await?.messages;
        // Encrypted messages must not be copied, because the target would not be marked as
        // containing encrypted data.
        if page.iter().any(|(_, message)| is_sealed_message(message)) {
            return Err(ReadError::Unreadable("it is encrypted: read it with its keys".to_owned()));
        }
        let is_whole = page.iter().map(|(number, _)| *number).eq(number..before);
        if !is_whole {
            return Err(ReadError::Changed);
        }
        self.read_tools(&page).await?;
        self.next = Next::Message { number: before };
        Ok(())
    }

    /// Adds each message of a page to the queue, followed by its rows, in the order of [`Record`].
    async fn read_tools(&mut self, page: &[(u64, Arc<Message>)]) -> Result<(), ReadError> {
        let asking = page.iter().filter(|(_, message)| message.asked_calls().next().is_some());
        let asking = asking.map(|(number, _)| *number);
        let invocations = self.store.calls(&self.key, &CallSelection::in_messages(asking)).await?;
        if let Some(unreadable) = invocations.unreadable.first() {
            // The row may belong to a message that was written after the messages were read.
            let is_same = self.store.head(&self.key).await? == self.moment.head;
            return Err(match is_same {
                true => ReadError::Unreadable(unreadable.to_string()),
                false => ReadError::Changed,
            });
        }
        let mut rows = invocations.found.into_iter().map(|(_, row)| row).peekable();
        for (number, message) in page {
            let (number, message) = (*number, message.clone());
            let mut complete = Vec::new();
            while let Some(row) = rows.next_if(|row| row.sequence <= number) {
                complete.extend(self.waiting.add(row));
            }
            complete.extend(self.waiting.find_in(number, &message));
            complete.sort_unstable_by_key(|row| row.call);
            self.records.push_back(Record::Message { number, message, is_staged: false });
            let complete = complete.into_iter().map(|row| Record::Tool { row, is_staged: false });
            self.records.extend(complete);
        }
        Ok(())
    }

    async fn read_summaries(&mut self) -> Result<(), ReadError> {
        self.next = Next::OpenRun;
        // Without a summary in force, the conversation has no summaries. A store that does not
        // provide its summaries returns an error, so that no summary is lost without notice.
        if self.moment.head.summary.is_some() {
            let summaries = self.store.history_summaries(&self.key).await?;
            self.records.extend(summaries.into_iter().map(Record::Summary));
        }
        Ok(())
    }

    async fn read_open_run(&mut self) -> Result<(), ReadError> {
        self.next = Next::End;
        if self.moment.head.open_run.is_none() {
            return Ok(());
        }
        let content = self.store.open_run(&self.key).await?;
        let content = content.filter(|content| content.head.revision == self.moment.head.revision);
        let Some(content) = content else { return Err(ReadError::Changed) };
        self.records.push_back(Record::OpenRun(content.open.clone()));
        let first = content.open.visible.saturating_add(1);
        let numbered = (first..).zip(content.messages);
        self.records.extend(numbered.map(|(number, message)| Record::Message {
            number,
            message,
            is_staged: true,
        }));
        let rows = content.tools.into_iter();
        self.records.extend(rows.map(|row| Record::Tool { row, is_staged: true }));
        Ok(())
    }
}

/// Returns all runs of a conversation from the directory of the store.
pub(crate) async fn runs_of(
    store: &dyn HistoryStore,
    key: &ConversationKey,
) -> Result<Vec<RunSummary>, StoreError> {
    let mut runs: Vec<RunSummary> = Vec::new();
    loop {
        let after = runs.last().map(|run| run.run);
        let page = store.runs(key, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        runs.extend(page);
        if is_last {
            return Ok(runs);
        }
    }
}
