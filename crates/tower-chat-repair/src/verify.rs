//! Checks a store.

use crate::{
    Finding, RepairError, Target,
    directory::directory_problem,
    history_summaries::ReadSummaries,
    problems,
    rows::{Keys, damage_of_file, damaged_open_runs, keys_of, rows_of, stray_rows},
};

/// The numbers of items that were checked and of problems that were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The number of problems that were reported.
    pub problems: usize,
    /// The number of conversations that were checked.
    pub conversations: usize,
    /// The number of messages of these conversations.
    pub messages: usize,
    /// The number of rows that were checked in the record of tool calls of these conversations. The
    /// record has a row for each call.
    pub tool_calls: usize,
}

/// Checks the contents of a store, and calls `report` for each problem. Does not change the store.
///
/// The check reports:
///
/// - rows that are unreadable or contradict each other,
/// - messages that every provider would reject even after a replay (the conversion to the messages
///   of a request),
/// - summaries that do not match the messages that they cover: a summary is unreadable, ends after
///   the last message, at another message or inside a turn, or covers a call that waits for its
///   result or for approval,
/// - counts of messages, runs or calls, in the list of conversations, that contradict the messages,
/// - unreadable messages of open runs, which are not part of the history yet,
/// - damage of the SQLite file, if the target includes it.
///
/// # Errors
///
/// Fails if reading the store fails for a reason other than damage, or if the target has no key for
/// an encrypted conversation.
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
                let summaries = ReadSummaries::of(target, key, &rows).await?;
                let found = summaries.map_or_else(Vec::new, |it| it.problems(&rows));
                found.iter().map(|it| it.finding(key)).for_each(&mut report);
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
