//! Histories made by the systems themselves are read, stored, gone on with and read again.
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
