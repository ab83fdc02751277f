//! The activity and the usage (calls, tokens and cost) of a run. The writes of the run report both
//! to the directory of the store.

use tower_chat_core::{
    Answer,
    store::{ModelUsage, RunActivity, UsageSum},
};

use super::Run;
use crate::policy::PriceList;

pub(super) fn activity_now(run: &Run) -> RunActivity {
    let activity = RunActivity::new(run.clock().now()).with_mode(run.mode());
    run.stored().iter().fold(activity, |activity, stored| activity.with_start(stored.arrived_at))
}

pub(super) fn model_usage(answer: &Answer, prices: Option<&PriceList>) -> ModelUsage {
    ModelUsage::new(model_of(answer).map(Into::into), usage_of(answer, prices))
}

pub(crate) fn usage_of(answer: &Answer, prices: Option<&PriceList>) -> UsageSum {
    let Answer { messages, finish, .. } = answer;
    let calls = messages.iter().map(|message| message.asked_calls().count() as u64).sum();
    let price = model_of(answer).zip(prices).and_then(|(model, prices)| prices.of(model));
    UsageSum::of_calls(1, calls)
        .with_tokens(finish.usage)
        .with_cost_nanos(price.map(|price| price.cost_nanos(&finish.usage)))
}

fn model_of(answer: &Answer) -> Option<&str> {
    answer.finish.model.as_deref().filter(|model| !model.is_empty())
}
