//! What is stored: whether it can be opened with the keys, and what waits.

use std::{env, time::SystemTime};

use tower_chat::store::{ConversationQuery, ConversationState};

use super::findings::{Findings, Level};
use crate::{
    error::{CliError, chain},
    runs::open_runs,
    store::{KEYS_VARIABLE, OpenedStore, StoreLocation},
};

/// Looks at what is stored. That it cannot be opened is a finding too.
pub(super) async fn check(location: &StoreLocation, findings: &mut Findings) {
    let advice = "see what the error says; keys of an encrypted store are in TOWER_CHAT_KEYS";
    let opened = match location.open_to_read("check").await {
        Ok(opened) => opened,
        Err(error) => return findings.problem("store", chain(&error), advice),
    };
    if let Err(error) = look(&opened, findings).await {
        findings.problem("conversations", chain(&error), advice);
    }
    // It was only read.
    drop(opened.close().await);
}

async fn look(opened: &OpenedStore, findings: &mut Findings) -> Result<(), CliError> {
    let are_keys_set = env::var_os(KEYS_VARIABLE).is_some_and(|keys| !keys.is_empty());
    findings.ok("keys of an encrypted store", if are_keys_set { "set" } else { "not set" });
    let store = opened.history();
    let query = ConversationQuery::in_all_scopes().with_limit(1);
    let page = store.conversations(&query).await.map_err(CliError::Scopes)?;
    match page.conversations.first() {
        None => findings.ok("a sample", "there is no conversation"),
        Some(summary) => match store.load(&summary.key).await {
            Ok(history) => {
                findings.ok("a sample", format!("{} messages were read", history.messages.len()));
            }
            Err(error) => findings.problem(
                "a sample",
                chain(&error),
                "give the keys it was written with in TOWER_CHAT_KEYS, or see `tower-chat verify`",
            ),
        },
    }
    let now = SystemTime::now();
    let runs = open_runs(opened, None, None).await?;
    let left = runs.iter().filter(|(_, open)| !open.is_held_at(now)).count();
    findings.expect(
        left == 0,
        Level::Warning,
        "open runs that no process holds",
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
