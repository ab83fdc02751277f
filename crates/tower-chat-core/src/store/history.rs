//! The types that a store returns for a conversation: its head and its history.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    OpenRun, Revision, SummaryInForce,
    author::{Changes, LoadFrom, Write},
};
use crate::{
    ApprovalRequest, Message, Messages, RunId, run_order::RunOrder, well_formed::WellFormedPrefix,
};

/// The state of a conversation, without its messages.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Head {
    /// The revision that the next write must expect. The sequence number of this revision includes
    /// the messages of an open run.
    pub revision: Revision,
    /// The number of pruned messages, which is also the sequence number of the last pruned message.
    /// The first remaining message has the next sequence number.
    pub pruned: u64,
    /// The id under which the service stores the history; `None` if the service does not store it.
    pub service_id: Option<Arc<str>>,
    /// The open run, whose messages are staged; `None` if no run is open.
    pub open_run: Option<OpenRun>,
    /// The tool calls of the history that wait for approval, from the record. Each inner list
    /// contains the calls of one answer, in order. An answer may consist of several messages.
    pub pending_approvals: Vec<Vec<ApprovalRequest>>,
    /// The summary in force, which the model receives in place of the messages that it covers;
    /// `None` if there is none, or if the store lacks the capability
    /// [`Summaries`](super::Summaries).
    pub summary: Option<SummaryInForce>,
    /// The number of [rewrites](super::Maintenance::rewrite) that changed messages of the
    /// conversation. A summary or a [`load_from`](Self::load_from) that was computed before the
    /// last of these rewrites does not apply any more. A store that stores neither summaries nor
    /// `load_from` need not count rewrites.
    pub rewrites: u64,
    /// The part of the conversation that the next run needs to load; `None` if it needs all
    /// messages, or if the store does not keep this value.
    pub load_from: Option<Arc<LoadFrom>>,
}

impl Head {
    /// Creates the head of a conversation at a revision, without a service id, open run, pending
    /// approvals or summary.
    pub fn new(revision: Revision) -> Self {
        Self {
            revision,
            pruned: 0,
            service_id: None,
            open_run: None,
            pending_approvals: Vec::new(),
            summary: None,
            rewrites: 0,
            load_from: None,
        }
    }

    /// Sets the number of pruned messages.
    #[must_use]
    pub fn with_pruned(mut self, pruned: u64) -> Self {
        self.pruned = pruned;
        self
    }

    /// Sets the service id.
    #[must_use]
    pub fn with_service_id(mut self, id: Option<Arc<str>>) -> Self {
        self.service_id = id;
        self
    }

    /// Sets the open run.
    #[must_use]
    pub fn with_open_run(mut self, open: Option<OpenRun>) -> Self {
        self.open_run = open;
        self
    }

    /// Sets the tool calls that wait for approval.
    #[must_use]
    pub fn with_pending_approvals(mut self, pending: Vec<Vec<ApprovalRequest>>) -> Self {
        self.pending_approvals = pending;
        self
    }

    /// Sets the summary in force.
    #[must_use]
    pub fn with_summary(mut self, summary: Option<SummaryInForce>) -> Self {
        self.summary = summary;
        self
    }

    /// Sets the number of rewrites that changed messages.
    #[must_use]
    pub fn with_rewrites(mut self, rewrites: u64) -> Self {
        self.rewrites = rewrites;
        self
    }

    /// Sets the part of the conversation that the next run needs to load.
    #[must_use]
    pub fn with_load_from(mut self, from: Option<Arc<LoadFrom>>) -> Self {
        self.load_from = from;
        self
    }
}

/// A conversation with the messages that are visible to readers, oldest first. The history contains
/// all of these messages, unless it was loaded with
/// [`HistoryStore::load_from`](super::HistoryStore::load_from).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct History {
    /// The state of the conversation.
    pub head: Head,
    /// The visible messages after the [skipped](Self::skipped) ones. Every message has an
    /// [`id`](crate::Message::id).
    pub messages: Messages,
    /// The messages at the beginning of the conversation that [`LoadFrom::leading`] selects. Empty
    /// if all messages were loaded, because `messages` then contains them.
    pub leading: Messages,
    /// The number of stored messages before the first of `messages`.
    not_loaded: u64,
    memo: HistoryMemo,
    prefix: WellFormedPrefix,
    run_order: RunOrder,
}

impl History {
    /// Creates the history of a conversation that was never written.
    pub fn empty() -> Self {
        Self::new(Head::new(Revision::ABSENT), Messages::new())
    }

    /// Creates a history of existing messages without checking them. For such a history,
    /// [`well_formed_messages`](Self::well_formed_messages) returns 0. If there are no messages
    /// yet, the history checks the messages that are added later.
    pub fn new(head: Head, messages: Messages) -> Self {
        let is_beginning = messages.is_empty();
        let (prefix, run_order) = match is_beginning {
            true => (WellFormedPrefix::default(), RunOrder::default()),
            false => (WellFormedPrefix::unknown(), RunOrder::unknown()),
        };
        let (leading, memo) = (Messages::new(), HistoryMemo::default());
        Self { head, messages, leading, not_loaded: 0, memo, prefix, run_order }
    }

    /// Collects the messages that a store reads into a history.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tower_chat_core::{Message, format::{self, FormatError}, store::{Head, History, Revision}};
    /// let head = Head::new(Revision { incarnation: 7, sequence: 1 });
    /// let rows = [r#"{"v":1,"role":"user","parts":[{"text":{"text":"hi"}}]}"#];
    /// let history = History::collect(head, rows.iter().map(|row| format::decode(row).map(Arc::new)))?;
    /// assert_eq!(history.well_formed_messages(), 1);
    /// # Ok::<(), FormatError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the first message that could not be read.
    pub fn collect<E>(
        head: Head,
        messages: impl IntoIterator<Item = Result<Arc<Message>, E>>,
    ) -> Result<Self, E> {
        let (mut prefix, mut run_order) = (WellFormedPrefix::default(), RunOrder::default());
        let messages = messages.into_iter().inspect(|message| {
            if let Ok(message) = message {
                prefix.push(message);
                run_order.push(message);
            }
        });
        let messages = messages.collect::<Result<_, E>>()?;
        let (leading, memo) = (Messages::new(), HistoryMemo::default());
        Ok(Self { head, messages, leading, not_loaded: 0, memo, prefix, run_order })
    }

    /// Sets the sequence number of the last message before `messages`, and the
    /// [leading](Self::leading) messages.
    ///
    /// ```
    /// use tower_chat_core::{Message, Messages, store::{Head, History, Revision}};
    /// let head = Head::new(Revision { incarnation: 7, sequence: 41 });
    /// let history = History::new(head, [Message::user("the last")].into())
    ///     .with_skipped(40, [Message::system("the first")].into());
    /// assert_eq!(history.message(41).map(|message| message.text()), Some("the last".to_owned()));
    /// assert!(!history.is_whole());
    /// ```
    #[must_use]
    pub fn with_skipped(mut self, skipped: u64, leading: Messages) -> Self {
        self.not_loaded = skipped.saturating_sub(self.head.pruned);
        self.leading = leading;
        self
    }

    /// Returns the part of a whole history that `from` selects, for a store that has loaded all
    /// messages. If [`Head::load_from`] is another value, returns the whole history.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tower_chat_core::{Message, store::{Head, History, Revision, author::LoadFrom}};
    /// let from = Arc::new(LoadFrom { leading: 0, after: 2, applies_to: String::new() });
    /// let head = Head::new(Revision { incarnation: 7, sequence: 3 });
    /// let head = head.with_load_from(Some(from.clone()));
    /// let messages = ["one", "two", "three"].map(Message::user);
    /// let history = History::new(head, messages.into());
    /// let range = history.range(&from);
    /// assert_eq!((range.skipped(), range.messages.len()), (2, 1));
    /// ```
    #[must_use]
    pub fn range(&self, from: &LoadFrom) -> Self {
        let is_stored = self.head.load_from.as_deref() == Some(from);
        let first = from.after.checked_sub(self.head.pruned).map(usize::try_from);
        let Some(Ok(first)) = first.filter(|_| is_stored && self.is_whole()) else {
            return self.clone();
        };
        if first > self.messages.len() {
            return self.clone();
        }
        let leading = from.leading.saturating_sub(self.head.pruned);
        let leading = self.messages.take(usize::try_from(leading).unwrap_or(first).min(first));
        let mut range = Self::new(self.head.clone(), Messages::new());
        range.extend(self.messages.iter_from(first).cloned());
        range.with_skipped(from.after, leading)
    }

    /// Returns the sequence number of the last message before `messages`. The messages up to this
    /// number were pruned, or were not loaded.
    pub fn skipped(&self) -> u64 {
        self.head.pruned.saturating_add(self.not_loaded)
    }

    /// Returns whether the history contains all visible messages.
    pub fn is_whole(&self) -> bool {
        self.not_loaded == 0
    }

    /// Returns whether the ids of the runs ascend from message to message. A run id begins with its
    /// creation time.
    pub fn runs_ascend(&self) -> bool {
        self.run_order.is_ascending()
    }

    /// Returns how many messages at the beginning of the history were found to be valid for every
    /// provider: each call has a unique id and is answered once, in order, directly after its
    /// message. A reader need not check these messages again.
    ///
    /// The number is determined while a store [reads](Self::collect) the messages, and while writes
    /// are [applied](Self::apply). This method only returns the number. A history that was
    /// [created](Self::new) from existing messages returns 0.
    pub fn well_formed_messages(&self) -> usize {
        self.prefix.messages()
    }

    /// Returns the number of messages up to and including the last message of a run; `None` if the
    /// history contains no message of the run.
    ///
    /// This method uses binary search if the run ids of the history ascend, and otherwise scans the
    /// messages.
    ///
    /// ```
    /// use tower_chat_core::{Message, MessageId, RunId, store::{Head, History, Revision}};
    /// let run = RunId::new();
    /// let mut message = Message::user("hi");
    /// message.id = Some(MessageId { run, index: 0 });
    /// let head = Head::new(Revision { incarnation: 7, sequence: 1 });
    /// let history = History::new(head, [message].into());
    /// assert_eq!(history.end_of_run(run), Some(1));
    /// assert_eq!(history.end_of_run(RunId::new()), None);
    /// ```
    pub fn end_of_run(&self, run: RunId) -> Option<usize> {
        self.run_order.end_of(run, &self.messages)
    }

    /// Sets the memo that belongs to the messages.
    #[must_use]
    pub fn with_memo(mut self, memo: HistoryMemo) -> Self {
        self.memo = memo;
        self
    }

    /// Returns the memo, which contains a value that an earlier reader derived from the messages.
    pub fn memo(&self) -> &HistoryMemo {
        &self.memo
    }

    /// Iterates over the messages with their sequence numbers, which begin after those of the
    /// [skipped](Self::skipped) messages.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &Arc<Message>)> {
        let first = self.skipped().saturating_add(1);
        let messages = self.messages.iter().enumerate();
        messages.map(move |(position, message)| (first.saturating_add(position as u64), message))
    }

    /// Returns the message with a sequence number; `None` if it was pruned or not loaded, or does
    /// not exist.
    ///
    /// ```
    /// use tower_chat_core::{Message, store::{Head, History, Revision}};
    /// let head = Head::new(Revision { incarnation: 7, sequence: 3 }).with_pruned(2);
    /// let history = History::new(head, [Message::user("the third")].into());
    /// assert_eq!(history.message(3).map(|message| message.text()), Some("the third".to_owned()));
    /// assert!(history.message(1).is_none());
    /// ```
    pub fn message(&self, sequence: u64) -> Option<&Arc<Message>> {
        let position = sequence.checked_sub(self.skipped())?.checked_sub(1)?;
        self.messages.get(usize::try_from(position).ok()?)
    }

    /// Applies a write to the history. The write must not be staged: staged messages are not part
    /// of the history.
    pub fn apply(&mut self, write: &Write) {
        self.extend(write.messages().iter().cloned());
        self.head.advance(&Changes::of(&self.head, write));
    }

    /// Adds messages that become visible to readers, such as those of a committed run. The head is
    /// not changed.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = Arc<Message>>) {
        let (prefix, run_order) = (&mut self.prefix, &mut self.run_order);
        self.messages.extend(messages.into_iter().inspect(|message| {
            prefix.push(message);
            run_order.push(message);
        }));
    }
}

/// A value that a reader derives from a history and stores with the history, so that the next
/// reader need not compute the value again.
///
/// A store that caches histories in memory has one memo per incarnation of a conversation, and
/// returns it with every load. Other stores return an empty memo. Appending messages does not clear
/// the memo. The value must therefore record from which messages it was derived.
#[derive(Clone, Default)]
pub struct HistoryMemo(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl HistoryMemo {
    /// Returns the value; `None` if the memo contains no value, or a value of another type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept?.downcast().ok()
    }

    /// Replaces the value.
    pub fn set<T: Any + Send + Sync>(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(value));
    }

    /// Returns whether another clone of the memo exists, for example in a store that caches the
    /// history in memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for HistoryMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistoryMemo")
    }
}
