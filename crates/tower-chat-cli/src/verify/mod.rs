//! `tower-chat verify`.

mod database;
mod problems;

use std::process::ExitCode;

pub(crate) use self::{
    database::{Keys, damage_of_file, keys_of, rows_of, stray_rows},
    problems::{Problem, is_in_record, problems, readable, whole},
};
use crate::{arguments::VerifyArguments, error::CliError, output::Lines};

/// Checks everything in a store.
pub(crate) async fn verify(arguments: VerifyArguments) -> Result<ExitCode, CliError> {
    let opened = arguments.store.open_to_read("verify").await?;
    let store = opened.sqlite("verify")?;
    let mut lines = Lines::default();
    let mut found = 0_usize;
    let mut report = |problem: String| {
        found += 1;
        lines.write(&problem);
    };
    damage_of_file(store).await?.into_iter().for_each(&mut report);
    let Keys { keys, damage } = keys_of(&opened).await?;
    damage.into_iter().for_each(&mut report);
    let (mut conversations, mut messages, mut calls) = (0_usize, 0_usize, 0_usize);
    for key in &keys {
        match rows_of(store, key).await? {
            Ok(None) => {}
            Ok(Some(rows)) => {
                conversations += 1;
                messages += rows.messages.len();
                calls += rows.tools.len();
                problems(&rows).iter().map(|problem| problem.to_line(key)).for_each(&mut report);
            }
            Err(damage) => report(damage),
        }
    }
    if let Some(stray) = stray_rows(store).await? {
        report(stray);
    }
    if found == 0 {
        lines.write(&format!(
            "all is well: {conversations} conversations, {messages} messages, {calls} tool calls"
        ));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::from(u8::from(found > 0)))
}
