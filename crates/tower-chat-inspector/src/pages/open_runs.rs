//! The page that lists open runs, and calls that wait for approval.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history until the run is committed. A reader can end an open run: to *commit* the
//! run adds its messages to the history, and to *discard* the run deletes its messages.

use std::time::SystemTime;

use askama::Template;
use axum::{
    Form,
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::StatusCode;
use serde::Deserialize;
use tower_chat_layers::{
    ConversationKey,
    recovery::{CallState, RunEnd, close, open_run},
    store::{
        ConversationQuery, ConversationState, ConversationSummary, Directory, DirectoryCursor,
        Journal, OpenRun, StoreError,
    },
};

use super::{
    Answer, Asked, Failure, Frame, Link, State,
    approvals::{self, Batch},
    html, unreadable,
};
use crate::{
    Inspector,
    view::{moment, visible},
};

/// The maximum number of open runs, and of conversations with waiting calls, in a page.
const PAGE: usize = 50;

/// The maximum number of calls that the page shows of a run.
const CALLS: usize = 50;

/// The maximum total size, in bytes, of the calls that wait for approval in a page. The page shows
/// at least one conversation, even if the calls of this conversation are larger.
const PAGE_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    scope: Option<String>,
    /// Lists open runs of conversations whose ids are greater than this id.
    after: Option<String>,
    /// Lists conversations with waiting calls after this position in the list of conversations.
    waiting: Option<String>,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct Runs {
    frame: Frame,
    allows_writes: bool,
    open: Vec<Open>,
    /// One line for each open run whose rows cannot be read, with the error.
    damaged: Vec<String>,
    more: Option<Link>,
    waiting: Waiting,
    can_decide: bool,
}

/// The calls that wait for approval, in the order of their conversations.
struct Waiting {
    batches: Vec<Batch>,
    /// One line for each conversation whose entry in the list cannot be read, with the error.
    unreadable: Vec<String>,
    /// The link to the page with further conversations, if there are any.
    more: Option<Link>,
}

struct Open {
    link: Link,
    /// The URL to which the form that ends the run is sent.
    end: Link,
    id: String,
    run: String,
    opened: String,
    attempt: u32,
    is_held: bool,
    messages: usize,
    calls: Vec<(String, &'static str)>,
    /// The number of calls of the run that the page does not show.
    more_calls: usize,
}

pub(crate) async fn runs(inspector: State, Query(wanted): Query<Wanted>) -> Answer {
    let scope = inspector.scope(wanted.scope.as_deref())?.ok_or_else(Failure::no_scope)?;
    let frame = Frame::new(&inspector, "Open runs and approvals", Some(&scope));
    let listed = inspector.store.open_runs(&scope, wanted.after.as_deref(), PAGE).await?;
    let last = listed.last().filter(|_| listed.len() == PAGE);
    let more = last.map(|key| frame.link("runs").with("after", key.id()));
    let (mut open, mut damaged) = (Vec::new(), Vec::new());
    for key in &listed {
        match reported(&inspector, key).await {
            Ok(reported) => open.extend(reported),
            Err(error) if error.is_damage() => {
                damaged.push(visible(&format!("{}: {error}", key.id())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let waiting = waiting(&inspector, &scope, wanted.waiting.as_deref()).await?;
    let allows_writes = inspector.allows_writes;
    let can_decide = allows_writes && inspector.agent.is_some();
    html(&Runs { frame, allows_writes, open, damaged, more, waiting, can_decide })
}

async fn reported(
    inspector: &Inspector,
    key: &ConversationKey,
) -> Result<Option<Open>, StoreError> {
    let (open, messages, calls, more_calls) = match open_run(&*inspector.store, key).await {
        Ok(Some(report)) => {
            let calls = report.calls.iter().take(CALLS).map(call).collect();
            let more_calls = report.calls.len().saturating_sub(CALLS);
            (report.open, report.messages.len(), calls, more_calls)
        }
        Ok(None) => return Ok(None),
        // The reader can discard this run, although its staged messages are unreadable.
        Err(error) if error.is_damage() => {
            let damage = vec![(visible(&error.to_string()), "the staged messages cannot be read")];
            let Some(open) = inspector.store.head(key).await?.open_run else { return Ok(None) };
            (open, 0, damage, 0)
        }
        Err(error) => return Err(error),
    };
    Ok(Some(Open {
        link: link(inspector, key),
        end: Link::new(&inspector.path, "runs/end")
            .with("scope", key.scope())
            .with("id", key.id())
            .with("run", open.run),
        id: visible(key.id()),
        run: open.run.to_string(),
        opened: moment(open.opened_at),
        attempt: open.lease.attempt,
        is_held: is_held(inspector, key, &open),
        messages,
        calls,
        more_calls,
    }))
}

fn call(call: &tower_chat_layers::recovery::ReportedCall) -> (String, &'static str) {
    let state = match call.state {
        CallState::Done => "done",
        CallState::Failed => "failed",
        CallState::NeverStarted => "never started",
        CallState::Unknown => "started, without a recorded outcome",
    };
    (visible(&call.tool), state)
}

/// Returns whether this process is executing the run, or another process may be executing it.
fn is_held(inspector: &Inspector, key: &ConversationKey, open: &OpenRun) -> bool {
    open.is_held_at(SystemTime::now()) || inspector.store.handle().at_rest(key).is_err()
}

async fn waiting(
    inspector: &Inspector,
    scope: &str,
    after: Option<&str>,
) -> Result<Waiting, Failure> {
    let mut query = ConversationQuery::in_scope(scope)
        .in_state(ConversationState::WaitingForApproval)
        .with_limit(PAGE);
    if let Some(after) = after.filter(|after| !after.is_empty()) {
        let after: Result<DirectoryCursor, _> = after.parse();
        query.after = Some(after.map_err(|_| Failure::missing("There is no such page."))?);
    }
    let page = inspector.store.conversations(&query).await?;
    let mut next = page.next;
    let (mut batches, mut size) = (Vec::new(), 0);
    let mut shown: Option<&ConversationSummary> = None;
    for summary in &page.conversations {
        let head = inspector.store.head(&summary.key).await?;
        let of_head = &head.pending_approvals;
        size += of_head.iter().map(|batch| approvals::size_of(batch)).sum::<usize>();
        if let Some(last) = shown.filter(|_| size > PAGE_BYTES) {
            next = Some(DirectoryCursor::after(last));
            break;
        }
        shown = Some(summary);
        batches.extend(of_head.iter().map(|batch| Batch::new(inspector, &summary.key, batch)));
    }
    let more = next
        .map(|next| Link::new(&inspector.path, "runs").with("scope", scope).with("waiting", next));
    Ok(Waiting { batches, unreadable: unreadable(&page.unreadable), more })
}

fn link(inspector: &Inspector, key: &ConversationKey) -> Link {
    Link::new(&inspector.path, "conversation").with("scope", key.scope()).with("id", key.id())
}

/// The query parameter of the form: the run to end.
#[derive(Debug, Deserialize)]
pub(crate) struct EndedRun {
    run: String,
}

/// The field of the form: `commit` or `discard`.
#[derive(Debug, Deserialize)]
pub(crate) struct Ending {
    end: String,
}

pub(crate) async fn end_run(
    inspector: State,
    Query(asked): Query<Asked>,
    Query(ended): Query<EndedRun>,
    Form(ending): Form<Ending>,
) -> Answer {
    if !inspector.allows_writes {
        let what = "Runs cannot be ended in these pages: the inspector does not allow writes.";
        return Err(Failure::refused(StatusCode::FORBIDDEN, what));
    }
    let key = asked.key(&inspector)?;
    let end = match ending.end.as_str() {
        "commit" => RunEnd::Commit,
        "discard" => RunEnd::Discard,
        _ => {
            return Err(Failure::refused(
                StatusCode::BAD_REQUEST,
                "The field end must be commit or discard.",
            ));
        }
    };
    let open = match inspector.store.open_run(&key).await {
        Err(error) if error.is_damage() && end == RunEnd::Discard => {
            inspector.store.head(&key).await?.open_run
        }
        content => content?.map(|content| content.open),
    };
    let Some(open) = open.filter(|open| open.run.to_string() == ended.run) else {
        let what = "This run is no longer open.";
        return Err(Failure::refused(StatusCode::CONFLICT, what));
    };
    if is_held(&inspector, &key, &open) {
        let what = "The run was not ended: a process may still write it. Wait until the process or its lease ends.";
        return Err(Failure::refused(StatusCode::CONFLICT, what));
    }
    close(&*inspector.store, &key, end).await?;
    let page = Link::new(&inspector.path, "runs").with("scope", key.scope());
    Ok(Redirect::to(&page.to_string()).into_response())
}
