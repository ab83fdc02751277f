//! Queries of the directory.

use std::{sync::Arc, time::SystemTime};

use serde_json::{Map, Value};

use super::{ConversationState, ConversationSummary, DirectoryCursor};
use crate::ConversationKey;

/// A query of conversations. The query selects the conversations that match all of its criteria,
/// the most recently active one first.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::store::{ConversationQuery, ConversationState};
/// let yesterday = SystemTime::now() - Duration::from_secs(86_400);
/// let waiting = ConversationQuery::in_scope("alice")
///     .active_since(yesterday)
///     .in_state(ConversationState::WaitingForApproval)
///     .with_metadata("topic", "coats")
///     .with_limit(20);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConversationQuery {
    /// Selects conversations of this scope; of all scopes if it is `None`.
    pub scope: Option<Arc<str>>,
    /// Selects conversations that were last active at this time or later.
    pub active_since: Option<SystemTime>,
    /// Selects conversations that were last active before this time.
    pub active_before: Option<SystemTime>,
    /// Selects conversations that were created at this time or later.
    pub created_since: Option<SystemTime>,
    /// Selects conversations that were created before this time.
    pub created_before: Option<SystemTime>,
    /// Selects conversations whose metadata contains all of these members, each with the same
    /// value.
    pub metadata: Map<String, Value>,
    /// Selects conversations in this state.
    pub state: Option<ConversationState>,
    /// Selects the branches of this conversation.
    pub parent: Option<ConversationKey>,
    /// Selects conversations after this position.
    pub after: Option<DirectoryCursor>,
    /// The maximum number of conversations. If more conversations match, the query selects the
    /// first ones in the order of the directory.
    pub limit: usize,
}

impl ConversationQuery {
    /// The default number of conversations on a page.
    pub const DEFAULT_LIMIT: usize = 50;

    /// Selects the conversations of all scopes, up to 50 per page.
    pub fn in_all_scopes() -> Self {
        Self {
            scope: None,
            active_since: None,
            active_before: None,
            created_since: None,
            created_before: None,
            metadata: Map::new(),
            state: None,
            parent: None,
            after: None,
            limit: Self::DEFAULT_LIMIT,
        }
    }

    /// Selects the conversations of a scope, up to 50 per page.
    pub fn in_scope(scope: impl Into<Arc<str>>) -> Self {
        Self { scope: Some(scope.into()), ..Self::in_all_scopes() }
    }

    /// Selects conversations that were last active at this time or later.
    #[must_use]
    pub fn active_since(mut self, time: SystemTime) -> Self {
        self.active_since = Some(time);
        self
    }

    /// Selects conversations that were last active before this time.
    #[must_use]
    pub fn active_before(mut self, time: SystemTime) -> Self {
        self.active_before = Some(time);
        self
    }

    /// Selects conversations that were created at this time or later.
    #[must_use]
    pub fn created_since(mut self, time: SystemTime) -> Self {
        self.created_since = Some(time);
        self
    }

    /// Selects conversations that were created before this time.
    #[must_use]
    pub fn created_before(mut self, time: SystemTime) -> Self {
        self.created_before = Some(time);
        self
    }

    /// Selects conversations whose metadata contains this member with this value.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Selects conversations in this state.
    #[must_use]
    pub fn in_state(mut self, state: ConversationState) -> Self {
        self.state = Some(state);
        self
    }

    /// Selects the branches that were [forked](crate::store::Maintenance::fork_at) from this
    /// conversation, whether or not it still exists.
    #[must_use]
    pub fn branches_of(mut self, parent: ConversationKey) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Selects conversations after this position, which is [`ConversationPage::next`] of the
    /// previous page.
    #[must_use]
    pub fn after(mut self, cursor: DirectoryCursor) -> Self {
        self.after = Some(cursor);
        self
    }

    /// Sets the maximum number of conversations.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns whether the scope of a conversation matches the query.
    pub fn concerns(&self, key: &ConversationKey) -> bool {
        self.scope.as_deref().is_none_or(|scope| scope == key.scope())
    }

    /// Returns whether a conversation matches the criteria of the query. The limit is not checked.
    pub fn fits(&self, summary: &ConversationSummary) -> bool {
        let ConversationSummary { key, last_active_at, created_at, .. } = summary;
        self.concerns(key)
            && self.active_since.is_none_or(|since| *last_active_at >= since)
            && self.active_before.is_none_or(|before| *last_active_at < before)
            && self.created_since.is_none_or(|since| *created_at >= since)
            && self.created_before.is_none_or(|before| *created_at < before)
            && self.state.is_none_or(|state| summary.state == state)
            && self.parent.as_ref().is_none_or(|parent| {
                summary.parent.as_ref().is_some_and(|found| found.key == *parent)
            })
            && summary.description.contains(&self.metadata)
            && self.after.as_ref().is_none_or(|after| DirectoryCursor::after(summary) > *after)
    }
}

/// The result of a [`ConversationQuery`]. The most recently active conversation is first. If two
/// conversations were last active in the same millisecond, the conversation with the lesser key is
/// first.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ConversationPage {
    /// The conversations that could be read.
    pub conversations: Vec<ConversationSummary>,
    /// The conversations whose directory data could not be read, so that it is unknown whether they
    /// match. Unreadable conversations do not hide the others.
    pub unreadable: Vec<UnreadableConversation>,
    /// The position at which the next page begins; `None` if this is the last page.
    pub next: Option<DirectoryCursor>,
}

/// A conversation whose directory data cannot be read. The messages of the conversation may be
/// readable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the directory entry of conversation {key} cannot be read: {reason}")]
#[non_exhaustive]
pub struct UnreadableConversation {
    /// The conversation.
    pub key: ConversationKey,
    /// The reason why the directory data cannot be read.
    pub reason: String,
}

impl UnreadableConversation {
    /// Creates an error for a conversation, with the reason.
    pub fn new(key: ConversationKey, reason: impl Into<String>) -> Self {
        Self { key, reason: reason.into() }
    }
}

impl ConversationPage {
    /// Creates a page, with the position of the next one.
    pub fn new(conversations: Vec<ConversationSummary>, next: Option<DirectoryCursor>) -> Self {
        Self { conversations, unreadable: Vec::new(), next }
    }

    /// Returns the page that a query selects from all conversations, for a store that has their
    /// summaries in memory. The summaries may be in any order.
    pub fn of_all(
        query: &ConversationQuery,
        conversations: impl IntoIterator<Item = ConversationSummary>,
    ) -> Self {
        let fitting = conversations.into_iter().filter(|summary| query.fits(summary));
        let mut fitting: Vec<_> =
            fitting.map(|summary| (DirectoryCursor::after(&summary), summary)).collect();
        fitting.sort_by(|(left, _), (right, _)| left.cmp(right));
        let is_last = fitting.len() <= query.limit;
        fitting.truncate(query.limit);
        let next = match fitting.last() {
            _ if is_last => None,
            Some((cursor, _)) => Some(cursor.clone()),
            None => query.after.clone(),
        };
        Self::new(fitting.into_iter().map(|(_, summary)| summary).collect(), next)
    }
}
