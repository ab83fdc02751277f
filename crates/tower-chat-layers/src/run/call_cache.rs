//! A cache of the tool calls of an answer, which are read from the messages of the conversation.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tower_chat_core::{Message, MessageId, ToolCall};

/// A cache of one entry: the messages with calls of the answer that was looked up last. Outcomes
/// usually arrive one at a time, and the row of each needs the same answer.
#[derive(Debug, Default)]
pub(super) struct CallCache(pub(super) RefCell<HashMap<MessageId, Arc<MessageWithCalls>>>);

#[derive(Debug)]
pub(super) struct MessageWithCalls {
    pub(super) message: Arc<Message>,
    /// The indices of the parts that are calls.
    pub(super) parts: Vec<usize>,
    /// The ids that the results of the calls use.
    pub(super) ids: Vec<String>,
}

/// A call, the id that its result uses, and whether it waits for approval.
pub(super) struct CallOfMessage {
    pub(super) call: ToolCall,
    pub(super) call_id: String,
    pub(super) waits_for_approval: bool,
}
