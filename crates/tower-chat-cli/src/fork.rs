//! `tower-chat fork`.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tower_chat::{
    ConversationKey, HistoryStore,
    store::{Fork, Maintenance},
};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::json_line,
    output::{Lines, count_of, counted},
    store::StoreLocation,
};

#[derive(Debug, Args)]
pub(crate) struct ForkArguments {
    /// The scope of the conversation
    scope: String,
    /// The id of the conversation
    id: String,
    /// The id of the copy
    to_id: String,
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The scope of the copy; by default that of the conversation
    #[arg(long, value_name = "SCOPE")]
    to_scope: Option<String>,
    /// Copy only the turns that end before the message with this number, which `show` prints
    #[arg(long, value_name = "MESSAGE")]
    at: Option<u64>,
    /// Print a JSON object: {"scope", "id", "messages"} of the copy, and "position", the number of the
    /// last message that was copied
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Forked<'a> {
    scope: &'a str,
    id: &'a str,
    messages: usize,
    position: u64,
}

/// Copies a conversation, or its turns before a message, to another key of the same store.
pub(crate) async fn fork(arguments: ForkArguments) -> Result<ExitCode, CliError> {
    let ForkArguments { scope, id, to_id, store, to_scope, at, json } = arguments;
    let from = ConversationKey::new(scope, id);
    let to_scope = to_scope.unwrap_or_else(|| from.scope().to_owned());
    let to = ConversationKey::new(to_scope, to_id);
    let store = store.open_to_change("fork").await?;
    let history = store.history();
    let failed = |source| CliError::Fork { to: to.clone(), source };
    let fork = history.fork_at(&from, at, &to).await.map_err(failed)?;
    if fork == Fork::ABSENT {
        return Err(CliError::NoConversation { key: from });
    }
    let messages = history.load(&to).await.map_err(failed)?.messages.len();
    let mut lines = Lines::default();
    if json {
        let forked = Forked { scope: to.scope(), id: to.id(), messages, position: fork.position };
        lines.write_json(&json_line(&forked));
    } else {
        let up_to = at.map(|_| format!(" up to message {}", fork.position)).unwrap_or_default();
        let messages = counted(count_of(messages), "message");
        lines.write(&format!("{to}: a copy of {from}{up_to}, with {messages}"));
    }
    let closed = store.close().await;
    lines.finish().map_err(CliError::Output)?;
    closed.map(|()| ExitCode::SUCCESS)
}
