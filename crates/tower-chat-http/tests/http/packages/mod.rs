//! OpenAI's own packages against the endpoint.
//!
//! They are installed from PyPI and npm into cargo's target folder, once. Where that cannot be done, a
//! test names what it skips.

mod conversation;
mod install;
mod recorded;
