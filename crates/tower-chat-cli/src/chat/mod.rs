//! `tower-chat chat`.

mod approvals;
mod attach;
mod error;
mod input;
mod interrupts;
mod provider;
mod report;
mod screen;
mod servers;
mod session;
mod shared_store;
mod stored;
mod tool_events;
mod turn;

use std::{num::NonZeroU64, process::ExitCode, sync::Arc, time::Duration, time::SystemTime};

use clap::Args;
use tokio::sync::mpsc;
use tower_chat::{
    ChatOptions, ChatPipeline, ConversationKey, HistoryStore, PersistencePolicy, Tools,
    layer::ToolLoopLayer,
    policy::{ConcurrentRuns, StoreFailure},
    recovery::{JournalPolicy, OnDisconnect, OnOpenRun},
    run::RunId,
};

pub(crate) use self::{
    error::ChatError,
    provider::{ProviderName, is_variable_set},
};
use self::{
    input::Input,
    interrupts::Interrupts,
    provider::ModelClient,
    screen::{Screen, ScreenOptions},
    servers::{Approve, ServerArguments, Servers},
    session::{Session, SessionParts, SessionSettings},
    shared_store::SharedStore,
};
use crate::{
    arguments::{Persistence, STORE_VARIABLE},
    error::CliError,
    store::StoreLocation,
};

/// The duration of the lease on a run, during which no other process may continue the run. It is
/// shorter than the default of 15 seconds, because after a crash the user must wait until it has
/// expired.
const LEASE: Duration = Duration::from_secs(5);

/// The maximum wait for another process's lease, longer than the default duration of a lease.
const LEASE_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct ChatArguments {
    /// The name of the conversation, which is continued if it exists. By default, a new conversation
    /// begins, and its name is the date and the time
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The store of the conversations. A missing file is created. The default is a file in the
    /// current folder
    #[arg(
        long,
        value_name = "STORE",
        env = STORE_VARIABLE,
        hide_env_values = true,
        default_value = "sqlite:tower-chat.db"
    )]
    pub(crate) store: StoreLocation,
    /// The provider of the model, whose key is read from the environment
    #[arg(long, value_enum)]
    pub(crate) provider: Option<ProviderName>,
    /// The model, by the name that the provider uses
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Instead of chatting, follow the run with this id, which an application executes in the
    /// conversation NAME
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with_all = ["provider", "model", "base_url", "system", "mcp", "mcp_env", "mcp_url",
            "approve", "mode", "max_tokens"]
    )]
    pub(crate) attach: Option<RunId>,
    /// The update log of the application, for --attach. The default is the update log on the server
    /// of the store, or, for a SQLite store FILE, the file FILE-updates
    #[arg(long, value_name = "LOG", requires = "attach")]
    pub(crate) updates: Option<StoreLocation>,
    /// The base URL of a service with the provider's API; such a service may need no key
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Instructions for the model, which are sent with each question and never stored
    #[arg(long, value_name = "TEXT")]
    pub(crate) system: Option<String>,
    /// The command with its arguments, in quotes, that starts an MCP server, whose tools the model
    /// may call
    #[arg(long, value_name = "COMMAND")]
    pub(crate) mcp: Vec<String>,
    /// The name of an environment variable to pass to MCP servers, in addition to PATH, HOME and
    /// the locale
    #[arg(long, value_name = "NAME")]
    pub(crate) mcp_env: Vec<String>,
    /// The URL of an MCP server to connect to
    #[arg(long, value_name = "URL")]
    pub(crate) mcp_url: Vec<String>,
    /// Which tool calls run without asking you
    #[arg(long, value_enum, default_value_t = Approve::Ask)]
    pub(crate) approve: Approve,
    /// When messages become durable
    #[arg(long, value_enum, default_value_t = Persistence::Journaled)]
    pub(crate) mode: Persistence,
    /// The scope of the conversation; by default your user name, or `me` if it is unknown
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// The maximum number of tokens of an answer
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<NonZeroU64>,
    /// Print the model's reasoning, if the provider sends it
    #[arg(long)]
    pub(crate) reasoning: bool,
    /// Print the model and the tokens of each answer, and the standard error of MCP servers
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Runs a chat until the input ends, or follows a run with `--attach`.
pub(crate) async fn chat(arguments: ChatArguments) -> Result<ExitCode, CliError> {
    let mut interrupts = Interrupts::listen().map_err(ChatError::Interrupts)?;
    if let Some(run) = arguments.attach {
        return attach::attach(&arguments, run, interrupts).await;
    }
    let (Some(provider), Some(model)) = (arguments.provider, arguments.model.as_deref()) else {
        return Err(ChatError::NoModel.into());
    };
    // The model client is created first, because a missing key is the most frequent error.
    let client = provider.client(model, arguments.base_url.as_deref());
    let client = client.map_err(|error| ChatError::run(&error.into(), provider))?;
    let (sender, events) = mpsc::unbounded_channel();
    let servers = ServerArguments {
        commands: &arguments.mcp,
        variables: &arguments.mcp_env,
        urls: &arguments.mcp_url,
        approve: arguments.approve,
        verbose: arguments.verbose,
    };
    let servers = tokio::select! {
        biased;
        () = interrupts.next() => return Ok(ExitCode::from(130)),
        servers = Servers::connect(&servers, &sender) => servers?,
    };
    let store = arguments.store.open().await?;
    let key = conversation_key(&arguments, &**store.history()).await?;
    let tools = servers.tools().clone();
    let agent = pipeline(&arguments, client, tools.clone(), store.history().clone())?;
    let input = Input::open().map_err(ChatError::Input)?;
    let options = ScreenOptions { reasoning: arguments.reasoning, has_prompt: input.is_terminal() };
    let settings = SessionSettings {
        key,
        provider,
        approve: arguments.approve,
        options: chat_options(&arguments).into(),
        is_verbose: arguments.verbose,
        is_named: arguments.name.is_some(),
    };
    let screen = Screen::new(options);
    let parts = SessionParts {
        store: store.history().clone(),
        agent,
        tools,
        screen,
        input,
        interrupts,
        events,
    };
    let ended = Session::new(settings, parts).run().await;
    servers.close().await;
    let closed = store.close().await;
    let code = ended?;
    closed?;
    Ok(code)
}

fn chat_options(arguments: &ChatArguments) -> ChatOptions {
    let mut options = ChatOptions::new().with_stream(true);
    options.max_output_tokens = arguments.max_tokens.map(NonZeroU64::get);
    options.instructions = arguments.system.clone();
    options
}

fn pipeline(
    arguments: &ChatArguments,
    client: ModelClient,
    tools: Tools,
    store: Arc<dyn HistoryStore>,
) -> Result<ChatPipeline, ChatError> {
    let journal = JournalPolicy::default()
        .with_lease(LEASE)
        .with_max_lease_wait(LEASE_WAIT)
        // An interrupted run is committed immediately, because the user, who is present, decides
        // how to continue.
        .on_disconnect(OnDisconnect::Commit)
        // A run that has failed remains open: its messages are stored, but are not part of the
        // history yet. They become part of the history when the user sends the next message.
        .on_open_run(OnOpenRun::Commit);
    let policy = PersistencePolicy::default()
        .on_store_failure(StoreFailure::FailCall)
        .with_partial_text(true)
        .with_journal(journal)
        // The chat waits for the lease of another process, which may have died.
        .with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
    ChatPipeline::builder(client)
        .tool_loop(ToolLoopLayer::new(tools).include_error_details(true))
        .history(SharedStore(store))
        .persistence(arguments.mode.into())
        .policy(policy)
        .build()
        .map_err(ChatError::Build)
}

/// Returns the key of the conversation. If the command line contains no name, generates a new name.
async fn conversation_key(
    arguments: &ChatArguments,
    store: &dyn HistoryStore,
) -> Result<ConversationKey, ChatError> {
    let scope = scope(arguments);
    if let Some(name) = &arguments.name {
        return Ok(ConversationKey::new(scope, name.as_str()));
    }
    let date = dated_name(SystemTime::now());
    let mut number = 1_u32;
    loop {
        let name = if number == 1 { date.clone() } else { format!("{date}-{number}") };
        let key = ConversationKey::new(scope.as_str(), name);
        let head = store.head(&key).await;
        let head = head.map_err(|source| ChatError::Load { key: key.clone(), source })?;
        if head.revision == tower_chat::store::Revision::ABSENT {
            return Ok(key);
        }
        number += 1;
    }
}

fn scope(arguments: &ChatArguments) -> String {
    arguments.scope.clone().or_else(user_name).unwrap_or_else(|| "me".to_owned())
}

fn user_name() -> Option<String> {
    let variables = ["USER", "LOGNAME", "USERNAME"];
    variables.iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
}

/// Returns a name that consists of the date and the time in UTC, with a resolution of a second.
fn dated_name(now: SystemTime) -> String {
    let now = jiff::Timestamp::try_from(now).unwrap_or_default();
    now.strftime("%Y-%m-%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_without_a_name_is_named_after_the_date() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_444_205);
        assert_eq!(dated_name(time), "2026-11-23-143005");
    }
}
