//! Checks the stored conversations: whether the keys decrypt the conversations, whether there are
//! open runs (runs that have not ended) that no process executes, and whether calls wait for
//! approval.
//!
//! The *directory* is the part of a store that contains titles, times, counts and usage of
//! conversations and runs.

use std::{env, time::SystemTime};

use tower_chat::{
    HistoryStore,
    store::{ConversationQuery, ConversationState, Directory},
};

use super::findings::{Findings, Level};
use crate::{
    error::{CliError, chain},
    output::{count_of, counted},
    runs::open_runs,
    store::{KEYS_VARIABLE, OpenedStore, StoreLocation},
};

/// Checks the stored conversations. If the store cannot be opened, adds a finding.
pub(super) async fn check(location: &StoreLocation, findings: &mut Findings) {
    let advice = "see the error; the keys of an encrypted store are in TOWER_CHAT_KEYS";
    let opened = match location.open_to_read("check").await {
        Ok(opened) => opened,
        Err(error) => return findings.problem("store", chain(&error), advice),
    };
    if let Err(error) = check_conversations(&opened, findings).await {
        findings.problem("conversations", chain(&error), advice);
    }
    // An error of closing can be ignored, because the store was only read.
    drop(opened.close().await);
}

async fn check_conversations(
    opened: &OpenedStore,
    findings: &mut Findings,
) -> Result<(), CliError> {
    let are_keys_set = env::var_os(KEYS_VARIABLE).is_some_and(|keys| !keys.is_empty());
    findings.ok("keys of an encrypted store", if are_keys_set { "set" } else { "not set" });
    let store = opened.history();
    sample(&**store, findings).await?;
    let now = SystemTime::now();
    let mut left = 0_usize;
    for key in open_runs(opened, None, None).await? {
        match store.head(&key).await {
            Ok(head) => {
                left += usize::from(head.open_run.is_some_and(|open| !open.is_held_at(now)))
            }
            // A run whose row is unreadable is counted, because no process can resume the run.
            Err(error) if error.is_damage() => left += 1,
            Err(source) => return Err(CliError::OpenRun { key, source }),
        }
    }
    findings.expect(
        left == 0,
        Level::Warning,
        "open runs without a process",
        left.to_string(),
        "see `tower-chat runs`; their programs resume them, or end them with `tower-chat recover`",
    );
    let mut waiting = 0_usize;
    let mut query = ConversationQuery::in_all_scopes()
        .in_state(ConversationState::WaitingForApproval)
        .with_limit(1000);
    loop {
        let page = store.conversations(&query).await.map_err(CliError::Scopes)?;
        waiting += page.conversations.len();
        let Some(next) = page.next else { break };
        query = query.after(next);
    }
    findings.ok("conversations that wait for approval", waiting.to_string());
    Ok(())
}

/// Reads the first conversation and the first entries of the directory, as a sample.
async fn sample(store: &dyn HistoryStore, findings: &mut Findings) -> Result<(), CliError> {
    const ENTRIES: usize = 1000;
    let query = ConversationQuery::in_all_scopes().with_limit(ENTRIES);
    let page = store.conversations(&query).await.map_err(CliError::Scopes)?;
    match page.conversations.first() {
        None => findings.ok("a sample", "no conversation can be read"),
        Some(summary) => match store.load(&summary.key).await {
            Ok(history) => {
                findings.ok("a sample", format!("read {}", counted(count_of(history.messages.len()), "message")));
            }
            Err(error) => findings.problem(
                "a sample",
                chain(&error),
                "set TOWER_CHAT_KEYS to the keys with which it was written, or see `tower-chat verify`",
            ),
        },
    }
    match page.unreadable.first() {
        None => findings.ok("the directory", format!("entries read: {}", page.conversations.len())),
        Some(damaged) => findings.problem(
            "the directory",
            format!("the entry of {} cannot be read: {}", damaged.key, damaged.reason),
            "see `tower-chat verify`, then `tower-chat repair`",
        ),
    }
    Ok(())
}
