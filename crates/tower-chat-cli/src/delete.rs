//! `tower-chat delete`.

use std::process::ExitCode;

use clap::Args;
use tower_chat::{
    BoxError, ConversationKey,
    store::{ConversationQuery, Directory},
};
use tower_chat_delivery::{Erase, UpdateLog as _};
use tower_chat_encrypted::is_sealed_message;
use tower_chat_transfer::{
    Event, Operation, Receipt, Selection, Transfer, TransferError, delete_conversation,
    delete_scope,
};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::json_line,
    files::{FileMode, check_written},
    interruption::until_interrupted,
    output::{Lines, counted},
    store::{self, OpenedStore, StoreLocation},
    transfer::{Report, ReportOptions},
};

/// The maximum number of conversations that one query to the store returns.
const PAGE: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// The scope of the conversation
    #[arg(value_name = "SCOPE", requires = "id", required_unless_present = "scope")]
    of_scope: Option<String>,
    /// The id of the conversation
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// The update log of an application that executes its runs in separate tasks
    /// (DetachedRunsLayer). The updates of the deleted conversations are erased too. The default is
    /// the update log on the server of the store, or, for a SQLite store FILE, the file
    /// FILE-updates. If the default log does not exist, no updates are erased
    #[arg(long, value_name = "LOG")]
    updates: Option<StoreLocation>,
    /// Delete all conversations of this scope; needs --all
    #[arg(long, requires = "all", conflicts_with_all = ["of_scope", "id"])]
    scope: Option<String>,
    /// Confirm the deletion of all conversations
    #[arg(long, requires = "scope")]
    all: bool,
    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Delete encrypted conversations even if no keys are set
    #[arg(long)]
    without_keys: bool,
    #[command(flatten)]
    report: ReportOptions,
}

/// Deletes a conversation, or all conversations of a scope.
pub(crate) async fn delete(arguments: DeleteArguments) -> Result<ExitCode, CliError> {
    let DeleteArguments { of_scope, id, store: location, scope, dry_run, report, .. } = arguments;
    let is_checked = !arguments.without_keys;
    let one = of_scope.zip(id).map(|(scope, id)| ConversationKey::new(scope, id));
    let scope = scope.unwrap_or_default();
    if dry_run {
        let store = location.open_to_read("delete").await?;
        return preview(&store, one, &scope, report.json).await;
    }
    check_written(report.written().as_slice(), &[], &[&location])?;
    let mode = FileMode::of(&location);
    let store = location.open_to_change("delete").await?;
    let log = location.updates_of(arguments.updates.as_ref()).await?;
    if is_checked {
        refuse_sealed(&store, one.as_ref(), &scope).await?;
    }
    let selection = match &one {
        Some(key) => Selection::conversation(key.clone()),
        None => Selection::scope(scope.as_str()),
    };
    let transfer = Transfer::new(Operation::Delete, selection).from(location.name());
    let mut report = Report::new(&report, transfer, mode)?;
    settle(&store, &mut report).await?;
    let done = {
        let mut progress = |event: &Event| report.record(event);
        let work = async {
            let deleted = delete_selected(&store, one.as_ref(), &scope, &mut progress).await;
            let receipt = deleted.map_err(CliError::Transfer)?;
            let erased = match log {
                Some(log) => {
                    let erase = one.as_ref().map_or(Erase::Scope(&scope), Erase::Conversation);
                    log.erase(erase).await.map_err(CliError::EraseUpdates)?
                }
                None => 0,
            };
            Ok::<_, CliError>((receipt, erased))
        };
        until_interrupted(work).await
    };
    let closed = store.close().await;
    match done {
        None => Ok(report.interrupted("the same command continues")),
        Some(receipt) => {
            let (receipt, erased) = receipt?;
            // If only updates were erased, an earlier command has deleted the conversation.
            let is_absent = receipt.scopes.is_empty() && erased == 0;
            if let (Some(key), true) = (one, is_absent) {
                return Err(CliError::NoConversation { key });
            }
            let code = report.finish(receipt)?;
            closed.map(|()| code)
        }
    }
}

/// Fails if the store was opened without keys but the last message of a conversation is encrypted.
/// A user who has set no keys may have meant another store, whose content is not encrypted.
async fn refuse_sealed(
    store: &OpenedStore,
    one: Option<&ConversationKey>,
    scope: &str,
) -> Result<(), CliError> {
    if store.has_keys() {
        return Ok(());
    }
    let keys = match one {
        Some(key) => vec![key.clone()],
        None => store::keys(store, Some(scope.to_owned()), None).await?,
    };
    for key in keys {
        match store.history().messages_before(&key, None, 1).await {
            Ok(page) if page.messages.iter().any(|(_, message)| is_sealed_message(message)) => {
                return Err(CliError::Sealed { key });
            }
            Ok(_) => {}
            Err(error) if error.is_damage() => {}
            Err(source) => return Err(CliError::CheckConversation { key, source }),
        }
    }
    Ok(())
}

/// Completes the receipt (the file that lists the deleted conversations) of an earlier attempt. If
/// that attempt has begun to delete a conversation that no longer exists, records the deletion.
async fn settle(store: &OpenedStore, report: &mut Report) -> Result<(), CliError> {
    let Some(log) = report.log() else { return Ok(()) };
    let Some(begun) = log.begun().cloned() else { return Ok(()) };
    let summary = store.history().summary(&begun).await;
    let failed = |source| CliError::DirectoryOf { key: begun.clone(), source };
    if summary.map_err(failed)?.is_none() {
        log.was_deleted().map_err(CliError::Output)?;
    }
    Ok(())
}

async fn delete_selected(
    store: &OpenedStore,
    one: Option<&ConversationKey>,
    scope: &str,
    progress: &mut (dyn FnMut(&Event) -> Result<(), BoxError> + Send),
) -> Result<Receipt, TransferError> {
    match one {
        Some(key) => delete_conversation(&**store.history(), key, progress).await,
        None => delete_scope(&**store.history(), scope, progress).await,
    }
}

/// Prints the conversations that the command would delete without `--dry-run`.
async fn preview(
    store: &OpenedStore,
    one: Option<ConversationKey>,
    scope: &str,
    json: bool,
) -> Result<ExitCode, CliError> {
    let mut lines = Lines::default();
    let (mut conversations, mut messages) = (0, 0);
    let mut count = |key: &ConversationKey, found: u64, lines: &mut Lines| {
        conversations += 1;
        messages += found;
        if json {
            let (scope, id) = (key.scope(), key.id());
            let line = serde_json::json!({ "scope": scope, "id": id, "messages": found });
            lines.write_json(&json_line(&line));
        } else {
            lines.write(&format!("{key}: {}", counted(found, "message")));
        }
    };
    if let Some(key) = one {
        let summary = store.history().summary(&key).await;
        let failed = |source| CliError::DirectoryOf { key: key.clone(), source };
        let Some(summary) = summary.map_err(failed)? else {
            return Err(CliError::NoConversation { key });
        };
        count(&key, summary.messages, &mut lines);
    } else {
        let mut query = ConversationQuery::in_scope(scope).with_limit(PAGE);
        loop {
            let page = store.history().conversations(&query).await.map_err(CliError::Directory)?;
            for damaged in &page.unreadable {
                count(&damaged.key, 0, &mut lines);
            }
            for summary in &page.conversations {
                count(&summary.key, summary.messages, &mut lines);
            }
            let Some(next) = page.next else { break };
            query = query.after(next);
        }
    }
    if !json {
        lines.write(&format!(
            "would be deleted: {} with {}",
            counted(conversations, "conversation"),
            counted(messages, "message")
        ));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}
