//! Reads the input of the [replay](super) steps besides the messages (such as the registered tools
//! and the times at which tools finished), and applies the steps.

use std::time::SystemTime;

use tower_chat_core::{ConversationKey, RunId, store::HistoryStore};

use super::{Channel, FinishTimes, Replay, ReplayContext, ReplayPolicy, ReplaySummary};
use crate::ToolSource;

/// The sources of the input of the replay steps.
#[derive(Clone, Copy)]
pub(crate) struct ReplaySources<'a> {
    pub(crate) store: &'a dyn HistoryStore,
    pub(crate) key: &'a ConversationKey,
    pub(crate) policy: &'a ReplayPolicy,
    pub(crate) now: SystemTime,
    pub(crate) channel: Option<&'a Channel>,
    pub(crate) tools: Option<&'a dyn ToolSource>,
    /// The run that sends the request. `None` if no run sends it.
    pub(crate) run: Option<RunId>,
}

impl ReplaySources<'_> {
    /// Applies the steps to the stored messages. Messages that a run adds later are not affected.
    pub(crate) async fn edit(&self, replay: &mut Replay, summary: Option<&ReplaySummary>) {
        let policy = self.policy;
        if policy.is_off() && summary.is_none() {
            return;
        }
        let finished = match policy.needs_finish_times() {
            true => Some(FinishTimes::of_conversation(self.store, self.key, &replay.view()).await),
            false => None,
        };
        let tools = self.tools.filter(|_| policy.needs_tools()).map(|it| it.tools());
        let names: Option<Vec<&str>> = tools
            .as_ref()
            .map(|tools| tools.definitions().iter().map(|tool| tool.name.as_str()).collect());
        let mut context =
            ReplayContext::at(self.now).with_channel(self.channel).with_summary(summary);
        context.tools = names.as_deref();
        context.finished = finished.as_ref();
        context.run = self.run;
        policy.edit(replay, &context);
    }
}
