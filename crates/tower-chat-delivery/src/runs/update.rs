//! The updates of a run in a log, and their stored form.
//!
//! An *attempt* is one execution of a run. If the process of a run died, a later attempt may
//! continue the run.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};
use tower_chat_layers::{
    BoxError, ChatUpdate, ConversationKey, EndedBy, Finish, FinishReason, Message, MessageId,
    Saved, ToolCallDelta, Usage, format,
};

use crate::StoredUpdate;

/// One update, as the log contains it.
#[derive(Debug, Clone)]
pub(crate) enum LoggedUpdate {
    /// The reader must discard the deltas of the unfinished message: a later attempt begins, or
    /// this attempt has sent the deltas of a message that the reader has already received.
    Restarted,
    Chat(ChatUpdate),
    /// A message that an earlier attempt has already sent, and that the response of this attempt
    /// contains again. Only the caller of this attempt receives the message.
    Repeated(Arc<Message>),
}

/// The stored form of an update, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stored<'a> {
    Restarted,
    Text(Cow<'a, str>),
    Reasoning(Cow<'a, str>),
    Call {
        index: usize,
        id: Option<Cow<'a, str>>,
        name: Option<Cow<'a, str>>,
        arguments: Cow<'a, str>,
    },
    Message(StoredMessage<'a>),
    Repeated(StoredMessage<'a>),
    Finish(Box<StoredFinish>),
}

#[derive(Serialize, Deserialize)]
struct StoredMessage<'a> {
    id: Option<MessageId>,
    message: Cow<'a, RawValue>,
}

/// The fields of a [`Finish`] that readers of a log receive.
#[derive(Serialize, Deserialize)]
struct StoredFinish {
    reason: Option<FinishReason>,
    usage: Usage,
    model: Option<String>,
    continuation: Option<String>,
    /// The number of stored messages, and the number of messages that wait in memory because their
    /// write failed.
    saved: Option<(usize, usize)>,
    /// The scope and the id of the branch (copy of the conversation) in which the run took place,
    /// if any.
    branch: Option<(String, String)>,
    ended_by: Option<StoredEndedBy>,
    metadata: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredEndedBy {
    RoundLimit,
    Tool,
    Stop,
}

impl LoggedUpdate {
    /// Returns whether readers receive the update only after it is stored.
    pub(crate) fn is_durable_first(&self) -> bool {
        match self {
            Self::Restarted | Self::Repeated(_) => true,
            Self::Chat(update) => matches!(update, ChatUpdate::Message(_) | ChatUpdate::Finish(_)),
        }
    }

    pub(crate) fn encode(&self) -> Result<StoredUpdate, BoxError> {
        let stored = match self {
            Self::Restarted => Stored::Restarted,
            Self::Repeated(message) => Stored::Repeated(StoredMessage::of(message)?),
            Self::Chat(update) => match update {
                ChatUpdate::TextDelta(text) => Stored::Text(text.into()),
                ChatUpdate::ReasoningDelta(text) => Stored::Reasoning(text.into()),
                ChatUpdate::ToolCallDelta(call) => Stored::Call {
                    index: call.index,
                    id: call.id.as_deref().map(Cow::Borrowed),
                    name: call.name.as_deref().map(Cow::Borrowed),
                    arguments: (&call.arguments).into(),
                },
                ChatUpdate::Message(message) => Stored::Message(StoredMessage::of(message)?),
                ChatUpdate::Finish(finish) => Stored::Finish(Box::new(StoredFinish::of(finish))),
                other => return Err(format!("the update {other:?} has no stored form").into()),
            },
        };
        Ok(StoredUpdate::new(serde_json::to_string(&stored)?))
    }

    pub(crate) fn decode(stored: &StoredUpdate) -> Result<Self, BoxError> {
        Ok(match serde_json::from_str(stored.data())? {
            Stored::Restarted => Self::Restarted,
            Stored::Repeated(message) => Self::Repeated(message.decode()?),
            Stored::Text(text) => Self::Chat(ChatUpdate::TextDelta(text.into_owned())),
            Stored::Reasoning(text) => Self::Chat(ChatUpdate::ReasoningDelta(text.into_owned())),
            Stored::Call { index, id, name, arguments } => {
                let mut call = ToolCallDelta::new(index, arguments);
                call.id = id.map(Cow::into_owned);
                call.name = name.map(Cow::into_owned);
                Self::Chat(ChatUpdate::ToolCallDelta(call))
            }
            Stored::Message(message) => Self::Chat(ChatUpdate::Message(message.decode()?)),
            Stored::Finish(finish) => Self::Chat(ChatUpdate::Finish(finish.decode().into())),
        })
    }
}

impl StoredMessage<'_> {
    fn of(message: &Message) -> Result<Self, BoxError> {
        let stored = RawValue::from_string(format::encode(message))?;
        Ok(Self { id: message.id, message: Cow::Owned(stored) })
    }

    fn decode(&self) -> Result<Arc<Message>, BoxError> {
        let mut message = format::decode(self.message.get())?;
        message.id = self.id;
        Ok(message.into())
    }
}

impl StoredFinish {
    fn of(finish: &Finish) -> Self {
        let branch = finish.branch.as_ref();
        Self {
            reason: finish.reason.clone(),
            usage: finish.usage,
            model: finish.model.clone(),
            continuation: finish.continuation.clone(),
            saved: finish.saved.map(|saved| (saved.messages, saved.unsaved)),
            branch: branch.map(|key| (key.scope().to_owned(), key.id().to_owned())),
            ended_by: finish.ended_by.and_then(|ended_by| match ended_by {
                EndedBy::RoundLimit => Some(StoredEndedBy::RoundLimit),
                EndedBy::Tool => Some(StoredEndedBy::Tool),
                EndedBy::Stop => Some(StoredEndedBy::Stop),
                _ => None,
            }),
            metadata: finish.metadata.clone(),
        }
    }

    fn decode(self) -> Finish {
        let mut finish = Finish::default();
        finish.reason = self.reason;
        finish.usage = self.usage;
        finish.model = self.model;
        finish.continuation = self.continuation;
        finish.saved = self.saved.map(|(messages, unsaved)| Saved::new(messages, unsaved));
        finish.branch = self.branch.map(|(scope, id)| ConversationKey::new(scope, id));
        finish.ended_by = self.ended_by.map(|ended_by| match ended_by {
            StoredEndedBy::RoundLimit => EndedBy::RoundLimit,
            StoredEndedBy::Tool => EndedBy::Tool,
            StoredEndedBy::Stop => EndedBy::Stop,
        });
        finish.metadata = self.metadata;
        finish
    }
}

#[cfg(test)]
mod tests {
    use tower_chat_layers::RunId;

    use super::*;

    fn round_trip(update: &LoggedUpdate) -> LoggedUpdate {
        LoggedUpdate::decode(&update.encode().unwrap()).unwrap()
    }

    #[test]
    fn logged_updates_of_a_response_are_decoded_unchanged() {
        let mut message = Message::assistant("\"Take\"\n a coat.");
        message.id = Some(MessageId { run: RunId::new(), index: 3 });
        let mut finish = Finish::new(FinishReason::Other("pause".to_owned()));
        finish.usage = Usage::new(3, 4);
        finish.saved = Some(Saved::new(2, 1));
        finish.branch = Some(ConversationKey::new("s", "c"));
        finish.ended_by = Some(EndedBy::Stop);
        finish.model = Some("m".to_owned());
        finish.metadata.insert("key".to_owned(), Value::from(1));
        let call = ToolCallDelta::new(2, "{\"a\"").with_id("c1").with_name("pay");
        let updates = [
            ChatUpdate::TextDelta("\"Take\"\n".to_owned()),
            ChatUpdate::ReasoningDelta("\u{1F980}".to_owned()),
            ChatUpdate::ToolCallDelta(call),
            ChatUpdate::ToolCallDelta(ToolCallDelta::new(0, "")),
            ChatUpdate::Message(message.into()),
            ChatUpdate::Finish(finish.into()),
        ];
        for update in updates {
            match round_trip(&LoggedUpdate::Chat(update.clone())) {
                LoggedUpdate::Chat(found) => assert_eq!(found, update),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn logged_marks_of_attempts_are_decoded_unchanged() {
        assert!(matches!(round_trip(&LoggedUpdate::Restarted), LoggedUpdate::Restarted));
        let message = Arc::new(Message::assistant("Take a coat."));
        match round_trip(&LoggedUpdate::Repeated(message.clone())) {
            LoggedUpdate::Repeated(found) => assert_eq!(found, message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn decoding_a_damaged_update_fails() {
        for data in ["", "{}", "{\"message\":{\"id\":null,\"message\":{}}}", "{\"text\":1}"] {
            assert!(LoggedUpdate::decode(&StoredUpdate::new(data)).is_err(), "{data}");
        }
    }
}
