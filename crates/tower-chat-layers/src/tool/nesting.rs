//! Runs that tools start inside another run.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, ConversationKey};

/// The request extension with the conversations of the outer runs of a nested run.
///
/// [`ToolContext::nest`](super::ToolContext::nest) adds this extension to a request. A run inside a run
/// on the same conversation would write into the middle of a round of its ancestor, so persistence
/// layers refuse it with [`check`](Self::check).
///
/// ```
/// use tower_chat::{ChatRequest, ConversationKey, tool::RunAncestry};
///
/// let outer = ConversationKey::new("alice", "travel");
/// let inside = RunAncestry::new().inside(outer.clone());
///
/// // A tool that asks a sub-agent gives it a conversation of its own.
/// let own = ChatRequest::user("Find a seat.").in_conversation(ConversationKey::new("alice", "seats"));
/// assert!(own.with_extension(inside.clone()).messages().len() == 1);
/// assert!(inside.contains(&outer));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunAncestry {
    innermost: Option<Arc<Ancestor>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Ancestor {
    key: ConversationKey,
    parent: Option<Arc<Ancestor>>,
}

impl RunAncestry {
    /// Creates the ancestry of a run that no tool started.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the ancestry of a request, which is empty by default.
    pub fn of(request: &ChatRequest) -> Self {
        request.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns the ancestry of a run started inside a run on this conversation.
    #[must_use]
    pub fn inside(&self, key: ConversationKey) -> Self {
        Self { innermost: Some(Arc::new(Ancestor { key, parent: self.innermost.clone() })) }
    }

    /// Returns whether a run on this conversation is among the ancestors.
    pub fn contains(&self, key: &ConversationKey) -> bool {
        self.conversations().any(|ancestor| ancestor == key)
    }

    /// Returns the ancestors' conversations, the innermost first.
    pub fn conversations(&self) -> impl Iterator<Item = &ConversationKey> {
        std::iter::successors(self.innermost.as_deref(), |ancestor| ancestor.parent.as_deref())
            .map(|ancestor| &ancestor.key)
    }

    /// Returns whether a request is for a nested run.
    pub(crate) fn is_nested(request: &ChatRequest) -> bool {
        request.extensions.get::<Self>().is_some_and(|ancestry| ancestry.innermost.is_some())
    }

    /// Refuses a run on a conversation of one of its ancestors.
    ///
    /// # Errors
    ///
    /// Returns [`NestedInAncestor`] if the request's conversation is among its ancestors'.
    pub fn check(request: &ChatRequest) -> Result<(), NestedInAncestor> {
        let ancestry = request.extensions.get::<Self>();
        match (ancestry, request.conversation()) {
            (Some(ancestry), Some(conversation)) if ancestry.contains(&conversation.key) => {
                Err(NestedInAncestor { key: conversation.key.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// The error for a tool that started a run on the conversation of an outer run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tool of a run on conversation {key} started another run on the same conversation: \
     give the nested run a conversation of its own"
)]
#[non_exhaustive]
pub struct NestedInAncestor {
    /// The conversation.
    pub key: ConversationKey,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> ConversationKey {
        ConversationKey::new("s", id)
    }

    #[test]
    fn every_ancestor_is_remembered_and_no_other_conversation() {
        let ancestry = RunAncestry::new().inside(key("a")).inside(key("b"));
        assert!(ancestry.contains(&key("a")) && ancestry.contains(&key("b")));
        assert!(!ancestry.contains(&key("c")));
        assert_eq!(ancestry.conversations().collect::<Vec<_>>(), [&key("b"), &key("a")]);
    }

    #[test]
    fn a_run_on_an_ancestors_conversation_is_refused() {
        let ancestry = RunAncestry::new().inside(key("a")).inside(key("b"));
        let request = |id| ChatRequest::user("x").in_conversation(key(id));
        let nested = request("a").with_extension(ancestry.clone());
        assert_eq!(RunAncestry::check(&nested), Err(NestedInAncestor { key: key("a") }));
        assert_eq!(RunAncestry::check(&request("c").with_extension(ancestry)), Ok(()));
        assert_eq!(RunAncestry::check(&request("a")), Ok(()));
    }
}
