//! Creates a store with content, and requests pages of it.

use axum::{Router, body::Body};
use http::{Request, Response, StatusCode, header::HOST};
use http_body_util::BodyExt as _;
use serde_json::json;
use tower::ServiceExt as _;
use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, MemoryStore, Message, PersistenceMode, ToolCall,
    ToolDefinition, ToolError, Tools,
    store::{DescriptionPatch, Directory},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

pub(crate) const HOSTILE: &str = "<script>alert('x')</script> \u{202e}\u{1b}[2J &amp; \"quoted\"";

/// Returns a tool that succeeds, a tool that fails, and a tool that needs approval.
pub(crate) fn tools() -> Tools {
    let definition = |name: &str| {
        ToolDefinition::new(
            name,
            "For a test.",
            json!({"type": "object", "additionalProperties": true}),
        )
    };
    Tools::new()
        .with(tool_fn(definition("find"), |call| async move {
            Ok(format!("found by {}", call.arguments()))
        }))
        .with(tool_fn(definition("pay").needs_approval(), |call| async move {
            Ok(format!("paid with {}", call.arguments()))
        }))
        .with(tool_fn(definition("fail"), |_| async {
            Err::<String, _>(ToolError::for_model("the disk is full").into())
        }))
}

pub(crate) fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

pub(crate) fn pipeline(
    store: &MemoryStore,
    steps: Vec<Step>,
    mode: PersistenceMode,
) -> ChatPipeline {
    let builder = ChatPipeline::builder(ScriptedModel::new(steps)).tools(tools());
    builder.history(store.clone()).persistence(mode).build().unwrap()
}

/// Returns a store with two conversations: `errands` has two parallel tool calls. The other one has
/// the id [`HOSTILE`], and an answer with markup and invisible characters.
pub(crate) async fn filled() -> MemoryStore {
    let store = MemoryStore::new();
    let calls = [
        ToolCall::new("c1", "find", r#"{"what": "keys"}"#),
        ToolCall::new("c2", "fail", r#"{"what": "purse"}"#),
    ];
    let steps = vec![Step::message(Message::tool_calls(calls)), Step::text("The keys are here.")];
    let request = ChatRequest::user("Find my things.").in_conversation(key("errands"));
    let run = pipeline(&store, steps, PersistenceMode::PerServiceCall).oneshot(request);
    run.await.unwrap().collect().await.unwrap();
    let title = DescriptionPatch::new().with_title("Lost things");
    store.change_description(&key("errands"), &title).await.unwrap();

    let request = ChatRequest::user(HOSTILE).in_conversation(key(HOSTILE));
    let steps = vec![Step::text(HOSTILE.repeat(500))];
    let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
    run.await.unwrap().collect().await.unwrap();
    store
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn get(page: &str) -> Request<Body> {
    Request::get(page).header(HOST, "localhost:8081").body(Body::empty()).unwrap()
}

pub(crate) async fn page(router: &Router, page: &str) -> String {
    let response = send(router, get(page)).await;
    let status = response.status();
    let text = text(response).await;
    assert_eq!(status, StatusCode::OK, "{page}: {text}");
    text
}

/// Asserts that the page contains these strings in this order.
pub(crate) fn assert_in_order(page: &str, parts: &[&str]) {
    let mut rest = page;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in its place: {page}"));
        rest = &rest[at + part.len()..];
    }
}
