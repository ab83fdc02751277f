//! Tests the import of files that the other systems have written: each conversation is read, stored
//! and continued, and then imported again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod agent_framework;
mod damaged;
mod hostile;
mod install;
mod langgraph;
mod openai_agents;
mod providers;
mod pydantic_ai;
mod support;
mod vercel_ui;
