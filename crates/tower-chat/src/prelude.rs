//! The items that most programs import: `use tower_chat::prelude::*;`.

pub use tower::{Service, ServiceExt};
pub use tower_chat_layers::{
    BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey,
    Finish, MemoryStore, Message, Part, PersistenceMode, PersistencePolicy, Role, Tool, ToolCall,
    ToolContext, ToolDefinition, ToolError, ToolOutput, ToolResult, Tools, TypedTool,
    store::{
        Directory as _, HistoryStore, Journal as _, Maintenance as _, Summaries as _,
        ToolCallQueries as _,
    },
    tool_fn,
};
#[cfg(feature = "macros")]
pub use tower_chat_macros::tool;
#[cfg(feature = "sqlite")]
pub use tower_chat_sqlite::SqliteStore;
