//! The page of a conversation, which shows a timeline of the conversation's runs.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history until the run is committed. All other messages are *visible*.

use std::sync::Arc;

use askama::Template;
use axum::extract::Query;
use serde::Deserialize;
use tower_chat_layers::{
    ConversationKey, Media, MediaSource, Message, Part, RunId, ToolInvocation,
    store::{CallSelection, ConversationSummary, Directory, Head, Journal, OpenRun, RunSummary},
};

use super::{
    Answer, Asked, Failure, Frame, Link, State,
    branches::{Branches, ParentFact},
    html, unreadable,
};
use crate::{
    Inspector, live,
    view::{Excerpt, Page, Timeline, moment, timeline, visible},
};

/// The maximum number of messages in a page.
const PAGE: usize = 50;

/// The maximum number of messages that one query to the store returns.
const AT_ONCE: usize = 10;

/// The approximate number of bytes of messages after which a page reads no further messages.
const PAGE_BYTES: usize = 8 << 20;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    /// Shows the messages whose numbers are less than this number.
    before: Option<u64>,
    /// Shows only the message with this number.
    only: Option<u64>,
    /// The index of the first call to show of the message `only`, from 0.
    from: Option<usize>,
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct Conversation {
    frame: Frame,
    scope: String,
    id: String,
    parent: Option<ParentFact>,
    facts: Vec<(&'static str, String)>,
    branches: Branches,
    timeline: Timeline,
    earlier: Option<Link>,
    latest: Option<Link>,
    next: Link,
    message: Link,
    this: Link,
    /// The link to the event stream, if the page shows the latest messages.
    changes: Option<Link>,
    /// The [state](live::state_of) of the conversation when the page was rendered.
    state: String,
    unreadable: Vec<String>,
    partial_text: Option<Excerpt>,
}

impl Conversation {
    /// Returns the link to the page with the JSON of a message.
    fn message(&self, number: &u64) -> Link {
        self.message.clone().with("number", number)
    }

    /// Returns the link to the page that shows the calls of a message from the index `from` on.
    fn calls(&self, number: &u64, from: &usize) -> Link {
        self.this.clone().with("only", number).with("from", from)
    }
}

pub(crate) async fn conversation(
    inspector: State,
    Query(asked): Query<Asked>,
    Query(Wanted { before, only, from }): Query<Wanted>,
) -> Answer {
    let key = asked.key(&inspector)?;
    let store = &inspector.store;
    let summary = store.summary(&key).await?;
    let summary = summary.ok_or_else(|| Failure::missing("There is no such conversation."))?;
    // The head (number of messages and open run) is read before the messages. If a write happens in
    // between, the event stream reports another state than the page has, and the page is loaded
    // again.
    let head = store.head(&key).await?;
    let state = live::state_of(&head);
    let is_latest = before.is_none() && only.is_none();
    // The messages that follow contain the results of the message's calls.
    let before = only.map(|only| only.saturating_add(AT_ONCE as u64)).or(before);
    let PageMessages { messages, staged_from, earlier, partial_text, damage } =
        shown(&inspector, &key, &head, before, only).await?;
    let number = |(number, _): &(u64, _)| *number;
    if only.is_some_and(|only| !messages.iter().map(number).any(|number| number == only)) {
        return Err(Failure::missing("There is no such message."));
    }
    let numbers =
        messages.iter().map(number).filter(|number| only.is_none_or(|only| only == *number));
    let invocations = store.calls(&key, &CallSelection::in_messages(numbers)).await?;
    let calls: Vec<ToolInvocation> = invocations.found.into_iter().map(|(_, call)| call).collect();
    let runs = runs_of(&inspector, &key, &messages).await?;
    let branches = Branches::of(&inspector, &key).await?;

    let title = summary.description.title().unwrap_or(key.id());
    let frame = Frame::new(&inspector, visible(title), Some(key.scope()));
    let link = |page: &str| {
        Link::new(&inspector.path, page).with("scope", key.scope()).with("id", key.id())
    };
    let from_call = only.and(from).unwrap_or_default();
    let page = Page { messages: &messages, staged_from, only, from_call };
    let earlier = earlier.filter(|_| only.is_none());
    html(&Conversation {
        scope: visible(key.scope()),
        id: visible(key.id()),
        parent: ParentFact::of(&inspector, &summary).await?,
        facts: facts(&summary),
        timeline: timeline(&page, &calls, &runs),
        earlier: earlier.map(|earlier| link("conversation").with("before", earlier)),
        latest: (!is_latest).then(|| link("conversation")),
        next: link("next"),
        message: link("message"),
        this: link("conversation"),
        changes: is_latest.then(|| link("changes")),
        state,
        unreadable: damage
            .into_iter()
            .chain(unreadable(&invocations.unreadable))
            .chain(unreadable(&branches.unreadable))
            .collect(),
        branches,
        partial_text: partial_text.filter(|_| is_latest),
        frame,
    })
}

/// The messages that were read for a page.
struct PageMessages {
    messages: Vec<(u64, Arc<Message>)>,
    /// The number of the first staged message, if the page may contain staged messages.
    staged_from: Option<u64>,
    /// The value of [`Wanted::before`] for the page with earlier messages, if there are any.
    earlier: Option<u64>,
    partial_text: Option<Excerpt>,
    /// The error of reading the staged messages, if they cannot be read.
    damage: Option<String>,
}

/// Reads the last messages before `before`, or the last messages of the conversation. The staged
/// messages of an open run are the last ones. Reads backwards, and stops after [`PAGE`] messages,
/// or after [`FULL`] bytes, but not before the message `only` was read.
async fn shown(
    inspector: &Inspector,
    key: &ConversationKey,
    head: &Head,
    before: Option<u64>,
    only: Option<u64>,
) -> Result<PageMessages, Failure> {
    let mut shown = PageMessages {
        messages: Vec::new(),
        staged_from: None,
        earlier: None,
        partial_text: None,
        damage: None,
    };
    let mut before = before;
    // Whether the page may contain some of the staged messages.
    let is_of_run =
        |open: &OpenRun| before.is_none_or(|before| before > open.visible.saturating_add(1));
    let content = match head.open_run.as_ref().is_some_and(is_of_run) {
        true => inspector.store.open_run(key).await,
        false => Ok(None),
    };
    if let Err(error) = &content
        && error.is_damage()
    {
        shown.damage =
            Some(visible(&format!("the staged messages of the open run cannot be read: {error}")));
    } else if let Some(content) = content? {
        let first = content.open.visible.saturating_add(1);
        shown.staged_from = Some(first);
        shown.partial_text = content.open.partial_text.as_deref().map(Excerpt::of);
        let end = first.saturating_add(content.messages.len() as u64);
        let end = before.map_or(end, |before| before.min(end)).max(first);
        let begin = end.saturating_sub(PAGE as u64).max(first);
        let skipped = usize::try_from(begin - first).unwrap_or(usize::MAX);
        shown.messages = (begin..end).zip(content.messages.into_iter().skip(skipped)).collect();
        let has_more = begin > content.head.pruned.saturating_add(1);
        shown.earlier = has_more.then_some(begin);
        if begin > first || !has_more {
            return Ok(shown);
        }
        before = Some(begin);
    }
    // The visible messages are read in small steps, because very long messages fill the page soon.
    let mut steps = vec![std::mem::take(&mut shown.messages)];
    let (mut count, mut size) = counted(steps.iter().flatten());
    loop {
        let oldest = steps.last().and_then(|step| step.first()).map(|(number, _)| *number);
        let is_reached = only.is_none_or(|only| oldest.is_some_and(|oldest| oldest <= only));
        if count >= PAGE || (size >= PAGE_BYTES && count > 0 && is_reached) {
            break;
        }
        let limit = AT_ONCE.min(PAGE - count);
        let step = inspector.store.messages_before(key, before, limit).await?;
        let (more, bytes) = counted(&step.messages);
        (count, size) = (count + more, size.saturating_add(bytes));
        steps.push(step.messages);
        (before, shown.earlier) = (step.earlier, step.earlier);
        if step.earlier.is_none() {
            break;
        }
    }
    shown.messages = steps.into_iter().rev().flatten().collect();
    Ok(shown)
}

/// Returns the number of messages, and the approximate sum of their sizes in bytes.
fn counted<'m>(messages: impl IntoIterator<Item = &'m (u64, Arc<Message>)>) -> (usize, usize) {
    messages.into_iter().fold((0, 0), |(count, size), (_, message)| {
        (count + 1, size.saturating_add(size_of(message)))
    })
}

/// Returns the approximate size of a message in bytes.
fn size_of(message: &Message) -> usize {
    let size_of_part = |part: &Part| match part {
        Part::Text(text) => text.text.len(),
        Part::Reasoning(reasoning) => reasoning.text.len(),
        Part::ToolCall(call) => call.arguments.len(),
        Part::ApprovalRequest(request) => request.call.arguments.len(),
        Part::ToolResult(result) => result.content.iter().map(size_of_content).sum(),
        other => size_of_content(other),
    };
    message.parts.iter().map(|part| size_of_part(part) + std::mem::size_of::<Part>()).sum()
}

fn size_of_content(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.text.len(),
        Part::Native(native) => native.item.get().len(),
        Part::Media(Media { source: MediaSource::Base64(data), .. }) => data.len(),
        _ => 0,
    }
}

/// Returns the times, modes and usage that the store has recorded for the runs of these messages.
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
    // `runs` returns the runs whose ids are less than `after`, in descending order of the ids.
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
