//! The parent and the branches of a conversation, on the page of the conversation. A branch is a copy
//! of the first messages of its parent.

use tower_chat_layers::{
    ConversationKey,
    store::{
        ConversationQuery, ConversationSummary, Directory as _, Parent, UnreadableConversation,
    },
};

use super::{Failure, Link};
use crate::{Inspector, view::visible};

/// The maximum number of branches on the page of a conversation. The directory lists the others.
const LISTED: usize = 10;

/// The parent of a conversation.
pub(super) struct ParentFact {
    pub(super) name: String,
    /// The link to the page that shows the parent up to the message at which the branch begins.
    /// `None` if the parent does not exist, or belongs to another scope.
    pub(super) link: Option<Link>,
    pub(super) position: String,
}

impl ParentFact {
    /// Returns the parent of a conversation; `None` if the conversation is not a branch.
    pub(super) async fn of(
        inspector: &Inspector,
        summary: &ConversationSummary,
    ) -> Result<Option<Self>, Failure> {
        let Some(parent) = &summary.parent else { return Ok(None) };
        let position = position(parent);
        // The reader of the page may not be allowed to know other scopes.
        if parent.key.scope() != summary.key.scope() {
            let name = "a conversation of another scope".to_owned();
            return Ok(Some(Self { name, link: None, position }));
        }
        let exists = inspector.store.summary(&parent.key).await?.is_some();
        let before = parent.position.saturating_add(1);
        let link = exists.then(|| page_of(inspector, &parent.key).with("before", before));
        let name = match exists {
            true => visible(parent.key.id()),
            false => format!("{}, which was deleted", visible(parent.key.id())),
        };
        Ok(Some(Self { name, link, position }))
    }
}

/// The first branches of a conversation, in the order of the directory.
pub(super) struct Branches {
    pub(super) rows: Vec<Branch>,
    /// The link to the list of all branches, if there are more.
    pub(super) all: Option<Link>,
    pub(super) unreadable: Vec<UnreadableConversation>,
}

pub(super) struct Branch {
    pub(super) link: Link,
    pub(super) id: String,
    pub(super) title: Option<String>,
    pub(super) position: String,
}

impl Branches {
    /// Reads the branches of a conversation that are in its scope.
    pub(super) async fn of(inspector: &Inspector, key: &ConversationKey) -> Result<Self, Failure> {
        let query =
            ConversationQuery::in_scope(key.scope()).branches_of(key.clone()).with_limit(LISTED);
        let page = inspector.store.conversations(&query).await?;
        let all =
            Link::new(&inspector.path, "").with("scope", key.scope()).with("branches_of", key.id());
        let rows = page.conversations.iter().map(|summary| Branch {
            link: page_of(inspector, &summary.key),
            id: visible(summary.key.id()),
            title: summary.description.title().map(visible),
            position: summary.parent.as_ref().map_or_else(String::new, position),
        });
        Ok(Self { rows: rows.collect(), all: page.next.map(|_| all), unreadable: page.unreadable })
    }
}

fn page_of(inspector: &Inspector, key: &ConversationKey) -> Link {
    Link::new(&inspector.path, "conversation").with("scope", key.scope()).with("id", key.id())
}

fn position(parent: &Parent) -> String {
    match parent.position {
        0 => "before its first message".to_owned(),
        position => format!("after message {position}"),
    }
}
