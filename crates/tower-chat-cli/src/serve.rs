//! `tower-chat serve`.

use std::{
    env, error::Error as _, ffi::OsString, net::SocketAddr, process::ExitCode, str::FromStr,
};

use clap::Args;
use tokio::net::TcpListener;
use tower_chat::replay::{ReplayPolicy, ReplaySettingsError};
use tower_chat_delivery::DetachedRunsLayer;
use tower_chat_inspector::Inspector;

use crate::{
    arguments::STORE_VARIABLE,
    error::{CliError, chain},
    interruption::interruption,
    output::{EscapedStderr, Lines},
    store::StoreLocation,
};

/// The environment variable that contains the token for the pages.
const TOKEN_VARIABLE: &str = "TOWER_CHAT_INSPECTOR_TOKEN";

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// The address to listen on; port 0 means any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,
    /// The update log of an application that executes its runs in separate tasks
    /// (DetachedRunsLayer). With this log, the page of a conversation shows an answer while the
    /// model generates it. The default is the update log on the server of the store, or, for a
    /// SQLite store FILE, the file FILE-updates
    #[arg(long, value_name = "LOG")]
    pub(crate) updates: Option<StoreLocation>,
    /// Show only this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// List the conversations of all scopes on the first page
    #[arg(long, conflicts_with = "scope")]
    pub(crate) all_scopes: bool,
    /// A host name that readers use, such as agents.example:8081; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Add a replay policy for the page of the next request: a name and settings, such as
    /// recent={"window":{"turns":20}}; may be repeated
    #[arg(long, value_name = "NAME=JSON")]
    pub(crate) policy: Vec<NamedPolicy>,
    /// Allow readers to commit or discard open runs
    #[arg(long)]
    pub(crate) allow_writes: bool,
    /// Serve this machine without a token: every user and every program of the machine can then
    /// read the pages, even those that have no permission to read the file of the store
    #[arg(long)]
    pub(crate) no_token: bool,
}

/// The token that a reader needs.
#[derive(Debug)]
enum Token {
    /// The token in [`TOKEN_VARIABLE`], which the operator passes to the readers.
    Given(OsString),
    /// A token that was generated for this process. The command prints a link that contains it.
    Made(String),
    None,
}

impl Token {
    fn of(arguments: &ServeArguments) -> Result<Self, CliError> {
        let given = env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty());
        let address = arguments.listen;
        match given {
            Some(_) if arguments.no_token => Err(CliError::TokenAndNone),
            Some(token) => Ok(Self::Given(token)),
            // Readers on other machines need a token that remains valid when the command is started
            // again.
            None if !address.ip().is_loopback() => Err(CliError::TokenNeeded { address }),
            None if arguments.no_token => Ok(Self::None),
            None => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(|_| CliError::NoRandomNumbers)?;
                Ok(Self::Made(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
            }
        }
    }
}

/// A replay policy (the form of stored messages in a request to a model) and its name.
#[derive(Debug, Clone)]
pub(crate) struct NamedPolicy {
    name: String,
    policy: ReplayPolicy,
}

/// The error of parsing a text that is not a name and a replay policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPolicy {
    #[error("it is not a name with settings, such as recent={{\"window\":{{\"turns\":20}}}}")]
    Form,
    #[error("its settings are not JSON: {0}")]
    Json(serde_json::Error),
    #[error("{0}: {cause}", cause = .0.source().map(ToString::to_string).unwrap_or_default())]
    Settings(ReplaySettingsError),
}

impl FromStr for NamedPolicy {
    type Err = NoPolicy;

    fn from_str(text: &str) -> Result<Self, NoPolicy> {
        let named = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
        let (name, settings) = named.ok_or(NoPolicy::Form)?;
        let settings = serde_json::from_str(settings).map_err(NoPolicy::Json)?;
        let policy = ReplayPolicy::from_settings(&settings).map_err(NoPolicy::Settings)?;
        Ok(Self { name: name.to_owned(), policy })
    }
}

/// Opens the update log that the operator has named, or the default log. Fails only for a named log.
async fn runs(
    updates: Option<&StoreLocation>,
    store: &StoreLocation,
) -> Result<Option<DetachedRunsLayer>, CliError> {
    let opened = match updates {
        Some(updates) => Some(updates.open_updates().await?),
        None => match store.updates().open_updates().await {
            Ok(log) => Some(log),
            Err(CliError::NoUpdateLog { .. }) => None,
            Err(error) => {
                let error = chain(&error);
                EscapedStderr::write_line(&format!(
                    "warning: the pages do not show answers in progress: {error}"
                ));
                None
            }
        },
    };
    Ok(opened.map(DetachedRunsLayer::new))
}

/// Serves the pages of a store until the user presses Ctrl-C.
pub(crate) async fn serve(arguments: ServeArguments) -> Result<ExitCode, CliError> {
    let token = Token::of(&arguments)?;
    let store = match arguments.allow_writes {
        true => arguments.store.open_to_change("serve").await?,
        false => arguments.store.open_to_read("serve").await?,
    };
    let mut inspector = Inspector::new(store.history().clone())
        .with_hosts(arguments.host)
        .with_writes(arguments.allow_writes);
    if let Some(runs) = runs(arguments.updates.as_ref(), &arguments.store).await? {
        inspector = inspector.with_runs(runs);
    }
    if let Some(scope) = arguments.scope {
        inspector = inspector.in_one_scope(scope);
    }
    if arguments.all_scopes {
        inspector = inspector.with_all_scopes();
    }
    for NamedPolicy { name, policy } in arguments.policy {
        inspector = inspector.with_policy(name, policy);
    }
    match &token {
        Token::Given(token) => inspector = inspector.with_token(token.as_encoded_bytes()),
        Token::Made(token) => inspector = inspector.with_token(token),
        Token::None => {}
    }
    let listener = TcpListener::bind(arguments.listen).await.map_err(CliError::Serve)?;
    let address = listener.local_addr().map_err(CliError::Serve)?;
    let mut lines = Lines::default();
    lines.write(&match &token {
        Token::Given(_) => format!("http://{address}, with ?token=TOKEN the first time"),
        Token::Made(token) => format!("http://{address}/?token={token}"),
        Token::None => format!("http://{address}"),
    });
    lines.finish().map_err(CliError::Output)?;
    if matches!(token, Token::None) {
        EscapedStderr::write_line(
            "warning: there is no token, so every user and every program of this machine can read these pages",
        );
    }
    let served = inspector.serve(listener, interruption()).await;
    served.map_err(CliError::from)?;
    store.close().await?;
    Ok(ExitCode::SUCCESS)
}
