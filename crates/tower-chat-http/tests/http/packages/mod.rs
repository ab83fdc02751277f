//! OpenAI's own packages against the endpoint.
//!
//! They are installed from PyPI and npm into cargo's target folder, once. Without Python or Node.js a
//! test says that it is skipped; with `TOWER_CHAT_CI=1` it fails.

mod conversation;
mod install;
mod recorded;

fn is_ci() -> bool {
    std::env::var_os("TOWER_CHAT_CI").is_some()
}
