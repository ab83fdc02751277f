//! Which conversations a transfer takes, and in which order.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, StoreError},
};

/// How many keys are asked for at a time.
const PAGE: usize = 500;

/// Which conversations a transfer takes. They are taken in the byte order of scope and id.
///
/// ```
/// use tower_chat::{ConversationKey, transfer::Selection};
/// let one = Selection::conversation(ConversationKey::new("alice", "support"));
/// let all_of_alice = Selection::scope("alice");
/// assert!(all_of_alice.contains(&ConversationKey::new("alice", "coats")));
/// // An interrupted transfer goes on after the last conversation that it has done.
/// let rest = all_of_alice.after(ConversationKey::new("alice", "coats"));
/// assert!(!rest.contains(&ConversationKey::new("alice", "coats")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// All, if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<(String, String)>,
}

impl Selection {
    /// One conversation.
    pub fn conversation(key: ConversationKey) -> Self {
        Self::scope(key.scope()).with_id(key.id())
    }

    /// All conversations of a scope.
    pub fn scope(scope: impl Into<String>) -> Self {
        Self::scopes([scope.into()])
    }

    /// All conversations of some scopes.
    pub fn scopes(scopes: impl IntoIterator<Item = String>) -> Self {
        let mut scopes: Vec<_> = scopes.into_iter().collect();
        scopes.sort_unstable();
        scopes.dedup();
        Self { scopes: Some(scopes), ..Self::everything() }
    }

    /// All conversations of all scopes.
    pub fn everything() -> Self {
        Self { scopes: None, id: None, after: None }
    }

    /// Of each scope, only the conversation with this id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Only those that come after one.
    #[must_use]
    pub fn after(mut self, key: ConversationKey) -> Self {
        self.after = Some((key.scope().to_owned(), key.id().to_owned()));
        self
    }

    /// The same without [`after`](Self::after).
    #[must_use]
    pub fn from_the_first(mut self) -> Self {
        self.after = None;
        self
    }

    /// Whether a conversation is one of them.
    pub fn contains(&self, key: &ConversationKey) -> bool {
        let is_of_scope =
            self.scopes.as_ref().is_none_or(|scopes| scopes.iter().any(|it| it == key.scope()));
        is_of_scope && self.id.as_ref().is_none_or(|id| id == key.id()) && self.is_after(key)
    }

    fn is_after(&self, key: &ConversationKey) -> bool {
        let after = self.after.as_ref().map(|(scope, id)| (scope.as_str(), id.as_str()));
        after.is_none_or(|after| after < (key.scope(), key.id()))
    }
}

/// The keys of a selection, page by page.
pub(crate) struct Keys<'a> {
    store: &'a dyn HistoryStore,
    selection: Selection,
    /// The scope that is listed, and the last id of it that was found.
    current: Option<(String, Option<String>)>,
    last_scope: Option<String>,
    found: VecDeque<ConversationKey>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(store: &'a dyn HistoryStore, selection: &Selection) -> Self {
        let selection = selection.clone();
        Self { store, selection, current: None, last_scope: None, found: VecDeque::new() }
    }

    /// How many there are from here on.
    pub(crate) async fn count(mut self) -> Result<u64, StoreError> {
        let mut count = 0;
        while self.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    pub(crate) async fn next(&mut self) -> Result<Option<ConversationKey>, StoreError> {
        loop {
            if let Some(key) = self.found.pop_front() {
                return Ok(Some(key));
            }
            if self.current.is_none() {
                let Some(scope) = self.next_scope().await? else { return Ok(None) };
                let after = match &self.selection.after {
                    Some((after, id)) if *after == scope => Some(id.clone()),
                    Some(_) | None => None,
                };
                self.current = Some((scope, after));
            }
            self.list_page().await?;
        }
    }

    /// The scope after the last one that was listed.
    async fn next_scope(&mut self) -> Result<Option<String>, StoreError> {
        let after = self.selection.after.as_ref().map(|(scope, _)| scope.as_str());
        let last = self.last_scope.as_deref();
        let scope = match &self.selection.scopes {
            Some(scopes) => scopes
                .iter()
                .find(|scope| {
                    last.is_none_or(|last| scope.as_str() > last)
                        && after.is_none_or(|after| scope.as_str() >= after)
                })
                .cloned(),
            None => match (last, after) {
                (None, Some(after)) => Some(after.to_owned()),
                (last, _) => self.store.scopes(last, 1).await?.pop(),
            },
        };
        self.last_scope.clone_from(&scope);
        Ok(scope)
    }

    /// The next conversations of the current scope: those that readers see something of, and those
    /// with an open run.
    async fn list_page(&mut self) -> Result<(), StoreError> {
        let Some((scope, after)) = self.current.take() else { return Ok(()) };
        if let Some(id) = &self.selection.id {
            let key = ConversationKey::new(scope.as_str(), id.as_str());
            if self.selection.is_after(&key) && self.store.summary(&key).await?.is_some() {
                self.found.push_back(key);
            }
            return Ok(());
        }
        let visible = self.store.list(&scope, after.as_deref(), PAGE).await?;
        let open = self.store.open_runs(&scope, after.as_deref(), PAGE).await?;
        let open: Vec<_> = open.into_iter().map(|(key, _)| key).collect();
        // Of two lists that may go on, only what is not after the end of either is known in full.
        let ends = [&visible, &open].into_iter().filter(|page| page.len() == PAGE);
        let end = ends.filter_map(|page| page.last()).min().cloned();
        let mut keys: Vec<_> = visible.into_iter().chain(open).collect();
        keys.sort_unstable();
        keys.dedup();
        if let Some(end) = &end {
            keys.retain(|key| key <= end);
            self.current = Some((scope, Some(end.id().to_owned())));
        }
        self.found.extend(keys);
        Ok(())
    }
}
