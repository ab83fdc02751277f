//! What a run tells the directory of its store with each write.

use std::sync::Arc;

use tower_chat_core::{
    Finish, Message, Role, Usage,
    store::{ModelUsage, RunActivity, UsageSum},
};

use super::{Run, State};
use crate::policy::PriceList;

/// What the run has used since the last write that could tell it.
#[derive(Debug, Default)]
pub(super) struct UntoldUsage {
    usage: Vec<ModelUsage>,
    /// An answer was noted, by whatever layer.
    is_noted: bool,
}

impl UntoldUsage {
    /// Whether a layer has noted an answer.
    pub(super) fn is_noted(&self) -> bool {
        self.is_noted
    }

    /// The answer of a service call has come.
    pub(super) fn note(
        &mut self,
        finish: &Finish,
        messages: &[Arc<Message>],
        prices: Option<&PriceList>,
    ) {
        self.is_noted = true;
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

impl Run {
    /// The answer of a service call has come, in the layer below the tool loop, of a run that is
    /// written at its end.
    pub(crate) fn note_answer(&self, finish: &Finish, messages: &[Arc<Message>]) {
        let prices = self.policy().prices.as_ref();
        self.state().calls.untold_usage.note(finish, messages, prices);
    }

    /// The answer of a service call has come, in the tool loop, which notes it where no layer below
    /// does.
    pub(crate) fn note_answer_in_loop(&self, finish: &Finish, messages: &[Arc<Message>]) {
        let prices = self.policy().prices.as_ref();
        let mut state = self.state();
        if self.is_written_at_end() && !state.is_persister_reported {
            state.calls.untold_usage.note(finish, messages, prices);
        }
    }

    /// The run has its final answer. Where no layer has seen its service calls, as under a foreign
    /// tool loop, all that is known is the answer's model and usage: it counts as one service call.
    pub(super) fn note_final_answer(
        &self,
        state: &mut State,
        finish: &Finish,
        messages: &[Arc<Message>],
    ) {
        let is_answer = messages.iter().any(|message| message.role == Role::Assistant)
            || finish.usage != Usage::default();
        if is_answer && !state.calls.untold_usage.is_noted {
            state.calls.untold_usage.note(finish, messages, self.policy().prices.as_ref());
        }
    }

    /// That the run is at work now.
    pub(super) fn activity_now(&self) -> RunActivity {
        let activity = RunActivity::new(self.0.clock.now()).with_start(self.0.arrived_at);
        activity.with_mode(self.0.mode)
    }

    /// What the next write tells. Usage waits for a write with messages, since a store cannot tell
    /// the repetition of another from a new one.
    pub(super) fn activity(&self, state: &mut State, has_messages: bool) -> RunActivity {
        let activity = self.activity_now();
        match has_messages {
            true => activity.with_usage(std::mem::take(&mut state.calls.untold_usage.usage)),
            false => activity,
        }
    }
}
