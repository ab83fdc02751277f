//! Where the time comes from.

use std::{fmt, sync::Arc, time::SystemTime};

use tower_chat_core::store::author::milliseconds;

/// Tells the time: when tools were started, when they had finished, and what is stale.
///
/// Order never depends on it. The default is the system's clock; tests bring their own.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat::Clock;
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(43_200);
/// assert_eq!(Clock::new(move || noon).now(), noon);
/// ```
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

impl Clock {
    /// A clock that asks a function.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }

    /// The time as it is stored; `None` if it is out of range.
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
