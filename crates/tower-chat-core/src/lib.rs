//! The vocabulary of `tower-chat`: messages, requests, responses, and the [`HistoryStore`] trait.
//!
//! Store authors and model client authors need only this crate. Everybody else uses `tower-chat`,
//! which re-exports it.
//!
//! [`HistoryStore`]: store::HistoryStore

mod conversation_id;
mod exact_numbers;
pub mod format;
mod key;
mod memory_store;
mod message;
mod messages;
mod metadata;
mod native;
mod options;
pub mod pairing;
mod part;
mod request;
mod response;
mod retryability;
mod run_handle;
mod run_order;
mod shared_error;
pub mod store;
pub mod telemetry;
mod tool_invocation;
mod well_formed;

/// Any error, as tower services pass them on.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub use self::{
    conversation_id::ConversationId,
    exact_numbers::ExactNumbers,
    key::{CallPosition, Conversation, ConversationKey, MessageId, ParseIdError, RunId},
    memory_store::MemoryStore,
    message::{Message, Role},
    messages::Messages,
    native::{Native, RawJson},
    options::{ChatOptions, ToolChoice, ToolDefinition},
    part::{
        ApprovalRequest, ApprovalResponse, ErrorPart, Media, MediaSource, Part, Reasoning, Text,
        ToolCall, ToolResult,
    },
    request::{ChatRequest, SentinelAtClient},
    response::{
        Answer, ChatResponse, ChatUpdate, EndedBy, Finish, FinishReason, RecoveredRun, Saved,
        ToolCallDelta, TruncatedStream, Usage,
    },
    retryability::{Retryability, is_retryable, register_error},
    run_handle::RunHandle,
    shared_error::SharedError,
    tool_invocation::{ParseToolStatusError, ToolInvocation, ToolStatus},
};
