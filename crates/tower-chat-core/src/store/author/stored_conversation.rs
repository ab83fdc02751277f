//! A conversation as one value.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    CallState, Decision, LAST_SEQUENCE, Lookup, PendingBatches, ToolColumns, ToolRecord, Write,
    decide,
};
use crate::{
    ConversationKey, Message, MessageId, ToolStatus, format,
    store::{
        CallSelection, Capability, Head, History, Invocations, Revision, SequencePosition,
        StoreError,
    },
};

/// A conversation as one value, for a store that reads and writes whole conversations: a file, an
/// object of a bucket, or a row of a table for each conversation. The store needs no
/// [capability](Capability).
///
/// ```
/// use tower_chat_core::{
///     ConversationKey, Message, MessageId, RunId,
///     store::{Revision, author::{StoredConversation, Write}},
/// };
///
/// let key = ConversationKey::new("alice", "support");
/// let mut conversation = StoredConversation::absent(key.clone());
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let write = Write::new(key, id, Revision::ABSENT, [Message::user("Hello.").into()]);
///
/// assert!(conversation.write(&write)?); // the store writes the new value, and acknowledges the write
/// assert!(!conversation.write(&write)?); // the write is stored, and is acknowledged again
///
/// let read = StoredConversation::from_json(&conversation.to_json())?;
/// assert_eq!(read.head(), conversation.head());
/// # Ok::<(), tower_chat_core::store::StoreError>(())
/// ```
#[derive(Debug, Clone)]
pub struct StoredConversation {
    key: ConversationKey,
    history: History,
    tools: BTreeMap<SequencePosition, ToolRecord>,
}

#[derive(Serialize, Deserialize)]
struct Json {
    scope: Arc<str>,
    id: Arc<str>,
    incarnation: u64,
    service_id: Option<Arc<str>>,
    messages: Vec<(MessageId, String)>,
    tools: Vec<ToolColumns>,
}

impl StoredConversation {
    /// Creates the value of a conversation that does not exist.
    pub fn absent(key: ConversationKey) -> Self {
        Self { key, history: History::empty(), tools: BTreeMap::new() }
    }

    /// Returns the key of the conversation.
    pub fn key(&self) -> &ConversationKey {
        &self.key
    }

    /// Applies a write. Returns `true` if the write changed the conversation, and `false` if it is
    /// already stored. In both cases the store acknowledges the write with its
    /// [result](Write::result).
    ///
    /// # Errors
    ///
    /// If the write is refused: for example [`StoreError::Conflict`], or
    /// [`StoreError::MissingCapability`] for a staged write. The conversation was not changed.
    pub fn write(&mut self, write: &Write) -> Result<bool, StoreError> {
        if write.as_staged().is_some() {
            return Err(StoreError::MissingCapability { capability: Capability::Journal });
        }
        let Ok(decision) = decide(&self.history.head, write, LAST_SEQUENCE, &mut &*self);
        let changes = match decision {
            Decision::Store(changes) => changes,
            Decision::IsStored => return Ok(false),
            Decision::Refuse(error) => return Err(error),
        };
        let rows = write.tools().iter().filter(|row| changes.messages.contains(&row.call.sequence));
        self.tools.extend(rows.map(|row| (row.call, row.clone())));
        self.history.extend(write.messages().iter().cloned());
        self.history.head.advance(&changes);
        Ok(true)
    }

    /// Returns the head, including the calls that wait for approval.
    pub fn head(&self) -> Head {
        let waiting = self.tools.values().filter(|row| row.status == ToolStatus::PendingApproval);
        let mut batches = PendingBatches::default();
        for SequencePosition { sequence, index } in waiting.map(|row| row.call) {
            let Some(message) = self.history.message(sequence) else { continue };
            if let Some(request) = message.approval_request(index) {
                batches.push(message, request.clone());
            }
        }
        self.history.head.clone().with_pending_approvals(batches.finish())
    }

    /// Returns the history.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the record of the selected calls.
    pub fn calls(&self, which: &CallSelection) -> Invocations {
        let rows = self.tools.values().filter(|row| which.fits(row));
        Invocations::of_rows(&self.key, rows, |sequence| self.history.message(sequence).cloned())
    }

    /// Returns the JSON form of the conversation.
    ///
    /// # Panics
    ///
    /// Never: every value in the conversation has a JSON form.
    pub fn to_json(&self) -> Vec<u8> {
        let messages = self.history.messages.iter();
        let json = Json {
            scope: self.key.scope().into(),
            id: self.key.id().into(),
            incarnation: self.history.head.revision.incarnation,
            service_id: self.history.head.service_id.clone(),
            messages: messages.filter_map(|it| Some((it.id?, format::encode(it)))).collect(),
            tools: self.tools.values().map(ToolRecord::columns).collect(),
        };
        #[allow(clippy::expect_used, reason = "all map keys are strings")]
        serde_json::to_vec(&json).expect("a conversation has a JSON form")
    }

    /// Reads the JSON form of a conversation.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] or [`StoreError::Undecodable`], if the JSON is damaged.
    pub fn from_json(json: &[u8]) -> Result<Self, StoreError> {
        let json: Json = serde_json::from_slice(json)
            .map_err(|error| StoreError::Corrupt { reason: error.to_string() })?;
        let key = ConversationKey::new(json.scope, json.id);
        let mut conversation = Self::absent(key.clone());
        for ((id, body), sequence) in json.messages.into_iter().zip(1..) {
            let decoded = format::decode(&body);
            let message = decoded.map_err(|source| StoreError::Undecodable {
                key: key.clone(),
                sequence,
                source,
            })?;
            conversation.history.extend([Arc::new(Message { id: Some(id), ..message })]);
        }
        let sequence = conversation.history.messages.len() as u64;
        let revision = Revision { incarnation: json.incarnation, sequence };
        conversation.history.head = Head::new(revision).with_service_id(json.service_id);
        conversation.history.head.check_range(&key, LAST_SEQUENCE)?;
        for columns in json.tools {
            let row = columns.into_record().map_err(|error| StoreError::Corrupt {
                reason: format!("a row of the record of conversation {key}: {error}"),
            })?;
            conversation.tools.insert(row.call, row);
        }
        Ok(conversation)
    }
}

impl Lookup for &StoredConversation {
    type Error = Infallible;

    fn message_id(&mut self, sequence: u64) -> Result<Option<MessageId>, Infallible> {
        Ok(self.history.message(sequence).and_then(|message| message.id))
    }

    fn call(&mut self, call: SequencePosition) -> Result<Option<CallState>, Infallible> {
        Ok(self.tools.get(&call).map(CallState::of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunId, ToolCall};

    fn stored() -> StoredConversation {
        let key = ConversationKey::new("alice", "support");
        let mut conversation = StoredConversation::absent(key.clone());
        let call = ToolCall::new("call_1", "weather", "{}");
        let messages = [Message::user("Rain?").into(), Message::tool_calls([call]).into()];
        let id = MessageId { run: RunId::new(), index: 0 };
        let asked = SequencePosition { sequence: 2, index: 0 };
        let row = ToolRecord::pending(asked, 0, "call_1", "weather");
        let write = Write::new(key, id, Revision::ABSENT, messages).with_tools(vec![row]);
        assert!(conversation.write(&write).unwrap());
        conversation
    }

    #[test]
    fn a_conversation_comes_back() {
        let stored = stored();
        let read = StoredConversation::from_json(&stored.to_json()).unwrap();
        assert_eq!(read.key(), stored.key());
        assert_eq!(read.head(), stored.head());
        let messages =
            |it: &StoredConversation| -> Vec<_> { it.history().messages.iter().cloned().collect() };
        assert_eq!(messages(&read), messages(&stored));
        let calls = read.calls(&CallSelection::All);
        assert_eq!(calls.found[0].1.name, "weather");
        assert_eq!(calls, stored.calls(&CallSelection::All));
    }

    #[test]
    fn a_damaged_value_is_an_error() {
        let json = String::from_utf8(stored().to_json()).unwrap();
        for (part, damaged) in
            [("\"pending\"", "\"gone\""), ("Rain?", "\\"), ("\"tools\":[", "\"tools\":[{},")]
        {
            let json = json.replacen(part, damaged, 1);
            let error = StoredConversation::from_json(json.as_bytes()).unwrap_err();
            let is_known =
                matches!(error, StoreError::Corrupt { .. } | StoreError::Undecodable { .. });
            assert!(is_known, "{error:?}");
        }
    }
}
