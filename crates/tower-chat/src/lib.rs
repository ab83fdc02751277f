//! Tower layers that make LLM conversations durable and always valid to replay.

pub mod approval;
mod ending;
mod error;
mod future;
mod per_run;
mod per_service_call;
mod pipeline;
mod policy;
pub mod replay;
pub mod run;
pub mod tool;
pub mod tool_loop;
pub mod validate;

pub use tower_chat_core as core;

pub use self::{
    error::{NotStored, PersistenceError},
    future::ResponseFuture,
    per_run::{PerRunPersistence, PerRunPersistenceService},
    per_service_call::{PerServiceCallPersistence, PerServiceCallPersistenceService},
    pipeline::{BuildError, ChatPipeline, ChatPipelineBuilder, DeadlineExceeded},
    policy::{ConflictPolicy, MissingPersister, PersistenceMode, PersistencePolicy, StoreFailure},
    tool::{Tool, ToolContext, ToolOutput, ToolSource, Tools, tool_fn},
    tool_loop::{ToolLoop, ToolLoopError},
};
