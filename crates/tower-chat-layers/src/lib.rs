//! Tower layers that make conversations with language models durable, and always valid to replay.
//! Authors of layers and integrations depend on this crate.
//!
//! Applications depend on `tower-chat`, which re-exports this crate, the stores and the model
//! clients. The examples in this documentation use `tower_chat`.
//!
//! ```
//! use tower::{Service, ServiceBuilder, ServiceExt};
//! use tower_chat::{
//!     BoxError, ChatRequest, ConversationKey, HistoryStore, MemoryStore, PersistenceMode,
//!     Tools,
//!     layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
//! };
//! # use tower_chat_testkit::{ScriptedModel, Step};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::new([Step::text("Take a coat.")]);
//!
//! let store = MemoryStore::new();
//! let mut stack = ServiceBuilder::new()
//!     .layer(PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall))
//!     .layer(ToolLoopLayer::new(Tools::new()))
//!     .layer(PerServiceCallPersistence::new(store.clone()))
//!     .service(model);
//!
//! let key = ConversationKey::new("alice", "wardrobe");
//! let request = ChatRequest::user("What should I wear?").in_conversation(key.clone());
//! let answer = stack.ready().await?.call(request).await?.collect().await?;
//! assert_eq!(answer.text(), "Take a coat.");
//! assert_eq!(store.load(&key).await?.messages.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # The stack
//!
//! ```text
//! PerRunPersistence               opens and closes the run; in per-run mode it writes
//!   ToolLoop                      calls the model, runs the tools, calls again
//!     PerServiceCallPersistence   in per-service-call mode it writes, after every call
//!       retry, timeout, cache     ordinary tower layers
//!         model client            sends requests to a provider
//! ```
//!
//! [`ChatPipeline::builder`] builds this stack. This table lists where to begin:
//!
//! | task | module or type |
//! |---|---|
//! | write a tool | [`tool`] |
//! | choose when messages become durable | [`PersistenceMode`], [`PersistencePolicy`] |
//! | choose which part of a stored history the model receives | [`replay`] |
//! | end or resume runs that a crash has left open | [`recovery`] |
//! | use the stack with a client that has other types | [`adapt`] |
//! | write a layer between the layers of the stack | [`run`] |

#![warn(clippy::too_many_lines)]

pub mod adapt;
mod approval;
mod chat_service;
mod clock;
mod ending;
mod error;
mod future;
pub mod idle_timeout;
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
mod summarize;
pub mod telemetry;
pub mod tool;
pub mod tool_loop;
pub mod transcript;
mod utc;
pub mod validate;
mod wait_without_permit;
mod yielding;

/// The items that the expansion of `#[tool]` uses, and a macro for the services of layers.
#[doc(hidden)]
pub mod __macro {
    pub use schemars;
    pub use serde;
    pub use tower_chat_core::__inner_service_accessors as inner_service_accessors;

    pub use crate::tool::returned::{
        AsItIs, AsJson, JsonReturned, OfResult, OfValue, Returned, ToolFailure, ToolState,
        ValueReturned, is_state,
    };
}

pub use tower_chat_core::{
    Answer, ApprovalRequest, ApprovalResponse, BoxError, BranchError, CacheKey, CallPosition,
    Change, ChangeKind, ChatOptions, ChatRequest, ChatResponse, ChatUpdate, Classified,
    ContentKind, ContentRefused, Conversation, ConversationKey, EndedBy, ErrorPart, ExactNumbers,
    Finish, FinishReason, HistoryLost, HistoryOwner, Media, MediaSource, MemoryStore, Message,
    MessageId, Messages, Native, ParseIdError, ParsePersistenceModeError, ParseToolStatusError,
    Part, PersistenceMode, RawJson, Reasoning, RecoveredRun, RefusalMark, RefusalMarks,
    Retryability, Role, RunHandle, RunId, Saved, SentinelAtClient, SharedError, Text, ToolCall,
    ToolCallDelta, ToolChoice, ToolDefinition, ToolInvocation, ToolResult, ToolStatus,
    TruncatedStream, Usage, VisiblePieces, check_unique_keys, content_refused, format,
    is_history_lost, is_retryable, is_verdict,
    store::{self, HistoryStore},
    visible_json, visible_text,
};

pub use self::{
    clock::Clock,
    error::{NotStored, PersistenceError},
    future::ResponseFuture,
    pending_results::{pending_results, with_recorded_results},
    per_run::{PerRunPersistence, PerRunPersistenceService},
    per_service_call::{PerServiceCallPersistence, PerServiceCallPersistenceService},
    pipeline::{BuildError, ChatPipeline, ChatPipelineBuilder, DeadlineExceeded, ModelClient},
    policy::{
        ConcurrentRuns, ConflictPolicy, LostHistory, MissingPersister, PersistencePolicy, Price,
        PriceList, RefusedContent, StoreFailure, UnansweredInputs,
    },
    run::refused_content::lift_refusals,
    summarize::Summarize,
    tool::{Json, Tool, ToolContext, ToolError, ToolOutput, ToolSource, Tools, TypedTool, tool_fn},
    tool_loop::{ToolLoopError, ToolLoopLayer},
    transcript::RepeatedTranscript,
};
