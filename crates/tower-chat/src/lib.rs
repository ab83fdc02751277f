//! Tower layers that make LLM conversations durable and always valid to replay.

pub mod approval;
pub mod replay;

pub use tower_chat_core as core;
