//! The page of the next request to the model: shows, for each stored message, whether the request
//! contains the message, and how the sent message differs from the stored one.

use std::time::SystemTime;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_explain::{Explained, Reason, explain_stored};
use tower_chat_layers::{
    Message, Part,
    replay::ReplayContext,
    store::{Directory, HistorySummary, MessagePage, Summaries},
};

use super::{Answer, Asked, Failure, Frame, Link, State, html};
use crate::view::{Excerpt, counted, moment, visible};

/// The maximum number of messages in a page.
const PAGE: usize = 100;

/// The maximum number of reasons that the page shows for a message.
const REASONS: usize = 20;

/// The maximum number of bytes that the page shows of a message.
const BRIEF_BYTES: usize = 300;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    policy: Option<String>,
    before: Option<u64>,
}

#[derive(Template)]
#[template(path = "next.html")]
struct Next {
    frame: Frame,
    scope: String,
    id: String,
    policies: Vec<Policy>,
    totals: String,
    summary: Option<Summary>,
    rows: Vec<Row>,
    earlier: Option<Link>,
    conversation: Link,
}

/// The text that the request contains instead of the oldest messages.
struct Summary {
    /// The messages that the summary replaces, and the model that has written the summary.
    covers: String,
    text: Excerpt,
}

struct Policy {
    name: String,
    link: Link,
    is_chosen: bool,
}

struct Row {
    number: u64,
    role: String,
    text: Excerpt,
    /// `unchanged`, `changed` or `left_out`.
    outcome: &'static str,
    label: &'static str,
    reasons: Vec<String>,
    message: Link,
}

pub(crate) async fn next(
    inspector: State,
    Query(asked): Query<Asked>,
    Query(wanted): Query<Wanted>,
) -> Answer {
    let key = asked.key(&inspector)?;
    let mut named = inspector.policies.iter();
    let chosen = match &wanted.policy {
        Some(name) => named.find(|(found, _)| found == name),
        None => named.next(),
    };
    let (name, policy) =
        chosen.ok_or_else(|| Failure::missing("There is no such replay policy."))?;
    let store = &inspector.store;
    // Every stored message may affect the next request. Therefore the whole conversation is read.
    let _turn = inspector.page_permits.acquire().await.ok();
    let context = ReplayContext::at(SystemTime::now());
    let explained = explain_stored(&**store, &key, policy, &context).await?;
    let head = store.head(&key).await?;
    let summary = match head.summary {
        Some(in_force) => store.history_summary(&key, in_force.id).await?.map(Summary::of),
        None => None,
    };
    let page: MessagePage = store.messages_before(&key, wanted.before, PAGE).await?;
    let link = |page: &str| {
        Link::new(&inspector.path, page).with("scope", key.scope()).with("id", key.id())
    };
    let row = |(number, message): &(u64, std::sync::Arc<Message>)| {
        let found = explained.binary_search_by_key(number, |(number, _)| *number).ok()?;
        let (_, explained) = explained.get(found)?;
        Some(Row::new(*number, message, explained, link("message").with("number", number)))
    };
    let rows: Vec<Row> = page.messages.iter().filter_map(row).collect();
    let count = |outcome| explained.iter().filter(|(_, it)| it.as_str() == outcome).count();
    let totals = format!(
        "{}: {} sent as stored, {} changed, {} left out.",
        counted(&explained.len(), "message"),
        count("unchanged"),
        count("changed"),
        count("left_out"),
    );
    let policy = |(other, _): &(String, _)| Policy {
        name: other.clone(),
        link: link("next").with("policy", other),
        is_chosen: other == name,
    };
    let policies = inspector.policies.iter().map(policy).collect();
    let earlier =
        page.earlier.map(|before| link("next").with("policy", name).with("before", before));
    let title = format!("Next request of {}", visible(key.id()));
    html(&Next {
        frame: Frame::new(&inspector, title, Some(key.scope())),
        scope: visible(key.scope()),
        id: visible(key.id()),
        policies,
        totals,
        summary,
        rows,
        earlier,
        conversation: link("conversation"),
    })
}

impl Summary {
    fn of(summary: HistorySummary) -> Self {
        let HistorySummary { covers_to, text, made_by, at, .. } = summary;
        let model = made_by.map(|model| format!(" by {}", visible(&model))).unwrap_or_default();
        let covers = format!(
            "A summary{model} of {} is sent instead of the messages up to number {covers_to}:",
            moment(at)
        );
        Self { covers, text: Excerpt::of(&text) }
    }
}

impl Row {
    fn new(number: u64, message: &Message, explained: &Explained, link: Link) -> Self {
        let (outcome, label) = match explained {
            Explained::Unchanged => ("unchanged", "sent"),
            Explained::Changed { .. } => ("changed", "changed"),
            _ => ("left_out", "left out"),
        };
        let reason = |reason: &Reason| match reason.part {
            Some(part) => format!("part {}: {}", part + 1, reason.kind),
            None => reason.kind.to_string(),
        };
        Self {
            number,
            role: format!("{:?}", message.role).to_lowercase(),
            text: brief(message),
            outcome,
            label,
            reasons: explained.reasons().iter().take(REASONS).map(reason).collect(),
            message: link,
        }
    }
}

/// Returns the beginning of a text with one line for each part: its text, call, result or kind.
fn brief(message: &Message) -> Excerpt {
    let (mut text, mut size) = (String::new(), 0);
    let mut add = |piece: &str| {
        let room = BRIEF_BYTES.saturating_sub(text.len());
        let end = (0..=room.min(piece.len())).rev().find(|&end| piece.is_char_boundary(end));
        text.push_str(piece.get(..end.unwrap_or(0)).unwrap_or_default());
        size += piece.len();
    };
    for (index, part) in message.parts.iter().enumerate() {
        if index > 0 {
            add("\n");
        }
        match part {
            Part::Text(text) => add(&text.text),
            Part::ToolCall(call) => {
                ["calls ", &call.name, " ", &call.arguments].into_iter().for_each(&mut add)
            }
            Part::ToolResult(result) => ["result: ", &result.text()].into_iter().for_each(&mut add),
            Part::ApprovalRequest(request) => {
                ["calls ", &request.call.name].into_iter().for_each(&mut add)
            }
            Part::ApprovalResponse(_) => add("decision"),
            Part::Reasoning(_) => add("reasoning"),
            Part::Media(media) => add(&media.media_type),
            _ => add("other"),
        }
    }
    let full_length = (text.len() < size).then_some(size);
    Excerpt { text: visible(&text), full_length }
}
