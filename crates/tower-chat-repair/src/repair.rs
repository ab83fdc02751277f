//! Repairs a store.
//!
//! The *record of tool calls* is a part of a store: one row for each call, with its status, times
//! and result. The *directory* is the part of a store that contains descriptions, times, counts and
//! usage of conversations and runs. The messages of an *open run* are not part of the history yet.

use tower_chat_core::{
    ConversationKey,
    store::{Description, Directory, DirectoryCounts, Maintenance, Rewrite, StoreError, Summaries},
};

use crate::{
    Finding, Problem, RepairError, Target,
    directory::{DirectoryProblem, counts, directory_problem},
    history_summaries::ReadSummaries,
    plan::{self, Plan},
    problems,
    rows::{Keys, damage_of_file, keys_of, rows_of, stray_rows},
    target::StoreFile,
};

/// The number of times that a repair or the removal of a description is tried for one conversation.
/// An attempt fails if another process changes the conversation at the same time.
const ATTEMPTS: usize = 5;

/// The outcome of one repair.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// The problem was repaired. From [`plan_repair`]: [`repair`] would repair the problem.
    Done(Finding),
    /// The problem was not repaired.
    Left(Finding),
}

/// The numbers of repairs and of remaining problems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// The number of repairs that were made, or, from [`plan_repair`], that [`repair`] would make.
    pub repaired: usize,
    /// The number of problems that remain.
    pub left: usize,
}

/// Repairs the problems of a store. Calls `report` after each repair is durable, and for each
/// problem that cannot be repaired.
///
/// The repair adds missing results of calls, and moves results without calls to the metadata of
/// their messages. The repair also corrects or removes wrong rows in the record of tool calls,
/// removes unreadable descriptions, and corrects wrong counts in the directory. If the summary in
/// force does not match its messages, the repair removes this summary, so that the model receives
/// the messages. A change of a message also removes the summaries that cover the message. In a
/// conversation with an open run or an unreadable message, the repair changes no messages, rows or
/// counts. A damaged file is not changed at all, because writing to the file may damage more data.
///
/// # Errors
///
/// Fails for the same reasons as [`verify`](crate::verify()). Also fails if the store rejects a
/// write, or if other processes changed a conversation during each of several attempts to repair
/// it.
pub async fn repair(
    target: &Target,
    report: &mut (dyn FnMut(Repair) + Send),
) -> Result<Repaired, RepairError> {
    Repairs { is_planned: false, report, count: Repaired::default() }.of(target).await
}

/// Calls `report` for each repair that [`repair`] would make and for each problem that cannot be
/// repaired. Does not change the store.
///
/// # Errors
///
/// Fails for the same reasons as [`verify`](crate::verify()).
pub async fn plan_repair(
    target: &Target,
    report: &mut (dyn FnMut(Repair) + Send),
) -> Result<Repaired, RepairError> {
    Repairs { is_planned: true, report, count: Repaired::default() }.of(target).await
}

/// Makes the repairs of a store, or only plans them if `is_planned` is set. Reports and counts the
/// outcomes.
struct Repairs<'r> {
    is_planned: bool,
    report: &'r mut (dyn FnMut(Repair) + Send),
    count: Repaired,
}

impl Repairs<'_> {
    async fn of(mut self, target: &Target) -> Result<Repaired, RepairError> {
        let damage = match &target.file {
            Some(file) => damage_of_file(&**file).await?,
            None => Vec::new(),
        };
        let Keys { keys, damage: unlisted } = keys_of(target).await?;
        if damage.is_empty() && unlisted.is_none() {
            for key in &keys {
                let changed = repair_conversation(target, key, &mut self).await?;
                repair_summaries(target, key, changed, &mut self).await?;
            }
            if let Some(file) = &target.file {
                repair_stray_rows(&**file, &mut self).await?;
            }
        } else {
            damage.into_iter().chain(unlisted).for_each(|finding| self.left(finding));
        }
        Ok(self.count)
    }

    fn repaired(&mut self, finding: Finding) {
        self.count.repaired += 1;
        (self.report)(Repair::Done(finding));
    }

    fn left(&mut self, finding: Finding) {
        self.count.left += 1;
        (self.report)(Repair::Left(finding));
    }

    fn problems_left(&mut self, key: &ConversationKey, problems: &[Problem]) {
        for Problem { message, what } in problems {
            let left = Problem::new(*message, format!("not repaired: {what}"));
            self.left(Finding::of_message(key, &left));
        }
    }
}

/// Repairs the messages and the directory entry of a conversation. Returns the number of the first
/// message that was changed or would be changed.
async fn repair_conversation(
    target: &Target,
    key: &ConversationKey,
    repairs: &mut Repairs<'_>,
) -> Result<Option<u64>, RepairError> {
    let mut conflict = None;
    for _attempt in 0..ATTEMPTS {
        let mut rows = match rows_of(target, key).await? {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(None),
            Err(damage) => {
                match accept_missing_beginning(target, key, repairs).await? {
                    Accepted::Done => continue,
                    Accepted::Planned => {}
                    Accepted::Nothing => repairs.left(damage),
                }
                return Ok(None);
            }
        };
        let Plan { rewrite, repairs: planned } = Plan::new(key, &rows);
        if let Some(open) = rows.head.open_run.as_ref().filter(|_| !rewrite.is_empty()) {
            // Another process may be executing the run with these messages in memory. The repair
            // therefore does not change the messages.
            let what = format!("not repaired while run {} is open", open.run);
            repairs.problems_left(key, &problems(&rows));
            repairs.left(Finding::of_conversation(key, what));
            return Ok(None);
        }
        plan::apply(&rewrite, &mut rows);
        let changed = rewrite.first_message();
        let covering = covering_summaries(target, key, changed).await?;
        if !repairs.is_planned && !rewrite.is_empty() {
            match target.history().rewrite(rewrite).await {
                Ok(_) => {}
                Err(StoreError::Conflict(found)) => {
                    conflict = Some(StoreError::Conflict(found));
                    continue;
                }
                Err(source) => return Err(RepairError::Repair { key: key.clone(), source }),
            }
        }
        planned.iter().for_each(|repair| repairs.repaired(Finding::of_message(key, repair)));
        covering.into_iter().for_each(|removed| repairs.repaired(removed));
        repairs.problems_left(key, &problems(&rows));
        repair_directory(target, key, repairs).await?;
        return Ok(changed);
    }
    match conflict {
        Some(source) => Err(RepairError::Repair { key: key.clone(), source }),
        None => Ok(None),
    }
}

/// Returns the finding for the summaries that a change of the message `changed` removes; `None` if
/// the summary in force does not cover this message.
async fn covering_summaries(
    target: &Target,
    key: &ConversationKey,
    changed: Option<u64>,
) -> Result<Option<Finding>, RepairError> {
    let Some(changed) = changed else { return Ok(None) };
    let head = target.history().head(key).await;
    let head = head.map_err(|source| RepairError::Repair { key: key.clone(), source })?;
    let is_covered = head.summary.is_some_and(|summary| summary.covers_to >= changed);
    let what = format!("the summaries that cover message {changed} are removed with its repair");
    Ok(is_covered.then(|| Finding::of_conversation(key, what)))
}

/// Repairs the directory entry of a conversation. An unreadable description (title and metadata) is
/// removed, because a description cannot be computed from the messages. The counts are set to those
/// of the messages, unless the conversation has an open run or an unreadable message.
async fn repair_directory(
    target: &Target,
    key: &ConversationKey,
    repairs: &mut Repairs<'_>,
) -> Result<(), RepairError> {
    let Ok(Some(mut rows)) = rows_of(target, key).await? else { return Ok(()) };
    let Some(found) = directory_problem(target, key, &rows).await? else { return Ok(()) };
    let counts = counts(&rows).filter(|_| rows.head.open_run.is_none());
    if matches!(found, DirectoryProblem::Differs { .. }) && counts.is_none() {
        repairs.left(found.finding(key));
        return Ok(());
    }
    let repaired = found.finding(key).with_repair("it is computed again from the messages");
    if repairs.is_planned {
        repairs.repaired(repaired);
        return Ok(());
    }
    if matches!(found, DirectoryProblem::Unreadable(_)) {
        remove_description(target, key).await?;
    }
    // If the counts were unreadable, the first rewrite only makes the counts readable. The second
    // rewrite then corrects a count of tool calls that differs from the messages.
    for _attempt in 0..2 {
        let left = directory_problem(target, key, &rows).await?;
        let (Some(left), Some(counts)) = (left, &counts) else { break };
        let mut counted = DirectoryCounts::new(counts.runs);
        if let DirectoryProblem::Differs { tool_calls, .. } = left {
            counted.tool_calls = tool_calls;
        }
        let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
        rewrite.counts = Some(counted);
        match target.history().rewrite(rewrite).await {
            Ok(revision) => rows.head.revision = revision,
            // `rows` are outdated, because another process has written to the conversation.
            Err(StoreError::Conflict(_)) => break,
            Err(source) => return Err(RepairError::Repair { key: key.clone(), source }),
        }
    }
    match directory_problem(target, key, &rows).await? {
        None => repairs.repaired(repaired),
        Some(problem) => repairs.left(problem.finding(key)),
    }
    Ok(())
}

/// Removes the summary in force while it has a problem, if all messages that it covers are stored.
/// The model then receives the summary before it, or the messages. A summary of pruned messages is
/// not removed, because only the summary may contain anything about them, unless its text is
/// unreadable. `changed` is the first message that the repair of the messages has changed.
async fn repair_summaries(
    target: &Target,
    key: &ConversationKey,
    changed: Option<u64>,
    repairs: &mut Repairs<'_>,
) -> Result<(), RepairError> {
    let Ok(Some(rows)) = rows_of(target, key).await? else { return Ok(()) };
    let Some(mut summaries) = ReadSummaries::of(target, key, &rows).await? else { return Ok(()) };
    if repairs.is_planned {
        // The change of the message removes these summaries.
        changed.into_iter().for_each(|first| summaries.remove_from(first));
    }
    loop {
        let problems = summaries.problems(&rows);
        let Some((id, finding)) = problems.iter().find_map(|problem| problem.repair(key)) else {
            problems.iter().for_each(|problem| repairs.left(problem.finding(key)));
            return Ok(());
        };
        if repairs.is_planned {
            repairs.repaired(finding);
            summaries.remove(id);
            continue;
        }
        match target.history().remove_summary(key, id).await {
            Ok(true) => repairs.repaired(finding),
            // Another process has removed the summary, or added another one.
            Ok(false) => return Ok(()),
            Err(source) => return Err(RepairError::Repair { key: key.clone(), source }),
        }
        match ReadSummaries::of(target, key, &rows).await? {
            Some(left) => summaries = left,
            None => return Ok(()),
        }
    }
}

async fn remove_description(target: &Target, key: &ConversationKey) -> Result<(), RepairError> {
    let mut version = 0;
    for _attempt in 0..ATTEMPTS {
        match target.history().set_description(key, &Description::new(), version).await {
            Ok(_) => break,
            Err(StoreError::DescriptionChanged { found, .. }) => version = found,
            Err(error) if error.is_damage() => break,
            Err(source) => return Err(RepairError::Repair { key: key.clone(), source }),
        }
    }
    Ok(())
}

/// The outcome of `accept_missing_beginning`.
enum Accepted {
    /// The beginning of the conversation is not missing, or the store cannot mark it as pruned.
    Nothing,
    /// The beginning is missing, and a repair would mark it as pruned.
    Planned,
    /// The missing beginning is marked as pruned, and the conversation is readable again.
    Done,
}

/// Marks the missing first messages of an encrypted conversation as pruned (deleted on purpose).
/// Such a conversation is unreadable if a process without the encryption keys has removed its first
/// messages.
async fn accept_missing_beginning(
    target: &Target,
    key: &ConversationKey,
    repairs: &mut Repairs<'_>,
) -> Result<Accepted, RepairError> {
    let Some(sealed) = &target.sealed else { return Ok(Accepted::Nothing) };
    let Some(missing) = sealed.missing(key).await else { return Ok(Accepted::Nothing) };
    let finding = Finding::of_conversation(
        key,
        format!(
            "its messages up to {missing} were removed without its keys: the later messages are readable"
        ),
    );
    if repairs.is_planned {
        repairs.repaired(finding);
        return Ok(Accepted::Planned);
    }
    match sealed.accept(key).await {
        Ok(true) => {
            repairs.repaired(finding);
            Ok(Accepted::Done)
        }
        Ok(false) => Ok(Accepted::Nothing),
        Err(error) if error.is_damage() || matches!(error, StoreError::UnderWay { .. }) => {
            Ok(Accepted::Nothing)
        }
        Err(source) => Err(RepairError::Repair { key: key.clone(), source }),
    }
}

/// Removes the rows in the record of tool calls that belong to no conversation. Messages that
/// belong to no conversation are reported but not removed, because they may be the only copy of
/// their content.
async fn repair_stray_rows(
    file: &dyn StoreFile,
    repairs: &mut Repairs<'_>,
) -> Result<(), RepairError> {
    let tools = file.stray_rows().await.map_err(RepairError::File)?.tools;
    if tools > 0 {
        if !repairs.is_planned {
            file.remove_stray_tools().await.map_err(RepairError::File)?;
        }
        let what =
            format!("records of tool calls that belong to no conversation are deleted: {tools}");
        repairs.repaired(Finding::of_store(what));
    }
    let messages = file.stray_rows().await.map_err(RepairError::File)?.messages;
    if messages > 0
        && let Some(finding) = stray_rows(file).await?
    {
        repairs.left(finding);
    }
    Ok(())
}
