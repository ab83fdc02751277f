//! Reads the state of an open run: a journaled run that was neither committed nor discarded. Its
//! staged messages are stored, but are not yet part of the history.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Message, Messages,
    store::{
        HistoryStore, OpenRun, StoreError,
        author::{OpenRunContent, RecordedResult, ToolRecord},
    },
};

use super::close::journal;
use crate::PersistenceMode;

/// The state of an open run.
///
/// ```
/// use tower_chat::{prelude::*, recovery::open_run};
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Step::error("the model is overloaded"), Step::text("Done.")]);
/// # let store = MemoryStore::new();
/// # let mut agent = ChatPipeline::builder(model)
/// #     .history(store.clone())
/// #     .persistence(PersistenceMode::Journaled)
/// #     .build()?;
/// # let key = ConversationKey::new("alice", "travel");
/// # let request = ChatRequest::user("Book seat 7.").in_conversation(key.clone());
/// # assert!(agent.ready().await?.call(request).await.is_err());
/// let Some(report) = open_run(&store, &key).await? else { panic!("no run is open") };
/// assert_eq!((report.messages.len(), report.calls.len()), (1, 0)); // the input is staged
///
/// let answer = agent.ready().await?.call(report.resume()).await?.collect().await?;
/// assert_eq!(answer.text(), "Done.");
/// assert_eq!(store.load(&key).await?.messages.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenRunReport {
    /// The conversation.
    pub key: ConversationKey,
    /// The run, its lease (the time until which no other process may take over the run), and the
    /// time at which the run was opened.
    pub open: OpenRun,
    /// The staged messages of the run, from the oldest to the newest.
    pub messages: Vec<Arc<Message>>,
    /// The tool calls of the run, in order.
    pub calls: Vec<ReportedCall>,
}

/// A tool call of an open run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedCall {
    /// The name of the tool.
    pub tool: String,
    /// The id of the call in the messages that the model receives.
    pub call_id: String,
    /// The state of the call.
    pub state: CallState,
    /// The time at which the call was started, or `None` if it was not started.
    pub started_at: Option<SystemTime>,
}

/// The extension of a request that only resumes an open run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResumesRun {
    /// The maximum time for which the run waits for another process's lease. `None` for the
    /// policies of the stack.
    pub(crate) lease_wait: Option<Duration>,
}

/// The state of a tool call of an open run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// The call has run, and its result is staged.
    Done,
    /// The call has run and failed, and its result is staged.
    Failed,
    /// The call was not started.
    NeverStarted,
    /// The call was started, and its outcome was not stored. The call may or may not have run.
    Unknown,
}

/// Returns the open run of a conversation, or `None` if no run is open.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::{ConversationKey, MemoryStore, recovery::open_run};
/// let key = ConversationKey::new("alice", "support");
/// assert!(open_run(&MemoryStore::new(), &key).await?.is_none());
/// # Ok::<(), tower_chat::store::StoreError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read.
pub async fn open_run(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
) -> Result<Option<OpenRunReport>, StoreError> {
    let Some(content) = journal(store)?.open_run(key).await? else { return Ok(None) };
    let OpenRunContent { open, messages, tools, .. } = content;
    let calls = tools.into_iter().map(|row| ReportedCall {
        state: CallState::of(&row),
        tool: row.name,
        call_id: row.call_id,
        started_at: row.started_at,
    });
    Ok(Some(OpenRunReport { key: key.clone(), open, messages, calls: calls.collect() }))
}

impl OpenRunReport {
    /// Returns a request that resumes the run when it is sent through the stack. The journal does
    /// not store the options of a run, so the caller must add the options that the run needs.
    ///
    /// If the run was committed before the request is sent, the response contains the stored
    /// answer. If the run was discarded, the request fails with
    /// [`PersistenceError::RunGone`](crate::PersistenceError::RunGone). In both cases the model is
    /// not called.
    pub fn resume(&self) -> ChatRequest {
        let conversation = Conversation { key: self.key.clone(), run: self.open.run };
        ChatRequest::new(Messages::new())
            .with_extension(conversation)
            .with_extension(PersistenceMode::Journaled)
            .with_extension(ResumesRun::default())
    }
}

impl CallState {
    /// Returns the state of a call from its row in the record of tool calls.
    pub fn of(row: &ToolRecord) -> Self {
        use tower_chat_core::ToolStatus;
        match &row.result {
            RecordedResult::Apart(_) | RecordedResult::InMessage(_) => match row.status {
                ToolStatus::Ok => Self::Done,
                _ => Self::Failed,
            },
            RecordedResult::None if row.started_at.is_some() => Self::Unknown,
            RecordedResult::None => Self::NeverStarted,
        }
    }
}
