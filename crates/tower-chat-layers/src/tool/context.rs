//! The context with which a tool is called.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use serde::Deserialize;
use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Message, RunHandle, RunId, ToolCall,
};

use super::{CallOfRun, PendingCall, RunAncestry};

/// The context with which a tool is called: the call, its position in the run, and handles of the
/// run.
#[derive(Clone)]
pub struct ToolContext {
    run: Arc<RunContext>,
    handle: RunHandle,
    pending: PendingCall,
    round_index: usize,
    sequence_index: usize,
}

/// The state that the contexts of all calls of a run share.
pub(crate) struct RunContext {
    pub(crate) run: RunId,
    pub(crate) handle: RunHandle,
    pub(crate) extensions: http::Extensions,
    pub(crate) source_numbers: SourceNumbers,
}

/// The next number for a source that a tool of the run finds, for example for a hit of a search.
/// The first use searches the conversation for the highest number.
/// [`Citations`](crate::replay::Citations) defines where results contain the numbers.
pub(crate) type SourceNumbers = LazyLock<Mutex<u64>, Box<dyn FnOnce() -> Mutex<u64> + Send>>;

impl RunContext {
    pub(crate) fn conversation(&self) -> Option<&ConversationKey> {
        self.extensions.get::<Conversation>().map(|conversation| &conversation.key)
    }
}

impl ToolContext {
    pub(crate) fn new(
        run: Arc<RunContext>,
        pending: PendingCall,
        (round_index, sequence_index): (usize, usize),
    ) -> Self {
        let handle = run.handle.for_call();
        Self { run, handle, pending, round_index, sequence_index }
    }

    /// Returns the call that the tool executes.
    pub fn call(&self) -> &ToolCall {
        self.pending.call()
    }

    /// Returns the id that the call and its result have in the messages that the model receives.
    /// The id is from the provider, or generated if the provider sent no id. The id is not unique
    /// in a conversation, because some providers repeat ids.
    pub fn call_id(&self) -> &str {
        self.pending.id()
    }

    /// Returns the idempotency key of the call. The key is the same each time the call is run, and
    /// different for every other call, so that an external system can recognise a repeated call.
    /// The key consists of the id of the run and the position of the call in the run. All
    /// characters of the key are valid in an HTTP header.
    pub fn idempotency_key(&self) -> String {
        match self.pending.position() {
            Some(position) => idempotency_key(position),
            // Without a stored history, no later attempt repeats the call.
            None => format!("{}-r{}-{}", self.run.run, self.round_index, self.sequence_index),
        }
    }

    /// Returns the text of the arguments, as the model wrote it.
    pub fn arguments(&self) -> &str {
        &self.call().arguments
    }

    pub(crate) fn arguments_or_empty(&self) -> &str {
        let text = self.arguments();
        if text.trim().is_empty() { "{}" } else { text }
    }

    /// Parses the arguments. Empty text parses as `{}`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not JSON, if an object at any level contains a key twice, or
    /// if the JSON cannot be deserialized as a `T`.
    pub fn parse_arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        self.call().parse_arguments()
    }

    /// Returns the id of the run. A run without a conversation also has an id.
    pub fn run(&self) -> RunId {
        self.run.run
    }

    /// Returns the conversation of the run, or `None` if the request contains no conversation.
    pub fn conversation(&self) -> Option<&ConversationKey> {
        self.run.conversation()
    }

    /// Returns the number of the call's batch in the run, from 0. A batch consists of the calls of
    /// one answer, or of the approved calls that a run executes before its first service call.
    pub fn round_index(&self) -> usize {
        self.round_index
    }

    /// Returns the call's position in its batch, from 0.
    pub fn sequence_index(&self) -> usize {
        self.sequence_index
    }

    /// Returns the extensions of the run's request, such as credentials, tenants and trace ids.
    pub fn extensions(&self) -> &http::Extensions {
        &self.run.extensions
    }

    /// Adds a message to the next service call of the run, after the results of the tools. The
    /// message is stored together with the outcome of this tool call, even if the service call
    /// fails. If the tool ends the run, no service call follows, and the message remains in the
    /// handle of the run.
    pub fn queue(&self, message: Message) {
        self.handle.queue(message);
    }

    /// Returns the next `count` numbers for sources that the tool has found. The numbers follow the
    /// highest number of a source in the conversation, so that no two sources have the same number.
    /// The existing numbers are read from the tool results of the conversation, under the key that
    /// [`Citations`](crate::replay::Citations) defines.
    ///
    /// The first use in a run searches the loaded history, without access to the store. If a
    /// service stores the history, the search reads only the messages of the request. Tool calls
    /// that run concurrently receive different numbers.
    ///
    /// ```
    /// use tower_chat::{Tool, ToolContext, tool_fn, ToolDefinition};
    /// let definition = ToolDefinition::new("search", "Searches.", serde_json::json!({}));
    /// let search = tool_fn(definition, |context: ToolContext| async move {
    ///     let found = ["a", "b"];
    ///     let numbers = context.take_source_numbers(found.len() as u64);
    ///     let sources = numbers.zip(found).map(|(number, content)| {
    ///         serde_json::json!({"source_number": number, "content": content})
    ///     });
    ///     Ok(serde_json::Value::from_iter(sources).to_string())
    /// });
    /// # let _ = search;
    /// ```
    pub fn take_source_numbers(&self, count: u64) -> Range<u64> {
        let mut next = self.run.source_numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let start = *next;
        *next = start.saturating_add(count);
        start..*next
    }

    /// Returns the handle of the run. A task can queue messages by this handle after the tool has
    /// returned.
    pub fn run_handle(&self) -> &RunHandle {
        &self.handle
    }

    /// Marks a request that this tool sends as the request of a nested run. The nested run is
    /// refused if it uses the conversation of this run, or of an outer run, because it would write
    /// messages between a call and its result.
    #[must_use]
    pub fn nest(&self, mut request: ChatRequest) -> ChatRequest {
        let mut ancestry = self.run.extensions.get::<RunAncestry>().cloned().unwrap_or_default();
        if let Some(key) = self.conversation() {
            ancestry = ancestry.inside(key.clone());
        }
        request.extensions.insert(ancestry);
        request
    }
}

pub(crate) fn idempotency_key((message, index): CallOfRun) -> String {
    format!("{}-{}-{index}", message.run, message.index)
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("run", &self.run.run)
            .field("call", self.call())
            .field("call_id", &self.call_id())
            .field("round_index", &self.round_index)
            .field("sequence_index", &self.sequence_index)
            .finish_non_exhaustive()
    }
}
