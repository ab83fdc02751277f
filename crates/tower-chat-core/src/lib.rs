//! The messages, requests and responses of `tower-chat`, and the trait [`HistoryStore`]. This crate
//! is for authors of stores and model clients.
//!
//! An application depends on `tower-chat`, which re-exports this crate.
//!
//! ```
//! # futures_util::FutureExt::now_or_never(async {
//! use tower_chat_core::{
//!     ChatRequest, ChatResponse, ConversationKey, Finish, MemoryStore, Message, MessageId,
//!     store::{HistoryStore, Revision, author::Write},
//! };
//!
//! // The core of a model client: it converts a request into a response. A `tower::Service` wraps it.
//! fn echo(request: &ChatRequest) -> ChatResponse {
//!     let last = request.messages().last().map(|message| message.text()).unwrap_or_default();
//!     ChatResponse::whole([Message::assistant(format!("You wrote: {last}"))], Finish::stop())
//! }
//!
//! let key = ConversationKey::new("alice", "support");
//! let request = ChatRequest::user("Hello.").in_conversation(key.clone());
//! let answer = echo(&request).collect().await?;
//! assert_eq!(answer.text(), "You wrote: Hello.");
//!
//! // The core of a store: it appends messages if the conversation is at the expected revision.
//! let store = MemoryStore::new();
//! let run = request.conversation().ok_or("the request names no conversation")?.run;
//! let messages = request.messages().iter().chain(&answer.messages).cloned();
//! let first = MessageId { run, index: 0 };
//! let write = Write::new(key.clone(), first, Revision::ABSENT, messages);
//! store.append(store.reserve().await?, vec![write]).await?;
//! assert_eq!(store.load(&key).await?.messages.len(), 2);
//! # Ok::<(), tower_chat_core::BoxError>(())
//! # }).unwrap().unwrap();
//! ```
//!
//! - To write a model client, use [`ChatRequest`], [`ChatResponse`] and [`ChatUpdate`].
//!   `tower-chat-wire` has the formats of the providers.
//! - To write a store, use [`HistoryStore`] and the module [`store::author`]. `tower-chat-testkit`
//!   has the tests of the contract that every store fulfils.
//! - To write a layer, use the crate `tower-chat-layers`, which also has the types of runs and
//!   tools.
//!
//! [`HistoryStore`]: store::HistoryStore

mod approval;
mod branch;
mod cache_key;
mod counted;
mod exact_numbers;
pub mod format;
mod history_lost;
mod history_owner;
mod inner_service;
mod key;
mod memory_store;
mod message;
mod messages;
mod metadata;
mod native;
mod options;
pub mod pairing;
mod part;
mod persistence_mode;
mod refused_content;
mod request;
mod response;
mod retryability;
mod run_handle;
mod run_order;
mod shared_error;
pub mod store;
mod sync;
pub mod telemetry;
mod tool_invocation;
mod unique_keys;
mod visible_text;
mod well_formed;

/// A boxed error of any type, as in tower.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub use self::{
    approval::{ApprovalRequest, ApprovalResponse},
    branch::BranchError,
    cache_key::CacheKey,
    exact_numbers::ExactNumbers,
    history_lost::{HistoryLost, is_history_lost},
    history_owner::HistoryOwner,
    key::{CallPosition, Conversation, ConversationKey, MessageId, ParseIdError, RunId},
    memory_store::MemoryStore,
    message::{Message, Role},
    messages::Messages,
    native::{Native, RawJson},
    options::{ChatOptions, ToolChoice, ToolDefinition},
    part::{ErrorPart, Media, MediaSource, Part, Reasoning, Text, ToolCall, ToolResult},
    persistence_mode::{ParsePersistenceModeError, PersistenceMode},
    refused_content::{ContentKind, ContentRefused, RefusalMark, RefusalMarks, content_refused},
    request::{ChatRequest, SentinelAtClient},
    response::{
        Answer, Change, ChangeKind, ChatResponse, ChatUpdate, EndedBy, Finish, FinishReason,
        RecoveredRun, Saved, ToolCallDelta, TruncatedStream, Usage,
    },
    retryability::{Classified, Retryability, is_retryable, is_verdict},
    run_handle::RunHandle,
    shared_error::SharedError,
    tool_invocation::{ParseToolStatusError, ToolInvocation, ToolStatus},
    unique_keys::check_unique_keys,
    visible_text::{VisiblePieces, visible_json, visible_text},
};
