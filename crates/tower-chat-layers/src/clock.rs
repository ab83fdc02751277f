//! The source of the current time.

use std::{fmt, sync::Arc, time::SystemTime};

use tower_chat_core::store::author::milliseconds;

/// The source of the current time, for the times at which tools start and finish, and for the
/// freshness of results.
///
/// The order of messages never depends on the clock. The default is the system's clock. Tests can
/// use a function that returns fixed times.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat::run::Clock;
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(43_200);
/// assert_eq!(Clock::new(move || noon).now(), noon);
/// ```
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// Creates a clock that calls a function.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the current time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }

    /// Returns the current time in whole milliseconds, if stores can represent it.
    pub(crate) fn whole_milliseconds(&self) -> Option<SystemTime> {
        milliseconds::time(milliseconds::of(self.now()))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(SystemTime::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
