//! `tower-chat export`.

mod record;

use std::process::ExitCode;

use serde::Serialize;
use tower_chat::{
    core::{ConversationKey, Messages, RawJson, store::HistoryStore},
    replay::{DanglingCalls, Replay},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_wire::openai_chat::{Audience, render_messages};

use crate::{arguments::ExportArguments, error::CliError, output::Lines, store::StoreLocation};

/// Prints the conversations of a store.
pub(crate) async fn export(arguments: ExportArguments) -> Result<ExitCode, CliError> {
    let StoreLocation::Sqlite(path) = &arguments.store else { return Err(CliError::ExportMemory) };
    let store = SqliteStore::options().create(false).read_only(true).open(path).await?;
    let mut lines = Lines::default();
    for key in keys(&store, arguments.scope).await? {
        let history = store.load(&key).await;
        let history = history.map_err(|source| CliError::Export { key: key.clone(), source })?;
        let messages = if arguments.record {
            record::messages(&history.messages)
        } else {
            shown(&history.messages)
        };
        let line = Line { id: key.id(), messages };
        lines.write(&line.to_json());
        if !lines.are_open() {
            break;
        }
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// All conversations, in the byte order of their ids.
async fn keys(
    store: &SqliteStore,
    scope: Option<String>,
) -> Result<Vec<ConversationKey>, CliError> {
    const PAGE: usize = 1000;
    let scopes = match scope {
        Some(scope) => vec![scope],
        None => store.scopes().await.map_err(CliError::Scopes)?,
    };
    let mut keys: Vec<ConversationKey> = Vec::new();
    for scope in scopes {
        let mut after: Option<String> = None;
        loop {
            let page = store.list(&scope, after.as_deref(), PAGE).await;
            let page = page.map_err(|source| CliError::List { scope: scope.clone(), source })?;
            let Some(last) = page.last() else { break };
            after = Some(last.id().to_owned());
            keys.extend(page);
        }
    }
    keys.sort_by(|left, right| (left.id(), left.scope()).cmp(&(right.id(), right.scope())));
    Ok(keys)
}

/// The messages as a model is shown them.
fn shown(stored: &Messages) -> Vec<RawJson> {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(stored, 0);
    let view = replay.view();
    render_messages(view.iter().map(|message| &**message), Audience::Transcript)
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    messages: Vec<RawJson>,
}

impl Line<'_> {
    fn to_json(&self) -> String {
        #[allow(clippy::expect_used, reason = "texts and JSON values have a JSON form")]
        serde_json::to_string(self).expect("texts and JSON values have a JSON form")
    }
}
