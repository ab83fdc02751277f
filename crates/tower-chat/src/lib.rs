//! Tower layers that make LLM conversations durable and always valid to replay.

pub mod approval;
pub mod replay;
pub mod tool;
pub mod tool_loop;

pub use tower_chat_core as core;
