//! Everything that can be repaired in a store is repaired.

use tower_chat_core::{
    ConversationKey,
    store::{Description, DirectoryCounts, HistoryStore, Rewrite, StoreError},
};

use crate::{
    Finding, Problem, RepairError, Target,
    directory::{DirectoryProblem, counts, directory_problem},
    plan::{self, Plan},
    problems,
    rows::{Keys, damage_of_file, keys_of, rows_of, stray_rows},
    target::StoreFile,
};

/// How often a conversation is looked at again when another process writes to it meanwhile.
const ATTEMPTS: usize = 5;

/// What becomes of something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// It is repaired, or would be ([`plan_repair`]).
    Done(Finding),
    /// It cannot be repaired, and is left as it is.
    Left(Finding),
}

/// How much was repaired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repaired {
    /// How many repairs were made, or would be.
    pub repaired: usize,
    /// How much is left as it is.
    pub left: usize,
}

/// Repairs what is wrong with a store, and reports each repair once it is durable.
///
/// Calls without results get them, results without calls go to the metadata of their messages, rows of the record
/// are corrected or removed, an unreadable description is removed, and the counts of a file's directory are made
/// again. A conversation with an open run, or with a message that cannot be read, is left as it is, and so is a
/// damaged file: to write to it may damage more.
///
/// # Errors
///
/// As those of [`verify`](crate::verify()), and if the store cannot be written.
pub async fn repair(
    target: &Target,
    report: &mut (dyn FnMut(Repair) + Send),
) -> Result<Repaired, RepairError> {
    Repairs { is_planned: false, report, count: Repaired::default() }.of(target).await
}

/// Reports what [`repair`] would do, and changes nothing.
///
/// # Errors
///
/// As those of [`verify`](crate::verify()).
pub async fn plan_repair(
    target: &Target,
    report: &mut (dyn FnMut(Repair) + Send),
) -> Result<Repaired, RepairError> {
    Repairs { is_planned: true, report, count: Repaired::default() }.of(target).await
}

/// The repairs of a store, and how many there are.
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
                repair_conversation(target, key, &mut self).await?;
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
            let left = Problem::new(*message, format!("left as it is: {what}"));
            self.left(Finding::of_message(key, &left));
        }
    }
}

async fn repair_conversation(
    target: &Target,
    key: &ConversationKey,
    repairs: &mut Repairs<'_>,
) -> Result<(), RepairError> {
    let mut conflict = None;
    for _attempt in 0..ATTEMPTS {
        let mut rows = match rows_of(target, key).await? {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(damage) => {
                match accept_missing_beginning(target, key, repairs).await? {
                    Accepted::Done => continue,
                    Accepted::Planned => {}
                    Accepted::Nothing => repairs.left(damage),
                }
                return Ok(());
            }
        };
        let Plan { rewrite, repairs: planned } = Plan::new(key, &rows);
        if let Some(open) = rows.head.open_run.as_ref().filter(|_| !rewrite.is_empty()) {
            // The run goes on after what it has seen: it must not change under it.
            let what = format!("not repaired while run {} is open", open.run);
            repairs.problems_left(key, &problems(&rows));
            repairs.left(Finding::of_conversation(key, what));
            return Ok(());
        }
        plan::apply(&rewrite, &mut rows);
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
        repairs.problems_left(key, &problems(&rows));
        return repair_directory(target, key, repairs).await;
    }
    match conflict {
        Some(source) => Err(RepairError::Repair { key: key.clone(), source }),
        None => Ok(()),
    }
}

/// Recomputes the directory entry of a conversation. A description that cannot be read is removed, because
/// it is stored nowhere else. The counts become those of the messages, unless a run is open.
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
    let repaired = found.finding(key).and("it is made again from the messages");
    if repairs.is_planned {
        repairs.repaired(repaired);
        return Ok(());
    }
    if matches!(found, DirectoryProblem::Unreadable(_)) {
        remove_description(target, key).await?;
    }
    // Once unreadable counts can be read, they may still differ from the messages.
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
            // Another process has written to the conversation, so the problem is reported.
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

/// What became of a beginning that is missing.
enum Accepted {
    /// That is not what is wrong, or it cannot be accepted.
    Nothing,
    /// It would be accepted.
    Planned,
    /// It was accepted, and the conversation can be read again.
    Done,
}

/// Accepts that the first messages of an encrypted conversation were pruned without its keys.
async fn accept_missing_beginning(
    target: &Target,
    key: &ConversationKey,
    repairs: &mut Repairs<'_>,
) -> Result<Accepted, RepairError> {
    let Some(sealed) = &target.sealed else { return Ok(Accepted::Nothing) };
    let Some(missing) = sealed.missing(key).await else { return Ok(Accepted::Nothing) };
    let finding = Finding::of_conversation(
        key,
        format!("its first {missing} messages were removed without its keys: the rest is readable"),
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

/// Records that belong to no conversation go; messages are kept, since they may be all that is
/// left of something.
async fn repair_stray_rows(
    file: &dyn StoreFile,
    repairs: &mut Repairs<'_>,
) -> Result<(), RepairError> {
    let tools = file.stray_rows().await.map_err(RepairError::File)?.tools;
    if tools > 0 {
        if !repairs.is_planned {
            file.remove_stray_tools().await.map_err(RepairError::File)?;
        }
        let what = format!("{tools} records of tool calls belong to no conversation: they go");
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
