//! `tower-chat verify`.

mod database;
mod directory;
mod finding;
mod problems;

use std::process::ExitCode;

use serde::Serialize;

pub(crate) use self::{
    database::{Keys, damage_of_file, damaged_open_runs, keys_of, rows_of, stray_rows},
    directory::{DirectoryProblem, counts, directory_problem},
    finding::{Finding, Kind},
    problems::{Problem, is_in_record, problems, readable, whole},
};
use crate::{arguments::VerifyArguments, error::CliError, report::Report};

/// Checks everything in a store.
pub(crate) async fn verify(arguments: VerifyArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("verify").await?;
    let mut output = Report::new(arguments.json);
    let mut summary = Summary::new(store.file().is_some());
    let mut report = |finding: Finding| {
        summary.problems += 1;
        finding.write(Kind::Problem, &mut output);
    };
    if let Some(file) = store.file() {
        damage_of_file(file).await?.into_iter().for_each(&mut report);
    }
    let Keys { keys, damage } = keys_of(&store).await?;
    damage.into_iter().for_each(&mut report);
    let (mut conversations, mut messages, mut calls) = (0, 0, 0);
    for key in &keys {
        match rows_of(&store, key).await? {
            Ok(None) => {}
            Ok(Some(rows)) => {
                conversations += 1;
                messages += rows.messages.len();
                calls += rows.tools.len();
                let found = problems(&rows);
                found.iter().map(|it| Finding::of_message(key, it)).for_each(&mut report);
                let problem = directory_problem(&store, key, &rows).await?;
                problem.iter().map(|it| it.finding(key)).for_each(&mut report);
            }
            Err(damage) => report(damage),
        }
    }
    for finding in damaged_open_runs(&store).await? {
        report(finding);
    }
    if let Some(file) = store.file() {
        stray_rows(file).await?.into_iter().for_each(&mut report);
    }
    (summary.conversations, summary.messages, summary.tool_calls) =
        (conversations, messages, calls);
    output.write(&summary.to_line(), &summary);
    output.finish()?;
    Ok(ExitCode::from(u8::from(summary.problems > 0)))
}

/// What was checked, and how much was wrong.
#[derive(Debug, Serialize)]
struct Summary {
    kind: &'static str,
    problems: usize,
    conversations: usize,
    messages: usize,
    tool_calls: usize,
    /// Whether the file that holds them was checked, which a server has not.
    file: bool,
}

impl Summary {
    fn new(file: bool) -> Self {
        let kind = "summary";
        Self { kind, problems: 0, conversations: 0, messages: 0, tool_calls: 0, file }
    }

    fn to_line(&self) -> String {
        let Self { problems, conversations, messages, tool_calls, file, .. } = self;
        let found = match problems {
            0 => "all is well".to_owned(),
            problems => format!("{problems} problems"),
        };
        let of_file = match file {
            true => ", and the file that holds them",
            false => ", but not the files of the server",
        };
        format!(
            "{found}; checked: {conversations} conversations, {messages} messages, \
             {tool_calls} tool calls{of_file}"
        )
    }
}
