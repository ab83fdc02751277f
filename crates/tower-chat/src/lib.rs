//! Durable conversations for programs that call language models through tower: stores for
//! histories, layers that write them, a tool loop, and model clients.
//!
//! To answer one question, an agent may call the model and run tools many times. The layers store
//! every answer. Even if the process stops between two calls, the stored history is valid for every
//! provider.
//!
//! ```
//! # fn main() -> Result<(), tower_chat::BoxError> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run()) }
//! # async fn run() -> Result<(), tower_chat::BoxError> {
//! use serde_json::json;
//! use tower_chat::prelude::*;
//!
//! # let model = tower_chat_testkit::ScriptedModel::new([tower_chat_testkit::Step::text("Take a coat.")]);
//! // `model` is any `Service<ChatRequest>` that can be cloned and shared between threads: a client of
//! // the module `providers`, or your own.
//! let weather = tool_fn(
//!     ToolDefinition::new("weather", "The weather in a city.", json!({"type": "object"})),
//!     |_| async { Ok("Rain.") },
//! );
//! let agent = ChatPipeline::builder(model)
//!     .tools(Tools::new().with(weather))
//!     .history(MemoryStore::new())
//!     .persistence(PersistenceMode::PerServiceCall)
//!     .build()?;
//!
//! let key = ConversationKey::new("alice", "wardrobe");
//! let answer = agent.ask(key, "What should I wear?").await?;
//! assert_eq!(answer.text(), "Take a coat.");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | module | contents |
//! |---|---|---|
//! | `sqlite` (default) | `sqlite` | histories in one file |
//! | `postgres`, `redis` | `postgres`, `redis` | histories for many machines; `redis-tls`, `redis-cluster` |
//! | `cache`, `encrypted` | `cache`, `encrypted` | stores that wrap another store |
//! | `providers`, or `anthropic`, `bedrock`, `cohere`, `gemini`, `mistral`, `ollama`, `openai`, `vertex` | `providers` | model clients |
//! | `gzip`, `async-openai` | `providers` | compressed answers; codecs for async-openai's clients |
//! | `structured` | `providers::structured` | answers that are values of a type |
//! | `sigv4` | `providers::auth` | AWS signatures for Bedrock |
//! | `http` | `http` | a pipeline as an endpoint that OpenAI's packages can call |
//! | `inspector` | `inspector` | web pages that show the content of a store |
//! | `mcp` | `mcp` | the tools of an MCP server |
//! | `import` | `import` | imports of histories from other systems |
//! | `transfer` | `transfer` | copies of whole conversations between stores and files; deletion of all data of a user |
//! | `wire` (enabled by every provider) | `wire` | conversion of provider JSON to messages and back, for your own clients and endpoints |
//! | `macros` | | the attribute `#[tool]` |
//!
//! Each of these modules is a separate crate. To write a store or a model client, you only need
//! `tower-chat-core`. To write a layer, you also need `tower-chat-layers`.
//!
//! # Modules
//!
//! The root has the items that every application uses. Every other item is in exactly one module:
//!
//! | module | contents |
//! |---|---|
//! | [`message`], [`request`], [`run`] | the parts of messages; the content of requests and answers; run ids and handles |
//! | [`tool`](mod@tool), [`layer`] | further kinds of tools, and approvals; the layers of a stack without [`ChatPipeline`] |
//! | [`policy`], [`replay`] | the choices of a [`PersistencePolicy`]; the history that a model receives |
//! | [`recovery`], [`transcript`] | the end of interrupted runs; requests that repeat the stored conversation |
//! | [`store`], [`error`], [`telemetry`] | stores and their capabilities; errors; spans and metrics |
//! | [`adapt`], [`validate`] | codecs for clients with their own types; checks of requests |

pub mod prelude;

#[doc(hidden)]
pub use tower_chat_layers::__macro;
pub use tower_chat_layers::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate,
    ConversationKey, Finish, HistoryStore, MemoryStore, Message, Part, PersistenceError,
    PersistenceMode, PersistencePolicy, Role, Tool, ToolCall, ToolContext, ToolDefinition,
    ToolError, ToolResult, Tools, tool_fn,
};
pub use tower_chat_layers::{adapt, recovery, replay, telemetry, transcript, validate};

/// Errors that a program may handle individually, and the functions that return whether a failed
/// request may succeed if it is sent again.
pub mod error {
    pub use tower_chat_layers::{
        BranchError, BuildError, Classified, ContentRefused, DeadlineExceeded, HistoryLost,
        NotStored, ParseIdError, ParsePersistenceModeError, ParseToolStatusError, Retryability,
        SentinelAtClient, SharedError, ToolLoopError, TruncatedStream, content_refused,
        idle_timeout::IdleTimeoutExceeded,
        is_history_lost, is_retryable, is_verdict,
        tool_loop::{CallNotRun, ToolFailure, ToolPanicked, ZeroRounds},
    };
}

/// The layers for a stack without [`ChatPipeline`]: the persistence layers, the tool
/// loop, and a timeout for a response without updates. The documentation of [`tower_chat_layers`]
/// states the order of the layers, and the documentation of [`tower_chat_layers::tool_loop`] the
/// rules of the tool loop.
pub mod layer {
    #[doc(no_inline)]
    pub use futures_core::future::BoxFuture;
    pub use tower_chat_layers::{
        ChatPipelineBuilder, ModelClient, PerRunPersistence, PerRunPersistenceService,
        PerServiceCallPersistence, PerServiceCallPersistenceService, ResponseFuture, ToolLoopLayer,
        idle_timeout::{IdleTimeout, IdleTimeoutLayer},
        tool_loop::ToolLoop,
    };
}

/// The parts of messages, and functions that escape untrusted text for people.
pub mod message {
    pub use tower_chat_layers::{
        ContentKind, ErrorPart, Media, MediaSource, MessageId, Messages, Native, RawJson,
        Reasoning, RefusalMark, RefusalMarks, Text, VisiblePieces, check_unique_keys,
        lift_refusals, visible_json, visible_text,
    };
}

/// The choices of a [`PersistencePolicy`]. The choices for the recovery of journaled runs are in
/// the module [`recovery`], and the choices for the history that a model receives are in
/// [`replay`].
pub mod policy {
    pub use tower_chat_layers::{
        ConcurrentRuns, ConflictPolicy, LostHistory, MissingPersister, Price, PriceList,
        RefusedContent, StoreFailure, Summarize, UnansweredInputs, tool_loop::UnknownTools,
    };
}

/// The content of requests and answers besides their messages.
pub mod request {
    pub use tower_chat_layers::{
        CacheKey, Change, ChangeKind, EndedBy, ExactNumbers, FinishReason, HistoryOwner,
        RecoveredRun, Saved, ToolCallDelta, ToolChoice, Usage,
    };
}

/// The run that a request belongs to: its name, its handle, and the data that the layers of the run
/// share. [`tower_chat_layers::run`] describes these items for authors of layers.
pub mod run {
    pub use tower_chat_layers::{Clock, Conversation, RunHandle, RunId, run::*};
}

/// Stores of conversations: their capabilities, and the types that they return. The module `author`
/// is for authors of stores.
pub mod store {
    pub use tower_chat_layers::format;
    pub use tower_chat_layers::store::{
        AddedSummary, CallSelection, CallTimes, Capability, Conflict, ConversationBusy,
        ConversationPage, ConversationQuery, ConversationRows, ConversationState,
        ConversationSummary, DayTotals, Description, DescriptionPatch, DescriptionTooLarge,
        Directory, DirectoryCounts, DirectoryCursor, Fork, Head, History, HistorySummary,
        InvocationQuery, Invocations, Journal, Keep, Lease, LeaseEnd, Maintenance, MessagePage,
        ModelUsage, NumbersUsedUp, OpenRun, OutboxFull, Parent, ParseCursorError, Pruned, Revision,
        Rewrite, RunActivity, RunSummary, RunUnderWay, SequencePosition, ServiceIdChange,
        StoreError, StoreHandle, Summaries, SummaryInForce, ToolCallQueries, ToolTotals,
        UnreadableConversation, UnreadableInvocation, UsageGroup, UsageGrouping, UsageQuery,
        UsageSum, UsageTotals, UtcDay, author,
    };
}

/// Tools of all kinds, approvals, and records of tool calls. The documentation of
/// [`tower_chat_layers::tool`] begins with an example.
pub mod tool {
    pub use tower_chat_layers::{
        ApprovalRequest, ApprovalResponse, CallPosition, ToolInvocation, ToolStatus,
        pending_results,
        tool::{
            DuplicateTool, FnTool, IntoToolOutput, Json, NestedInAncestor, PersistWith, Retention,
            RunAncestry, SharedTools, StoredCall, ToolOutput, ToolSource, TypedTool, persist_with,
        },
        with_recorded_results,
    };
}

/// Re-exports of crates whose types are in the signatures of this crate's traits. Use these crates
/// to implement a [`store`], a [`Tool`], a codec of [`adapt`], a layer or a model client. The
/// re-exports have the versions that this crate uses. The feature `util` of `tower` is enabled; for
/// other features, add `tower` to your own dependencies.
#[doc(no_inline)]
pub use async_trait::async_trait;
#[doc(no_inline)]
pub use tower;

/// Re-exports for types that are arguments or results of tools. Derive the traits of these crates
/// with `#[serde(crate = "tower_chat::serde")]`, or add the same versions to your own dependencies.
#[doc(no_inline)]
pub use tower_chat_layers::__macro::{schemars, serde};

#[cfg(feature = "cache")]
pub use tower_chat_cache as cache;
#[cfg(feature = "delivery")]
pub use tower_chat_delivery as delivery;
#[cfg(feature = "encrypted")]
pub use tower_chat_encrypted as encrypted;
#[cfg(feature = "explain")]
pub use tower_chat_explain as explain;
#[cfg(feature = "http")]
pub use tower_chat_http as http;
#[cfg(feature = "import")]
pub use tower_chat_import as import;
#[cfg(feature = "inspector")]
pub use tower_chat_inspector as inspector;
#[cfg(feature = "macros")]
#[doc = include_str!("tool.md")]
pub use tower_chat_macros::tool;
#[cfg(feature = "mcp")]
pub use tower_chat_mcp as mcp;
#[cfg(feature = "postgres")]
pub use tower_chat_postgres as postgres;
#[cfg(feature = "_providers")]
pub use tower_chat_providers as providers;
#[cfg(feature = "redis")]
pub use tower_chat_redis as redis;
#[cfg(feature = "repair")]
pub use tower_chat_repair as repair;
#[cfg(feature = "sqlite")]
pub use tower_chat_sqlite as sqlite;
#[cfg(feature = "transfer")]
pub use tower_chat_transfer as transfer;
#[cfg(feature = "wire")]
pub use tower_chat_wire as wire;
