//! The index of the branches of a conversation. A branch is a copy of the beginning of its parent.
//!
//! A hash contains the keys of the branches. In a cluster, this hash may be on another server than a
//! branch, so that one script cannot access both. Therefore the index follows the rules of the list
//! of a scope ([`crate::list`]): a writer adds the branch to the index before it creates the branch,
//! and a reader checks that each branch exists and has this parent. The index may contain branches
//! that do not exist, but it contains all branches that exist. Deleting the parent does not change
//! the index, because its branches remain.
//!
//! The value of a branch contains the time of the last addition and the tokens of the writers. A
//! branch is removed only if no writer can still create the branch.

use futures_util::future::join_all;
use redis::cmd;
use tower_chat_core::{ConversationKey, store::StoreError};

use crate::{
    answer::{self, corrupt},
    list::WINDOW,
    script::{ADD_BRANCH, REMOVE_BRANCH},
    settings::Settings,
};

/// Adds a branch to the index of its parent. `token` is the token with which the writer has added
/// the branch to the list of its scope. Returns whether the index did not contain the branch.
pub(crate) async fn add(
    settings: &Settings,
    parent: &ConversationKey,
    branch: &ConversationKey,
    token: &str,
) -> Result<bool, StoreError> {
    let call = ADD_BRANCH
        .on([settings.names.branches(parent)])
        .with(member(branch))
        .with(token)
        .with((2 * WINDOW).as_millis().to_string());
    let answer = settings.connections.change("add a branch to its index", true, &call).await?;
    Ok(answer::text(answer)? == "new")
}

/// Removes a branch that does not exist from the index, unless a token shows that another process
/// may create the branch. `token` is the token with which a deleted branch was created; empty if it
/// is not known.
///
/// An error is ignored, because the next reader of the index removes the branch.
pub(crate) async fn remove(
    settings: &Settings,
    parent: &ConversationKey,
    branch: &ConversationKey,
    token: &str,
) {
    let call = REMOVE_BRANCH
        .on([settings.names.branches(parent)])
        .with(member(branch))
        .with(token)
        .with((2 * WINDOW).as_millis().to_string());
    drop(settings.connections.read("remove a branch from its index", &call).await);
}

/// Removes several branches that do not exist.
pub(crate) async fn remove_all(
    settings: &Settings,
    parent: &ConversationKey,
    branches: &[ConversationKey],
) {
    join_all(branches.iter().map(|branch| remove(settings, parent, branch, ""))).await;
}

/// Returns the keys in the index of a conversation, in any order. Some of the branches may not
/// exist, or may have another parent.
pub(crate) async fn indexed(
    settings: &Settings,
    parent: &ConversationKey,
) -> Result<Vec<ConversationKey>, StoreError> {
    let mut command = cmd("HKEYS");
    command.arg(settings.names.branches(parent));
    let answer = settings.connections.ask("list branches", &command).await?;
    answer::list(answer)?.into_iter().map(|member| key(&answer::text(member)?)).collect()
}

/// Returns the form of a branch in the index: its scope and its id in JSON.
fn member(branch: &ConversationKey) -> String {
    serde_json::Value::from(vec![branch.scope(), branch.id()]).to_string()
}

fn key(member: &str) -> Result<ConversationKey, StoreError> {
    let [scope, id]: [String; 2] = serde_json::from_str(member)
        .map_err(|error| corrupt(&format!("a branch in the index: {error}")))?;
    Ok(ConversationKey::new(scope, id))
}
