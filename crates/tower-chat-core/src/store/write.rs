//! One atomic append.

use std::sync::Arc;

use super::{Revision, ToolRecord};
use crate::{ConversationKey, Message, MessageId, RunId};

/// Names a write, so that repeating it stores nothing twice.
///
/// It is the id of the write's first message, and so is stored with the messages themselves.
pub type WriteId = MessageId;

/// One atomic append to one conversation.
///
/// The messages are numbered on from [`id`](Self::id): each one's [`Message::id`] is set when the
/// write is made, so what a store keeps and what a caller holds carry the same ids.
///
/// ```
/// use tower_chat_core::{ConversationKey, Message, MessageId, RunId, store::{Revision, Write}};
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let key = ConversationKey::new("alice", "support");
/// let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// assert_eq!(write.messages()[0].id, Some(id));
/// assert_eq!(write.result().sequence, 1);
/// ```
///
/// A clone costs the same however much is written.
#[derive(Debug, Clone)]
pub struct Write(Arc<Content>);

#[derive(Debug, Clone)]
struct Content {
    key: ConversationKey,
    id: WriteId,
    expected: Revision,
    messages: Vec<Arc<Message>>,
    tools: Vec<ToolRecord>,
    service_id: Option<ServiceIdChange>,
}

/// What a write does to the conversation's service id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceIdChange {
    /// The service now keeps the history under this id.
    Set(Arc<str>),
    /// The service does not keep it any more.
    Clear,
}

impl Write {
    /// A write that appends messages after the expected revision. `id` becomes the id of the
    /// first message, and the others count on from it.
    pub fn new(
        key: ConversationKey,
        id: WriteId,
        expected: Revision,
        messages: impl IntoIterator<Item = Arc<Message>>,
    ) -> Self {
        let ids = (id.index..).map(|index| MessageId { run: id.run, index });
        let messages =
            messages.into_iter().zip(ids).map(|(message, id)| with_id(message, id)).collect();
        let content = Content { key, id, expected, messages, tools: Vec::new(), service_id: None };
        Self(Arc::new(content))
    }

    /// Also puts rows into the record of tool calls, each in place of what was known of its call.
    /// A row of a call in a message that the conversation does not hold afterwards is no row.
    #[must_use]
    pub fn with_tools(mut self, tools: Vec<ToolRecord>) -> Self {
        Arc::make_mut(&mut self.0).tools = tools;
        self
    }

    /// Also changes the conversation's service id.
    #[must_use]
    pub fn with_service_id(mut self, change: ServiceIdChange) -> Self {
        Arc::make_mut(&mut self.0).service_id = Some(change);
        self
    }

    /// The conversation.
    pub fn key(&self) -> &ConversationKey {
        &self.0.key
    }

    /// The write's name.
    pub fn id(&self) -> WriteId {
        self.0.id
    }

    /// The run that writes.
    pub fn run(&self) -> RunId {
        self.0.id.run
    }

    /// The revision the conversation must have.
    pub fn expected(&self) -> Revision {
        self.0.expected
    }

    /// The revision it has afterwards.
    pub fn result(&self) -> Revision {
        self.0.expected.after(self.0.id.run, self.0.messages.len())
    }

    /// What is appended.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.0.messages
    }

    /// What is now known of tool calls, in these messages or earlier ones.
    pub fn tools(&self) -> &[ToolRecord] {
        &self.0.tools
    }

    /// What becomes of the service id, if anything.
    pub fn service_id(&self) -> Option<&ServiceIdChange> {
        self.0.service_id.as_ref()
    }
}

fn with_id(mut message: Arc<Message>, id: MessageId) -> Arc<Message> {
    if message.id != Some(id) {
        Arc::make_mut(&mut message).id = Some(id);
    }
    message
}
