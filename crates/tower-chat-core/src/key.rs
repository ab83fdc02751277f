//! Names of conversations, runs and messages. A run consists of the service calls and tool calls
//! for one request.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name of one conversation inside one scope (a tenant or a user).
///
/// No operation crosses a scope. Scope and id are opaque text: separators, quotes and empty strings
/// have no special meaning. Two keys are equal only if both texts are equal byte for byte.
///
/// ```
/// use tower_chat_core::ConversationKey;
/// let key = ConversationKey::new("tenant-7", "order-1234");
/// assert_eq!((key.scope(), key.id()), ("tenant-7", "order-1234"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConversationKey {
    scope: Arc<str>,
    id: Arc<str>,
}

impl ConversationKey {
    /// Creates a key from a scope and an id.
    pub fn new(scope: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { scope: scope.into(), id: id.into() }
    }

    /// Returns the tenant or user that the conversation belongs to.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Returns the conversation's name inside its scope.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.id)
    }
}

/// The name of one run: the service calls and tool calls for one input, up to the final answer.
///
/// The id is a UUID version 7 (RFC 9562). A retry layer sends a clone of the request, which has the
/// same run id. A retry above the persistence layers is therefore another attempt (execution) of
/// the same run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunId(Uuid);

impl RunId {
    /// Creates a new, unique run id.
    #[allow(clippy::new_without_default, reason = "a default that differs at every call surprises")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Creates a new, unique run id with this creation time. Use this function for runs that took
    /// place long before they are stored, such as the turns of an import. A prune by age
    /// ([`Keep::Since`](crate::store::Keep::Since)) uses this time.
    ///
    /// A time before 1970 becomes 1970. A time after the year 10889 becomes the latest time that
    /// the 48 bits of a UUID's time can represent.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tower_chat_core::RunId;
    /// let turn = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    /// assert_eq!(RunId::at(turn).made_at(), Some(turn));
    /// assert_ne!(RunId::at(turn), RunId::at(turn));
    /// ```
    pub fn at(time: SystemTime) -> Self {
        const LAST: u128 = (1 << 48) - 1;
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let milliseconds = since.as_millis().min(LAST);
        // The part of a new id that follows the time: the version, the variant and the random bits.
        let rest = Uuid::now_v7().as_u128() & ((1 << 80) - 1);
        Self(Uuid::from_u128(milliseconds << 80 | rest))
    }

    /// Returns the creation time of the id, to the millisecond. Returns `None` for an id that a
    /// caller has chosen and that is not a UUID version 7.
    ///
    /// ```
    /// use tower_chat_core::RunId;
    /// let made = RunId::new().made_at().unwrap();
    /// assert!(made.elapsed().unwrap_or_default().as_secs() < 60);
    /// assert_eq!(RunId::from_bytes([0; 16]).made_at(), None);
    /// ```
    pub fn made_at(self) -> Option<SystemTime> {
        if self.0.get_version_num() != 7 {
            return None;
        }
        let (high, _) = self.0.as_u64_pair();
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(high >> 16))
    }

    /// Returns the sixteen bytes that stores write.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }

    /// Creates the run id from these sixteen bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the random half of the id (the last eight bytes, big endian).
    pub fn random_half(self) -> u64 {
        self.0.as_u64_pair().1
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({})", self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error of parsing a text that is not a run id or a message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a run id or a message id")]
pub struct ParseIdError {
    text: String,
}

impl FromStr for RunId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        Uuid::parse_str(text).map(Self).map_err(|_| ParseIdError { text: text.to_owned() })
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RunId {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

/// The name of one message: the run that added it and its index among the messages of that run.
///
/// A run assigns the id when it adds the message, and the store writes the message with its id. Ids
/// from providers are never used as keys: in recorded traffic, such ids are missing, empty or
/// repeated.
///
/// ```
/// use tower_chat_core::{MessageId, RunId};
/// let id = MessageId { run: RunId::new(), index: 3 };
/// assert_eq!(id.to_string().parse(), Ok(id));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MessageId {
    /// The run that added the message.
    pub run: RunId,
    /// The message's index among all messages of the run, from 0.
    pub index: u32,
}

impl MessageId {
    /// The largest [`index`](Self::index) that a store accepts: one less than the maximum of the
    /// type, so that the index after any stored message can be computed.
    pub const LAST_INDEX: u32 = u32::MAX - 1;
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({self})")
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.index)
    }
}

impl FromStr for MessageId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        text.split_once('.')
            .and_then(|(run, index)| {
                Some(Self { run: run.parse().ok()?, index: index.parse().ok()? })
            })
            .ok_or_else(|| ParseIdError { text: text.to_owned() })
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for MessageId {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

/// The name of one tool call of a conversation: the message, and the index of the call in that
/// message.
///
/// The call id of a provider cannot serve as a name, because it may be missing, empty, or used
/// again in a later run.
///
/// ```
/// use tower_chat_core::{CallPosition, MessageId, RunId};
/// let message = MessageId { run: RunId::new(), index: 3 };
/// let second_call = CallPosition { message, index: 1 };
/// assert_eq!(second_call.to_string(), format!("{message}/1"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallPosition {
    /// The message that contains the call.
    pub message: MessageId,
    /// The index of the call among the message's [`asked_calls`](crate::Message::asked_calls) (all
    /// calls that the provider did not execute itself), from 0.
    pub index: u32,
}

impl fmt::Display for CallPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.message, self.index)
    }
}

/// The request extension that names the conversation and the run of a request.
///
/// [`ChatRequest::in_conversation`](crate::ChatRequest::in_conversation) adds this extension.
///
/// ```
/// use tower_chat_core::{ChatRequest, Conversation, ConversationKey, RunId};
///
/// let first = ChatRequest::user("Pay.").in_conversation(ConversationKey::new("alice", "bill"));
/// let Some(Conversation { key, run }) = first.conversation() else { unreachable!() };
///
/// // Another process sends the same run again: the store does not store its messages twice.
/// let run: RunId = run.to_string().parse()?;
/// let again = ChatRequest::user("Pay.").in_run(Conversation { key: key.clone(), run });
/// assert_eq!(again.conversation(), first.conversation());
/// # Ok::<(), tower_chat_core::ParseIdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The conversation that the run reads and extends.
    pub key: ConversationKey,
    /// The id of the run. Every clone of the request has the same id.
    pub run: RunId,
}
