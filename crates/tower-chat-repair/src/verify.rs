//! Checks a store.

use crate::{
    Finding, RepairError, Target,
    directory::directory_problem,
    problems,
    rows::{Keys, damage_of_file, damaged_open_runs, keys_of, rows_of, stray_rows},
};

/// The numbers of checked items and of problems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The number of problems that were reported.
    pub problems: usize,
    /// The number of conversations that were checked.
    pub conversations: usize,
    /// The number of messages of these conversations.
    pub messages: usize,
    /// The number of rows in the record of tool calls of these conversations.
    pub tool_calls: usize,
}

/// Checks the contents of a store, and reports each problem when it is found. Nothing is changed.
///
/// The check reports:
///
/// - rows that cannot be read or contradict each other,
/// - messages that every provider would reject after a replay,
/// - counts of the directory that contradict the messages,
/// - open runs that cannot be read,
/// - damage of the file.
///
/// # Errors
///
/// Fails if the store cannot be read for a reason other than damage, or if a conversation is encrypted and
/// its key is missing.
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
