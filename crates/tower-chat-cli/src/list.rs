//! `tower-chat list`.

use std::{num::NonZeroUsize, process::ExitCode, str::FromStr};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use tower_chat::{
    ConversationKey,
    store::{
        ConversationQuery, ConversationState, ConversationSummary, Directory, DirectoryCursor,
    },
};

use crate::{
    arguments::STORE_VARIABLE,
    error::CliError,
    figures::{Figures, cost, json_line},
    output::{Lines, print_error, table_within, terminal_width},
    store::StoreLocation,
    time::{PointInTime, exact, readable},
};

/// The default number of conversations in a table.
const FOR_PEOPLE: usize = 50;
/// The maximum number of conversations that one query to the store returns.
const PAGE: usize = 500;

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// The store
    #[arg(long, value_name = "STORE", env = STORE_VARIABLE, hide_env_values = true)]
    store: StoreLocation,
    /// Only conversations of this scope
    #[arg(long)]
    scope: Option<String>,
    /// The maximum number of conversations; by default 50, or all with --json
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Only conversations in this state
    #[arg(long, value_enum)]
    state: Option<State>,
    /// Only conversations that were active since this time: an age such as 12h, or a time such as
    /// 2026-11-30
    #[arg(long, value_name = "AGE|TIME")]
    active_since: Option<PointInTime>,
    /// Only conversations whose metadata contains this member; VALUE is JSON, or a text if it is
    /// not valid JSON
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<Member>,
    /// Only the branches that were forked from this conversation of the scope
    #[arg(long, value_name = "ID", requires = "scope")]
    branches_of: Option<String>,
    /// Only conversations after this position: the "cursor" of a line with --json, or the position
    /// that an earlier list has printed at its end
    #[arg(long, value_name = "CURSOR")]
    after: Option<DirectoryCursor>,
    /// Print one JSON object per line, with all data about the conversation
    #[arg(long)]
    json: bool,
}

/// The state of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum State {
    /// No run is open, and no call waits for approval
    Idle,
    /// A journaled run is open
    RunOpen,
    /// A tool call waits for approval
    WaitingForApproval,
    /// The conversation cannot be loaded
    Damaged,
}

impl From<State> for ConversationState {
    fn from(state: State) -> Self {
        match state {
            State::Idle => Self::Idle,
            State::RunOpen => Self::RunOpen,
            State::WaitingForApproval => Self::WaitingForApproval,
            State::Damaged => Self::Damaged,
        }
    }
}

/// A key and a value that the metadata of a conversation's description must contain.
#[derive(Debug, Clone, PartialEq)]
struct Member {
    name: String,
    value: Value,
}

/// The error of parsing a text that is not of the form `KEY=VALUE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has no `=`: write a member as KEY=VALUE")]
struct NoMember;

impl FromStr for Member {
    type Err = NoMember;

    fn from_str(text: &str) -> Result<Self, NoMember> {
        let (name, value) = text.split_once('=').ok_or(NoMember)?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok(Self { name: name.to_owned(), value })
    }
}

/// Lists the conversations of a store, the most recently active first.
pub(crate) async fn list(arguments: ListArguments) -> Result<ExitCode, CliError> {
    let store = arguments.store.open_to_read("list").await?;
    let limit = match (arguments.limit, arguments.json) {
        (Some(limit), _) => limit.get(),
        (None, true) => usize::MAX,
        (None, false) => FOR_PEOPLE,
    };
    let mut query = query_of(&arguments);
    let mut output = Output::new(arguments.json);
    let (mut left, mut all_readable) = (limit, true);
    let mut next = None;
    while left > 0 && output.lines.are_open() {
        query.limit = left.min(PAGE);
        let page = store.history().conversations(&query).await.map_err(CliError::Directory)?;
        for unreadable in &page.unreadable {
            all_readable = false;
            print_error(unreadable);
        }
        left = left.saturating_sub(page.conversations.len());
        page.conversations.iter().for_each(|summary| output.push(summary));
        next = page.next;
        let Some(cursor) = next.clone() else { break };
        query = query.after(cursor);
    }
    output.finish(next).map_err(CliError::Output)?;
    Ok(if all_readable { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn query_of(arguments: &ListArguments) -> ConversationQuery {
    let mut query = ConversationQuery::in_all_scopes();
    query.scope = arguments.scope.as_deref().map(Into::into);
    query.state = arguments.state.map(Into::into);
    query.active_since = arguments.active_since.map(|PointInTime(time)| time);
    query.after.clone_from(&arguments.after);
    if let (Some(scope), Some(id)) = (&arguments.scope, &arguments.branches_of) {
        query.parent = Some(ConversationKey::new(scope.as_str(), id.as_str()));
    }
    for Member { name, value } in &arguments.metadata {
        query.metadata.insert(name.clone(), value.clone());
    }
    query
}

/// The output: JSON line by line while conversations are read, or a table at the end.
struct Output {
    lines: Lines,
    rows: Option<Vec<[String; 9]>>,
}

impl Output {
    fn new(json: bool) -> Self {
        let heading =
            ["scope", "id", "title", "state", "messages", "runs", "tokens", "cost", "last active"];
        let rows = (!json).then(|| vec![heading.map(str::to_owned)]);
        Self { lines: Lines::default(), rows }
    }

    fn push(&mut self, summary: &ConversationSummary) {
        match &mut self.rows {
            Some(rows) => rows.push(row(summary)),
            None => self.lines.write_json(&json_line(&Listed::of(summary))),
        }
    }

    fn finish(mut self, next: Option<DirectoryCursor>) -> std::io::Result<()> {
        let lines = &mut self.lines;
        match self.rows.as_deref() {
            None => {}
            Some([_heading]) => lines.write("no conversations"),
            Some(rows) => {
                let title = 2;
                let rows = table_within(rows, title, terminal_width());
                rows.iter().for_each(|row| lines.write(row));
                if let Some(next) = next {
                    lines.write(&format!(
                        "there are more conversations: give --limit, or --after {next}"
                    ));
                }
            }
        }
        self.lines.finish()
    }
}

fn row(summary: &ConversationSummary) -> [String; 9] {
    let ConversationSummary { key, description, usage, .. } = summary;
    [
        key.scope().to_owned(),
        key.id().to_owned(),
        description.title().unwrap_or("-").to_owned(),
        summary.state.to_string(),
        summary.messages.to_string(),
        summary.runs.to_string(),
        usage.tokens.total_tokens().to_string(),
        cost(usage.cost_nanos),
        readable(summary.last_active_at),
    ]
}

#[derive(Serialize)]
struct Listed<'a> {
    scope: &'a str,
    id: &'a str,
    title: Option<&'a str>,
    metadata: &'a Map<String, Value>,
    description_version: u64,
    state: &'static str,
    created_at: String,
    last_active_at: String,
    messages: u64,
    runs: u64,
    last_mode: Option<&'static str>,
    usage: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<ListedParent<'a>>,
    cursor: String,
}

/// The conversation of which a branch is a copy, and the last message that was copied.
#[derive(Serialize)]
struct ListedParent<'a> {
    scope: &'a str,
    id: &'a str,
    position: u64,
}

impl<'a> Listed<'a> {
    fn of(summary: &'a ConversationSummary) -> Self {
        Self {
            scope: summary.key.scope(),
            id: summary.key.id(),
            title: summary.description.title(),
            metadata: summary.description.metadata(),
            description_version: summary.description_version,
            state: summary.state.as_str(),
            created_at: exact(summary.created_at),
            last_active_at: exact(summary.last_active_at),
            messages: summary.messages,
            runs: summary.runs,
            last_mode: summary.last_mode.map(|mode| mode.as_str()),
            usage: Figures::from(&summary.usage),
            parent: summary.parent.as_ref().map(|parent| ListedParent {
                scope: parent.key.scope(),
                id: parent.key.id(),
                position: parent.position,
            }),
            cursor: DirectoryCursor::after(summary).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_value_of_a_metadata_filter_is_json_or_a_text() {
        let member = |text: &str| text.parse::<Member>().map(|it| (it.name, it.value));
        assert_eq!(member("topic=coats"), Ok(("topic".to_owned(), json!("coats"))));
        assert_eq!(member("n=3"), Ok(("n".to_owned(), json!(3))));
        assert_eq!(member("n=\"3\""), Ok(("n".to_owned(), json!("3"))));
        assert_eq!(member("a=b=c"), Ok(("a".to_owned(), json!("b=c"))));
        assert_eq!(member("tags=[1, {}]"), Ok(("tags".to_owned(), json!([1, {}]))));
        assert_eq!(member("topic"), Err(NoMember));
    }
}
