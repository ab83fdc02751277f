//! `tower-chat export`.

mod record;

use std::process::ExitCode;

use serde::Serialize;
use tower_chat::{
    Messages, RawJson,
    replay::{DanglingCalls, Replay},
    store::HistoryStore,
};
use tower_chat_wire::openai_chat::{Audience, render_messages};

use crate::{arguments::ExportArguments, error::CliError, output::Lines, store};

/// Prints the conversations of a store.
pub(crate) async fn export(arguments: ExportArguments) -> Result<ExitCode, CliError> {
    let opened = arguments.store.open_to_read("export").await?;
    let mut lines = Lines::default();
    for key in store::keys(&opened, arguments.scope, arguments.conversation.as_deref()).await? {
        let history = opened.history().load(&key).await;
        let history = history.map_err(|source| CliError::Export { key: key.clone(), source })?;
        let messages = if arguments.record {
            record::messages(&history.messages)
        } else {
            shown(&history.messages)
        };
        let line = Line { scope: key.scope(), id: key.id(), messages };
        lines.write_json(&line.to_json());
        if !lines.are_open() {
            break;
        }
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
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
    scope: &'a str,
    id: &'a str,
    messages: Vec<RawJson>,
}

impl Line<'_> {
    fn to_json(&self) -> String {
        #[allow(clippy::expect_used, reason = "texts and JSON values have a JSON form")]
        serde_json::to_string(self).expect("texts and JSON values have a JSON form")
    }
}
