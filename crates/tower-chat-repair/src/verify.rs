//! Everything in a store is checked.

use crate::{
    Finding, RepairError, Target,
    directory::directory_problem,
    problems,
    rows::{Keys, damage_of_file, damaged_open_runs, keys_of, rows_of, stray_rows},
};

/// What was checked, and how much is wrong with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// How many problems were reported.
    pub problems: usize,
    /// How many conversations were checked.
    pub conversations: usize,
    /// How many messages they have.
    pub messages: usize,
    /// How many rows the record of their tool calls has.
    pub tool_calls: usize,
}

/// Checks everything in a store, and reports each problem as it is found: rows that cannot be read or do not fit
/// together, what every provider would refuse of what a model is sent, counts of the directory that the messages
/// deny, open runs that cannot be read, and damage of the file. Nothing is changed.
///
/// # Errors
///
/// If the store cannot be read for another reason than damage, or a conversation is encrypted and its key is
/// missing.
pub async fn verify(
    target: &Target,
    report: &mut (dyn FnMut(Finding) + Send),
) -> Result<Verified, RepairError> {
    let mut verified = Verified::default();
    let mut report = |finding: Finding| {
        verified.problems += 1;
        report(finding);
    };
    if let Some(file) = &target.file {
        damage_of_file(&**file).await?.into_iter().for_each(&mut report);
    }
    let Keys { keys, damage } = keys_of(target).await?;
    damage.into_iter().for_each(&mut report);
    let (mut conversations, mut messages, mut tool_calls) = (0, 0, 0);
    for key in &keys {
        match rows_of(target, key).await? {
            Ok(None) => {}
            Ok(Some(rows)) => {
                conversations += 1;
                messages += rows.messages.len();
                tool_calls += rows.tools.len();
                let found = problems(&rows);
                found.iter().map(|it| Finding::of_message(key, it)).for_each(&mut report);
                let problem = directory_problem(target, key, &rows).await?;
                problem.iter().map(|it| it.finding(key)).for_each(&mut report);
            }
            Err(damage) => report(damage),
        }
    }
    damaged_open_runs(target).await?.into_iter().for_each(&mut report);
    if let Some(file) = &target.file {
        stray_rows(&**file).await?.into_iter().for_each(&mut report);
    }
    Ok(Verified { conversations, messages, tool_calls, ..verified })
}
