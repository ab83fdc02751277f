//! Tests with OpenAI's own packages.
//!
//! The first test that needs a package installs it from PyPI or npm into cargo's target folder. If
//! the installation fails, each test that needs the package is skipped, and prints the reason.

mod conversation;
mod install;
mod recorded;
