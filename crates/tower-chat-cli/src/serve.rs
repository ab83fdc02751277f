//! `tower-chat serve`.

use std::{env, error::Error as _, net::SocketAddr, process::ExitCode, str::FromStr};

use clap::Args;
use tokio::net::TcpListener;
use tower_chat::replay::{ReplayPolicy, ReplaySettingsError};
use tower_chat_inspector::Inspector;

use crate::{arguments::STORE_VARIABLE, error::CliError, output::Lines, store::StoreLocation};

/// The environment variable that has the token of the pages.
const TOKEN_VARIABLE: &str = "TOWER_CHAT_INSPECTOR_TOKEN";

/// What `serve` is told.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Where to listen; a port of 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,
    /// Show this scope alone
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// List the conversations of all scopes together
    #[arg(long, conflicts_with = "scope")]
    pub(crate) all_scopes: bool,
    /// A name under which readers reach the pages, as agents.example:8081; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Show what a model is sent next under this replay policy: a name and its settings, as
    /// recent={"window":{"turns":20}}; may be repeated
    #[arg(long, value_name = "NAME=JSON")]
    pub(crate) policy: Vec<NamedPolicy>,
    /// Let readers end open runs
    #[arg(long)]
    pub(crate) allow_writes: bool,
}

/// A replay policy and its name.
#[derive(Debug, Clone)]
pub(crate) struct NamedPolicy {
    name: String,
    policy: ReplayPolicy,
}

/// A text names no replay policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPolicy {
    #[error("it is no name with settings, such as recent={{\"window\":{{\"turns\":20}}}}")]
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

/// Serves pages over a store until it is interrupted.
pub(crate) async fn serve(arguments: ServeArguments) -> Result<ExitCode, CliError> {
    let store = match arguments.allow_writes {
        true => arguments.store.open_to_change("serve").await?,
        false => arguments.store.open_to_read("serve").await?,
    };
    let mut inspector = Inspector::new(store.history().clone())
        .with_hosts(arguments.host)
        .with_writes(arguments.allow_writes);
    if let Some(scope) = arguments.scope {
        inspector = inspector.in_one_scope(scope);
    }
    if arguments.all_scopes {
        inspector = inspector.with_all_scopes();
    }
    for NamedPolicy { name, policy } in arguments.policy {
        inspector = inspector.with_policy(name, policy);
    }
    let token = env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty());
    if let Some(token) = &token {
        inspector = inspector.with_token(token.as_encoded_bytes());
    }
    let listener = TcpListener::bind(arguments.listen).await.map_err(CliError::Serve)?;
    let address = listener.local_addr().map_err(CliError::Serve)?;
    let mut lines = Lines::default();
    let needed = if token.is_some() { ", with ?token=TOKEN the first time" } else { "" };
    lines.write(&format!("http://{address}{needed}"));
    lines.finish().map_err(CliError::Output)?;
    let interrupted = async {
        // Where signals cannot be waited for, the process is killed by them.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let served = inspector.serve(listener, interrupted).await;
    served.map_err(CliError::from)?;
    store.close().await?;
    Ok(ExitCode::SUCCESS)
}
