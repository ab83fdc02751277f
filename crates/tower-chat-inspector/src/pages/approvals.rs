//! Decisions about calls that wait for approval.

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

/// How long the page waits for a run that is refused. One that goes on is followed in the conversation.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many bytes the calls of a batch may have that is decided about in a page. A page shows everything of
/// such a batch; a person who sees less does not know what runs.
const LARGEST: usize = 256 << 10;

/// How many calls of a larger batch a page shows the beginning of.
const BRIEF: usize = 20;

/// Calls that one answer asked for, about which is decided at once.
pub(super) struct Batch {
    /// The conversation.
    pub(super) link: Link,
    /// Where its form goes.
    pub(super) decide: Link,
    pub(super) id: String,
    pub(super) calls: Vec<WaitingCall>,
    /// The numbers of its calls and bytes, if it is too large to be decided about in a page.
    pub(super) too_large: Option<(usize, usize)>,
}

pub(super) struct WaitingCall {
    /// The name of its field in the form.
    pub(super) field: String,
    pub(super) tool: String,
    pub(super) arguments: Excerpt,
}

/// How many bytes of a batch a page has to show.
pub(super) fn size_of(batch: &[ApprovalRequest]) -> usize {
    /// What is around the name and the arguments of a call.
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
        let shown = if is_shown { requests.len() } else { BRIEF };
        Self {
            link: link("conversation"),
            decide: link("runs/decide"),
            id: visible(key.id()),
            calls: requests.iter().take(shown).map(call).collect(),
            too_large: (!is_shown).then_some((requests.len(), size)),
        }
    }
}

/// The name of the field that decides about a call: the digest of everything that the page shows of it.
/// A form decides about what its reader saw, even if another call waits under the same id by then.
fn field_of(request: &ApprovalRequest) -> String {
    let mut digest = Sha256::new();
    for text in [&request.id, &request.call.name, &request.call.arguments] {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends the decisions about a batch through the agent.
pub(crate) async fn decide(
    inspector: State,
    Query(asked): Query<Asked>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Answer {
    let Some(agent) = inspector.agent.clone().filter(|_| inspector.allows_writes) else {
        let what = "These pages do not decide: the inspector has no agent, or may not write.";
        return Err(Failure::refused(StatusCode::FORBIDDEN, what));
    };
    let names: HashSet<&String> = fields.iter().map(|(name, _)| name).collect();
    if names.len() < fields.len() {
        let what = "A field of the form is there twice.";
        return Err(Failure::refused(StatusCode::BAD_REQUEST, what));
    }
    let key = asked.key(&inspector)?;
    let head = inspector.store.head(&key).await?;
    let fields: HashMap<String, String> = fields.into_iter().collect();
    let mut shown = head.pending_approvals.iter().filter(|batch| size_of(batch) <= LARGEST);
    let decided = shown.find_map(|batch| decisions(batch, &fields));
    let Some(decided) = decided else {
        let what = "These calls wait for approval no more, one of them is left undecided, or the page did \
                    not show all of them.";
        return Err(Failure::refused(StatusCode::CONFLICT, what));
    };
    let page = Link::new(&inspector.path, "conversation").with("scope", key.scope());
    let page = page.with("id", key.id());
    let request = ChatRequest::new(Message::approvals(decided)).in_conversation(key);
    // The run goes on when the reader goes away.
    let mut run = tokio::spawn(run(agent, request));
    match timeout(PATIENCE, &mut run).await {
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

/// The decisions about each call of a batch, if there are.
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
        tracing::warn!(%error, "a run that was approved in a page failed");
    }
    done.map(|_| ())
}
