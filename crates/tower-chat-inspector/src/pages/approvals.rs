//! The form with which a reader decides about calls that wait for approval.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use axum::{
    Form,
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower_chat_layers::{
    ApprovalRequest, ApprovalResponse, BoxError, ChatRequest, ConversationKey, Message,
};

use super::{Answer, Asked, Failure, Link, State};
use crate::{
    Inspector,
    inspector::Agent,
    view::{Excerpt, visible},
};

/// The maximum time for which the response waits for the end of the run, in order to show an error.
/// After this time, the response redirects to the page of the conversation, and the run continues.
const ERROR_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum size, in bytes, of a batch (the calls of one answer) for which a page has a form.
/// The page shows the calls of such a batch completely, because the reader must see everything that
/// a decision applies to.
const LARGEST: usize = 256 << 10;

/// The number of calls that a page shows of a larger batch. Of each call, the page shows only the
/// beginning of the arguments.
const BRIEF_CALLS: usize = 20;

/// The calls of one answer that wait for approval. One form contains all decisions.
pub(super) struct Batch {
    /// The link to the page of the conversation.
    pub(super) link: Link,
    /// The URL to which the form is sent.
    pub(super) decide: Link,
    pub(super) id: String,
    pub(super) calls: Vec<WaitingCall>,
    /// The numbers of calls and bytes of a batch that is larger than [`LARGEST`].
    pub(super) too_large: Option<(usize, usize)>,
}

pub(super) struct WaitingCall {
    /// The name of the form field that contains the decision about the call.
    pub(super) field: String,
    pub(super) tool: String,
    pub(super) arguments: Excerpt,
}

/// Returns the approximate size, in bytes, of the part of a page that shows all calls of a batch.
pub(super) fn size_of(batch: &[ApprovalRequest]) -> usize {
    /// The approximate size of the markup of a call, without the call's name and arguments.
    const AROUND: usize = 64;
    batch.iter().map(|it| it.call.name.len() + it.call.arguments.len() + AROUND).sum()
}

impl Batch {
    pub(super) fn new(
        inspector: &Inspector,
        key: &ConversationKey,
        requests: &[ApprovalRequest],
    ) -> Self {
        let link = |page: &str| {
            Link::new(&inspector.path, page).with("scope", key.scope()).with("id", key.id())
        };
        let size = size_of(requests);
        let is_shown = size <= LARGEST;
        let call = |request: &ApprovalRequest| WaitingCall {
            field: field_of(request),
            tool: if is_shown {
                visible(&request.call.name)
            } else {
                Excerpt::of(&request.call.name).text
            },
            arguments: match is_shown {
                true => Excerpt::whole(&request.call.arguments),
                false => Excerpt::of(&request.call.arguments),
            },
        };
        let shown = if is_shown { requests.len() } else { BRIEF_CALLS };
        Self {
            link: link("conversation"),
            decide: link("runs/decide"),
            id: visible(key.id()),
            calls: requests.iter().take(shown).map(call).collect(),
            too_large: (!is_shown).then_some((requests.len(), size)),
        }
    }
}

/// Returns the name of the form field for a call: a digest of the id of the approval request, the
/// name of the tool, and the arguments. Another call with the same id has another digest, so the
/// decision does not apply to it.
fn field_of(request: &ApprovalRequest) -> String {
    let mut digest = Sha256::new();
    for text in [&request.id, &request.call.name, &request.call.arguments] {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Calls the agent (the tower stack of the application) with the decisions of a form about a batch.
pub(crate) async fn decide(
    inspector: State,
    Query(asked): Query<Asked>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Answer {
    let Some(agent) = inspector.agent.clone().filter(|_| inspector.allows_writes) else {
        let what = "Calls cannot be approved or rejected in these pages: the inspector has no \
                    agent, or writes are not allowed.";
        return Err(Failure::refused(StatusCode::FORBIDDEN, what));
    };
    let names: HashSet<&String> = fields.iter().map(|(name, _)| name).collect();
    if names.len() < fields.len() {
        let what = "The form has a field twice.";
        return Err(Failure::refused(StatusCode::BAD_REQUEST, what));
    }
    let key = asked.key(&inspector)?;
    let head = inspector.store.head(&key).await?;
    let fields: HashMap<String, String> = fields.into_iter().collect();
    let mut shown = head.pending_approvals.iter().filter(|batch| size_of(batch) <= LARGEST);
    let decided = shown.find_map(|batch| decisions(batch, &fields));
    let Some(decided) = decided else {
        let what = "The decision was not sent. The calls no longer wait for approval, one of them \
                    has no decision, or the page did not show all of them. Load the page again.";
        return Err(Failure::refused(StatusCode::CONFLICT, what));
    };
    let page = Link::new(&inspector.path, "conversation").with("scope", key.scope());
    let page = page.with("id", key.id());
    let request = ChatRequest::new(Message::approvals(decided)).in_conversation(key);
    // The task continues if the reader closes the page.
    let mut run = tokio::spawn(run(agent, request));
    match timeout(ERROR_TIMEOUT, &mut run).await {
        Ok(Ok(Err(error))) => {
            let what = format!("The run failed: {}", visible(&error.to_string()));
            Err(Failure::refused(StatusCode::BAD_GATEWAY, what))
        }
        Ok(Err(panicked)) => {
            let what = format!("The run failed: {panicked}");
            Err(Failure::refused(StatusCode::BAD_GATEWAY, what))
        }
        Ok(Ok(Ok(()))) | Err(_) => Ok(Redirect::to(&page.to_string()).into_response()),
    }
}

/// Returns the decisions about the calls of a batch, if the form contains all of them.
fn decisions(
    batch: &[ApprovalRequest],
    fields: &HashMap<String, String>,
) -> Option<Vec<ApprovalResponse>> {
    let value = |name: &str| fields.get(name);
    let reason = value("reason").filter(|reason| !reason.is_empty());
    let decision = |request: &ApprovalRequest| match value(&field_of(request))?.as_str() {
        "approve" => Some(request.approve()),
        "reject" => Some(request.reject(reason.map_or("A person rejected it.", String::as_str))),
        _ => None,
    };
    batch.iter().map(decision).collect()
}

async fn run(agent: Agent, request: ChatRequest) -> Result<(), BoxError> {
    let done = async { agent.oneshot(request).await?.collect().await };
    let done = done.await;
    if let Err(error) = &done {
        tracing::warn!(%error, "a run failed after a decision about its calls in a page");
    }
    done.map(|_| ())
}
