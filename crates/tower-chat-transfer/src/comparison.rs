//! The comparison of a conversation of the source with the conversation of the target that has the
//! same key.
//!
//! The record of tool calls has one *row* for each call. The messages of an *open run* are
//! *staged*: the store contains these messages, but they are not part of the history yet. All other
//! messages are *visible*.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message,
    store::{
        ConversationSummary, HistoryStore, HistorySummary, OpenRun, Revision, RunSummary,
        SequencePosition, author::ToolRecord,
    },
};

use crate::{
    reader::{ReadError, Reader},
    record::Record,
};

/// Reads the conversation of the target and compares its rows, while the
/// [`Writer`](crate::writer::Writer) compares its messages.
pub(crate) struct Comparison<'a> {
    /// `None` if the target does not have the conversation.
    reader: Option<Reader<'a>>,
    /// Whether the conversation of the target was read to its end.
    is_read: bool,
    /// A record that was read too early. The next read returns it.
    peeked: Option<Record>,
    /// The rows of the target that were read and have not matched a row of the source yet.
    rows: HashMap<SequencePosition, ToolRecord>,
    /// The rows of the source that have not matched a row of the target yet.
    asked: Vec<ToolRecord>,
    /// The staged messages of the target's open run that were read.
    staged: Vec<Arc<Message>>,
    /// The summaries of the target that were read.
    summaries: Vec<HistorySummary>,
}

impl<'a> Comparison<'a> {
    pub(crate) async fn begin(
        store: &'a dyn HistoryStore,
        key: &ConversationKey,
    ) -> Result<Self, ReadError> {
        let reader = Reader::begin(store, key).await?;
        Ok(Self { is_read: reader.is_none(), reader, ..Self::with_nothing() })
    }

    /// Creates a comparison with a target that does not have the conversation.
    pub(crate) fn with_nothing() -> Self {
        Self {
            reader: None,
            is_read: true,
            peeked: None,
            rows: HashMap::new(),
            asked: Vec::new(),
            staged: Vec::new(),
            summaries: Vec::new(),
        }
    }

    pub(crate) fn exists(&self) -> bool {
        self.reader.is_some()
    }

    pub(crate) fn summary(&self) -> Option<&ConversationSummary> {
        self.reader.as_ref().map(Reader::summary)
    }

    pub(crate) fn revision(&self) -> Revision {
        self.reader.as_ref().map_or(Revision::ABSENT, |reader| reader.head().revision)
    }

    pub(crate) fn pruned(&self) -> u64 {
        self.reader.as_ref().map_or(0, |reader| reader.head().pruned)
    }

    /// Returns the number of rewrites of the target's messages before this comparison.
    pub(crate) fn rewrites(&self) -> u64 {
        self.reader.as_ref().map_or(0, |reader| reader.head().rewrites)
    }

    pub(crate) fn service_id(&self) -> Option<&Arc<str>> {
        self.reader.as_ref()?.head().service_id.as_ref()
    }

    pub(crate) fn open_run(&self) -> Option<&OpenRun> {
        self.reader.as_ref()?.open_run()
    }

    /// Returns the staged messages of the target's open run. The list is complete after
    /// [`next_message`](Self::next_message) has returned `None`.
    pub(crate) fn staged(&self) -> &[Arc<Message>] {
        &self.staged
    }

    /// Returns the summaries of the target. The list is complete after
    /// [`next_message`](Self::next_message) has returned `None`.
    pub(crate) fn summaries(&self) -> &[HistorySummary] {
        &self.summaries
    }

    /// Returns the next run of the target; `None` at the end.
    pub(crate) async fn next_run(&mut self) -> Result<Option<RunSummary>, ReadError> {
        match self.next().await? {
            Some(Record::Run(run)) => Ok(Some(run)),
            other => {
                self.peeked = other;
                Ok(None)
            }
        }
    }

    /// Returns the next visible message of the target; `None` at its end.
    pub(crate) async fn next_message(&mut self) -> Result<Option<Arc<Message>>, ReadError> {
        while let Some(record) = self.next().await? {
            match record {
                Record::Message { message, is_staged: false, .. } => return Ok(Some(message)),
                Record::Message { message, is_staged: true, .. } => self.staged.push(message),
                Record::Tool { row, is_staged: false } => {
                    self.rows.insert(row.call, row);
                }
                Record::Summary(summary) => self.summaries.push(summary),
                Record::Run(_) | Record::OpenRun(_) | Record::Tool { is_staged: true, .. } => {}
            }
        }
        Ok(None)
    }

    async fn next(&mut self) -> Result<Option<Record>, ReadError> {
        if let Some(record) = self.peeked.take() {
            return Ok(Some(record));
        }
        if self.is_read {
            return Ok(None);
        }
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let record = reader.next().await?;
        self.is_read = record.is_none();
        Ok(record)
    }

    /// Compares a row of the source with the row of the target for the same call. The target must
    /// have the message that contains the call. If the rows differ, or the row of the target was
    /// not read yet, [`missing_rows`](Self::missing_rows) compares them again.
    pub(crate) fn row(&mut self, row: ToolRecord) {
        if self.rows.get(&row.call) == Some(&row) {
            self.rows.remove(&row.call);
        } else {
            self.asked.push(row);
        }
    }

    /// Returns the rows that were passed to [`row`](Self::row) since the previous call and are
    /// missing or different at the target. The whole conversation of the target must have been
    /// read.
    pub(crate) fn missing_rows(&mut self) -> Vec<ToolRecord> {
        let asked = std::mem::take(&mut self.asked).into_iter();
        asked.filter(|row| self.rows.get(&row.call) != Some(row)).collect()
    }
}
