//! What comes out of a store.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::{OpenRun, Revision, ServiceIdChange, author::Write};
use crate::{
    ApprovalRequest, Message, Messages, RunId, run_order::RunOrder, well_formed::WellFormedPrefix,
};

/// A conversation without its messages.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Head {
    /// What a write must expect. It counts the messages of an open run too.
    pub revision: Revision,
    /// How many messages were pruned: the first that is left has the number after that.
    pub pruned: u64,
    /// The id under which the service keeps the history, if it does.
    pub service_id: Option<Arc<str>>,
    /// The run that was staged and neither committed nor discarded.
    pub open_run: Option<OpenRun>,
    /// The tool calls of the history that wait for approval, as its record says; those
    /// of one answer together, in order. An answer may be several messages.
    pub pending_approvals: Vec<Vec<ApprovalRequest>>,
}

impl Head {
    /// The head of a conversation at a revision, kept here alone.
    pub fn new(revision: Revision) -> Self {
        Self {
            revision,
            pruned: 0,
            service_id: None,
            open_run: None,
            pending_approvals: Vec::new(),
        }
    }

    /// Says how many messages were pruned.
    #[must_use]
    pub fn with_pruned(mut self, pruned: u64) -> Self {
        self.pruned = pruned;
        self
    }

    /// Adds the service's id.
    #[must_use]
    pub fn with_service_id(mut self, id: Option<Arc<str>>) -> Self {
        self.service_id = id;
        self
    }

    /// Adds the open run.
    #[must_use]
    pub fn with_open_run(mut self, open: Option<OpenRun>) -> Self {
        self.open_run = open;
        self
    }

    /// Adds the tool calls that wait for approval.
    #[must_use]
    pub fn with_pending_approvals(mut self, pending: Vec<Vec<ApprovalRequest>>) -> Self {
        self.pending_approvals = pending;
        self
    }
}

/// A conversation with all its messages that readers see, oldest first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct History {
    /// Revision and service id.
    pub head: Head,
    /// Every message, with its [`id`](crate::Message::id) set.
    pub messages: Messages,
    memo: HistoryMemo,
    prefix: WellFormedPrefix,
    run_order: RunOrder,
}

impl History {
    /// The history of a conversation that was never written.
    pub fn empty() -> Self {
        Self::new(Head::new(Revision::ABSENT), Messages::new())
    }

    /// A history with nothing known about it.
    pub fn new(head: Head, messages: Messages) -> Self {
        let is_beginning = messages.is_empty();
        let (prefix, run_order) = match is_beginning {
            true => (WellFormedPrefix::default(), RunOrder::default()),
            false => (WellFormedPrefix::unknown(), RunOrder::unknown()),
        };
        Self { head, messages, memo: HistoryMemo::default(), prefix, run_order }
    }

    /// The history of messages as a store reads them, one after the other.
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
    /// That of the first message which could not be read.
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
        Ok(Self { head, messages, memo: HistoryMemo::default(), prefix, run_order })
    }

    /// How many of the first messages are known to stand as every provider wants them: each call
    /// has an id of its own and is answered once, in order, right after its message. A reader need
    /// not look at them again to know.
    ///
    /// It is found out as a store [reads](Self::collect) the messages and as writes are
    /// [applied](Self::apply), at no cost to its readers; a history [made](Self::new) of messages
    /// knows nothing.
    pub fn well_formed_messages(&self) -> usize {
        self.prefix.messages()
    }

    /// How many messages stand up to the last one of a run; `None` if the history has none of it.
    ///
    /// The run is found whatever the clocks said that made the ids: by binary search while the runs
    /// stand in the order of their ids, else by looking at every message.
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

    /// Adds the memo that belongs to the messages.
    #[must_use]
    pub fn with_memo(mut self, memo: HistoryMemo) -> Self {
        self.memo = memo;
        self
    }

    /// What readers derived from the messages, kept for the next reader.
    pub fn memo(&self) -> &HistoryMemo {
        &self.memo
    }

    /// The messages with their numbers in the conversation, which begin after those that were
    /// pruned.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &Arc<Message>)> {
        let first = self.head.pruned.saturating_add(1);
        let messages = self.messages.iter().enumerate();
        messages.map(move |(position, message)| (first.saturating_add(position as u64), message))
    }

    /// The message with a number; `None` if it was pruned, or is not there yet.
    ///
    /// ```
    /// use tower_chat_core::{Message, store::{Head, History, Revision}};
    /// let head = Head::new(Revision { incarnation: 7, sequence: 3 }).with_pruned(2);
    /// let history = History::new(head, [Message::user("the third")].into());
    /// assert_eq!(history.message(3).map(|message| message.text()), Some("the third".to_owned()));
    /// assert!(history.message(1).is_none());
    /// ```
    pub fn message(&self, sequence: u64) -> Option<&Arc<Message>> {
        let position = sequence.checked_sub(self.head.pruned)?.checked_sub(1)?;
        self.messages.get(usize::try_from(position).ok()?)
    }

    /// The history as it will be once a write is stored. It must be visible: what a staged write
    /// adds is no part of the history.
    pub fn apply(&mut self, write: &Write) {
        self.extend(write.messages().iter().cloned());
        self.head.revision = write.result();
        match write.service_id() {
            Some(ServiceIdChange::Set(id)) => self.head.service_id = Some(id.clone()),
            Some(ServiceIdChange::Clear) => self.head.service_id = None,
            None => {}
        }
    }

    /// Adds messages that readers see from now on, such as those of a run that was committed. The
    /// head stays as it is.
    pub fn extend(&mut self, messages: impl IntoIterator<Item = Arc<Message>>) {
        let (prefix, run_order) = (&mut self.prefix, &mut self.run_order);
        self.messages.extend(messages.into_iter().inspect(|message| {
            prefix.push(message);
            run_order.push(message);
        }));
    }
}

/// Something derived from a history, kept beside it so that the next reader need not derive it
/// again.
///
/// A store that keeps histories in memory keeps one memo per incarnation of a conversation and
/// returns it with every load; others return a fresh one. Appending leaves a memo in place: what
/// is in it says itself which messages it covers.
#[derive(Clone, Default)]
pub struct HistoryMemo(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl HistoryMemo {
    /// What was kept, if it has this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        kept?.downcast().ok()
    }

    /// Replaces the value.
    pub fn set<T: Any + Send + Sync>(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(value));
    }

    /// Whether somebody else has the memo too, such as a store that keeps the history in memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for HistoryMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HistoryMemo")
    }
}
