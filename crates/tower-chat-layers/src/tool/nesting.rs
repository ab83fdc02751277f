//! Runs that tools start inside another run.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, ConversationKey};

/// The request extension with the conversations of the outer runs of a nested run.
///
/// [`ToolContext::nest`](super::ToolContext::nest) adds this extension to a request. If a nested
/// run used the conversation of an outer run, the nested run would write messages between a call
/// and its result in the outer run. Persistence layers therefore refuse such a run by calling
/// [`check`](Self::check).
///
/// ```
/// use tower_chat::{ChatRequest, ConversationKey, tool::RunAncestry};
///
/// let outer = ConversationKey::new("alice", "travel");
/// let inside = RunAncestry::new().inside(outer.clone());
///
/// // A tool that calls a sub-agent uses a separate conversation for the sub-agent.
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
    /// Creates the ancestry of a run that is not nested.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the ancestry of a request. The ancestry is empty if the request is not for a nested
    /// run.
    pub fn of(request: &ChatRequest) -> Self {
        request.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Returns the ancestry of a run that is nested in a run on this conversation. `self` is the
    /// ancestry of the outer run.
    #[must_use]
    pub fn inside(&self, key: ConversationKey) -> Self {
        Self { innermost: Some(Arc::new(Ancestor { key, parent: self.innermost.clone() })) }
    }

    /// Returns whether an outer run uses this conversation.
    pub fn contains(&self, key: &ConversationKey) -> bool {
        self.conversations().any(|ancestor| ancestor == key)
    }

    /// Returns the conversations of the outer runs, from the innermost to the outermost.
    pub fn conversations(&self) -> impl Iterator<Item = &ConversationKey> {
        std::iter::successors(self.innermost.as_deref(), |ancestor| ancestor.parent.as_deref())
            .map(|ancestor| &ancestor.key)
    }

    pub(crate) fn is_nested(request: &ChatRequest) -> bool {
        request.extensions.get::<Self>().is_some_and(|ancestry| ancestry.innermost.is_some())
    }

    /// Checks that a nested run does not use the conversation of an outer run.
    ///
    /// # Errors
    ///
    /// Returns [`NestedInAncestor`] if an outer run uses the conversation of the request.
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
    fn a_run_ancestry_contains_every_ancestor_and_no_other_conversation() {
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
