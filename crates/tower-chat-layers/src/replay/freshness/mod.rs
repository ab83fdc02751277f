//! Step 3: results that are too old to be believed.

mod finish_times;
mod settings;

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{Message, Messages, ToolCall};

pub use self::{finish_times::FinishTimes, settings::FreshnessError};
use super::without_calls::without_calls;

/// Where a request comes from, such as `web`, `sms` or `voice`: a request extension of this type
/// chooses among the windows of a [`Freshness`].
///
/// ```
/// use tower_chat::{ChatRequest, replay::Channel};
/// let request = ChatRequest::user("hi").with_extension(Channel::new("sms"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(Arc<str>);

impl Channel {
    /// The channel of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long the results of tools are shown to the model after the tool had finished.
///
/// A result that is older leaves the replay together with its call, so that the model asks again;
/// both stay in the record. A round that loses all its calls disappears, and its text stays. Plain
/// text is replayed at any age.
///
/// The window given for the request's [`Channel`] and the tool together counts; where there is none,
/// the shorter of the channel's and the tool's; where there is neither, the general one. A result is
/// fresh up to and including the age of its window, and one from the future is fresh. Where it is not
/// known when the tool had finished, the time at which the result was added to the conversation
/// counts; a result of which neither is known is fresh. In a window of zero nothing is fresh, and in
/// one of [`Duration::MAX`] everything is.
///
/// ```
/// use std::time::Duration;
/// use tower_chat::replay::{Channel, Freshness};
/// let freshness = Freshness::default() // 5 minutes
///     .with_channel("voice", Duration::from_secs(60))
///     .with_tool("exchange_rate", Duration::ZERO)
///     .with_tool("country_of_ip", Duration::MAX)
///     .with_channel_and_tool("voice", "time_table", Duration::from_secs(3600));
/// let voice = Channel::new("voice");
/// assert_eq!(freshness.window_for(Some(&voice), "weather"), Duration::from_secs(60));
/// assert_eq!(freshness.window_for(Some(&voice), "exchange_rate"), Duration::ZERO);
/// assert_eq!(freshness.window_for(Some(&voice), "country_of_ip"), Duration::from_secs(60));
/// assert_eq!(freshness.window_for(Some(&voice), "time_table"), Duration::from_secs(3600));
/// assert_eq!(freshness.window_for(None, "weather"), Duration::from_secs(300));
/// ```
///
/// It can be read from settings: windows are in seconds, and `null` means for ever. Wrong types
/// and unknown keys are refused.
///
/// ```
/// use serde_json::json;
/// use tower_chat::replay::Freshness;
/// let settings = json!({
///     "window": 300,
///     "channels": {"voice": 60},
///     "tools": {"exchange_rate": 0},
///     "channels_and_tools": {"voice": {"time_table": 3600}},
/// });
/// assert!(Freshness::from_settings(&settings).is_ok());
/// assert!(Freshness::from_settings(&json!({"window": "5 minutes"})).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freshness {
    window: Duration,
    channels: BTreeMap<String, Duration>,
    tools: BTreeMap<String, Duration>,
    /// By channel, then by tool.
    channels_and_tools: BTreeMap<String, BTreeMap<String, Duration>>,
}

impl Default for Freshness {
    fn default() -> Self {
        Self::within(Duration::from_secs(5 * 60))
    }
}

impl Freshness {
    /// A general window.
    pub fn within(window: Duration) -> Self {
        let (channels, tools) = (BTreeMap::new(), BTreeMap::new());
        Self { window, channels, tools, channels_and_tools: BTreeMap::new() }
    }

    /// Changes the general window.
    #[must_use]
    pub fn with_window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// A window for requests from one channel.
    #[must_use]
    pub fn with_channel(mut self, channel: impl Into<String>, window: Duration) -> Self {
        self.channels.insert(channel.into(), window);
        self
    }

    /// A window for the results of one tool. A channel's window may shorten it.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<String>, window: Duration) -> Self {
        self.tools.insert(tool.into(), window);
        self
    }

    /// A window for the results of one tool in requests from one channel, whatever their own are.
    #[must_use]
    pub fn with_channel_and_tool(
        mut self,
        channel: impl Into<String>,
        tool: impl Into<String>,
        window: Duration,
    ) -> Self {
        let tools = self.channels_and_tools.entry(channel.into()).or_default();
        tools.insert(tool.into(), window);
        self
    }

    /// The window that counts for a tool's results in a request from a channel.
    pub fn window_for(&self, channel: Option<&Channel>, tool: &str) -> Duration {
        let channel = channel.map(Channel::as_str);
        let of_both = channel.and_then(|channel| self.channels_and_tools.get(channel)?.get(tool));
        if let Some(window) = of_both {
            return *window;
        }
        let of_channel = channel.and_then(|channel| self.channels.get(channel));
        let shorter = of_channel.into_iter().chain(self.tools.get(tool)).min();
        shorter.copied().unwrap_or(self.window)
    }

    /// The messages without stale results and their calls, as a request from a channel sees them
    /// at a time.
    pub fn apply(
        &self,
        messages: &Messages,
        now: SystemTime,
        channel: Option<&Channel>,
        finished: &FinishTimes,
    ) -> Messages {
        without_calls(messages, self.test(now, channel, finished))
    }

    /// Whether a call's result is stale, and leaves with the call. To be asked in the order of
    /// the messages, with each call's position among those of its message.
    pub(super) fn test<'a>(
        &'a self,
        now: SystemTime,
        channel: Option<&'a Channel>,
        finished: &'a FinishTimes,
    ) -> impl FnMut(&Message, usize, &ToolCall) -> bool + use<'a> {
        let mut finished = finished.walk();
        move |message, index, call| {
            let window = self.window_for(channel, &call.name);
            let mut finished_at = || finished.of(message, index, call);
            window.is_zero()
                || window != Duration::MAX
                    && finished_at().is_some_and(|at| is_older(at, now, window))
        }
    }
}

/// A time after now is no older than anything.
fn is_older(at: SystemTime, now: SystemTime, window: Duration) -> bool {
    now.duration_since(at).is_ok_and(|age| age > window)
}

#[cfg(test)]
mod tests;
