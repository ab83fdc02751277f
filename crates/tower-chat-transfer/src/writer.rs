//! Writes one conversation to the target.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history yet. All other messages are *visible*. The *head* of a conversation is its
//! number of messages, service id and open run, which a store reads without the messages. The
//! *lease* of an open run is the time until which no other process may continue the run.

use std::{collections::VecDeque, mem, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message,
    store::{
        AddedSummary, Directory, Head, HistoryStore, HistorySummary, Lease, LeaseEnd, OpenRun,
        ServiceIdChange, StoreError, Summaries,
        author::{RecordedResult, Staged, ToolRecord, milliseconds},
    },
};

use crate::{
    Counts, Difference, TransferError, TransferOutcome, TransferRefusal, TransferStep,
    appender::Appender,
    comparison::Comparison,
    reader::{ReadError, runs_of},
    record::{Beginning, Record},
};

/// Compares a conversation of the source with the conversation of the target, and writes the part
/// that is missing at the target.
///
/// The caller passes the records of the source in order. The writer compares each message with the
/// message of the target at the same position. If a message differs, nothing is written. When the
/// target has no further messages, the writer appends the remaining messages of the source.
pub(crate) struct Writer<'a> {
    store: &'a dyn HistoryStore,
    key: ConversationKey,
    source: Beginning,
    target: Comparison<'a>,
    appender: Appender<'a>,
    counts: Counts,
    refusal: Option<TransferRefusal>,
    /// Whether the conversation of the target was read to its end.
    is_compared: bool,
    /// The sequence number, at the target, of the last message that was found equal. If no message
    /// was found equal, this is the number of pruned messages at the target.
    compared: u64,
    open: Option<StagedRun>,
    /// The summaries of the source, with the sequence numbers of the target.
    summaries: Vec<HistorySummary>,
    /// The records of the source after the visible messages of the target, while the target has an
    /// open run. They must be compared with the staged messages of that run.
    delayed: VecDeque<DelayedRecord>,
}

/// A record of the source that was not written yet.
enum DelayedRecord {
    /// A message, and the size of its stored form in bytes.
    Message(Arc<Message>, usize),
    Row(ToolRecord),
}

/// The staged part of the source's open run.
struct StagedRun {
    open: OpenRun,
    /// The staged messages, each with the size of its stored form in bytes.
    messages: Vec<(Arc<Message>, usize)>,
    rows: Vec<ToolRecord>,
}

impl<'a> Writer<'a> {
    /// Reads the head and the runs of the conversation at the target. If the head or the runs
    /// cannot be read, [`end`](Self::end) returns a refusal of the conversation.
    pub(crate) async fn begin(
        store: &'a dyn HistoryStore,
        key: &ConversationKey,
        source: Beginning,
    ) -> Result<Self, TransferError> {
        let mut refusal = None;
        let mut target = match Comparison::begin(store, key).await {
            Ok(target) => target,
            Err(error) => {
                refusal = Some(refused(error)?);
                Comparison::with_nothing()
            }
        };
        let mut appender =
            Appender::new(store, key, target.revision(), source.created_at, source.parent.clone());
        appender.set_open_run(target.open_run().map(|open| open.run));
        loop {
            match target.next_run().await {
                Ok(Some(run)) => appender.runs.add_target(run),
                Ok(None) => break,
                Err(error) => {
                    refusal = Some(refused(error)?);
                    break;
                }
            }
        }
        Ok(Self {
            store,
            key: key.clone(),
            compared: target.pruned(),
            source,
            target,
            appender,
            counts: Counts::one(),
            refusal,
            is_compared: false,
            open: None,
            summaries: Vec::new(),
            delayed: VecDeque::new(),
        })
    }

    /// Processes the next record of the source: counts it, and compares it, writes it, or stores it
    /// until [`end`](Self::end). If the conversation was refused, only counts the record.
    pub(crate) async fn take(&mut self, record: Record) -> Result<(), TransferError> {
        let bytes = record.count(&mut self.counts);
        if self.refusal.is_some() || self.appender.refusal.is_some() {
            return Ok(());
        }
        match record {
            Record::Run(run) => self.appender.runs.add_source(run),
            Record::Message { number, message, is_staged: false } => {
                self.take_message(number, message, bytes).await?;
            }
            Record::Tool { mut row, is_staged: false } => {
                self.renumber(&mut row);
                self.take_row(row);
            }
            Record::Summary(mut summary) => {
                summary.covers_to = self.number_at_target(summary.covers_to);
                // Stores store the time to the millisecond. A store in memory may be more exact.
                let at = milliseconds::time(milliseconds::of(summary.at));
                summary.at = at.unwrap_or(summary.at);
                self.summaries.push(summary);
            }
            Record::OpenRun(open) => {
                self.open = Some(StagedRun { open, messages: Vec::new(), rows: Vec::new() });
            }
            Record::Message { message, is_staged: true, .. } => {
                self.open.iter_mut().for_each(|open| open.messages.push((message.clone(), bytes)));
            }
            Record::Tool { mut row, is_staged: true } => {
                self.renumber(&mut row);
                self.open.iter_mut().for_each(|open| open.rows.push(row.clone()));
            }
        }
        Ok(())
    }

    async fn take_message(
        &mut self,
        number: u64,
        message: Arc<Message>,
        bytes: usize,
    ) -> Result<(), TransferError> {
        if !self.is_compared {
            let Some(found) = self.next_of_target().await? else { return Ok(()) };
            if let Some(found) = found {
                if found == message {
                    self.compared += 1;
                    self.appender.found(&message);
                } else if let (Some(source_id), Some(target_id)) = (message.id, found.id) {
                    let message = number;
                    self.refusal = Some(TransferRefusal::Differs { message, source_id, target_id });
                }
                return Ok(());
            }
            self.end_comparison();
        }
        if self.appender.open_run().is_none() {
            return self.appender.message(message, bytes).await;
        }
        self.delayed.push_back(DelayedRecord::Message(message, bytes));
        self.take_over().await
    }

    /// If the open run of the target is a copy of a run that has ended in the source, discards it
    /// and appends the delayed records. Does nothing unless both conditions are true:
    ///
    /// - the source has a summary of the run, and the lease of the run at the target has expired;
    /// - the run was discarded in the source (the delayed messages begin with another run), or the
    ///   delayed messages begin with all staged messages of the target.
    async fn take_over(&mut self) -> Result<(), TransferError> {
        let Some(open) = self.target.open_run() else { return Ok(()) };
        let is_held = open.is_held_at(std::time::SystemTime::now());
        if is_held || self.appender.runs.source(open.run).is_none() {
            return Ok(());
        }
        let (open, staged) = (open.clone(), self.target.staged());
        let found = self.delayed.iter().filter_map(|record| match record {
            DelayedRecord::Message(message, _) => Some(message),
            DelayedRecord::Row(_) => None,
        });
        let found: Vec<_> = found.collect();
        let is_of_run = |message: &&Arc<Message>| message.id.is_some_and(|id| id.run == open.run);
        let is_committed = found.first().is_some_and(is_of_run);
        let is_copy = found.iter().zip(staged).all(|(found, staged)| **found == *staged);
        if is_committed && (found.len() < staged.len() || !is_copy) {
            return Ok(());
        }
        self.appender.discard(&open).await?;
        for record in mem::take(&mut self.delayed) {
            match record {
                DelayedRecord::Message(message, bytes) => {
                    self.appender.message(message, bytes).await?
                }
                DelayedRecord::Row(row) => self.appender.row(row),
            }
        }
        Ok(())
    }

    /// Returns the next message of the target. The inner option is `None` at the end of the
    /// conversation, and the outer option is `None` if the conversation cannot be read.
    async fn next_of_target(&mut self) -> Result<Option<Option<Arc<Message>>>, TransferError> {
        match self.target.next_message().await {
            Ok(found) => Ok(Some(found)),
            Err(error) => {
                self.refusal = Some(refused(error)?);
                Ok(None)
            }
        }
    }

    fn end_comparison(&mut self) {
        self.is_compared = true;
        for row in self.target.missing_rows() {
            self.appender.row(row);
        }
    }

    fn take_row(&mut self, row: ToolRecord) {
        if row.call.sequence > self.compared {
            match self.delayed.is_empty() {
                true => self.appender.row(row),
                false => self.delayed.push_back(DelayedRecord::Row(row)),
            }
            return;
        }
        self.target.row(row);
        if self.is_compared {
            self.end_comparison();
        }
    }

    /// Converts the sequence numbers in a row from those of the source to those of the target.
    fn renumber(&self, row: &mut ToolRecord) {
        row.call.sequence = self.number_at_target(row.call.sequence);
        if let RecordedResult::InMessage(at) = &mut row.result {
            at.sequence = self.number_at_target(at.sequence);
        }
    }

    /// Converts a sequence number of the source to that of the target. The result for a message that
    /// was pruned in the source is the number before the first message of the target.
    fn number_at_target(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(self.source.pruned).saturating_add(self.target.pruned())
    }

    /// Writes the remaining data after the final record, and returns the step of the conversation.
    pub(crate) async fn end(mut self) -> Result<TransferStep, TransferError> {
        self.end_visible().await?;
        self.end_staged().await?;
        self.appender.submit().await?;
        if let Some(refusal) = self.refusal.take().or(self.appender.refusal.take()) {
            return Ok(TransferStep::new(
                &self.key,
                TransferOutcome::Refused(refusal),
                self.counts,
            ));
        }
        let described = self.describe().await?;
        let summarized = self.add_summaries().await?;
        let is_changed = self.appender.is_changed || described || summarized;
        let outcome = match (self.target.exists(), is_changed) {
            (false, _) => TransferOutcome::Written,
            (true, true) => TransferOutcome::Extended { messages: self.appender.added },
            (true, false) => TransferOutcome::Unchanged,
        };
        let mut step = TransferStep::new(&self.key, outcome, self.counts);
        step.differences = self.differences().await?;
        step.open_run = self.open.as_ref().map(|open| open.open.run);
        Ok(step)
    }

    async fn end_visible(&mut self) -> Result<(), TransferError> {
        if self.refusal.is_none() && !self.is_compared {
            match self.next_of_target().await? {
                None => {}
                Some(None) => self.end_comparison(),
                Some(Some(_)) => self.refuse_more().await?,
            }
        }
        if self.refusal.is_some() {
            return Ok(());
        }
        if self.open.is_none() && self.appender.open_run().is_some() {
            self.take_over().await?;
        }
        if let (Some(run), false) = (self.appender.open_run(), self.delayed.is_empty()) {
            self.refusal = Some(TransferRefusal::OpenRun { run });
            return Ok(());
        }
        let service_id = self.service_id_change();
        self.appender.end_visible(service_id).await?;
        self.appender.submit().await?;
        if self.appender.refusal.is_some() {
            return Ok(());
        }
        let counted = match self.store.summary(&self.key).await? {
            Some(summary) => summary.runs,
            None => 0,
        };
        if self.appender.open_run().is_none() && counted < self.source_runs() {
            // The number of runs that a file states may be wrong. The records that were read limit
            // the number of writes.
            let Counts { messages, tool_calls, runs, .. } = self.counts;
            let contained = messages.saturating_add(tool_calls).saturating_add(runs);
            let missing = self.source_runs() - counted;
            self.appender.count_runs(missing.min(contained)).await?;
        }
        Ok(())
    }

    /// Returns the number of runs of the source, not including the open run.
    fn source_runs(&self) -> u64 {
        self.source.runs - self.source.runs.min(u64::from(self.open.is_some()))
    }

    async fn refuse_more(&mut self) -> Result<(), TransferError> {
        let mut messages = 1;
        while let Some(Some(_)) = self.next_of_target().await? {
            messages += 1;
        }
        self.refusal.get_or_insert(TransferRefusal::TargetHasMore { messages });
        Ok(())
    }

    /// Returns the change after which the target has the service id of the source; `None` if no
    /// change is needed. If the target already had all messages, it keeps its own service id, if
    /// any, because this id refers to the same messages.
    fn service_id_change(&self) -> Option<ServiceIdChange> {
        let (source, target) = (self.source.service_id.as_ref(), self.target.service_id());
        let is_new = !self.target.exists() || self.appender.added > 0;
        match (source, target) {
            (Some(source), target) if target != Some(source) && (is_new || target.is_none()) => {
                Some(ServiceIdChange::Set(source.clone()))
            }
            (None, Some(_)) if is_new => Some(ServiceIdChange::Clear),
            (Some(_) | None, _) => None,
        }
    }

    async fn end_staged(&mut self) -> Result<(), TransferError> {
        if self.refusal.is_some() || self.appender.refusal.is_some() {
            return Ok(());
        }
        let found = self.target.open_run().filter(|_| self.appender.open_run().is_some()).cloned();
        let Some(staged) = &self.open else {
            // The target may have an open run that the source does not have.
            self.refusal = found.map(|open| TransferRefusal::OpenRun { run: open.run });
            return Ok(());
        };
        let Some(attempt) = self.next_attempt(staged, found.as_ref()) else {
            let run = found.map_or(staged.open.run, |open| open.run);
            self.refusal = Some(TransferRefusal::OpenRun { run });
            return Ok(());
        };
        let had = self.target.staged().len();
        if found.is_some() && had == staged.messages.len() {
            return Ok(());
        }
        let lease = Lease {
            attempt,
            holder: self.store.handle().holder(),
            renewed_at: staged.open.opened_at,
            until: LeaseEnd::NotHeld,
        };
        self.appender.stage(Staged {
            lease,
            close: None,
            service_id: staged.open.service_id.clone(),
            partial_text: staged.open.partial_text.clone(),
        });
        let run = staged.open.run;
        for (message, bytes) in staged.messages.iter().skip(had) {
            self.appender.message(message.clone(), *bytes).await?;
        }
        staged.rows.iter().cloned().for_each(|row| self.appender.row(row));
        self.appender.end_staged(run).await
    }

    /// Returns the number of the attempt (execution of the run) under which the open run is staged.
    ///
    /// Returns `None` if the open run of the target
    ///
    /// - is another run, or has staged messages that the source does not have;
    /// - lacks staged messages, and its lease has not expired.
    fn next_attempt(&self, staged: &StagedRun, found: Option<&OpenRun>) -> Option<u32> {
        let Some(found) = found else { return Some(staged.open.lease.attempt.max(1)) };
        let had = self.target.staged();
        let is_beginning = found.run == staged.open.run
            && had.len() <= staged.messages.len()
            && had.iter().zip(&staged.messages).all(|(had, (message, _))| had == message);
        let is_held = found.is_held_at(std::time::SystemTime::now());
        let is_whole = had.len() == staged.messages.len();
        (is_beginning && (is_whole || !is_held)).then(|| found.lease.attempt.saturating_add(1))
    }

    /// Sets the description, if the target never had one. Returns whether it was set.
    async fn describe(&mut self) -> Result<bool, TransferError> {
        let description = &self.source.description;
        let version = self.target.summary().map_or(0, |summary| summary.description_version);
        if description.is_empty() || version > 0 {
            return Ok(false);
        }
        match self.store.set_description(&self.key, description, 0).await {
            Ok(_) => Ok(true),
            Err(StoreError::DescriptionChanged { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds the summaries that the target does not have. Returns whether a summary was added. A
    /// summary that the target does not accept is a [difference](Difference::Summaries).
    async fn add_summaries(&self) -> Result<bool, TransferError> {
        if self.store.summaries().is_none() {
            return Ok(false);
        }
        let had = self.target.summaries();
        let is_missing =
            |summary: &&HistorySummary| !had.iter().any(|found| found.id == summary.id);
        let mut is_added = false;
        for summary in self.summaries.iter().filter(is_missing) {
            let rewrites = self.target.rewrites();
            let outcome = self.store.add_summary(&self.key, summary, rewrites).await?;
            is_added |= outcome == AddedSummary::Stored;
        }
        Ok(is_added)
    }

    /// Returns whether the target has the summaries of the source, and no others.
    async fn has_same_summaries(&self, head: &Head) -> Result<bool, TransferError> {
        if head.summary.is_none() && self.summaries.is_empty() {
            return Ok(true);
        }
        let found = match self.store.summaries() {
            Some(summaries) => summaries.history_summaries(&self.key).await?,
            None => Vec::new(),
        };
        Ok(found == self.summaries)
    }

    /// Returns the differences between the source and the target.
    async fn differences(&self) -> Result<Vec<Difference>, TransferError> {
        let Some(summary) = self.store.summary(&self.key).await? else { return Ok(Vec::new()) };
        let head = self.store.head(&self.key).await?;
        let runs = runs_of(self.store, &self.key).await?;
        let has_same_summaries = self.has_same_summaries(&head).await?;
        let source = &self.source;
        let mut differences = Vec::new();
        let mut add = |differs: bool, what: Difference| {
            if differs {
                differences.push(what);
            }
        };
        add(head.pruned != source.pruned, Difference::Renumbered { pruned: source.pruned });
        let times = (summary.created_at, summary.last_active_at);
        add(times != (source.created_at, source.last_active_at), Difference::Times);
        let counted = (summary.runs, summary.last_mode);
        add(counted != (source.runs, source.last_mode), Difference::RunCount);
        add(!self.appender.runs.are(&runs), Difference::Runs);
        add(summary.description != source.description, Difference::Description);
        add(summary.parent != source.parent, Difference::Parent);
        add(head.service_id != source.service_id, Difference::ServiceId);
        add(!has_same_summaries, Difference::Summaries);
        Ok(differences)
    }
}

/// Converts an error of the target to a refusal, unless the whole transfer has failed.
fn refused(error: ReadError) -> Result<TransferRefusal, TransferError> {
    match error {
        ReadError::Changed => Ok(TransferRefusal::Conflict),
        other => other.into_refusal(1),
    }
}
