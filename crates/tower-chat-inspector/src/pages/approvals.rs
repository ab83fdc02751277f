//! Decisions about calls that wait for approval.

use std::time::Duration;

use axum::{
    Form,
    extract::Query,
    response::{IntoResponse as _, Redirect},
};
use http::StatusCode;
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

/// Calls that one answer asked for, about which is decided at once.
pub(super) struct Batch {
    /// The conversation.
    pub(super) link: Link,
    /// Where its form goes.
    pub(super) decide: Link,
    pub(super) id: String,
    pub(super) calls: Vec<WaitingCall>,
}

pub(super) struct WaitingCall {
    /// The name of its field in the form.
    pub(super) field: String,
    pub(super) tool: String,
    pub(super) arguments: Excerpt,
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
        let call = |request: &ApprovalRequest| WaitingCall {
            field: field_of(request),
            tool: visible(&request.call.name),
            arguments: Excerpt::of(&request.call.arguments),
        };
        Self {
            link: link("conversation"),
            decide: link("runs/decide"),
            id: visible(key.id()),
            calls: requests.iter().map(call).collect(),
        }
    }
}

/// Ids may have any characters; the name of a field has plain ones.
fn field_of(request: &ApprovalRequest) -> String {
    request.id.bytes().map(|byte| format!("{byte:02x}")).collect()
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
    let key = asked.key(&inspector)?;
    let head = inspector.store.head(&key).await?;
    let decided = head.pending_approvals.iter().find_map(|batch| decisions(batch, &fields));
    let Some(decided) = decided else {
        let what = "These calls wait for approval no more, or one of them is left undecided.";
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
    fields: &[(String, String)],
) -> Option<Vec<ApprovalResponse>> {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
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
