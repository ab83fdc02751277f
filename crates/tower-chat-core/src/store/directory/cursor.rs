//! The position between two pages of the directory.

use std::{cmp::Ordering, fmt, str::FromStr};

use super::ConversationSummary;
use crate::{ConversationKey, store::author::milliseconds};

/// A position in the list of conversations, directly after the conversation with this key and this
/// last activity.
///
/// Cursors are ordered like the conversations on the pages: the most recently active conversation
/// is first, and, among conversations that were last active in the same millisecond, the one with
/// the lesser key. The text form consists of letters, digits, `-` and `.`, so that a command line
/// or a URL can contain it.
///
/// ```
/// use tower_chat_core::{ConversationKey, store::DirectoryCursor};
/// let cursor = DirectoryCursor::new(1_750_000_000_123, ConversationKey::new("alice", "a/b"));
/// assert_eq!(cursor.to_string(), "1750000000123.616c696365.612f62");
/// assert_eq!(cursor.to_string().parse(), Ok(cursor));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirectoryCursor {
    /// The time of the conversation's last activity, in milliseconds since 1970 (UTC).
    last_active: i64,
    key: ConversationKey,
}

impl DirectoryCursor {
    /// Creates the position after a conversation that was last active in this millisecond since
    /// 1970 (UTC).
    pub fn new(last_active_milliseconds: i64, key: ConversationKey) -> Self {
        Self { last_active: last_active_milliseconds, key }
    }

    /// Creates the position after this conversation.
    pub fn after(summary: &ConversationSummary) -> Self {
        Self::new(milliseconds::of(summary.last_active_at), summary.key.clone())
    }

    /// Returns the millisecond since 1970 (UTC) in which the conversation was last active.
    pub fn last_active_milliseconds(&self) -> i64 {
        self.last_active
    }

    /// Returns the key of the conversation.
    pub fn key(&self) -> &ConversationKey {
        &self.key
    }
}

impl Ord for DirectoryCursor {
    fn cmp(&self, other: &Self) -> Ordering {
        let newest_first = other.last_active.cmp(&self.last_active);
        newest_first.then_with(|| self.key.cmp(&other.key))
    }
}

impl PartialOrd for DirectoryCursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for DirectoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.last_active)?;
        for half in [self.key.scope(), self.key.id()] {
            f.write_str(".")?;
            half.bytes().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

/// The error of a text that is not a [`DirectoryCursor`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a directory cursor: pass the cursor of an earlier page")]
pub struct ParseCursorError {
    text: String,
}

impl FromStr for DirectoryCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let parse = || {
            let mut fields = text.split('.');
            let last_active = fields.next()?.parse().ok()?;
            let key = ConversationKey::new(from_hex(fields.next()?)?, from_hex(fields.next()?)?);
            fields.next().is_none().then_some(Self { last_active, key })
        };
        parse().ok_or_else(|| ParseCursorError { text: text.to_owned() })
    }
}

fn from_hex(text: &str) -> Option<String> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |digits: &[u8]| match digits {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_returned_from_its_text_whatever_the_key() {
        for (last_active, scope, id) in
            [(0, "", ""), (-1, "a.b", "c d"), (i64::MAX, "\0\n", "ä/😀"), (i64::MIN, "%", "é.")]
        {
            let cursor = DirectoryCursor::new(last_active, ConversationKey::new(scope, id));
            let text = cursor.to_string();
            assert!(text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-.".contains(&it)));
            assert_eq!(text.parse(), Ok(cursor));
        }
    }

    #[test]
    fn a_text_that_is_no_cursor_is_refused() {
        for text in ["", "1", "1.61", "1.61.62.63", "x.61.62", "1.6.62", "1.ff.62", "1.zz.62"] {
            assert!(text.parse::<DirectoryCursor>().is_err(), "{text}");
        }
    }

    #[test]
    fn cursors_are_ordered_newest_first_then_by_key() {
        let cursor = |at, id: &str| DirectoryCursor::new(at, ConversationKey::new("s", id));
        let mut cursors = [cursor(1, "a"), cursor(2, "c"), cursor(2, "b"), cursor(-3, "a")];
        cursors.sort();
        assert_eq!(cursors, [cursor(2, "b"), cursor(2, "c"), cursor(1, "a"), cursor(-3, "a")]);
    }
}
