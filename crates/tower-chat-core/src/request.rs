//! The request to a model.

use std::sync::Arc;

use crate::{
    ChatOptions, Conversation, ConversationKey, HistoryOwner, Message, Messages, RunHandle, RunId,
};

/// A request to a chat model, which passes through every layer above the model client.
///
/// The messages are an immutable history, followed by the request's own messages. Cloning a request
/// takes the same time for every length of the history. Putting a history before the messages takes
/// time in proportion to the logarithm of its length.
///
/// ```
/// use tower_chat_core::{ChatRequest, ConversationKey};
/// let request = ChatRequest::user("Where is my order?")
///     .in_conversation(ConversationKey::new("alice", "support"));
/// assert_eq!(request.messages().len(), 1);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChatRequest {
    /// The history, followed by the new messages.
    pub(crate) messages: Messages,
    /// The number of messages of the history. At most `messages.len()`.
    pub(crate) history_len: usize,
    /// The settings of the request besides its messages.
    pub options: Arc<ChatOptions>,
    /// The owner of the history; `None` if no layer below and no service stores it.
    pub history_owner: Option<HistoryOwner>,
    /// Values that layers pass to each other: the conversation, the run, and extensions of the
    /// application.
    pub extensions: http::Extensions,
}

impl ChatRequest {
    /// Creates a request whose own messages are these messages, without a history.
    pub fn new(messages: impl Into<Messages>) -> Self {
        Self { messages: messages.into(), ..Self::default() }
    }

    /// Creates a request with one user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Message::user(text))
    }

    /// Adds the request to a conversation and starts a new run in it.
    ///
    /// This method creates the run id. A clone of the request therefore belongs to the same run: a
    /// clone that is sent after a failure resumes the stored run instead of storing its input
    /// twice.
    #[must_use]
    pub fn in_conversation(self, key: ConversationKey) -> Self {
        self.in_run(Conversation { key, run: RunId::new() })
    }

    /// Adds the request to a conversation, with a run id that the caller has chosen. In all other
    /// respects, this method is like [`in_conversation`](Self::in_conversation).
    #[must_use]
    pub fn in_run(mut self, conversation: Conversation) -> Self {
        self.extensions.insert(conversation);
        self
    }

    /// Requests the answer as a stream.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        if !self.options.stream {
            Arc::make_mut(&mut self.options).stream = true;
        }
        self
    }

    /// Replaces the options. A [streamed](Self::streamed) request is still streamed. If the new
    /// options have no [instructions](Self::with_instructions), the request keeps its instructions.
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

    /// Sets instructions, which are sent before the messages with every service call of the run and
    /// never stored. In contrast, a system message among the messages is stored.
    ///
    /// ```
    /// use tower_chat_core::ChatRequest;
    /// let request = ChatRequest::user("Where is my order?").with_instructions("Be brief.");
    /// assert_eq!(request.messages().len(), 1);
    /// assert_eq!(request.options.instructions.as_deref(), Some("Be brief."));
    /// ```
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.options).instructions = Some(instructions.into());
        self
    }

    /// Continues a conversation whose history the service stores under this id.
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

    /// Returns the conversation of the request, if it has one.
    pub fn conversation(&self) -> Option<&Conversation> {
        self.extensions.get()
    }

    /// Returns the handle that queues messages for this run while the run is in progress, and stops
    /// the run.
    ///
    /// All clones of the request made after the first call of this method share the handle.
    pub fn run_handle(&mut self) -> RunHandle {
        self.extensions.get_or_insert_with(RunHandle::new).clone()
    }

    /// Returns all messages: the [history](Self::history), followed by the request's
    /// [own](Self::new_messages).
    pub fn messages(&self) -> &Messages {
        &self.messages
    }

    /// Returns the number of messages of the history.
    pub fn history_len(&self) -> usize {
        self.history_len
    }

    /// Returns the history: the messages that layers have put before the request's own messages.
    pub fn history(&self) -> Messages {
        self.messages.take(self.history_len)
    }

    /// Returns the request's own messages, without the history before them.
    pub fn new_messages(&self) -> Messages {
        self.messages.skip(self.history_len)
    }

    /// Adds a message to the request's own messages.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        self.messages.push(message);
    }

    /// Replaces the request's own messages, and does not change the history.
    pub fn set_new_messages(&mut self, messages: impl Into<Messages>) {
        let own = messages.into();
        match self.history_len {
            0 => self.messages = own,
            _ => {
                self.messages = self.history();
                self.messages.append(&own);
            }
        }
    }

    /// Replaces all messages. The first `history_len` messages are the history. If there are fewer
    /// messages, all of them are the history.
    pub fn set_messages(&mut self, messages: impl Into<Messages>, history_len: usize) {
        self.messages = messages.into();
        self.history_len = history_len.min(self.messages.len());
    }

    /// Puts a history before the messages, in O(log n) of both lengths.
    pub fn prepend(&mut self, history: &Messages) {
        let own = std::mem::replace(&mut self.messages, history.clone());
        self.messages.append(&own);
        self.history_len += history.len();
    }

    /// Returns the service id: the id under which the model's service has the history. The model
    /// client sends this id.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has the mark (sentinel) [`HistoryOwner::Local`]: no layer
    /// between the tool loop and the model client has added the history. Every model client calls
    /// this method before it sends a request.
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
            history_len: 0,
            options: Arc::default(),
            history_owner: None,
            extensions: http::Extensions::new(),
        }
    }
}

/// The error of a request that reached a model client with [`HistoryOwner::Local`], so that its
/// history is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request has the mark of a local history, and no layer added that history: add \
     PerServiceCallPersistence directly below the tool loop"
)]
pub struct SentinelAtClient;
