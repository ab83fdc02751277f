//! [`LoadFrom`], the part of a conversation that the next run needs to load.

use serde::{Deserialize, Serialize};

/// The part of a conversation that the next run needs to load. The part consists of the messages at
/// the beginning of the conversation that the model always receives, and of the last messages. A
/// summary or a window (a maximum number of turns) leaves out the messages between them.
///
/// A run that has loaded the messages stores this value with a
/// [write](super::author::Write::with_load_from), and the next run reads it in the
/// [head](crate::store::Head::load_from). Only the runs know whether the value still applies.
/// Stores do not read [`applies_to`](Self::applies_to).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadFrom {
    /// The number of messages at the beginning of the conversation that are loaded as
    /// [`History::leading`](crate::store::History::leading).
    pub leading: u64,
    /// The sequence number of the last message that is not loaded.
    pub after: u64,
    /// Identifies the state of the conversation and the policy for which the value is valid. Only
    /// the code that stores the value interprets this text.
    pub applies_to: String,
}

impl LoadFrom {
    /// Returns the value as JSON, in the form in which stores keep the value.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads a value from JSON. Returns `None` if the text is not a valid value. A store then
    /// behaves as if it contained no value, and the next run loads all messages.
    ///
    /// ```
    /// use tower_chat_core::store::author::LoadFrom;
    /// let from = LoadFrom { leading: 1, after: 40, applies_to: "a window".to_owned() };
    /// assert_eq!(LoadFrom::from_json(&from.to_json()), Some(from));
    /// assert_eq!(LoadFrom::from_json("40"), None);
    /// ```
    pub fn from_json(json: &str) -> Option<Self> {
        let from: Self = serde_json::from_str(json).ok()?;
        (from.leading <= from.after).then_some(from)
    }
}
