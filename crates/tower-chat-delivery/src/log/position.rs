//! The position of an update in its run.

use std::{fmt, str::FromStr};

/// The position of one update: the number of the attempt that has sent the update, and the index of
/// the update in that attempt. An attempt is one execution of the run; a run whose process died can
/// be executed again.
///
/// Positions are ordered by attempt and then by index. Therefore every update of a later attempt is
/// after all updates of an earlier attempt, including updates that a killed process had sent and
/// not stored.
///
/// The text form of a position is `attempt-index`. Event streams over HTTP use this text as the id
/// of an event.
///
/// ```
/// use tower_chat_delivery::UpdatePosition;
/// let position = UpdatePosition::new(2, 7);
/// assert_eq!(position.to_string(), "2-7");
/// assert_eq!("2-7".parse(), Ok(position));
/// assert!(UpdatePosition::START < UpdatePosition::new(1, 0));
/// assert!(UpdatePosition::new(1, 900) < position);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpdatePosition {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The index of the update in the attempt, from 0.
    pub index: u32,
}

impl UpdatePosition {
    /// The position before the first update of every run.
    pub const START: Self = Self { attempt: 0, index: 0 };

    /// Creates the position of an update.
    pub fn new(attempt: u32, index: u32) -> Self {
        Self { attempt, index }
    }

    /// Returns a position that is before all updates of an attempt, and after all updates of
    /// earlier attempts.
    pub(crate) fn before_attempt(attempt: u32) -> Self {
        match attempt.checked_sub(1) {
            None | Some(0) => Self::START,
            Some(previous) => Self::new(previous, u32::MAX),
        }
    }

    /// Returns the position as an integer, for a log that stores integers. For attempts below 2^31,
    /// the integers have the order of the positions.
    ///
    /// ```
    /// use tower_chat_delivery::UpdatePosition;
    /// let position = UpdatePosition::new(2, 7);
    /// assert_eq!(UpdatePosition::from_integer(position.to_integer()), position);
    /// ```
    pub fn to_integer(self) -> i64 {
        i64::from(self.attempt) << 32 | i64::from(self.index)
    }

    /// Returns the position for which [`to_integer`](Self::to_integer) returns this integer.
    pub fn from_integer(position: i64) -> Self {
        let half = |bits: i64| u32::try_from(bits & i64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self { attempt: half(position >> 32), index: half(position) }
    }

    /// Returns the greatest position before this one.
    pub(crate) fn previous(self) -> Self {
        match self.index.checked_sub(1) {
            Some(index) => Self { index, ..self },
            None => Self::before_attempt(self.attempt),
        }
    }
}

impl fmt::Display for UpdatePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.attempt, self.index)
    }
}

/// The error of parsing a text that is not the position of an update.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the position of an update: send the id of an event unchanged")]
pub struct ParsePositionError {
    text: String,
}

impl FromStr for UpdatePosition {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, ParsePositionError> {
        let parsed = text.split_once('-').and_then(|(attempt, index)| {
            Some(Self { attempt: attempt.parse().ok()?, index: index.parse().ok()? })
        });
        parsed.ok_or_else(|| ParsePositionError { text: text.to_owned() })
    }
}
