//! Lists the conversations that a command processes.

use tower_chat::{
    ConversationKey,
    store::{Directory, Maintenance},
};

use super::OpenedStore;
use crate::error::CliError;

/// The maximum number of conversations that one query to the store returns.
const PAGE: usize = 1000;

/// Returns the scope `asked`, or all scopes with conversations, in byte order.
pub(crate) async fn scopes(
    store: &OpenedStore,
    asked: Option<String>,
) -> Result<Vec<String>, CliError> {
    if let Some(scope) = asked {
        return Ok(vec![scope]);
    }
    let mut scopes: Vec<String> = Vec::new();
    loop {
        let after = scopes.last().map(String::as_str);
        let page = store.history().scopes(after, PAGE).await.map_err(CliError::Scopes)?;
        if page.is_empty() {
            return Ok(scopes);
        }
        scopes.extend(page);
    }
}

/// Returns the keys of the conversations with visible messages, ordered by id and then by scope.
pub(crate) async fn keys(
    store: &OpenedStore,
    scope: Option<String>,
    id: Option<&str>,
) -> Result<Vec<ConversationKey>, CliError> {
    let mut keys: Vec<ConversationKey> = Vec::new();
    for scope in scopes(store, scope).await? {
        let mut after: Option<String> = None;
        loop {
            let page = store.history().list(&scope, after.as_deref(), PAGE).await;
            let page = page.map_err(|source| CliError::List { scope: scope.clone(), source })?;
            let Some(last) = page.last() else { break };
            after = Some(last.id().to_owned());
            keys.extend(page.into_iter().filter(|key| id.is_none_or(|id| key.id() == id)));
        }
    }
    keys.sort_by(|left, right| (left.id(), left.scope()).cmp(&(right.id(), right.scope())));
    Ok(keys)
}
