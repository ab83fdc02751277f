//! The activity of a run, which each write reports to the directory of the store.

use std::sync::Arc;

use tower_chat_core::{
    Answer, Finish, Message,
    store::{ModelUsage, RunActivity, UsageSum},
};

use super::{Run, RunLog};
use crate::policy::PriceList;

/// The usage of the run since the last write that reported usage.
#[derive(Debug, Default)]
pub(super) struct UntoldUsage {
    usage: Vec<ModelUsage>,
}

impl UntoldUsage {
    /// Adds the usage of an answered service call.
    fn note(&mut self, finish: &Finish, messages: &[Arc<Message>], prices: Option<&PriceList>) {
        let calls = messages.iter().map(|message| message.asked_calls().count() as u64).sum();
        let model = finish.model.as_deref().filter(|model| !model.is_empty());
        let price = model.zip(prices).and_then(|(model, prices)| prices.of(model));
        let sum = UsageSum::of_calls(1, calls)
            .with_tokens(finish.usage)
            .with_cost_nanos(price.map(|price| price.cost_nanos(&finish.usage)));
        match self.usage.iter_mut().find(|known| known.model.as_deref() == model) {
            Some(known) => known.sum += &sum,
            None => self.usage.push(ModelUsage::new(model.map(Into::into), sum)),
        }
    }
}

impl RunLog {
    /// Adds the usage of an answered service call.
    pub(super) fn note_usage(&mut self, answer: &Answer, prices: Option<&PriceList>) {
        self.calls.untold_usage.note(&answer.finish, &answer.messages, prices);
    }
}

impl Run {
    /// Returns the activity at the current time, without usage.
    pub(super) fn activity_now(&self) -> RunActivity {
        let activity = RunActivity::new(self.0.clock.now()).with_start(self.0.arrived_at);
        activity.with_mode(self.0.mode)
    }

    /// Returns the activity for the next write. Only a write with messages reports usage, because a
    /// store cannot distinguish the repetition of another write from a new one.
    pub(super) fn activity(&self, log: &mut RunLog, has_messages: bool) -> RunActivity {
        let activity = self.activity_now();
        match has_messages {
            true => activity.with_usage(std::mem::take(&mut log.calls.untold_usage.usage)),
            false => activity,
        }
    }
}
