//! Tests of histories that the systems themselves have written: they are read, stored, continued
//! and read again.
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
