//! Tests with OpenAI's own packages.
//!
//! The packages are installed once, from PyPI and npm, into cargo's target folder. If a package cannot be
//! installed, each of its tests is skipped and prints its subject and the reason.

mod conversation;
mod install;
mod recorded;
