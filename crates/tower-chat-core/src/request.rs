//! What goes to the model.

use std::sync::Arc;

use crate::{
    ChatOptions, Conversation, ConversationKey, HistoryOwner, Message, Messages, RunHandle, RunId,
};

/// One request to a chat model, and to every layer above it.
///
/// The messages are an immutable history followed by this request's own; cloning the request and
/// prepending a history of any length cost the same as for a short one.
///
/// ```
/// use tower_chat_core::{ChatRequest, ConversationKey};
/// let request = ChatRequest::user("Where is my order?")
///     .in_conversation(ConversationKey::new("alice", "support"));
/// assert_eq!(request.messages.len(), 1);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChatRequest {
    /// History first, then what is new.
    pub messages: Messages,
    /// Where this request's own messages begin; everything before is history that was prepended.
    pub new_from: usize,
    /// How the model is asked.
    pub options: Arc<ChatOptions>,
    /// Who keeps the history; `None` where nobody below does.
    pub history_owner: Option<HistoryOwner>,
    /// What layers say to each other: the conversation, the run, and whatever users add.
    pub extensions: http::Extensions,
}

impl ChatRequest {
    /// A request with these messages, all of them its own.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// A request with one user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Message::user(text))
    }

    /// Says which conversation the request belongs to, and starts a run of its own in it.
    ///
    /// The run id is minted here, so a clone of the request is the same run: sent again after a
    /// failure, it resumes what is stored instead of storing its input twice.
    #[must_use]
    pub fn in_conversation(self, key: ConversationKey) -> Self {
        self.in_run(Conversation { key, run: RunId::new() })
    }

    /// Like [`in_conversation`](Self::in_conversation), for a run whose id the caller chose.
    #[must_use]
    pub fn in_run(mut self, conversation: Conversation) -> Self {
        self.extensions.insert(conversation);
        self
    }

    /// Asks for the answer as a stream.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        if !self.options.stream {
            Arc::make_mut(&mut self.options).stream = true;
        }
        self
    }

    /// Replaces the options. A request that was [asked for as a stream](Self::streamed) stays one, and
    /// its [instructions](Self::with_instructions) stay where the options have none.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Arc<ChatOptions>>) -> Self {
        let before = std::mem::replace(&mut self.options, options.into());
        if before.stream {
            self = self.streamed();
        }
        match (&before.instructions, &self.options.instructions) {
            (Some(instructions), None) => self.with_instructions(instructions),
            (Some(_) | None, _) => self,
        }
    }

    /// Instructions that are sent with every service call of the run, before its messages, and never
    /// stored. A system message among the messages is stored with them.
    ///
    /// ```
    /// use tower_chat_core::ChatRequest;
    /// let request = ChatRequest::user("Where is my order?").with_instructions("Be brief.");
    /// assert_eq!(request.messages.len(), 1);
    /// assert_eq!(request.options.instructions.as_deref(), Some("Be brief."));
    /// ```
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.options).instructions = Some(instructions.into());
        self
    }

    /// Continues a conversation whose history the service keeps under this id.
    #[must_use]
    pub fn with_service_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.history_owner = Some(HistoryOwner::Service(id.into()));
        self
    }

    /// Adds an extension for the layers below.
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, extension: T) -> Self {
        self.extensions.insert(extension);
        self
    }

    /// The conversation the request belongs to, if it was said.
    pub fn conversation(&self) -> Option<&Conversation> {
        self.extensions.get()
    }

    /// The handle by which messages can be queued for this run while it is under way.
    ///
    /// All clones of the request share it, from the first call of this method on.
    pub fn run_handle(&mut self) -> RunHandle {
        self.extensions.get_or_insert_with(RunHandle::new).clone()
    }

    /// This request's own messages, without the history before them.
    pub fn new_messages(&self) -> Messages {
        self.messages.skip(self.new_from)
    }

    /// Puts a history before the messages. O(log n) in the length of both.
    pub fn prepend(&mut self, history: &Messages) {
        let own = std::mem::replace(&mut self.messages, history.clone());
        self.messages.append(&own);
        self.new_from += history.len();
    }

    /// The service id, for a model client to send.
    ///
    /// # Errors
    ///
    /// If the request carries the sentinel [`HistoryOwner::Local`]: the stack promises a
    /// local history, but no layer between the tool loop and the model client keeps one. Every
    /// model client calls this before it sends anything.
    pub fn service_id(&self) -> Result<Option<&Arc<str>>, SentinelAtClient> {
        match &self.history_owner {
            None => Ok(None),
            Some(HistoryOwner::Service(id)) => Ok(Some(id)),
            Some(HistoryOwner::Local) => Err(SentinelAtClient),
        }
    }
}

impl Default for ChatRequest {
    fn default() -> Self {
        Self {
            messages: Messages::new(),
            new_from: 0,
            options: Arc::default(),
            history_owner: None,
            extensions: http::Extensions::new(),
        }
    }
}

/// A request reached a model client with the sentinel on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request promises a local history but none was put before it: \
     put PerServiceCallPersistence right below the tool loop"
)]
pub struct SentinelAtClient;
