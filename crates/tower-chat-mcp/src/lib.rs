//! For agents whose tools are on MCP servers: the tools of a server as tools of a `tower-chat` tool loop.
//!
//! [`rmcp`] makes the connection: to a child process, over HTTP, or to anything else it has a
//! transport for. [`McpTools`] asks the server for its tools and gives them to the loop.
//!
//! ```no_run
//! use rmcp::{ServiceExt, transport::TokioChildProcess};
//! use tower_chat::{ToolLoop, Tools};
//! use tower_chat_mcp::McpTools;
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//!
//! let server = TokioChildProcess::new(tokio::process::Command::new("weather-server"))?;
//! let client = ().serve(server).await?;
//! let weather = McpTools::new(&client)
//!     .with_prefix("weather_")
//!     .needs_approval(|tool| !tool.hints().read_only)
//!     .safe_to_retry(|tool| tool.hints().idempotent);
//! let tools = weather.add_to(Tools::new()).await?;
//! let tool_loop = ToolLoop::new(tools);
//! # Ok::<(), tower_chat::BoxError>(())
//! # }).unwrap();
//! ```
//!
//! The connection ends when its `RunningService`, `client` above, is dropped: keep it as long as the tools are
//! used. Each call after its end fails with [`McpError::Closed`].
//!
//! # What becomes of a call
//!
//! | what happens | what the model is shown | status in the record |
//! |---|---|---|
//! | the server answers | its content | `ok` |
//! | it answers with `isError` | its content, as an error | `error` |
//! | the arguments are not a JSON object | that they are not; the server is not asked | `rejected_arguments` |
//! | the server refuses the call, the connection ends, no answer comes in time | that the tool failed; the loop's `include_error_details` adds why | `error`, with [`McpError`] |
//! | a journaled run is resumed, and the call may or may not have been made | as for every tool; it is made again where [`safe_to_retry`](McpTools::safe_to_retry) says so | - |
//! | the run is cancelled | - | as for every tool; the server is sent `notifications/cancelled` |
//!
//! Of the answer, texts and the texts of embedded resources become [`Text`], images, sounds and
//! embedded files of a known media type [`Media`], everything else is shown as its JSON. The text of an
//! embedded resource begins with its address. Content whose audience is the user alone is left out. The
//! structured content is added as JSON, unless one of the texts says the same.
//!
//! # When the server changes its tools
//!
//! A listing is what the server had when it was asked, or what it said before, for as long as it
//! said that this holds (`ttlMs`). The running set changes where you say so:
//! keep the set in a [`SharedTools`], and on `notifications/tools/list_changed`, which `rmcp` hands
//! to your `ClientHandler`, list anew and [`set`](tower_chat_layers::tool::SharedTools::set) it. Runs see it from their next
//! service call on. Each change of the tools makes providers' prompt caches start anew.
//!
//! [`Text`]: tower_chat_layers::Text
//! [`Media`]: tower_chat_layers::Media
//! [`SharedTools`]: tower_chat_layers::tool::SharedTools

mod address;
mod content;
mod error;
mod hints;
mod limits;
mod listing;
mod name;
mod tool;

pub use self::{
    address::without_secrets,
    error::{McpError, OverLimit},
    hints::ToolHints,
    limits::McpLimits,
    listing::McpTools,
    tool::McpTool,
};
