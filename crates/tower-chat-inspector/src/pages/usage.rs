//! The page of usage: the numbers of calls and tokens, and the cost, for each model, and for each
//! day and model.

use std::time::SystemTime;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::store::{
    Directory, UsageGroup, UsageGrouping, UsageQuery, UsageTotals, UtcDay,
};

use super::{Answer, Failure, Frame, State, html};
use crate::view::{Excerpt, counted, figures};

/// The maximum number of models in the page, because services choose any number of names.
const MODELS: usize = 100;

/// The maximum number of models that the page lists for a day.
const OF_DAY: usize = 20;

/// The number of days for which the page shows the usage of each day.
const DAYS: i64 = 14;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    scope: Option<String>,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: Frame,
    models: Vec<Totals>,
    days: Vec<Day>,
    note: Option<String>,
}

struct Totals {
    name: String,
    runs: u64,
    figures: String,
}

/// The usage of a day, as a bar of a chart whose width is 1000 units. `tokens` is the sum of input
/// tokens and output tokens.
struct Day {
    day: String,
    tokens: u64,
    width: u64,
    models: Vec<Totals>,
}

pub(crate) async fn usage(inspector: State, Query(wanted): Query<Wanted>) -> Answer {
    let scope = inspector.scope(wanted.scope.as_deref())?.ok_or_else(Failure::no_scope)?;
    let by_model = || UsageQuery::in_scope(scope.as_str(), UsageGrouping::Model);
    let models = inspector.store.usage(&by_model()).await?;
    let today = UtcDay::of(SystemTime::now()).days_since_1970();
    let mut days = Vec::new();
    for day in (today - DAYS + 1..=today).rev().map(UtcDay::from_days) {
        let next = UtcDay::from_days(day.days_since_1970() + 1);
        let (Some(start), Some(end)) = (day.start(), next.start()) else { continue };
        let used = inspector.store.usage(&by_model().since(start).before(end)).await?;
        let tokens = used.iter().map(tokens_of).fold(0, u64::saturating_add);
        let models = used.iter().take(OF_DAY).map(Totals::of).collect();
        days.push(Day { day: day.to_string(), tokens, width: 0, models });
    }
    let max = days.iter().map(|day| day.tokens).max().unwrap_or(0).max(1);
    for day in &mut days {
        day.width = (u128::from(day.tokens) * 1000 / u128::from(max)) as u64;
    }
    let more = models.len().saturating_sub(MODELS);
    html(&UsagePage {
        note: (more > 0).then(|| format!("Not listed: {}.", counted(&more, "more model"))),
        frame: Frame::new(&inspector, "Usage", Some(&scope)),
        models: models.iter().take(MODELS).map(Totals::of).collect(),
        days,
    })
}

fn tokens_of(totals: &UsageTotals) -> u64 {
    let tokens = &totals.sum.tokens;
    tokens.input_tokens.saturating_add(tokens.output_tokens)
}

impl Totals {
    fn of(totals: &UsageTotals) -> Self {
        let name = match &totals.group {
            UsageGroup::Model(Some(model)) => Excerpt::of(model).text,
            _ => "unknown model".to_owned(),
        };
        Self { name, runs: totals.runs, figures: figures(&totals.sum) }
    }
}
