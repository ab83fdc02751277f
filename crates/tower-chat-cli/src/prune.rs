//! `tower-chat prune`.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::{ArgGroup, Args};
use serde::Serialize;
use tower_chat::{
    ConversationKey, HistoryStore,
    store::{Keep, Maintenance, Pruned, SequencePosition, StoreError, author::Pruning},
};

use crate::{
    age::Age,
    arguments::STORE_VARIABLE,
    error::{CliError, chain},
    output::{count_of, counted},
    report::Report,
    store::{self, StoreLocation},
};

/// The arguments of `prune`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("keep").required(true))]
pub(crate) struct PruneArguments {
    /// The store: sqlite:PATH, postgres://USER@HOST/DATABASE or redis://HOST/DATABASE
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    pub(crate) store: StoreLocation,
    /// Keep at least this many messages of each conversation
    #[arg(long, value_name = "N", group = "keep")]
    pub(crate) keep_messages: Option<u64>,
    /// Delete the runs that began longer ago than this age: 30d, 12h, 15m or 45s
    #[arg(long, value_name = "AGE", group = "keep")]
    pub(crate) older_than: Option<Age>,
    /// Only conversations of this scope
    #[arg(long)]
    pub(crate) scope: Option<String>,
    /// Only the conversation with this id
    #[arg(long, value_name = "ID")]
    pub(crate) conversation: Option<String>,
    /// Print what would be deleted, and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print one JSON object per line: an object for each conversation that was changed or skipped,
    /// and a summary
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn prune(arguments: PruneArguments) -> Result<ExitCode, CliError> {
    let keep = match (arguments.keep_messages, arguments.older_than) {
        (Some(count), _) => Keep::Messages(count),
        (None, Some(Age(age))) => Keep::Since(time_before(SystemTime::now(), age)),
        // This case cannot occur, because clap requires one of the two options.
        (None, None) => return Ok(ExitCode::from(2)),
    };
    let store = match arguments.dry_run {
        true => arguments.store.open_to_read("prune").await?,
        false => arguments.store.open_to_change("prune").await?,
    };
    let keys = store::keys(&store, arguments.scope, arguments.conversation.as_deref()).await?;
    let mut report = Report::new(arguments.json);
    let mut summary = Summary::new(arguments.dry_run);
    for key in keys {
        let done = match arguments.dry_run {
            true => planned(&**store.history(), &key, keep).await,
            false => store.history().prune(&key, keep).await,
        };
        match done {
            Ok(pruned) => summary.pruned(&key, &pruned, &mut report),
            Err(error) if error.is_damage() || matches!(error, StoreError::UnderWay { .. }) => {
                summary.left_alone(&key, &error, &mut report);
            }
            Err(source) => return Err(CliError::Prune { key, source }),
        }
    }
    report.write(&summary.to_line(), &summary);
    let closed = store.close().await;
    report.finish()?;
    closed?;
    Ok(ExitCode::from(u8::from(summary.left_alone > 0)))
}

/// The numbers of deleted runs and messages, or with `--dry-run` the numbers that would be deleted.
#[derive(Serialize)]
struct Summary {
    kind: &'static str,
    dry_run: bool,
    conversations: usize,
    runs: u64,
    messages: u64,
    /// The number of conversations that were skipped (damaged, or with a run in progress), or from
    /// which fewer messages were deleted than requested.
    left_alone: usize,
}

#[derive(Serialize)]
struct Outcome<'a> {
    kind: &'static str,
    scope: &'a str,
    conversation: &'a str,
    #[serde(flatten)]
    what: Change,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Change {
    Gone { runs: u64, messages: u64 },
    HeldBack { message: u64, call: u32 },
    LeftAlone { why: String },
}

impl Summary {
    fn new(dry_run: bool) -> Self {
        let kind = "summary";
        Self { kind, dry_run, conversations: 0, runs: 0, messages: 0, left_alone: 0 }
    }

    fn pruned(&mut self, key: &ConversationKey, pruned: &Pruned, report: &mut Report) {
        if pruned.messages > 0 {
            let (runs, messages) = (pruned.runs, pruned.messages);
            self.conversations += 1;
            self.runs += runs;
            self.messages += messages;
            let kind = if self.dry_run { "would_go" } else { "gone" };
            let line =
                format!("{key}: {} of {}", counted(runs, "run"), counted(messages, "message"));
            report.write(&line, &outcome(key, kind, Change::Gone { runs, messages }));
        }
        if let Some(SequencePosition { sequence: message, index: call }) = pruned.held_back_by {
            self.left_alone += 1;
            let line = format!(
                "{key}: the run of message {message} and later runs are kept, because call {call} of \
                 this message waits"
            );
            report.write(&line, &outcome(key, "held_back", Change::HeldBack { message, call }));
        }
    }

    fn left_alone(&mut self, key: &ConversationKey, error: &StoreError, report: &mut Report) {
        self.left_alone += 1;
        let why = chain(error);
        let line = format!("{key}: skipped: {why}");
        report.write(&line, &outcome(key, "left_alone", Change::LeftAlone { why }));
    }

    fn to_line(&self) -> String {
        let Self { dry_run, conversations, runs, messages, .. } = self;
        let verb = if *dry_run { "would be deleted" } else { "deleted" };
        let messages = counted(*messages, "message");
        let (runs, conversations) =
            (counted(*runs, "run"), counted(count_of(*conversations), "conversation"));
        format!("{verb}: {messages} in {runs} of {conversations}")
    }
}

fn outcome<'a>(key: &'a ConversationKey, kind: &'static str, what: Change) -> Outcome<'a> {
    Outcome { kind, scope: key.scope(), conversation: key.id(), what }
}

/// Determines which runs of a conversation a prune would delete.
async fn planned(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, StoreError> {
    let Some(rows) = store.rows(key).await? else { return Ok(Pruned::default()) };
    if let Some(open) = rows.head.open_run {
        return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
    }
    // The run of an unreadable message is unknown, so that the conversation is skipped.
    let history = store.load(key).await?;
    let mut pruning = Pruning::new(key, &history.head, keep);
    for (sequence, message) in history.numbered() {
        if let Some(id) = message.id {
            pruning.see_message(sequence, id.run);
        }
    }
    for record in rows.tools.iter().filter_map(|(_, record)| record.as_ref().ok()) {
        pruning.see_record(record);
    }
    Ok(pruning.cut()?.pruned)
}

fn time_before(now: SystemTime, age: Duration) -> SystemTime {
    now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}
