//! Compares the directory entry of a conversation with its messages.
//!
//! The *directory* is the part of a store that contains descriptions, times, counts and usage of
//! conversations and runs. To *prune* a conversation is to delete its oldest runs.

use std::collections::HashMap;

use tower_chat_core::{
    ConversationKey, Role, RunId,
    store::{
        ConversationRows, ConversationSummary, Directory, HistoryStore, RunSummary, StoreError,
    },
};

use crate::{Finding, RepairError, Target, error::chain, problems::all_messages};

/// The maximum number of runs that one call of `Directory::runs` returns.
const PAGE: usize = 1000;

/// A problem of the directory entry of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectoryProblem {
    /// The store cannot read the entry, for example because the stored description is damaged.
    Unreadable(String),
    /// The counts of the entry contradict the messages.
    Differs {
        what: String,
        /// Each run for which the directory has a wrong number of tool calls, with the number of
        /// calls in the messages of that run.
        tool_calls: Vec<(RunId, u64)>,
    },
}

/// The numbers of runs, tool calls and answers, counted in the messages of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The number of runs, including an open run that has no messages yet.
    pub(crate) runs: u64,
    /// For each run with messages, the number of tool calls and the number of answers of the model.
    pub(crate) of_runs: HashMap<RunId, (u64, u64)>,
}

impl DirectoryProblem {
    pub(crate) fn finding(&self, key: &ConversationKey) -> Finding {
        let what = match self {
            Self::Unreadable(why) => {
                format!("its directory entry cannot be read: {why}")
            }
            Self::Differs { what, .. } => what.clone(),
        };
        Finding::of_conversation(key, what)
    }
}

/// Returns the problem of the directory entry of a conversation. Returns `None` if the entry is
/// correct, if the store has no directory, or if another process changed the conversation after
/// `rows` were read.
pub(crate) async fn directory_problem(
    target: &Target,
    key: &ConversationKey,
    rows: &ConversationRows,
) -> Result<Option<DirectoryProblem>, RepairError> {
    let failed = |source| RepairError::Directory { key: key.clone(), source };
    let summary = match target.history().summary(key).await {
        Ok(Some(summary)) => summary,
        Ok(None) | Err(StoreError::MissingCapability { .. }) => return Ok(None),
        Err(error) if error.is_damage() => {
            return Ok(Some(DirectoryProblem::Unreadable(chain(&error))));
        }
        Err(source) => return Err(failed(source)),
    };
    let mut listed: Vec<RunSummary> = Vec::new();
    let mut after = None;
    loop {
        let page = match target.history().runs(key, after, PAGE).await {
            Err(error) if error.is_damage() => {
                return Ok(Some(DirectoryProblem::Unreadable(chain(&error))));
            }
            page => page.map_err(failed)?,
        };
        after = page.last().map(|run| run.run);
        let is_last = page.len() < PAGE;
        listed.extend(page);
        if is_last {
            break;
        }
    }
    // If another process wrote to the conversation after `rows` were read, the entry describes the
    // new messages, and a comparison with `rows` would report a problem that does not exist.
    let is_same =
        target.history().head(key).await.is_ok_and(|head| head.revision == rows.head.revision);
    Ok(differing(&summary, rows, &listed).filter(|_| is_same))
}

/// Counts the runs, tool calls and answers in the messages that were not pruned. Returns `None` if
/// any of these messages is missing or unreadable.
pub(crate) fn counts(rows: &ConversationRows) -> Option<Counts> {
    let messages = all_messages(rows)?;
    let runs: Vec<RunId> = messages.iter().filter_map(|message| Some(message.id?.run)).collect();
    let changes = runs.windows(2).filter(|pair| pair.first() != pair.last()).count();
    let open = rows.head.open_run.as_ref().map(|open| open.run);
    let of_open = usize::from(open.is_some() && open != runs.last().copied());
    let mut of_runs: HashMap<RunId, (u64, u64)> = HashMap::new();
    for message in messages.iter() {
        let Some(id) = message.id else { continue };
        let (calls, answers) = of_runs.entry(id.run).or_default();
        *calls += message.asked_calls().count() as u64;
        *answers += u64::from(message.role == Role::Assistant);
    }
    let runs = changes + usize::from(!runs.is_empty()) + of_open;
    Some(Counts { runs: runs as u64, of_runs })
}

/// Compares the counts of the directory with the messages. Returns a problem that names the first
/// wrong count, and lists every run with a wrong number of tool calls.
///
/// A store increments its number of runs when the run of a write differs from the run of the
/// previous write. The number in the directory is therefore at least the number of runs in the
/// messages. The number in the directory is greater only if a run has no messages, or if messages
/// were pruned. [`has_other_calls`] decides whether the number of tool calls of a run is wrong.
fn differing(
    summary: &ConversationSummary,
    rows: &ConversationRows,
    listed: &[RunSummary],
) -> Option<DirectoryProblem> {
    let Counts { runs, of_runs } = counts(rows)?;
    let open = rows.head.open_run.as_ref().map(|open| open.run);
    let has_messages = |run: &RunSummary| of_runs.contains_key(&run.run) || open == Some(run.run);
    let is_exact = rows.head.pruned == 0 && listed.iter().all(has_messages);
    let closed = listed.iter().filter(|run| rows.head.pruned == 0 && open != Some(run.run));
    let wrong: Vec<(&RunSummary, u64)> = closed
        .filter_map(|run| {
            let (calls, answers) = *of_runs.get(&run.run)?;
            has_other_calls(run, calls, answers).then_some((run, calls))
        })
        .collect();
    let what = if summary.runs < runs || (is_exact && summary.runs > runs) {
        format!(
            "the number of its runs is {} in the directory, and {runs} in its messages",
            summary.runs
        )
    } else {
        let (run, calls) = wrong.first()?;
        format!(
            "the number of tool calls of run {} is {} in the directory, and {calls} in its messages",
            run.run,
            counted_calls(run)
        )
    };
    let tool_calls = wrong.into_iter().map(|(run, calls)| (run.run, calls)).collect();
    Some(DirectoryProblem::Differs { what, tool_calls })
}

fn counted_calls(run: &RunSummary) -> u64 {
    run.usage.iter().map(|usage| usage.sum.tool_calls).sum()
}

/// Returns whether the number of tool calls in the directory contradicts the messages of a run,
/// which contain `calls` calls in `answers` answers of the model.
fn has_other_calls(run: &RunSummary, calls: u64, answers: u64) -> bool {
    match run.usage.iter().map(|usage| usage.sum.service_calls).sum::<u64>() {
        // The store has recorded no service call for this run, and has therefore counted the calls
        // in the messages of the run. The two numbers must be equal.
        0 => counted_calls(run) != calls,
        // The directory may lack the tool calls of an answer whose service call (request to the
        // model) was not recorded.
        service_calls => service_calls >= answers && counted_calls(run) < calls,
    }
}
