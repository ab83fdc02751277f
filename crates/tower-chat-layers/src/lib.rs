//! Tower layers that make LLM conversations durable and always valid to replay.

#![warn(clippy::too_many_lines)]

pub mod adapt;
mod approval;
mod clock;
mod ending;
mod error;
mod future;
mod layers_below;
mod next_step;
mod pending_results;
mod per_run;
mod per_service_call;
mod pipeline;
mod policy;
pub mod recovery;
mod refusal;
pub mod replay;
pub mod run;
pub mod telemetry;
pub mod tool;
pub mod tool_loop;
pub mod transcript;
mod utc;
pub mod validate;
mod yielding;

/// What `#[tool]` expands to.
#[doc(hidden)]
pub mod __macro {
    pub use schemars;
    pub use serde;
}

pub use tower_chat_core::{
    Answer, ApprovalRequest, ApprovalResponse, BoxError, CallPosition, ChatOptions, ChatRequest,
    ChatResponse, ChatUpdate, Conversation, ConversationId, ConversationKey, EndedBy, ErrorPart,
    ExactNumbers, Finish, FinishReason, Media, MediaSource, MemoryStore, Message, MessageId,
    Messages, Native, ParseIdError, ParseToolStatusError, Part, RawJson, Reasoning, RecoveredRun,
    Retryability, Role, RunHandle, RunId, Saved, SentinelAtClient, SharedError, Text, ToolCall,
    ToolCallDelta, ToolChoice, ToolDefinition, ToolInvocation, ToolResult, ToolStatus,
    TruncatedStream, Usage, format, is_retryable, register_error, store,
};

pub use self::{
    clock::Clock,
    error::{NotStored, PersistenceError},
    future::ResponseFuture,
    pending_results::pending_results,
    per_run::{PerRunPersistence, PerRunPersistenceService},
    per_service_call::{PerServiceCallPersistence, PerServiceCallPersistenceService},
    pipeline::{BuildError, ChatPipeline, ChatPipelineBuilder, DeadlineExceeded, ModelClient},
    policy::{
        ConcurrentRuns, ConflictPolicy, MissingPersister, PersistenceMode, PersistencePolicy,
        StoreFailure, UnansweredInputs,
    },
    tool::{Json, Tool, ToolContext, ToolError, ToolOutput, ToolSource, Tools, TypedTool, tool_fn},
    tool_loop::{ToolLoop, ToolLoopError},
    transcript::RepeatedTranscript,
};
