//! Names of conversations, runs and messages.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names one conversation inside one scope (a tenant or a user).
///
/// No operation crosses a scope. Both halves are opaque text: separators, quotes and empty
/// strings carry no meaning, and two keys are equal only if both halves are equal byte for byte.
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
    /// A key from its two halves.
    pub fn new(scope: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { scope: scope.into(), id: id.into() }
    }

    /// The tenant or user the conversation belongs to.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The conversation's name inside its scope.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.scope, self.id)
    }
}

/// Names one run: everything done for one input, up to the final answer.
///
/// A UUID version 7 (RFC 9562). A cloned request keeps its run id, so that a retry above the run
/// is the same run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunId(Uuid);

impl RunId {
    /// A new, unique run id.
    #[allow(clippy::new_without_default, reason = "a default that differs at every call surprises")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// A new, unique run id that says it was made at a time, for runs that took place before they are
    /// stored: the turns of an import. [`Keep::Since`](crate::store::Keep::Since) goes by it.
    ///
    /// Times before 1970 count as 1970, and those that the 48 bits of a UUID cannot hold, after the
    /// year 10889, as the last that they can.
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
        // The version, the variant and the random bits of an id of its own, behind the time.
        let rest = Uuid::now_v7().as_u128() & ((1 << 80) - 1);
        Self(Uuid::from_u128(milliseconds << 80 | rest))
    }

    /// When it was made, to the millisecond; `None` if it is no UUID of version 7, as one that a
    /// caller has chosen may be.
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

    /// The sixteen bytes, as stores keep them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }

    /// The run id with these sixteen bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The random half of the id (the last eight bytes, big endian).
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

/// The text is not a run id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a run or message id: {text:?}")]
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

/// Names one message: the run that added it and its position among the messages of that run.
///
/// Assigned when a run takes a message in, and stored with it. Ids that providers give are never
/// used as keys: they are missing, empty or repeated in real traffic.
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
    /// The message's position among all messages the run added, from 0.
    pub index: u32,
}

impl MessageId {
    /// The largest [`index`](Self::index) that a store keeps. It is one less than the type allows, so
    /// that the index after that of any stored message is a number, too.
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

/// Names one tool call of a conversation: the message that holds it and its position there.
///
/// The position counts the calls that the provider did not execute itself, those that wait for
/// approval included: the order of [`Message::asked_calls`](crate::Message::asked_calls). A
/// provider's call id names no call: it may be missing, empty, or used again in a later run.
///
/// ```
/// use tower_chat_core::{CallPosition, MessageId, RunId};
/// let message = MessageId { run: RunId::new(), index: 3 };
/// let second_call = CallPosition { message, index: 1 };
/// assert_eq!(second_call.to_string(), format!("{message}/1"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallPosition {
    /// The message that holds the call.
    pub message: MessageId,
    /// The call's position among the [`asked_calls`](crate::Message::asked_calls) of the message,
    /// from 0.
    pub index: u32,
}

impl fmt::Display for CallPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.message, self.index)
    }
}

/// The request extension that says which conversation a request belongs to, and which run it is.
///
/// [`ChatRequest::in_conversation`](crate::ChatRequest::in_conversation) puts it there.
///
/// ```
/// use tower_chat_core::{ChatRequest, Conversation, ConversationKey, RunId};
///
/// let first = ChatRequest::user("Pay.").in_conversation(ConversationKey::new("alice", "bill"));
/// let Some(Conversation { key, run }) = first.conversation() else { unreachable!() };
///
/// // Another process sends the same run again: what is stored of it is not stored twice.
/// let run: RunId = run.to_string().parse()?;
/// let again = ChatRequest::user("Pay.").in_run(Conversation { key: key.clone(), run });
/// assert_eq!(again.conversation(), first.conversation());
/// # Ok::<(), tower_chat_core::ParseIdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The conversation the run reads and extends.
    pub key: ConversationKey,
    /// The run; minted once, kept by every clone of the request.
    pub run: RunId,
}
