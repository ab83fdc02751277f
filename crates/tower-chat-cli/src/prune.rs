//! `tower-chat prune`.

use std::{
    process::ExitCode,
    time::{Duration, SystemTime},
};

use tower_chat::{
    ConversationKey,
    store::{HistoryStore, Keep, Pruned, StoreError, author::Pruning},
};

use tower_chat_sqlite::SqliteStore;

use crate::{age::Age, arguments::PruneArguments, error::CliError, output::Lines, store};

/// Takes the oldest runs of conversations away.
pub(crate) async fn prune(arguments: PruneArguments) -> Result<ExitCode, CliError> {
    let keep = match (arguments.keep_messages, arguments.older_than) {
        (Some(count), _) => Keep::Messages(count),
        (None, Some(Age(age))) => Keep::Since(time_before(SystemTime::now(), age)),
        // One of them is demanded.
        (None, None) => return Ok(ExitCode::from(2)),
    };
    let store = match arguments.dry_run {
        true => arguments.store.open_to_read("prune").await?,
        false => arguments.store.open_to_change("prune").await?,
    };
    let keys = store::keys(&store, arguments.scope, arguments.conversation.as_deref()).await?;
    let mut lines = Lines::default();
    let mut sum = Pruned::default();
    let (mut conversations, mut left_alone) = (0_usize, 0_usize);
    for key in keys {
        let done = match arguments.dry_run {
            true => planned(store.sqlite("prune with --dry-run")?, &key, keep).await,
            false => store.history().prune(&key, keep).await,
        };
        let pruned = match done {
            Ok(pruned) => pruned,
            Err(
                error @ (StoreError::UnderWay { .. }
                | StoreError::Corrupt { .. }
                | StoreError::Undecodable { .. }),
            ) => {
                left_alone += 1;
                lines.write(&line(&key, &format!("left alone: {error}")));
                continue;
            }
            Err(source) => return Err(CliError::Prune { key, source }),
        };
        if pruned.messages > 0 {
            conversations += 1;
            sum.runs += pruned.runs;
            sum.messages += pruned.messages;
            let (runs, messages) = (pruned.runs, pruned.messages);
            lines.write(&line(&key, &format!("{runs} runs of {messages} messages")));
        }
        if let Some(call) = pruned.held_back_by {
            left_alone += 1;
            let (message, index) = (call.sequence, call.index);
            let held_back = format!("held back: call {index} of message {message} waits");
            lines.write(&line(&key, &held_back));
        }
    }
    let verb = if arguments.dry_run { "would go" } else { "gone" };
    lines.write(&format!(
        "{verb}: {} messages in {} runs of {conversations} conversations",
        sum.messages, sum.runs
    ));
    let closed = store.close().await;
    lines.finish().map_err(CliError::Output)?;
    closed?;
    Ok(ExitCode::from(u8::from(left_alone > 0)))
}

/// What would go of a conversation.
async fn planned(
    store: &SqliteStore,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, StoreError> {
    let Some(rows) = store.rows(key).await? else { return Ok(Pruned::default()) };
    if let Some(open) = rows.open_run {
        return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
    }
    // Of a message that cannot be read the run is not known; loading says so.
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

fn line(key: &ConversationKey, what: &str) -> String {
    format!("{key}: {what}")
}
