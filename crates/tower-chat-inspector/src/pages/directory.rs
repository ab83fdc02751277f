//! The page that lists conversations, the most recently active first.

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::{
    ConversationKey,
    store::{
        ConversationQuery, ConversationState, ConversationSummary, Directory as _, DirectoryCursor,
        Maintenance, UnreadableConversation,
    },
};

use super::{Answer, Failure, Frame, Link, State, html, unreadable};
use crate::{
    Inspector,
    inspector::Scopes,
    view::{moment, visible},
};

/// The maximum number of conversations in a page.
const PAGE: usize = 50;

/// The approximate number of conversations after which a search stops.
const SEARCHED: usize = 10_000;

/// The query parameters of the page.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    scope: Option<String>,
    state: Option<String>,
    /// A text that the id or the title must contain.
    q: Option<String>,
    after: Option<String>,
    /// Lists only the branches of the conversation with this id. A branch is a copy of the first
    /// messages of a conversation.
    branches_of: Option<String>,
}

#[derive(Template)]
#[template(path = "directory.html")]
struct Directory {
    frame: Frame,
    q: String,
    /// The conversation whose branches are listed.
    branches_of: Option<ListedParent>,
    states: Vec<Choice>,
    rows: Vec<Row>,
    unreadable: Vec<String>,
    more: Option<Link>,
    note: Option<String>,
}

#[derive(Template)]
#[template(path = "scopes.html")]
struct ScopesPage {
    frame: Frame,
    scopes: Vec<(String, Link)>,
    more: Option<Link>,
}

struct ListedParent {
    id: String,
    /// The id without invisible characters.
    shown_id: String,
    link: Link,
}

struct Choice {
    value: &'static str,
    label: &'static str,
    is_chosen: bool,
}

struct Row {
    link: Link,
    scope: String,
    id: String,
    title: Option<String>,
    state: &'static str,
    last_active: String,
    messages: u64,
    runs: u64,
    tool_calls: u64,
    tokens: u64,
}

pub(crate) async fn directory(inspector: State, Query(wanted): Query<Wanted>) -> Answer {
    let scope = inspector.scope(wanted.scope.as_deref())?;
    if scope.is_none() && inspector.scopes != Scopes::All {
        return scopes(&inspector, wanted.after.as_deref()).await;
    }
    let state = wanted.state.as_deref().filter(|state| !state.is_empty());
    let state = state.map(state_named).transpose()?;
    let mut query = match &scope {
        Some(scope) => ConversationQuery::in_scope(scope.as_str()),
        None => ConversationQuery::in_all_scopes(),
    };
    query.state = state;
    let parent = match (wanted.branches_of, &scope) {
        (Some(id), Some(scope)) => Some(ConversationKey::new(scope.as_str(), id)),
        (Some(_), None) => return Err(Failure::missing("There is no such conversation.")),
        (None, _) => None,
    };
    query.parent.clone_from(&parent);
    if let Some(after) = wanted.after.as_deref().filter(|after| !after.is_empty()) {
        let after: Result<DirectoryCursor, _> = after.parse();
        query.after = Some(after.map_err(|_| Failure::missing("There is no such page."))?);
    }
    let q = wanted.q.unwrap_or_default();
    let Found { summaries, unreadable: failures, next, note } =
        found(&inspector, query, &q).await?;

    let frame = Frame::new(&inspector, "Conversations", scope.as_deref());
    let more = next.map(|next| {
        let state = state.map_or("", ConversationState::as_str);
        let link = frame.link("").with("state", state).with("q", &q).with("after", next);
        match &parent {
            Some(parent) => link.with("branches_of", parent.id()),
            None => link,
        }
    });
    let label = |state: ConversationState| (state.as_str(), label_of(state));
    let choices = ConversationState::ALL.into_iter().map(label);
    let states = [("", "any state")].into_iter().chain(choices).map(|(value, label)| Choice {
        value,
        label,
        is_chosen: state.map_or("", ConversationState::as_str) == value,
    });
    let states = states.collect();
    let rows = summaries.iter().map(|summary| Row::of(&inspector, summary)).collect();
    let unreadable = unreadable(&failures);
    html(&Directory {
        q: visible(&q),
        branches_of: parent.map(|parent| ListedParent {
            id: parent.id().to_owned(),
            shown_id: visible(parent.id()),
            link: Link::new(&inspector.path, "conversation")
                .with("scope", parent.scope())
                .with("id", parent.id()),
        }),
        states,
        rows,
        unreadable,
        more,
        note,
        frame,
    })
}

struct Found {
    summaries: Vec<ConversationSummary>,
    unreadable: Vec<UnreadableConversation>,
    next: Option<DirectoryCursor>,
    note: Option<String>,
}

/// Returns up to [`PAGE`] conversations that match the query and whose id or title contains the
/// text. Stops after [`SEARCHED`] conversations, with a note for the reader.
async fn found(
    inspector: &Inspector,
    mut query: ConversationQuery,
    text: &str,
) -> Result<Found, Failure> {
    let text = text.to_lowercase();
    let fits = |summary: &ConversationSummary| {
        let title = summary.description.title().unwrap_or_default();
        [summary.key.id(), title].iter().any(|it| it.to_lowercase().contains(&text))
    };
    let (mut summaries, mut unreadable, mut searched) = (Vec::new(), Vec::new(), 0);
    loop {
        query.limit = PAGE;
        let page = inspector.store.conversations(&query).await?;
        searched += page.conversations.len();
        unreadable.extend(page.unreadable);
        for summary in page.conversations {
            let is_full = summaries.len() == PAGE;
            if is_full {
                let next = summaries.last().map(DirectoryCursor::after);
                return Ok(Found { summaries, unreadable, next, note: None });
            }
            if fits(&summary) {
                summaries.push(summary);
            }
        }
        let Some(next) = page.next else {
            return Ok(Found { summaries, unreadable, next: None, note: None });
        };
        if searched >= SEARCHED {
            let note = Some(format!("{searched} conversations were searched."));
            return Ok(Found { summaries, unreadable, next: Some(next), note });
        }
        if summaries.len() == PAGE {
            return Ok(Found { summaries, unreadable, next: Some(next), note: None });
        }
        query.after = Some(next);
    }
}

fn state_named(name: &str) -> Result<ConversationState, Failure> {
    let found = ConversationState::ALL.into_iter().find(|state| state.as_str() == name);
    found.ok_or_else(|| Failure::missing("There is no such state."))
}

fn label_of(state: ConversationState) -> &'static str {
    match state {
        ConversationState::RunOpen => "run open",
        ConversationState::WaitingForApproval => "waiting for approval",
        other => other.as_str(),
    }
}

impl Row {
    fn of(inspector: &Inspector, summary: &ConversationSummary) -> Self {
        let key = &summary.key;
        let tokens = &summary.usage.tokens;
        Self {
            link: Link::new(&inspector.path, "conversation")
                .with("scope", key.scope())
                .with("id", key.id()),
            scope: visible(key.scope()),
            id: visible(key.id()),
            title: summary.description.title().map(visible),
            state: label_of(summary.state),
            last_active: moment(summary.last_active_at),
            messages: summary.messages,
            runs: summary.runs,
            tool_calls: summary.usage.tool_calls,
            tokens: tokens.input_tokens.saturating_add(tokens.output_tokens),
        }
    }
}

/// Returns the page that lists the scopes of the store.
async fn scopes(inspector: &Inspector, after: Option<&str>) -> Answer {
    let after = after.filter(|after| !after.is_empty());
    let scopes = inspector.store.scopes(after, PAGE).await?;
    let frame = Frame::new(inspector, "Scopes", None);
    let next = scopes.last().filter(|_| scopes.len() == PAGE);
    let more = next.map(|last| frame.link("").with("after", last));
    let link = |scope: &String| (visible(scope), frame.link("").with("scope", scope));
    let scopes = scopes.iter().map(link).collect();
    html(&ScopesPage { frame, scopes, more })
}
