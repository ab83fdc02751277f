//! Step 4 of the [replay](super): removes results that are too old.

mod finish_times;
mod settings;

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::Deserialize;
use serde_json::Value;
use tower_chat_core::{Message, Messages, ToolCall};

pub use self::{finish_times::FinishTimes, settings::FreshnessError};
use super::without_calls::without_calls;

/// The channel of a request, such as `web`, `sms` or `voice`. The channel is a request extension. A
/// [`Freshness`] can set a separate maximum age of results for each channel.
///
/// ```
/// use tower_chat::{ChatRequest, replay::Channel};
/// let request = ChatRequest::user("hi").with_extension(Channel::new("sms"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Channel(Arc<str>);

impl Channel {
    /// Creates the channel with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name of the channel.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The maximum age, called the window, at which the model still receives the result of a tool.
///
/// An older result and its call are not sent, but remain stored. The model can call the tool again.
/// If no call of an answer remains, only the text of the answer is sent. Text that is not a tool
/// result is sent at any age.
///
/// The window of a result is the first of these that is set:
/// 1. the window for the request's [`Channel`] and the tool together;
/// 2. the window of the channel or of the tool, or the shorter one if both are set;
/// 3. the general window.
///
/// A result is fresh if its age is at most the window, or if its time is in the future. The age
/// begins at the time at which the tool finished. If this time is unknown, the age begins when the
/// result was added to the conversation. A result without either time is fresh. With a window of
/// zero, no result is fresh. With a window of [`Duration::MAX`], every result is fresh.
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
/// [`from_settings`](Self::from_settings) reads the windows from JSON, in seconds, with `null` for
/// an unlimited window. Wrong types and unknown keys are errors.
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Freshness {
    window: Duration,
    channels: BTreeMap<String, Duration>,
    tools: BTreeMap<String, Duration>,
    /// The windows for a channel and a tool together: the outer key is the channel, the inner key
    /// the tool.
    channels_and_tools: BTreeMap<String, BTreeMap<String, Duration>>,
}

impl Default for Freshness {
    fn default() -> Self {
        Self::within(Duration::from_secs(5 * 60))
    }
}

impl Freshness {
    /// Creates a `Freshness` with this general window.
    pub fn within(window: Duration) -> Self {
        let (channels, tools) = (BTreeMap::new(), BTreeMap::new());
        Self { window, channels, tools, channels_and_tools: BTreeMap::new() }
    }

    /// Sets the general window.
    #[must_use]
    pub fn with_window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Sets the window for requests from one channel.
    #[must_use]
    pub fn with_channel(mut self, channel: impl Into<String>, window: Duration) -> Self {
        self.channels.insert(channel.into(), window);
        self
    }

    /// Sets the window for the results of one tool. If a channel's window is shorter, the channel's
    /// window applies to requests from this channel.
    #[must_use]
    pub fn with_tool(mut self, tool: impl Into<String>, window: Duration) -> Self {
        self.tools.insert(tool.into(), window);
        self
    }

    /// Sets the window for the results of one tool in requests from one channel. This window
    /// replaces the windows of the channel and of the tool.
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

    /// Returns the window for a tool's results in a request from a channel.
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

    /// Returns the messages without stale results and without the calls of these results, for a
    /// request from `channel` at the time `now`.
    pub fn apply(
        &self,
        messages: &Messages,
        now: SystemTime,
        channel: Option<&Channel>,
        finished: &FinishTimes,
    ) -> Messages {
        without_calls(messages, self.test(now, channel, finished))
    }

    /// Returns a function that returns, for each call of a message, whether its result is stale.
    pub(super) fn test<'a>(
        &'a self,
        now: SystemTime,
        channel: Option<&'a Channel>,
        finished: &'a FinishTimes,
    ) -> impl Fn(&Message) -> Vec<bool> + use<'a> {
        move |message| {
            let is_stale = |(call, finished_at): (&ToolCall, Option<SystemTime>)| {
                let window = self.window_for(channel, &call.name);
                window.is_zero()
                    || window != Duration::MAX
                        && finished_at.is_some_and(|at| is_older(at, now, window))
            };
            message.asked_calls().zip(finished.of_calls(message)).map(is_stale).collect()
        }
    }
}

fn is_older(at: SystemTime, now: SystemTime, window: Duration) -> bool {
    now.duration_since(at).is_ok_and(|age| age > window)
}

#[cfg(test)]
mod tests;
