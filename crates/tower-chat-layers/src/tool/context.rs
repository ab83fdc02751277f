//! What a tool knows about the call it answers.

use std::{fmt, ops::Range, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Message, RunHandle, RunId, ToolCall,
};

use super::{CallOfRun, PendingCall, RunAncestry, source_numbers::SourceNumbers};
/// What a tool knows about the call it answers, and how it talks to the run around it.
#[derive(Clone)]
pub struct ToolContext {
    run: Arc<RunContext>,
    /// Of this call.
    handle: RunHandle,
    pending: PendingCall,
    round_index: usize,
    sequence_index: usize,
}

/// What all calls of a run share.
pub(crate) struct RunContext {
    pub(crate) run: RunId,
    pub(crate) handle: RunHandle,
    pub(crate) extensions: http::Extensions,
    pub(crate) source_numbers: SourceNumbers,
}

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

    /// The call as the model made it.
    pub fn call(&self) -> &ToolCall {
        self.pending.call()
    }

    /// The id that the call and its result carry in what the model is shown: the provider's, or a
    /// generated one where the provider gave none. Not unique: some providers repeat their ids.
    pub fn call_id(&self) -> &str {
        self.pending.id()
    }

    /// Names the call, the same at every attempt to run it and different from every other call's:
    /// for the systems a tool talks to, so that they know a repetition. It is made of the run's id
    /// and the call's position in it, in characters that fit a header.
    pub fn idempotency_key(&self) -> String {
        match self.pending.position() {
            Some(position) => idempotency_key(position),
            // A loop without a history has nothing that outlives the run.
            None => format!("{}-r{}-{}", self.run.run, self.round_index, self.sequence_index),
        }
    }

    /// The arguments' text, as the model wrote it.
    pub fn arguments(&self) -> &str {
        &self.call().arguments
    }

    /// The arguments' text, `{}` where the model wrote none.
    pub(crate) fn arguments_or_empty(&self) -> &str {
        let text = self.arguments();
        if text.trim().is_empty() { "{}" } else { text }
    }

    /// Parses the arguments; empty text parses as `{}`.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, has a key twice in one object at any level, or does not have the shape
    /// of `T`.
    pub fn parse_arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        self.call().parse_arguments()
    }

    /// The run. One without a conversation has an id too, for this run alone.
    pub fn run(&self) -> RunId {
        self.run.run
    }

    /// The conversation the run belongs to, if the request said.
    pub fn conversation(&self) -> Option<&ConversationKey> {
        self.run.conversation()
    }

    /// Which batch of the run this is, from 0; calls approved before the first service call are a
    /// batch too.
    pub fn round_index(&self) -> usize {
        self.round_index
    }

    /// The call's position in its batch, from 0.
    pub fn sequence_index(&self) -> usize {
        self.sequence_index
    }

    /// What callers and layers put on the run's request: credentials, tenants, trace ids.
    pub fn extensions(&self) -> &http::Extensions {
        &self.run.extensions
    }

    /// Adds a message for the run's next service call, where it comes after the results of the
    /// round. It is stored with the outcome of the call: if that service call fails, the message is
    /// part of what is stored as the result is. If the tool ends the run, no service call follows,
    /// and the message stays in the run's handle.
    pub fn queue(&self, message: Message) {
        self.handle.queue(message);
    }

    /// Takes the next `count` numbers for sources that the tool has found, so that no two sources
    /// of the conversation share one. See [`Citations`](crate::replay::Citations), whose key of a source's number is the one
    /// that is looked for in the results of the conversation.
    ///
    /// The history that the run has loaded is read for it once a run; the store is not asked. Where
    /// a service keeps the history, the numbers begin after those of the request's own messages.
    /// Calls that run at the same time get different numbers.
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
        self.run.source_numbers.take(count)
    }

    /// The handle by which messages can be queued after the tool has returned.
    pub fn run_handle(&self) -> &RunHandle {
        &self.handle
    }

    /// Marks a request as a run inside this run, so that one on this conversation, or on an
    /// ancestor's, is refused instead of writing into the middle of this round.
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

/// The idempotency key of a call, from where it stands.
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
