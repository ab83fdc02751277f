//! `tower-chat show`.

mod conversation;
mod json;
mod part;
mod text;
mod transcript;

use std::{num::NonZeroUsize, process::ExitCode, str::FromStr};

use clap::Args;
use tower_chat::{ConversationKey, replay::ReplayPolicy};

use self::{conversation::StoredConversation, transcript::Transcript};
use crate::{
    arguments::STORE_VARIABLE,
    error::{CliError, chain},
    figures::json_line,
    output::{Lines, print_error},
    store::StoreLocation,
};

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// The scope of the conversation
    #[arg(value_name = "SCOPE")]
    scope: String,
    /// The id of the conversation
    #[arg(value_name = "ID")]
    id: String,
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The number of messages to print, counted from the end
    #[arg(long, value_name = "N", default_value = "50")]
    last: NonZeroUsize,
    /// Only messages before the one with this number
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// Print long texts completely
    #[arg(long)]
    full: bool,
    /// The replay policy as JSON, such as {"window": {"turns": 20}}; a setting that is left out has
    /// its default
    ///
    /// The keys are those of ReplayPolicy::from_settings: dangling_calls, tool_history, freshness,
    /// drop_unregistered_tools, drop_unreadable_arguments, citations and window.
    #[arg(long, value_name = "JSON", default_value = "{}", hide_default_value = true)]
    policy: Policy,
    /// Print one JSON object per line: an object for each message
    #[arg(long)]
    json: bool,
}

/// A replay policy on the command line.
#[derive(Debug, Clone)]
struct Policy(ReplayPolicy);

/// The error of parsing a text that is not a replay policy.
#[derive(Debug, thiserror::Error)]
enum NoPolicy {
    #[error("it is not JSON: {0}")]
    Json(serde_json::Error),
    #[error("{0}")]
    Settings(String),
}

impl FromStr for Policy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let settings = serde_json::from_str(text).map_err(NoPolicy::Json)?;
        let policy = ReplayPolicy::from_settings(&settings);
        policy.map(Self).map_err(|error| NoPolicy::Settings(chain(&error)))
    }
}

/// Prints messages of a conversation with data about their runs and calls, and the reasons why the
/// next request to the model would change or omit parts of them.
pub(crate) async fn show(arguments: ShowArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("show").await?;
    let key = ConversationKey::new(arguments.scope, arguments.id);
    let asked = conversation::Page { before: arguments.before, limit: arguments.last.get() };
    let (found, problems) =
        StoredConversation::read(&**store.history(), &key, asked, &arguments.policy.0).await?;
    problems.iter().for_each(|problem| print_error(problem));
    let mut lines = Lines::default();
    if arguments.json {
        json::of(&found).for_each(|line| lines.write_json(&json_line(&line)));
    } else {
        Transcript::of(&found, arguments.full).print(&mut lines);
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
