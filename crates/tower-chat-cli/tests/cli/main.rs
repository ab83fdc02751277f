//! The real `tower-chat` command, run as a user runs it.

mod export;
mod play;
mod refusals;
mod resume;
mod support;
