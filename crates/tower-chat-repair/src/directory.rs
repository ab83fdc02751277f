//! What the directory says of a conversation, compared with its messages.

use std::collections::HashMap;

use tower_chat_core::{
    ConversationKey, Role, RunId,
    store::{ConversationRows, ConversationSummary, HistoryStore, RunSummary, StoreError},
};

use crate::{Finding, RepairError, Target, error::chain, problems::whole};

/// How many runs are asked for at once.
const PAGE: usize = 1000;

/// What is wrong with the entry of a conversation in the directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DirectoryProblem {
    /// It cannot be read, such as a damaged description.
    Unreadable(String),
    /// It says something that the messages deny.
    Differs {
        what: String,
        /// How many tool calls runs ask for of which it counts others.
        tool_calls: Vec<(RunId, u64)>,
    },
}

/// What the messages of a conversation show of its runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// How many runs they are of, the open run too.
    pub(crate) runs: u64,
    /// How many calls each run asks for, and how many answers of the model it has.
    pub(crate) of_runs: HashMap<RunId, (u64, u64)>,
}

impl DirectoryProblem {
    pub(crate) fn finding(&self, key: &ConversationKey) -> Finding {
        let what = match self {
            Self::Unreadable(why) => {
                format!("what the directory has of it cannot be read: {why}")
            }
            Self::Differs { what, .. } => what.clone(),
        };
        Finding::of_conversation(key, what)
    }
}

/// What is wrong with what the directory has of a conversation, whose rows are these.
pub(crate) async fn directory_problem(
    target: &Target,
    key: &ConversationKey,
    rows: &ConversationRows,
) -> Result<Option<DirectoryProblem>, RepairError> {
    let failed = |source| RepairError::Directory { key: key.clone(), source };
    let summary = match target.history().summary(key).await {
        Ok(Some(summary)) => summary,
        Ok(None) | Err(StoreError::Unsupported { .. }) => return Ok(None),
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
    // Another process may have written to the conversation since it was read.
    let is_same =
        target.history().head(key).await.is_ok_and(|head| head.revision == rows.head.revision);
    Ok(differing(&summary, rows, &listed).filter(|_| is_same))
}

/// What the messages show; `None` if some cannot be read, or were pruned.
pub(crate) fn counts(rows: &ConversationRows) -> Option<Counts> {
    let messages = whole(rows)?;
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

/// Compares the counts. A run is counted with a write whose run is not that of the write before, so there
/// are at least as many as the messages show; and not more than that, unless runs without messages were
/// counted too, or some were pruned. Where all answers of a run were counted, so were their calls.
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
        format!("the directory counts {} runs of it, and its messages are of {runs}", summary.runs)
    } else {
        let (run, calls) = wrong.first()?;
        format!(
            "the directory counts {} tool calls of run {}, and its messages ask for {calls}",
            counted_calls(run),
            run.run
        )
    };
    let tool_calls = wrong.into_iter().map(|(run, calls)| (run.run, calls)).collect();
    Some(DirectoryProblem::Differs { what, tool_calls })
}

fn counted_calls(run: &RunSummary) -> u64 {
    run.usage.iter().map(|usage| usage.sum.tool_calls).sum()
}

/// Whether another number of tool calls was counted of a run than that for which its messages ask.
fn has_other_calls(run: &RunSummary, calls: u64, answers: u64) -> bool {
    match run.usage.iter().map(|usage| usage.sum.service_calls).sum::<u64>() {
        // Nothing but its messages was counted.
        0 => counted_calls(run) != calls,
        asked => asked >= answers && counted_calls(run) < calls,
    }
}
