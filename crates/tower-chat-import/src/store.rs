//! Writes imported conversations to a history store.

use std::{ops::Range, sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, Role, RunId,
    store::{
        Description, DescriptionPatch, Directory, History, HistoryStore, ModelUsage, Revision,
        RunActivity, StoreError, UsageSum,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_repair::extract;

use crate::ImportedConversation;

/// The maximum number of writes, of one run each, that are submitted at once.
const RUNS_OF_A_SUBMISSION: usize = 64;

/// The result of [`store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportOutcome {
    /// The conversation did not exist, and was stored.
    Written,
    /// The first `from` messages were already stored. The other messages were appended.
    Extended {
        /// The number of messages that were already stored.
        from: u64,
    },
    /// Nothing was written, because all messages were already stored. The stored conversation may
    /// contain further messages, if it was continued after an earlier import. `Unchanged` is also
    /// the outcome for a conversation without messages.
    Unchanged,
}

/// The error of storing a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The store contains a different conversation under the key. Nothing was written.
    #[error(
        "conversation {key} differs from the import in message {message}, and nothing was written: import it with \
         another id"
    )]
    Differs {
        /// The conversation.
        key: ConversationKey,
        /// The sequence number of the first message that differs, from 1.
        message: u64,
    },
    /// The store has failed, or another process has written to the conversation. The first messages
    /// of the conversation may have been stored. Importing the conversation again stores the
    /// remaining messages.
    #[error(
        "conversation {key} cannot be stored completely: import it again to store the remaining messages"
    )]
    Store {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
}

/// Stores a conversation under a key. Requests can then continue the conversation.
///
/// If the key has a stored conversation, its messages are compared with those of `conversation` by
/// role, author, content and metadata. Ids and times are not compared. Messages that are not stored
/// yet are appended. If all messages are stored, nothing is written, even if the stored
/// conversation was continued. If a message differs, the function writes nothing and returns
/// [`ImportError::Differs`]. The function can therefore be called again for the same conversation.
///
/// A run consists of consecutive messages of the user and all messages up to the next message of
/// the user. System messages count as messages of the user. The run begins at the time of its first
/// message, and was last written at the time of its last message that has a time. If the times are
/// missing in the first run, the time at which the conversation began is used. Tool calls are added
/// to the record of tool calls, which has one row for each call. If the conversation is new, its
/// title is stored after the messages.
///
/// # Errors
///
/// Fails with [`ImportError`] if the stored conversation differs, if the store fails, or if another
/// process writes to the conversation.
///
/// # Cancellation
///
/// If the future is dropped, writes that were submitted are still stored. Call the function again
/// to store the remaining messages.
pub async fn store(
    history: &dyn HistoryStore,
    key: &ConversationKey,
    conversation: &ImportedConversation,
) -> Result<ImportOutcome, ImportError> {
    let failed = |source| ImportError::Store { key: key.clone(), source };
    let (outcome, revision) = compared(history, key, conversation).await?;
    let from = match outcome {
        ImportOutcome::Unchanged => return Ok(outcome),
        ImportOutcome::Written => 0,
        ImportOutcome::Extended { from } => from,
    };
    let writes = writes(key, conversation, from, revision);
    for batch in writes.chunks(RUNS_OF_A_SUBMISSION) {
        let slot = history.reserve().await.map_err(failed)?;
        let appended = history.append(slot, batch.to_vec()).await;
        appended.map_err(|error| failed(error.source))?;
    }
    if let (ImportOutcome::Written, Some(title)) = (outcome, &conversation.title) {
        describe(history, key, title).await.map_err(failed)?;
    }
    Ok(outcome)
}

/// Returns the outcome that [`store`] would return, without writing anything.
///
/// ```
/// use std::path::Path;
/// use tower_chat::{
///     ConversationKey, HistoryStore,
///     import::{Format, ImportError, ImportOutcome, compare, read},
/// };
///
/// /// Returns how many conversations of a file are not stored or incomplete.
/// async fn missing(history: &dyn HistoryStore, file: &Path) -> Result<usize, tower_chat::BoxError> {
///     let mut missing = 0;
///     for conversation in read(Format::LangGraph, file)? {
///         let key = ConversationKey::new("alice", &*conversation.id);
///         missing += match compare(history, &key, &conversation).await? {
///             ImportOutcome::Unchanged => 0,
///             _ => 1,
///         };
///     }
///     Ok(missing)
/// }
/// ```
///
/// # Errors
///
/// Fails if the stored conversation differs, or if the store cannot read it.
pub async fn compare(
    history: &dyn HistoryStore,
    key: &ConversationKey,
    conversation: &ImportedConversation,
) -> Result<ImportOutcome, ImportError> {
    compared(history, key, conversation).await.map(|(outcome, _)| outcome)
}

/// Returns the outcome of storing a conversation, and the revision of the stored one.
async fn compared(
    history: &dyn HistoryStore,
    key: &ConversationKey,
    conversation: &ImportedConversation,
) -> Result<(ImportOutcome, Revision), ImportError> {
    let stored = history.load(key).await;
    let stored = stored.map_err(|source| ImportError::Store { key: key.clone(), source })?;
    if let Some(message) = first_difference(&stored, &conversation.messages) {
        return Err(ImportError::Differs { key: key.clone(), message });
    }
    let from = stored.head.pruned.saturating_add(stored.messages.len() as u64);
    let outcome = match from {
        from if from >= conversation.messages.len() as u64 => ImportOutcome::Unchanged,
        0 if stored.head.revision == Revision::ABSENT => ImportOutcome::Written,
        from => ImportOutcome::Extended { from },
    };
    Ok((outcome, stored.head.revision))
}

/// Sets the title of the conversation, shortened if it is too long for a description.
async fn describe(
    history: &dyn HistoryStore,
    key: &ConversationKey,
    title: &str,
) -> Result<(), StoreError> {
    let longest = title.len().min(Description::TITLE_LIMIT);
    let end = (0..=longest).rev().find(|end| title.is_char_boundary(*end));
    let patch = DescriptionPatch::new().with_title(&title[..end.unwrap_or_default()]);
    match history.change_description(key, &patch).await {
        Ok(_) | Err(StoreError::MissingCapability { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the number of the first stored message that differs from the imported message.
fn first_difference(stored: &History, imported: &[Message]) -> Option<u64> {
    let different = stored.numbered().find(|(number, message)| {
        let index = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        imported.get(index).is_some_and(|imported| !is_same(message, imported))
    });
    different.map(|(number, _)| number)
}

/// Returns whether two messages have the same role, author, parts and metadata.
fn is_same(one: &Message, other: &Message) -> bool {
    (one.role, &one.author, &one.parts, &one.metadata)
        == (other.role, &other.author, &other.parts, &other.metadata)
}

/// Returns the writes for all messages after the first `from` messages, one for each run.
/// `expected` is the revision of the stored conversation: the store refuses the writes if another
/// process has changed the conversation since.
fn writes(
    key: &ConversationKey,
    conversation: &ImportedConversation,
    from: u64,
    mut expected: Revision,
) -> Vec<Write> {
    let all: Messages = conversation.messages.iter().cloned().collect();
    let mut records = extract(&all, 1, 0);
    records.sort_by_key(last_position);
    let mut records = records.into_iter().peekable();
    while records.next_if(|record| last_position(record) <= from).is_some() {}
    let first = usize::try_from(from).unwrap_or(usize::MAX);
    let runs = runs(&conversation.messages, first);
    let runs = runs.into_iter().map(|run| {
        let messages = conversation.messages.get(run.clone()).unwrap_or_default();
        let mut of_run = Vec::new();
        while let Some(record) = records.next_if(|record| last_position(record) <= run.end as u64) {
            of_run.push(record);
        }
        let begun = conversation.created_at.filter(|_| run.start == 0);
        let write = write_of(key, messages, of_run, expected, begun);
        expected = write.result();
        write
    });
    runs.collect()
}

fn write_of(
    key: &ConversationKey,
    messages: &[Message],
    records: Vec<ToolRecord>,
    expected: Revision,
    begun: Option<SystemTime>,
) -> Write {
    let time = messages.first().and_then(|message| message.added_at).or(begun);
    let run = time.map_or_else(RunId::new, RunId::at);
    let first = MessageId { run, index: 0 };
    let calls = messages.iter().map(|message| message.asked_calls().count() as u64).sum();
    let shared = messages.iter().cloned().map(Arc::new);
    let write = Write::new(key.clone(), first, expected, shared).with_tools(records);
    match messages.iter().rev().find_map(|message| message.added_at).or(begun) {
        None => write,
        Some(time) => {
            let usage = ModelUsage::new(None, UsageSum::of_calls(0, calls));
            write.with_activity(RunActivity::new(time).with_usage([usage]))
        }
    }
}

/// Returns the sequence number of the later of two messages: the one with the call of a row, and
/// the one with its result. The row is written with this message, because a row must not refer to a
/// message that is not stored yet.
fn last_position(record: &ToolRecord) -> u64 {
    let call = record.call.sequence;
    match &record.result {
        RecordedResult::InMessage(result) => call.max(result.sequence),
        _ => call,
    }
}

/// Divides the messages from the index `from` on into runs, and returns the indices of each run. A
/// message of the user or a system message begins a run if it follows an answer or a result.
fn runs(messages: &[Message], from: usize) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = from;
    for (index, pair) in messages.windows(2).enumerate() {
        let [before, next] = pair else { continue };
        let index = index.saturating_add(1);
        if index > begin && !is_input(before) && is_input(next) {
            runs.push(begin..index);
            begin = index;
        }
    }
    if begin < messages.len() {
        runs.push(begin..messages.len());
    }
    runs
}

fn is_input(message: &Message) -> bool {
    let is_role = match message.role {
        Role::System | Role::Developer | Role::User => true,
        Role::Assistant | Role::Tool => false,
        _ => false,
    };
    is_role && message.results().next().is_none()
}
