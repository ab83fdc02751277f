//! Lists all runs of a conversation.

use std::process::ExitCode;

use serde::Serialize;
use tower_chat::{
    ConversationKey,
    store::{Directory, RunSummary, UsageSum},
};

use crate::{
    error::CliError,
    figures::{self, Figures, json_line},
    output::{Lines, table_of},
    store::OpenedStore,
    time::{between, exact, readable},
};

/// The maximum number of runs that one query to the store returns.
const PAGE: usize = 1000;

/// Prints all runs of a conversation, the newest first.
pub(super) async fn print(
    store: &OpenedStore,
    key: &ConversationKey,
    json: bool,
) -> Result<ExitCode, CliError> {
    let directory = |source| CliError::DirectoryOf { key: key.clone(), source };
    if store.history().summary(key).await.map_err(directory)?.is_none() {
        return Err(CliError::NoConversation { key: key.clone() });
    }
    let mut runs: Vec<RunSummary> = Vec::new();
    loop {
        let after = runs.last().map(|last| last.run);
        let page = store.history().runs(key, after, PAGE).await.map_err(directory)?;
        if page.is_empty() {
            break;
        }
        runs.extend(page);
    }
    let mut lines = Lines::default();
    if json {
        runs.iter().for_each(|run| lines.write_json(&json_line(&RunLine::of(key, run))));
    } else if runs.is_empty() {
        lines.write("no runs");
    } else {
        table_of(&rows(&runs)).iter().for_each(|line| lines.write(line));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a heading, and a row for each model of each run. Only the first row of a run contains
/// the data of the run.
fn rows(runs: &[RunSummary]) -> Vec<Vec<String>> {
    let heading = ["run", "mode", "began", "seconds", "open", "model"];
    let mut rows =
        vec![heading.iter().chain(&figures::HEADINGS).map(|cell| (*cell).to_owned()).collect()];
    for run in runs {
        let mut of_run = [
            run.run.to_string(),
            mode(run).unwrap_or("-").to_owned(),
            readable(run.started_at()),
            wall_time(run)
                .map_or_else(|| "-".to_owned(), |wall| format!("{:.3}", wall.as_secs_f64())),
            if run.is_open { "yes" } else { "no" }.to_owned(),
        ];
        let nothing = [(None, UsageSum::default())];
        let models: Vec<_> = match run.usage.is_empty() {
            true => nothing.to_vec(),
            false => run.usage.iter().map(|used| (used.model.as_deref(), used.sum)).collect(),
        };
        for (model, sum) in models {
            let mut row: Vec<String> = std::mem::take(&mut of_run).into();
            row.push(model.unwrap_or("-").to_owned());
            row.extend(figures::cells(&sum));
            rows.push(row);
        }
    }
    rows
}

fn mode(run: &RunSummary) -> Option<&'static str> {
    run.mode.map(|mode| mode.as_str())
}

/// Returns the time from the start of the run to its last write.
fn wall_time(run: &RunSummary) -> Option<std::time::Duration> {
    between(Some(run.started_at()), Some(run.last_written_at))
}

#[derive(Serialize)]
struct RunLine<'a> {
    scope: &'a str,
    id: &'a str,
    run: String,
    mode: Option<&'static str>,
    began_at: String,
    last_written_at: String,
    wall_ms: Option<u64>,
    is_open: bool,
    models: Vec<ModelLine<'a>>,
}

#[derive(Serialize)]
struct ModelLine<'a> {
    model: Option<&'a str>,
    usage: Figures,
}

impl<'a> RunLine<'a> {
    fn of(key: &'a ConversationKey, run: &'a RunSummary) -> Self {
        let models = run.usage.iter().map(|used| ModelLine {
            model: used.model.as_deref(),
            usage: Figures::from(&used.sum),
        });
        Self {
            scope: key.scope(),
            id: key.id(),
            run: run.run.to_string(),
            mode: mode(run),
            began_at: exact(run.started_at()),
            last_written_at: exact(run.last_written_at),
            wall_ms: wall_time(run).and_then(|wall| u64::try_from(wall.as_millis()).ok()),
            is_open: run.is_open,
            models: models.collect(),
        }
    }
}
