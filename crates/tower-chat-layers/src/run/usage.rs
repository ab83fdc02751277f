//! The usage of a run: calls, tokens and cost. The writes of the run report the usage to the
//! directory of the store.

use tower_chat_core::{
    Answer,
    store::{ModelUsage, UsageSum},
};

use crate::policy::PriceList;

/// The usage of the run that no write has reported yet.
#[derive(Debug, Default)]
pub(super) struct UnreportedUsage {
    pub(super) usage: Vec<ModelUsage>,
}

impl UnreportedUsage {
    pub(super) fn note(&mut self, answer: &Answer, prices: Option<&PriceList>) {
        let (model, sum) = (model_of(answer), usage_of(answer, prices));
        match self.usage.iter_mut().find(|known| known.model.as_deref() == model) {
            Some(known) => known.sum += &sum,
            None => self.usage.push(ModelUsage::new(model.map(Into::into), sum)),
        }
    }
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
