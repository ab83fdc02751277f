//! A store whose scopes and rows break its promises.

use tower_chat_core::store::{HistoryStore, StoreError};

use super::{Broken, Fault};

pub(super) async fn scopes(
    store: &Broken,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let mut scopes = store.inner.scopes(after, usize::MAX).await?;
    match store.fault {
        Fault::ListsScopesBackwards => scopes.reverse(),
        Fault::ListsScopesAfterInclusively => {
            if let Some(after) = after {
                scopes.insert(0, after.to_owned());
            }
        }
        Fault::HidesStagedScopes => {
            let mut seen = Vec::new();
            for scope in scopes {
                if !store.inner.list(&scope, None, 1).await?.is_empty() {
                    seen.push(scope);
                }
            }
            scopes = seen;
        }
        _ => {}
    }
    scopes.truncate(limit);
    Ok(scopes)
}
