//! `tower-chat usage`.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tower_chat::store::{Directory, UsageGroup, UsageGrouping, UsageQuery, UsageSum, UsageTotals};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::{self, Figures, json_line},
    output::{Lines, table_of},
    store::StoreLocation,
    time::PointInTime,
};

#[derive(Debug, Args)]
pub(crate) struct UsageArguments {
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// Only usage in this scope
    #[arg(long)]
    scope: Option<String>,
    /// The groups for which usage is added up
    #[arg(long, value_enum, default_value_t = Grouping::Day)]
    by: Grouping,
    /// Only usage since this time: an age such as 30d, or a time such as 2026-11-01
    #[arg(long, value_name = "AGE|TIME")]
    since: Option<PointInTime>,
    /// Only usage before this time
    #[arg(long, value_name = "AGE|TIME")]
    until: Option<PointInTime>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The groups for which usage is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Grouping {
    /// By run
    Run,
    /// By conversation
    Conversation,
    /// By scope
    Scope,
    /// By model
    Model,
    /// By day (UTC)
    Day,
}

impl Grouping {
    fn of_store(self) -> UsageGrouping {
        match self {
            Self::Run => UsageGrouping::Run,
            Self::Conversation => UsageGrouping::Conversation,
            Self::Scope => UsageGrouping::Scope,
            Self::Model => UsageGrouping::Model,
            Self::Day => UsageGrouping::Day,
        }
    }

    fn headings(self) -> &'static [&'static str] {
        match self {
            Self::Run => &["scope", "id", "run"],
            Self::Conversation => &["scope", "id"],
            Self::Scope => &["scope"],
            Self::Model => &["model"],
            Self::Day => &["day"],
        }
    }
}

/// Prints the sums of the usage of runs: calls of models and tools, tokens and cost.
pub(crate) async fn usage(arguments: UsageArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("list").await?;
    let mut query = UsageQuery::in_all_scopes(arguments.by.of_store());
    query.scope = arguments.scope.as_deref().map(Into::into);
    query.since = arguments.since.map(|PointInTime(time)| time);
    query.before = arguments.until.map(|PointInTime(time)| time);
    let totals = store.history().usage(&query).await.map_err(CliError::Directory)?;
    let mut lines = Lines::default();
    if arguments.json {
        totals.iter().for_each(|of| lines.write_json(&json_line(&UsageLine::of(of))));
    } else if totals.is_empty() {
        lines.write("there is no usage");
    } else {
        table_of(&rows(arguments.by, &totals)).iter().for_each(|line| lines.write(line));
    }
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the rows of a table: a heading, a row for each group, and the sum.
fn rows(by: Grouping, totals: &[UsageTotals]) -> Vec<Vec<String>> {
    let heading = by.headings().iter().chain(&["runs"]).chain(&figures::HEADINGS);
    let mut rows = vec![heading.map(|cell| (*cell).to_owned()).collect()];
    let mut all = UsageSum::default();
    for of in totals {
        all += &of.sum;
        let mut row = UsageLine::of(of).names(by);
        row.push(of.runs.to_string());
        row.extend(figures::cells(&of.sum));
        rows.push(row);
    }
    let mut sum = vec![String::new(); by.headings().len()];
    if let Some(first) = sum.first_mut() {
        "total".clone_into(first);
    }
    // The row of the sum has no number of runs, because one run may belong to several groups.
    sum.push(String::new());
    sum.extend(figures::cells(&all));
    rows.push(sum);
    rows
}

#[derive(Default, Serialize)]
struct UsageLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// The model of the group: `None` without grouping by model, `Some(None)` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    runs: u64,
    usage: Option<Figures>,
}

impl UsageLine {
    fn of(totals: &UsageTotals) -> Self {
        let mut line =
            Self { runs: totals.runs, usage: Some(Figures::from(&totals.sum)), ..Self::default() };
        match &totals.group {
            UsageGroup::Run(key, run) => {
                (line.scope, line.id) = (Some(key.scope().to_owned()), Some(key.id().to_owned()));
                line.run = Some(run.to_string());
            }
            UsageGroup::Conversation(key) => {
                (line.scope, line.id) = (Some(key.scope().to_owned()), Some(key.id().to_owned()));
            }
            UsageGroup::Scope(scope) => line.scope = Some(scope.to_string()),
            UsageGroup::Model(model) => {
                line.model = Some(model.as_ref().map(|model| model.to_string()));
            }
            UsageGroup::Day(day) => line.day = Some(day.to_string()),
            _ => {}
        }
        line
    }

    fn names(self, by: Grouping) -> Vec<String> {
        let model = self.model.flatten();
        let all = [self.scope, self.id, self.run, model, self.day];
        let names = ["scope", "id", "run", "model", "day"];
        let cells = names.iter().zip(all).filter(|(name, _)| by.headings().contains(name));
        cells.map(|(_, cell)| cell.unwrap_or_else(|| "-".to_owned())).collect()
    }
}
