//! The errors of a chat.

use std::io;

use rmcp::service::ClientInitializeError;
use tower_chat::{
    BoxError, ConversationKey,
    error::BuildError,
    mcp::{McpError, without_secrets},
    providers::{ProviderError, ProviderErrorKind},
    store::StoreError,
    tool::DuplicateTool,
};
use tower_chat_delivery::{DeliveryError, RunKey, UpdateLogError};

use super::provider::ProviderName;
use crate::{error::chain, store::KEYS_VARIABLE};

/// An error that prevents the beginning of a chat, or ends the chat.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChatError {
    #[error("{cause}{}", with_advice(advice))]
    Run { cause: String, advice: String },
    #[error("a chat needs a model: give --provider and --model, or follow a run with --attach")]
    NoModel,
    #[error("--attach needs the NAME of the conversation of the run: see `tower-chat list`")]
    NoConversation,
    #[error(
        "there are no updates of {run}: they have expired, or the run has another scope (--scope) or update log \
         (--updates); print its stored messages with `tower-chat show`"
    )]
    UnknownRun { run: RunKey },
    #[error(
        "the updates of the run cannot be read: if the update log is encrypted, set the environment variable \
         {KEYS_VARIABLE} to its keys; otherwise unset the variable"
    )]
    UnreadableUpdates(#[source] UpdateLogError),
    #[error("the run cannot be followed")]
    Follow(#[source] DeliveryError),
    #[error("the chat cannot begin: listening for Ctrl-C failed")]
    Interrupts(#[source] io::Error),
    #[error("the input cannot be read: give lines of UTF-8")]
    Input(#[source] io::Error),
    #[error("`{command}` of --mcp cannot be split into words: close its quotes")]
    ServerCommand { command: String },
    #[error(
        "the environment variable `{name}` of --mcp-env is not set: give the name of a variable \
         that is set, without a value"
    )]
    ServerVariable { name: String },
    #[error("the MCP server `{command}` cannot be started: check the command of --mcp")]
    ServerNotStarted { command: String, source: io::Error },
    #[error("the MCP server `{server}` did not begin a session{}", with_output(output))]
    ServerSession { server: String, output: String, source: Box<ClientInitializeError> },
    #[error(
        "the MCP server `{server}` did not begin a session in {seconds} s{}",
        with_output(output)
    )]
    ServerSilent { server: String, seconds: u64, output: String },
    #[error("listing the tools of the MCP server `{server}` failed")]
    ServerTools { server: String, source: McpError },
    #[error("two MCP servers have a tool with the same name: leave out one of the servers")]
    DuplicateTool(#[source] DuplicateTool),
    #[error("the chat cannot begin: its layers do not fit together")]
    Build(#[source] BuildError),
    #[error("conversation {key} cannot be read")]
    Load { key: ConversationKey, source: StoreError },
    #[error("the title of conversation {key} cannot be set")]
    Title { key: ConversationKey, source: StoreError },
    #[error("the store cannot be written")]
    Flush(#[source] StoreError),
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
}

impl ChatError {
    /// Creates the error for a failed run or model client, with advice for the user.
    pub(super) fn run(error: &BoxError, provider: ProviderName) -> Self {
        Self::Run { cause: without_secrets(&chain(&**error)), advice: advice(error, provider) }
    }
}

fn with_output(output: &str) -> String {
    match output.trim() {
        "" => String::new(),
        output => format!("; it wrote: {output}"),
    }
}

fn with_advice(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!("; {advice}") }
}

/// Returns the first `ProviderError` among an error and its sources.
fn provider_error(error: &BoxError) -> Option<&ProviderError> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<ProviderError>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// Returns advice about an error, unless the message of the error contains the advice.
fn advice(error: &BoxError, provider: ProviderName) -> String {
    let Some(error) = provider_error(error) else { return String::new() };
    let variables = provider.key_variables().join(" or ");
    match error.kind() {
        ProviderErrorKind::Configuration { .. } if variables.is_empty() => String::new(),
        ProviderErrorKind::Configuration { .. } => {
            format!("set {variables} to a key of {}", provider.as_argument())
        }
        ProviderErrorKind::Transport { .. } => {
            "check the network and the address (--base-url)".to_owned()
        }
        ProviderErrorKind::Truncated { .. } => "send the message again".to_owned(),
        ProviderErrorKind::UnsupportedMedia(_) => {
            "leave the attachment out, or convert it to a type that the service reads".to_owned()
        }
        ProviderErrorKind::Unsupported { .. } => "leave the option out".to_owned(),
        ProviderErrorKind::Refused(refusal) => match refusal.status {
            Some(401 | 403) if variables.is_empty() => "check --base-url".to_owned(),
            Some(401 | 403) => format!("check the key in {variables}"),
            Some(404) => "check --model and --base-url".to_owned(),
            Some(413) => "begin another conversation, because this one is too long".to_owned(),
            Some(400 | 422) => {
                "check --model and the options; if the conversation is too long for the model, continue it with \
                 another model, or begin another conversation"
                    .to_owned()
            }
            _ if error.is_retryable() => "try again later".to_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
