//! `tower-chat repair`.

mod plan;

use std::process::ExitCode;

use tower_chat::{
    ConversationKey,
    store::{HistoryStore, StoreError},
};
use tower_chat_sqlite::SqliteStore;

use self::plan::Plan;
use crate::{
    arguments::RepairArguments,
    error::CliError,
    output::Lines,
    verify::{Keys, Problem, damage_of_file, keys_of, problems, rows_of, stray_rows},
};

/// How often a conversation is looked at again when somebody writes to it meanwhile.
const ATTEMPTS: usize = 5;

/// Repairs what is wrong with a store.
pub(crate) async fn repair(arguments: RepairArguments) -> Result<ExitCode, CliError> {
    let dry_run = arguments.dry_run;
    let opened = match dry_run {
        true => arguments.store.open_to_read("repair").await?,
        false => arguments.store.open_to_change("repair").await?,
    };
    let store = opened.sqlite("repair")?;
    let mut report = Report { dry_run, lines: Lines::default(), repaired: 0, left: 0 };
    let damage = damage_of_file(store).await?;
    let Keys { keys, damage: unlisted } = keys_of(&opened).await?;
    if damage.is_empty() && unlisted.is_none() {
        for key in &keys {
            repair_conversation(store, key, &mut report).await?;
        }
        repair_stray_rows(store, &mut report).await?;
    } else {
        // To write to a damaged file may damage more.
        damage.into_iter().chain(unlisted).for_each(|line| report.left(&line));
    }
    store.close().await.map_err(CliError::Check)?;
    report.finish()
}

async fn repair_conversation(
    store: &SqliteStore,
    key: &ConversationKey,
    report: &mut Report,
) -> Result<(), CliError> {
    let mut conflict = None;
    for _attempt in 0..ATTEMPTS {
        let mut rows = match rows_of(store, key).await? {
            Ok(Some(rows)) => rows,
            Ok(None) => return Ok(()),
            Err(damage) => {
                report.left(&damage);
                return Ok(());
            }
        };
        let Plan { rewrite, repairs } = Plan::new(key, &rows);
        if let Some(open) = rows.open_run.as_ref().filter(|_| !rewrite.is_empty()) {
            // The run goes on after what it has seen: it must not change under it.
            let run = open.run;
            problems(&rows).iter().for_each(|problem| report.left(&left(problem).to_line(key)));
            report.left(&format!("conversation {key}: not repaired while run {run} is open"));
            return Ok(());
        }
        plan::apply(&rewrite, &mut rows);
        if !report.dry_run && !rewrite.is_empty() {
            match store.rewrite(rewrite).await {
                Ok(_) => {}
                Err(StoreError::Conflict(found)) => {
                    conflict = Some(StoreError::Conflict(found));
                    continue;
                }
                Err(source) => return Err(CliError::Repair { key: key.clone(), source }),
            }
        }
        repairs.iter().for_each(|repair| report.repaired(&repair.to_line(key)));
        problems(&rows).iter().for_each(|problem| report.left(&left(problem).to_line(key)));
        return Ok(());
    }
    match conflict {
        Some(source) => Err(CliError::Repair { key: key.clone(), source }),
        None => Ok(()),
    }
}

fn left(problem: &Problem) -> Problem {
    Problem::new(problem.message, format!("left as it is: {}", problem.what))
}

/// Records that belong to no conversation go; messages are kept, since they may be all that is
/// left of something.
async fn repair_stray_rows(store: &SqliteStore, report: &mut Report) -> Result<(), CliError> {
    let tools = store.stray_rows().await.map_err(CliError::Check)?.tools;
    if tools > 0 {
        if !report.dry_run {
            store.remove_stray_tools().await.map_err(CliError::Check)?;
        }
        report.repaired(&format!(
            "database: {tools} records of tool calls belong to no conversation: they go"
        ));
    }
    let messages = store.stray_rows().await.map_err(CliError::Check)?.messages;
    if messages > 0
        && let Some(line) = stray_rows(store).await?
    {
        report.left(&line);
    }
    Ok(())
}

/// What is said and counted.
struct Report {
    dry_run: bool,
    lines: Lines,
    repaired: usize,
    left: usize,
}

impl Report {
    fn repaired(&mut self, line: &str) {
        self.repaired += 1;
        self.lines.write(line);
    }

    fn left(&mut self, line: &str) {
        self.left += 1;
        self.lines.write(line);
    }

    fn finish(mut self) -> Result<ExitCode, CliError> {
        let Self { dry_run, repaired, left, .. } = self;
        let line = match (dry_run, repaired, left) {
            (_, 0, 0) => "nothing to repair".to_owned(),
            (true, ..) => format!("{repaired} to repair, {left} that cannot be repaired"),
            (false, ..) => format!("{repaired} repaired, {left} left"),
        };
        self.lines.write(&line);
        self.lines.finish().map_err(CliError::Output)?;
        Ok(ExitCode::from(u8::from(left > 0 || (dry_run && repaired > 0))))
    }
}
