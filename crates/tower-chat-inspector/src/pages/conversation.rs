//! One conversation, as a timeline.

use std::sync::Arc;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::{
    ConversationKey, Message, RunId, ToolInvocation,
    store::{ConversationSummary, InvocationQuery, RunSummary},
};

use super::{Answer, Asked, Failure, Frame, Link, State, html};
use crate::{
    Inspector, live,
    view::{Timeline, moment, timeline, visible},
};

/// How many messages a page shows.
const PAGE: usize = 50;

#[derive(Debug, Deserialize)]
pub(crate) struct Before {
    /// The messages before this one.
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct Conversation {
    frame: Frame,
    scope: String,
    id: String,
    facts: Vec<(&'static str, String)>,
    timeline: Timeline,
    earlier: Option<Link>,
    latest: Option<Link>,
    next: Link,
    message: Link,
    /// Where the events are that tell of changes.
    changes: Option<Link>,
    /// What the conversation was when the page was made.
    state: String,
    unreadable: Vec<String>,
    partial_text: Option<String>,
}

impl Conversation {
    /// Where a message is, whole.
    fn message(&self, number: &u64) -> Link {
        self.message.clone().with("number", number)
    }
}

pub(crate) async fn conversation(
    inspector: State,
    Query(asked): Query<Asked>,
    Query(Before { before }): Query<Before>,
) -> Answer {
    let key = asked.key(&inspector)?;
    let store = &inspector.store;
    let summary = store.summary(&key).await?;
    let summary = summary.ok_or_else(|| Failure::missing("There is no such conversation."))?;
    // Asked for first: what is stored meanwhile makes another state, and the page is made again.
    let state = live::state_of(&store.head(&key).await?);
    let page = store.messages_before(&key, before, PAGE).await?;
    let mut messages = page.messages;
    let (mut staged_from, mut partial_text) = (None, None);
    if before.is_none()
        && let Some(content) = store.open_run(&key).await?
    {
        let first = content.open.visible.saturating_add(1);
        staged_from = Some(first);
        partial_text = content.open.partial_text.as_deref().map(visible);
        messages.retain(|(number, _)| *number < first);
        messages.extend((first..).zip(content.messages));
    }
    let numbers = messages.iter().map(|(number, _)| *number);
    let query = InvocationQuery::of(&key).in_messages(numbers);
    let invocations = store.invocations(&query).await?;
    let calls: Vec<ToolInvocation> = invocations.found.into_iter().map(|(_, call)| call).collect();
    let runs = runs_of(&inspector, &key, &messages).await?;

    let title = summary.description.title().unwrap_or(key.id());
    let frame = Frame::new(&inspector, visible(title), Some(key.scope()));
    let link = |page: &str| {
        Link::new(&inspector.path, page).with("scope", key.scope()).with("id", key.id())
    };
    html(&Conversation {
        scope: visible(key.scope()),
        id: visible(key.id()),
        facts: facts(&summary),
        timeline: timeline(&messages, staged_from, &calls, &runs),
        earlier: page.earlier.map(|earlier| link("conversation").with("before", earlier)),
        latest: before.map(|_| link("conversation")),
        next: link("next"),
        message: link("message"),
        changes: before.is_none().then(|| link("changes")),
        state,
        unreadable: invocations.unreadable.iter().map(|it| visible(&it.to_string())).collect(),
        partial_text,
        frame,
    })
}

/// What is known of the runs of these messages.
async fn runs_of(
    inspector: &Inspector,
    key: &ConversationKey,
    messages: &[(u64, Arc<Message>)],
) -> Result<Vec<RunSummary>, Failure> {
    let mut ids: Vec<RunId> =
        messages.iter().filter_map(|(_, message)| Some(message.id?.run)).collect();
    ids.sort_unstable();
    ids.dedup();
    let Some(newest) = ids.last() else { return Ok(Vec::new()) };
    // Runs come in the descending order of their ids, and the question is for those after one.
    let above = u128::from_be_bytes(newest.to_bytes()).checked_add(1).map(u128::to_be_bytes);
    let after = above.map(RunId::from_bytes);
    Ok(inspector.store.runs(key, after, ids.len()).await?)
}

fn facts(summary: &ConversationSummary) -> Vec<(&'static str, String)> {
    let usage = &summary.usage;
    let mut facts = vec![
        ("state", summary.state.to_string().replace('_', " ")),
        ("last active", moment(summary.last_active_at)),
        ("created", moment(summary.created_at)),
        ("messages", summary.messages.to_string()),
        ("runs", summary.runs.to_string()),
        ("used", crate::view::figures(usage)),
    ];
    if let Some(mode) = summary.last_mode {
        facts.push(("mode of the last run", mode.to_string().replace('_', " ")));
    }
    for (name, value) in summary.description.metadata() {
        facts.push(("metadata", visible(&format!("{name}: {value}"))));
    }
    facts
}
