//! The stored form of a message: versioned JSON that every later release can read.
//!
//! A stored message is one JSON object, `{"v":1,"role":…,"parts":[…]}`. `v` is the version of the
//! format. Version 1 is the only version so far, and every later release reads this version. The
//! [`id`](crate::Message::id) of the message is not part of the object: stores use the id as the
//! key of the row.
//!
//! ```
//! use tower_chat_core::{Message, format};
//! let stored = format::encode(&Message::user("hi"));
//! assert_eq!(stored, r#"{"v":1,"role":"user","parts":[{"text":{"text":"hi"}}]}"#);
//! assert_eq!(format::decode(&stored)?, Message::user("hi"));
//! # Ok::<(), format::FormatError>(())
//! ```

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    BoxError, FinishReason, Message, Part, Role, SharedError, metadata, part,
    store::author::milliseconds,
};

/// The version that [`encode`] writes.
pub const VERSION: u32 = 1;

/// The error of a stored message that cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A newer release wrote the message.
    #[error(
        "the message has format version {version}, and this release reads versions up to {VERSION}: \
         read it with a newer release"
    )]
    Newer {
        /// The version in the message.
        version: u32,
    },
    /// The message is damaged, or is not a stored message.
    #[error("not a stored message")]
    Malformed(#[source] SharedError),
}

impl FormatError {
    /// Creates an error with a description of the damage.
    pub fn malformed(what: impl Into<BoxError>) -> Self {
        Self::Malformed(SharedError::new(what))
    }
}

#[derive(Serialize)]
struct Stored<'a> {
    v: u32,
    role: Role,
    parts: &'a [Part],
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", with = "milliseconds::optional")]
    added_at: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason: Option<&'a FinishReason>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: &'a Map<String, Value>,
}

#[derive(Deserialize)]
struct Loaded {
    v: u32,
    role: Role,
    #[serde(deserialize_with = "part::deserialize_list")]
    parts: Vec<Part>,
    author: Option<String>,
    #[serde(default, with = "milliseconds::optional")]
    added_at: Option<SystemTime>,
    finish_reason: Option<FinishReason>,
    #[serde(default, deserialize_with = "metadata::deserialize")]
    metadata: Map<String, Value>,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Returns the stored form of a message, without the message's id.
///
/// ```
/// use tower_chat_core::{Message, format};
///
/// let message = Message::user("Hello.");
/// let stored = format::encode(&message);
/// assert_eq!(format::decode(&stored)?, message);
/// # Ok::<(), tower_chat_core::format::FormatError>(())
/// ```
///
/// # Panics
///
/// Never: every message has a JSON form, because all map keys in a message are strings.
pub fn encode(message: &Message) -> String {
    let stored = Stored {
        v: VERSION,
        role: message.role,
        parts: &message.parts,
        author: message.author.as_deref(),
        added_at: message.added_at,
        finish_reason: message.finish_reason.as_ref(),
        metadata: &message.metadata,
    };
    #[allow(clippy::expect_used, reason = "all map keys are strings and nothing else can fail")]
    serde_json::to_string(&stored).expect("a message has a JSON form")
}

/// Parses the stored form of a message. The `id` of the returned message is `None`.
///
/// # Errors
///
/// [`FormatError`], if a newer release wrote the message or the message is damaged.
pub fn decode(stored: &str) -> Result<Message, FormatError> {
    let loaded: Loaded =
        serde_json::from_str(stored).map_err(|error| match serde_json::from_str(stored) {
            Ok(Version { v }) if v > VERSION => FormatError::Newer { version: v },
            Ok(_) | Err(_) => FormatError::malformed(error),
        })?;
    match loaded.v {
        1..=VERSION => Ok(loaded.into()),
        0 => Err(FormatError::malformed("its format version is 0")),
        version => Err(FormatError::Newer { version }),
    }
}

impl From<Loaded> for Message {
    fn from(loaded: Loaded) -> Self {
        let mut message = Self::new(loaded.role, loaded.parts);
        message.author = loaded.author;
        message.added_at = loaded.added_at;
        message.finish_reason = loaded.finish_reason;
        message.metadata = loaded.metadata;
        message
    }
}
