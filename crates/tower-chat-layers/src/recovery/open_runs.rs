//! How far an open run came.

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

use crate::PersistenceMode;

/// An open run and how far it came.
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
/// assert_eq!((report.messages.len(), report.calls.len()), (1, 0)); // its input is staged
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
    /// The run, who holds it, and since when it is open.
    pub open: OpenRun,
    /// What is staged of it, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// Its tool calls, in order.
    pub calls: Vec<ReportedCall>,
}

/// A tool call of an open run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedCall {
    /// The tool.
    pub tool: String,
    /// The id by which the model knows the call.
    pub call_id: String,
    /// How it stands.
    pub state: CallState,
    /// When it was started, if it was.
    pub started_at: Option<SystemTime>,
}

/// A request extension: there is nothing to do but what an open run has left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResumesRun {
    /// How long the run waits for the lease of another process to end, if the request says so.
    pub(crate) lease_wait: Option<Duration>,
}

/// How a tool call of an open run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallState {
    /// It has run; its result is staged.
    Done,
    /// It has run and failed; its result is staged.
    Failed,
    /// It was not started.
    NeverStarted,
    /// It was started, and nobody knows what came out: it may or may not have run.
    Unknown,
}

/// The open run of a conversation; `None` if there is none.
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
/// If the store cannot be read.
pub async fn open_run(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
) -> Result<Option<OpenRunReport>, StoreError> {
    let Some(content) = store.open_run(key).await? else { return Ok(None) };
    let OpenRunContent { open, messages, tools, .. } = content;
    let calls = tools.iter().map(ReportedCall::of).collect();
    Ok(Some(OpenRunReport { key: key.clone(), open, messages, calls }))
}

impl OpenRunReport {
    /// A request that resumes the run, to be sent through the stack with the options it needs: the
    /// journal does not keep them.
    ///
    /// If the run has come to its end meanwhile, the answer is the stored one; if it was discarded,
    /// the request fails with [`PersistenceError::RunGone`](crate::PersistenceError::RunGone). The
    /// model is called in neither case.
    pub fn resume(&self) -> ChatRequest {
        let conversation = Conversation { key: self.key.clone(), run: self.open.run };
        ChatRequest::new(Messages::new())
            .with_extension(conversation)
            .with_extension(PersistenceMode::Journaled)
            .with_extension(ResumesRun::default())
    }
}

impl ReportedCall {
    fn of(row: &ToolRecord) -> Self {
        Self {
            tool: row.name.clone(),
            call_id: row.call_id.clone(),
            state: CallState::of(row),
            started_at: row.started_at,
        }
    }
}

impl CallState {
    /// How a call stands by its row of the record.
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
