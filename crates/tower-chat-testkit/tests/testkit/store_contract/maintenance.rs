//! The lists of scopes, the rows and the rewrites of the faulty stores.

use tower_chat_core::{
    ConversationKey,
    store::{
        ConversationRows, Directory, HistoryStore, Journal, Maintenance, Revision, Rewrite,
        StoreError, Summaries,
    },
};

use super::{Broken, Fault, summaries};

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

pub(super) async fn rows(
    store: &Broken,
    key: &ConversationKey,
) -> Result<Option<ConversationRows>, StoreError> {
    let Some(mut rows) = store.inner.rows(key).await? else { return Ok(None) };
    match store.fault {
        Fault::HidesTheRecord => rows.tools.clear(),
        Fault::CountsRowsFromOne => {
            let numbers = 1..;
            rows.messages.iter_mut().zip(numbers).for_each(|((at, _), number)| *at = number);
        }
        Fault::ShowsStagedRows => {
            if let Some(run) = store.inner.open_run(key).await? {
                let staged = (run.open.visible + 1..).zip(run.messages);
                rows.messages.extend(staged.map(|(number, message)| (number, Ok(message))));
            }
        }
        _ => {}
    }
    Ok(Some(rows))
}

pub(super) async fn rewrite(store: &Broken, mut rewrite: Rewrite) -> Result<Revision, StoreError> {
    let found = store.inner.head(&rewrite.key).await?;
    match store.fault {
        Fault::RewritesAtAnyRevision => rewrite.expected = found.revision,
        Fault::RewritesNothing => return Ok(found.revision),
        Fault::RewritesInSteps => {
            let removed = std::mem::take(&mut rewrite.removed_tools);
            let mut first = Rewrite::new(rewrite.key.clone(), rewrite.expected);
            first.removed_tools = removed;
            rewrite.expected = store.inner.rewrite(first).await?;
            tokio::task::yield_now().await;
        }
        Fault::RewritesMessagesAlone => {
            rewrite.tools.clear();
            rewrite.removed_tools.clear();
        }
        Fault::RewritesNoCounts => rewrite.counts = None,
        Fault::CountsRewritesOfRows => summaries::counted(store, &mut rewrite).await?,
        Fault::KeepsRewrittenSummaries => {
            let before = store.inner.history_summaries(&rewrite.key).await?;
            let key = rewrite.key.clone();
            let rewritten = store.inner.rewrite(rewrite).await?;
            summaries::rewritten(store, &key, before).await?;
            return Ok(rewritten);
        }
        Fault::RewritesOverOpenRuns if found.open_run.is_some() => return Ok(found.revision),
        _ => {}
    }
    store.inner.rewrite(rewrite).await
}
