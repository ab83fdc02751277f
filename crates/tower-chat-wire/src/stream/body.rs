//! Collects the bytes of a body.

use super::limits::{Limit, LimitExceeded, Limits};

/// Collects the bytes of a body up to a limit.
///
/// ```
/// use tower_chat_wire::stream::{BodyReader, Limits};
/// let mut body = BodyReader::answer(Limits::default().with_max_body_bytes(3));
/// body.push(b"ab")?;
/// assert!(body.push(b"cd").is_err());
/// assert_eq!(body.into_text(), "abc");
/// # Ok::<(), tower_chat_wire::stream::LimitExceeded>(())
/// ```
#[derive(Debug, Clone)]
pub struct BodyReader {
    bytes: Vec<u8>,
    limits: Limits,
    limit: Limit,
}

impl BodyReader {
    /// Creates a reader for a whole answer.
    pub fn answer(limits: Limits) -> Self {
        Self { bytes: Vec::new(), limits, limit: Limit::Body }
    }

    /// Creates a reader for the body of an error response.
    pub fn refusal(limits: Limits) -> Self {
        Self { bytes: Vec::new(), limits, limit: Limit::Error }
    }

    /// Appends bytes. If the body would exceed the limit, appends only the bytes up to the limit.
    ///
    /// # Errors
    ///
    /// [`LimitExceeded`], if the body is longer than the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), LimitExceeded> {
        let room = self.limits.max(self.limit).saturating_sub(self.bytes.len());
        let fitting = bytes.get(..room).unwrap_or(bytes);
        self.bytes.extend_from_slice(fitting);
        self.limits.check(self.limit, self.bytes.len() + (bytes.len() - fitting.len()))
    }

    /// Returns the bytes as a text. Replaces invalid UTF-8 with U+FFFD.
    pub fn into_text(self) -> String {
        match String::from_utf8(self.bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}
