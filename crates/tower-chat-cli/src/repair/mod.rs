//! `tower-chat repair`.

mod plan;

use std::process::ExitCode;

use serde::Serialize;
use tower_chat::{
    ConversationKey,
    store::{Description, DirectoryCounts, HistoryStore, Rewrite, StoreError},
};
use tower_chat_encrypted::EncryptionError;
use tower_chat_sqlite::SqliteStore;

use self::plan::Plan;
use crate::{
    arguments::RepairArguments,
    error::CliError,
    report::Report,
    store::OpenedStore,
    verify::{
        DirectoryProblem, Finding, Keys, Kind, Problem, counts, damage_of_file, directory_problem,
        keys_of, problems, rows_of, stray_rows,
    },
};

/// How often a conversation is looked at again when somebody writes to it meanwhile.
const ATTEMPTS: usize = 5;

/// Repairs what is wrong with a store.
pub(crate) async fn repair(arguments: RepairArguments) -> Result<ExitCode, CliError> {
    let store = match arguments.dry_run {
        true => arguments.store.open_to_read("repair").await?,
        false => arguments.store.open_to_change("repair").await?,
    };
    let mut repairs = Repairs::new(&arguments);
    let damage = match store.file() {
        Some(file) => damage_of_file(file).await?,
        None => Vec::new(),
    };
    let Keys { keys, damage: unlisted } = keys_of(&store).await?;
    if damage.is_empty() && unlisted.is_none() {
        for key in &keys {
            repair_conversation(&store, key, &mut repairs).await?;
        }
        if let Some(file) = store.file() {
            repair_stray_rows(file, &mut repairs).await?;
        }
    } else {
        // To write to a damaged file may damage more.
        damage.iter().chain(&unlisted).for_each(|finding| repairs.left(finding));
    }
    store.close().await?;
    repairs.finish()
}

async fn repair_conversation(
    store: &OpenedStore,
    key: &ConversationKey,
    repairs: &mut Repairs,
) -> Result<(), CliError> {
    let mut conflict = None;
    for _attempt in 0..ATTEMPTS {
        let mut rows = match rows_of(store, key).await? {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(damage) => {
                match accept_missing_beginning(store, key, repairs).await? {
                    Accepted::Done => continue,
                    Accepted::Planned => {}
                    Accepted::Nothing => repairs.left(&damage),
                }
                return Ok(());
            }
        };
        let Plan { rewrite, repairs: planned } = Plan::new(key, &rows);
        if let Some(open) = rows.head.open_run.as_ref().filter(|_| !rewrite.is_empty()) {
            // The run goes on after what it has seen: it must not change under it.
            let what = format!("not repaired while run {} is open", open.run);
            repairs.problems_left(key, &problems(&rows));
            repairs.left(&Finding::of_conversation(key, what));
            return Ok(());
        }
        plan::apply(&rewrite, &mut rows);
        if !repairs.dry_run && !rewrite.is_empty() {
            match store.history().rewrite(rewrite).await {
                Ok(_) => {}
                Err(StoreError::Conflict(found)) => {
                    conflict = Some(StoreError::Conflict(found));
                    continue;
                }
                Err(source) => return Err(CliError::Repair { key: key.clone(), source }),
            }
        }
        planned.iter().for_each(|repair| repairs.repaired(&Finding::of_message(key, repair)));
        repairs.problems_left(key, &problems(&rows));
        return repair_directory(store, key, repairs).await;
    }
    match conflict {
        Some(source) => Err(CliError::Repair { key: key.clone(), source }),
        None => Ok(()),
    }
}

/// Makes what the directory has of a conversation again: a description that cannot be read goes, since
/// nothing else says what it was, and the counts become those of the messages, unless a run is open.
async fn repair_directory(
    store: &OpenedStore,
    key: &ConversationKey,
    repairs: &mut Repairs,
) -> Result<(), CliError> {
    let Ok(Some(mut rows)) = rows_of(store, key).await? else { return Ok(()) };
    let Some(found) = directory_problem(store, key, &rows).await? else { return Ok(()) };
    let counts = counts(&rows).filter(|_| rows.head.open_run.is_none());
    if matches!(found, DirectoryProblem::Differs { .. }) && counts.is_none() {
        repairs.left(&found.finding(key));
        return Ok(());
    }
    let repaired = found.finding(key).and("it is made again from the messages");
    if repairs.dry_run {
        repairs.repaired(&repaired);
        return Ok(());
    }
    if matches!(found, DirectoryProblem::Unreadable(_)) {
        remove_description(store, key).await?;
    }
    // Counts that cannot be read may be wrong too once they can be.
    for _attempt in 0..2 {
        let left = directory_problem(store, key, &rows).await?;
        let (Some(left), Some(counts)) = (left, &counts) else { break };
        let mut counted = DirectoryCounts::new(counts.runs);
        if let DirectoryProblem::Differs { tool_calls, .. } = left {
            counted.tool_calls = tool_calls;
        }
        let mut rewrite = Rewrite::new(key.clone(), rows.head.revision);
        rewrite.counts = Some(counted);
        match store.history().rewrite(rewrite).await {
            Ok(revision) => rows.head.revision = revision,
            // Another process has written to the conversation: the problem that is left is reported.
            Err(StoreError::Conflict(_)) => break,
            Err(source) => return Err(CliError::Repair { key: key.clone(), source }),
        }
    }
    match directory_problem(store, key, &rows).await? {
        None => repairs.repaired(&repaired),
        Some(problem) => repairs.left(&problem.finding(key)),
    }
    Ok(())
}

async fn remove_description(store: &OpenedStore, key: &ConversationKey) -> Result<(), CliError> {
    let mut version = 0;
    for _attempt in 0..ATTEMPTS {
        match store.history().set_description(key, &Description::new(), version).await {
            Ok(_) => break,
            Err(StoreError::DescriptionChanged { found, .. }) => version = found,
            Err(error) if error.is_damage() => break,
            Err(source) => return Err(CliError::Repair { key: key.clone(), source }),
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
    store: &OpenedStore,
    key: &ConversationKey,
    repairs: &mut Repairs,
) -> Result<Accepted, CliError> {
    let Some(encrypted) = store.encrypted() else { return Ok(Accepted::Nothing) };
    let missing = match HistoryStore::head(encrypted, key).await {
        Err(error) => match EncryptionError::in_store_error(&error) {
            Some(EncryptionError::CutOff { missing, .. }) => *missing,
            Some(_) | None => return Ok(Accepted::Nothing),
        },
        Ok(_) => return Ok(Accepted::Nothing),
    };
    let finding = Finding::of_conversation(
        key,
        format!("its first {missing} messages were removed without its keys: the rest is readable"),
    );
    if repairs.dry_run {
        repairs.repaired(&finding);
        return Ok(Accepted::Planned);
    }
    match encrypted.accept_missing_beginning(key).await {
        Ok(true) => {
            repairs.repaired(&finding);
            Ok(Accepted::Done)
        }
        Ok(false) => Ok(Accepted::Nothing),
        Err(error) if error.is_damage() || matches!(error, StoreError::UnderWay { .. }) => {
            Ok(Accepted::Nothing)
        }
        Err(source) => Err(CliError::Repair { key: key.clone(), source }),
    }
}

/// Records that belong to no conversation go; messages are kept, since they may be all that is
/// left of something.
async fn repair_stray_rows(store: &SqliteStore, repairs: &mut Repairs) -> Result<(), CliError> {
    let tools = store.stray_rows().await.map_err(CliError::Check)?.tools;
    if tools > 0 {
        if !repairs.dry_run {
            store.remove_stray_tools().await.map_err(CliError::Check)?;
        }
        let what = format!("{tools} records of tool calls belong to no conversation: they go");
        repairs.repaired(&Finding::of_store(what));
    }
    let messages = store.stray_rows().await.map_err(CliError::Check)?.messages;
    if messages > 0
        && let Some(finding) = stray_rows(store).await?
    {
        repairs.left(&finding);
    }
    Ok(())
}

/// What is said and counted.
struct Repairs {
    dry_run: bool,
    output: Report,
    repaired: usize,
    left: usize,
}

#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    dry_run: bool,
    repaired: usize,
    left: usize,
}

impl Repairs {
    fn new(arguments: &RepairArguments) -> Self {
        let output = Report::new(arguments.json);
        Self { dry_run: arguments.dry_run, output, repaired: 0, left: 0 }
    }

    fn repaired(&mut self, finding: &Finding) {
        self.repaired += 1;
        let kind = if self.dry_run { Kind::ToRepair } else { Kind::Repaired };
        finding.write(kind, &mut self.output);
    }

    fn left(&mut self, finding: &Finding) {
        self.left += 1;
        finding.write(Kind::Left, &mut self.output);
    }

    fn problems_left(&mut self, key: &ConversationKey, problems: &[Problem]) {
        for Problem { message, what } in problems {
            let left = Problem::new(*message, format!("left as it is: {what}"));
            self.left(&Finding::of_message(key, &left));
        }
    }

    fn finish(self) -> Result<ExitCode, CliError> {
        let Self { dry_run, mut output, repaired, left } = self;
        let line = match (dry_run, repaired, left) {
            (_, 0, 0) => "nothing to repair".to_owned(),
            (true, ..) => format!("{repaired} to repair, {left} that cannot be repaired"),
            (false, ..) => format!("{repaired} repaired, {left} left"),
        };
        output.write(&line, &Summary { kind: "summary", dry_run, repaired, left });
        output.finish()?;
        Ok(ExitCode::from(u8::from(left > 0 || (dry_run && repaired > 0))))
    }
}
