//! Applies steps 3 to 8 of the [replay](super) in order.

use std::{iter::repeat, sync::Arc, time::SystemTime};

use serde::Deserialize;
use tower_chat_core::{Message, Messages, RunId};

use super::{
    Channel, Citations, CompactionTime, DanglingCalls, FinishTimes, Freshness, OldMedia,
    OutdatedCalls, Replay, ReplaySummary, ToolHistory, Window, settings::Settings,
    tool_history::is_of_tools, without_calls::without_calls,
};

/// The policy that decides which part of a stored history the model receives. The repair of
/// dangling calls, which are stored calls without a result, is always on. All other steps are off
/// by default, and a step that is off has no cost.
///
/// ```
/// use tower_chat::replay::{Freshness, ReplayPolicy, Window};
/// let policy = ReplayPolicy::default()
///     .with_freshness(Freshness::default())
///     .with_window(Window::turns(50));
/// assert!(!policy.is_off() && policy.needs_finish_times());
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Settings")]
#[non_exhaustive]
pub struct ReplayPolicy {
    /// The policy for dangling calls.
    pub dangling_calls: DanglingCalls,
    /// Whether the model receives the calls and results of earlier runs.
    pub tool_history: ToolHistory,
    /// The maximum age of results. `None` if results are sent at any age.
    pub freshness: Option<Freshness>,
    /// The policy for calls of tools that are no longer registered, and for unreadable calls.
    pub outdated_calls: OutdatedCalls,
    /// The settings for the removal of uncited sources. `None` if all sources are sent.
    pub citations: Option<Citations>,
    /// The policy for old pictures and documents. `None` if all media are sent.
    pub old_media: Option<OldMedia>,
    /// The limit of the replay's length. `None` if there is no limit.
    pub window: Option<Window>,
}

/// The input of the replay besides the messages. A run reads this input once when it starts,
/// because all service calls of the run must send the same history.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReplayContext<'a> {
    /// The current time.
    pub now: SystemTime,
    /// The channel of the request.
    pub channel: Option<&'a Channel>,
    /// The names of the registered tools. `None` if they are not known.
    pub tools: Option<&'a [&'a str]>,
    /// The times at which tools finished. `None` if no time is known.
    pub finished: Option<&'a FinishTimes>,
    /// The summary in force: a stored text that the model receives in place of the oldest messages.
    /// `None` if there is none.
    pub summary: Option<&'a ReplaySummary>,
    /// The run that sends the request. Step 7 does not replace its media.
    pub(super) run: Option<RunId>,
}

impl<'a> ReplayContext<'a> {
    /// Creates a context that contains only the current time.
    pub fn at(now: SystemTime) -> Self {
        Self { now, channel: None, tools: None, finished: None, summary: None, run: None }
    }

    /// Adds the channel of the request.
    #[must_use]
    pub fn with_channel(mut self, channel: Option<&'a Channel>) -> Self {
        self.channel = channel;
        self
    }

    /// Adds the names of the registered tools.
    #[must_use]
    pub fn with_tools(mut self, names: &'a [&'a str]) -> Self {
        self.tools = Some(names);
        self
    }

    /// Adds the times at which tools finished.
    #[must_use]
    pub fn with_finish_times(mut self, times: &'a FinishTimes) -> Self {
        self.finished = Some(times);
        self
    }

    /// Adds the summary in force.
    #[must_use]
    pub fn with_summary(mut self, summary: Option<&'a ReplaySummary>) -> Self {
        self.summary = summary;
        self
    }
}

impl ReplayPolicy {
    /// Sets the policy for calls without a result.
    #[must_use]
    pub fn with_dangling_calls(mut self, policy: DanglingCalls) -> Self {
        self.dangling_calls = policy;
        self
    }

    /// Sets whether calls and results are replayed.
    #[must_use]
    pub fn with_tool_history(mut self, policy: ToolHistory) -> Self {
        self.tool_history = policy;
        self
    }

    /// Omits results that are too old.
    #[must_use]
    pub fn with_freshness(mut self, policy: impl Into<Option<Freshness>>) -> Self {
        self.freshness = policy.into();
        self
    }

    /// Sets the policy for calls of tools that are no longer registered, and for unreadable calls.
    #[must_use]
    pub fn with_outdated_calls(mut self, policy: OutdatedCalls) -> Self {
        self.outdated_calls = policy;
        self
    }

    /// Omits sources that were not cited.
    #[must_use]
    pub fn with_citations(mut self, policy: impl Into<Option<Citations>>) -> Self {
        self.citations = policy.into();
        self
    }

    /// Replaces old pictures and documents by sentences.
    #[must_use]
    pub fn with_old_media(mut self, policy: impl Into<Option<OldMedia>>) -> Self {
        self.old_media = policy.into();
        self
    }

    /// Limits the replay to the newest turns, which are the messages of one run each.
    #[must_use]
    pub fn with_window(mut self, policy: impl Into<Option<Window>>) -> Self {
        self.window = policy.into();
        self
    }

    /// Returns whether steps 4 to 8 change no message.
    pub fn is_off(&self) -> bool {
        self.tool_history == ToolHistory::Replay
            && self.freshness.is_none()
            && self.outdated_calls.is_off()
            && self.citations_at_replay().is_none()
            && self.old_media.is_none()
            && self.window.is_none()
    }

    /// Returns whether [`apply`](Self::apply) needs the times at which tools finished, which the
    /// record of tool calls contains.
    pub fn needs_finish_times(&self) -> bool {
        self.freshness.is_some() && self.tool_history == ToolHistory::Replay
    }

    /// Returns whether [`apply`](Self::apply) needs the names of the registered tools.
    pub fn needs_tools(&self) -> bool {
        self.outdated_calls.needs_tools() && self.tool_history == ToolHistory::Replay
    }

    /// Returns the settings for citations if they remove uncited sources before a run is stored.
    pub fn citations_at_save(&self) -> Option<&Citations> {
        self.citations.as_ref().filter(|citations| citations.time() == CompactionTime::AtSave)
    }

    /// Returns the output of steps 3 to 8. The input must be the output of [`Replay::view`]. Step 7
    /// treats all messages as messages of earlier runs. Unchanged messages are shared with the
    /// input. If no message changes, the whole sequence is shared.
    ///
    /// [`Replay::view`]: super::Replay::view
    pub fn apply(&self, messages: &Messages, context: &ReplayContext<'_>) -> Messages {
        self.apply_before(messages, &mut [], context)
    }

    /// Like [`apply`](Self::apply), but step 7 also edits `open`, the messages that follow
    /// `messages`.
    fn apply_before(
        &self,
        messages: &Messages,
        open: &mut [&mut Arc<Message>],
        context: &ReplayContext<'_>,
    ) -> Messages {
        let (mut messages, pinned) = match context.summary {
            Some(summary) => summary.apply(messages),
            None => (messages.clone(), 0),
        };
        match self.tool_history {
            ToolHistory::Omit => messages = self.tool_history.apply(&messages),
            ToolHistory::Replay => {
                if let Some(omitted) = self.omission_test(context) {
                    messages = without_calls(&messages, omitted);
                }
                if let Some(citations) = self.citations_at_replay() {
                    messages = citations.apply(&messages);
                }
            }
        }
        if let Some(old_media) = &self.old_media {
            messages = old_media.apply_before(&messages, open, context.run);
        }
        match &self.window {
            Some(window) => window.apply_after(&messages, pinned),
            None => messages,
        }
    }

    /// Applies steps 3 to 8 to a replay of a stored history. Calls without a result at the end of
    /// the history remain, because the input of the run may answer these calls.
    pub fn edit(&self, replay: &mut Replay, context: &ReplayContext<'_>) {
        if let Some(summary) = context.summary {
            // The summary also replaces the last calls. A later result of one of these calls is
            // sent with its call.
            replay.close_covered_round(summary);
        }
        replay.edit_before_open(|closed, open| self.apply_before(closed, open, context));
        // The open round (the last calls of the history and their results) keeps all sources,
        // because a later answer of its turn may cite them.
        replay.edit_open(|round| match self.tool_history {
            ToolHistory::Omit => {
                round.retain_beside_calls(|part| !is_of_tools(part));
                round.hide_answered(|message| vec![true; message.asked_calls().count()]);
            }
            ToolHistory::Replay => {
                if let Some(omitted) = self.omission_test(context) {
                    round.hide_answered(omitted);
                }
            }
        });
    }

    /// Returns a function that returns, for each call of a message, whether step 4 or 5 omits it.
    /// Returns `None` if neither step omits calls.
    fn omission_test<'a>(
        &'a self,
        context: &ReplayContext<'a>,
    ) -> Option<impl Fn(&Message) -> Vec<bool> + use<'a>> {
        let finished = context.finished.unwrap_or(FinishTimes::unknown());
        let freshness = self.freshness.as_ref();
        let stale = freshness.map(|it| it.test(context.now, context.channel, finished));
        let is_outdated = self.outdated_calls.test(context.tools);
        let drops_calls = stale.is_some() || !self.outdated_calls.is_off();
        drops_calls.then_some(move |message: &Message| {
            let stale = stale.as_ref().map(|stale| stale(message)).unwrap_or_default();
            let calls = message.asked_calls().zip(stale.into_iter().chain(repeat(false)));
            calls.map(|(call, is_stale)| is_stale || is_outdated(call)).collect()
        })
    }

    fn citations_at_replay(&self) -> Option<&Citations> {
        self.citations.as_ref().filter(|citations| citations.time() == CompactionTime::AtReplay)
    }
}

#[cfg(test)]
mod tests;
