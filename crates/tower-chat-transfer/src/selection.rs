//! The selection of conversations, and their order.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tower_chat_core::{
    ConversationKey,
    store::{Directory, HistoryStore, Journal, Maintenance, StoreError},
};

/// The number of keys on a page. Pages are large, because a store may read all conversations for
/// each page of the list of open runs.
const PAGE: usize = 500;

/// A selection of conversations. A transfer processes them in the byte order of scope and id.
///
/// ```
/// use tower_chat::{ConversationKey, transfer::Selection};
/// let one = Selection::conversation(ConversationKey::new("alice", "support"));
/// let all_of_alice = Selection::scope("alice");
/// assert!(all_of_alice.contains(&ConversationKey::new("alice", "coats")));
/// // An interrupted transfer continues after the last finished conversation.
/// let rest = all_of_alice.after(ConversationKey::new("alice", "coats"));
/// assert!(!rest.contains(&ConversationKey::new("alice", "coats")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// The selected scopes, in ascending order; `None` selects all scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    /// The selected id in each scope; `None` selects all ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The scope and id of the conversation after which the selection begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<(String, String)>,
}

impl Selection {
    /// Selects one conversation.
    pub fn conversation(key: ConversationKey) -> Self {
        Self::scope(key.scope()).with_id(key.id())
    }

    /// Selects all conversations of a scope.
    pub fn scope(scope: impl Into<String>) -> Self {
        Self::scopes([scope.into()])
    }

    /// Selects all conversations of several scopes.
    pub fn scopes(scopes: impl IntoIterator<Item = String>) -> Self {
        let mut scopes: Vec<_> = scopes.into_iter().collect();
        scopes.sort_unstable();
        scopes.dedup();
        Self { scopes: Some(scopes), ..Self::everything() }
    }

    /// Selects all conversations of all scopes.
    pub fn everything() -> Self {
        Self { scopes: None, id: None, after: None }
    }

    /// Restricts the selection to the conversation with the given id in each scope.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Restricts the selection to the conversations after `key`, in the byte order of scope and id.
    /// Replaces an earlier restriction of this kind.
    #[must_use]
    pub fn after(mut self, key: ConversationKey) -> Self {
        self.after = Some((key.scope().to_owned(), key.id().to_owned()));
        self
    }

    /// Removes the restriction by [`after`](Self::after).
    #[must_use]
    pub fn from_the_first(mut self) -> Self {
        self.after = None;
        self
    }

    /// Returns whether a conversation is selected.
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

/// Lists the keys of the selected conversations that exist, in order, page by page.
pub(crate) struct Keys<'a> {
    store: &'a dyn HistoryStore,
    selection: Selection,
    /// The scope that is being listed.
    current: Option<ListedScope>,
    /// The scope that was listed most recently.
    last_scope: Option<String>,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(store: &'a dyn HistoryStore, selection: &Selection) -> Self {
        Self { store, selection: selection.clone(), current: None, last_scope: None }
    }

    /// Returns the number of remaining keys.
    pub(crate) async fn count(mut self) -> Result<u64, StoreError> {
        let mut count = 0;
        while self.next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    pub(crate) async fn next(&mut self) -> Result<Option<ConversationKey>, StoreError> {
        loop {
            let Some(listed) = &mut self.current else {
                let Some(scope) = self.next_scope().await? else { return Ok(None) };
                if let Some(id) = &self.selection.id {
                    let key = ConversationKey::new(scope, id.as_str());
                    if self.selection.is_after(&key) && self.store.summary(&key).await?.is_some() {
                        return Ok(Some(key));
                    }
                    continue;
                }
                let after = match &self.selection.after {
                    Some((after, id)) if *after == scope => Some(id.clone()),
                    Some(_) | None => None,
                };
                self.current = Some(ListedScope::new(scope, after));
                continue;
            };
            match listed.next(self.store).await? {
                Some(key) => return Ok(Some(key)),
                None => self.current = None,
            }
        }
    }

    /// Returns the selected scope after the most recently listed one; `None` at the end.
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
}

/// The visible conversations of a scope, and those with an open run.
struct ListedScope {
    scope: String,
    visible: ListedIds,
    open: ListedIds,
}

/// A list of conversations in the order of their ids, with one page in memory.
struct ListedIds {
    page: VecDeque<ConversationKey>,
    /// The id after which the next page begins.
    last: Option<String>,
    /// Whether `page` is the last page of the list.
    is_at_end: bool,
}

impl ListedScope {
    fn new(scope: String, after: Option<String>) -> Self {
        Self { scope, visible: ListedIds::after(after.clone()), open: ListedIds::after(after) }
    }

    /// Returns the next conversation of both lists in the order of ids, once; `None` at the end.
    async fn next(
        &mut self,
        store: &dyn HistoryStore,
    ) -> Result<Option<ConversationKey>, StoreError> {
        let Self { scope, visible, open } = self;
        if visible.needs_next_page() {
            visible.turn_to(store.list(scope, visible.last.as_deref(), PAGE).await?);
        }
        if open.needs_next_page() {
            open.turn_to(store.open_runs(scope, open.last.as_deref(), PAGE).await?);
        }
        let next = [&*visible, &*open].into_iter().filter_map(|list| list.page.front()).min();
        let next = next.cloned();
        for list in [visible, open] {
            if list.page.front() == next.as_ref() {
                list.page.pop_front();
            }
        }
        Ok(next)
    }
}

impl ListedIds {
    fn after(last: Option<String>) -> Self {
        Self { page: VecDeque::new(), last, is_at_end: false }
    }

    /// Returns whether the next page must be read.
    fn needs_next_page(&self) -> bool {
        self.page.is_empty() && !self.is_at_end
    }

    fn turn_to(&mut self, page: Vec<ConversationKey>) {
        self.is_at_end = page.len() < PAGE;
        if let Some(last) = page.last() {
            self.last = Some(last.id().to_owned());
        }
        self.page = page.into();
    }
}
