//! Tests with OpenAI's own packages.
//!
//! The packages are installed once, from PyPI and npm, into cargo's target folder. If they cannot be
//! installed, a test prints the name of what it skips.

mod conversation;
mod install;
mod recorded;
