//! Tests of a stack with a model client: the history after a network error, and the next request of
//! the run.

use serde_json::{Value, json};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore,
    PersistenceMode, Role, ToolDefinition, Tools, tool_fn,
};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};
use tower_service::Service;

use crate::server::{Framing, Reply, Server};

const CALL: &str = concat!(
    r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":["#,
    r#"{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":"{ }"}}]}}]}"#,
    "\n\ndata: [DONE]\n\n",
);
const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"done\"}}]}\n\n\
                    data: [DONE]\n\n";

#[tokio::test]
async fn after_a_fault_the_history_is_as_the_contract_states_and_the_run_continues() {
    let limit = Reply::json(429, r#"{"error":{"message":"slow down","code":"rate_limit"}}"#);
    let event = "data: {\"error\":{\"message\":\"down\",\"code\":503}}\n\ndata: [DONE]\n\n";
    let faults = [
        Reply::stream(TEXT).framed(Framing::EndAt(TEXT.len() - 20)),
        Reply::stream(TEXT).framed(Framing::BreakAt(TEXT.len() - 20)),
        limit,
        Reply::stream(event),
    ];
    for fault in faults {
        for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
            let store = MemoryStore::new();
            let request = ChatRequest::user("go").in_conversation(key()).streamed();

            let server = Server::start([Reply::stream(CALL), fault.clone()]).await;
            let error = run(&server, &store, mode, request.clone()).await.expect_err("a fault");
            assert!(error.to_string().contains(provider_error_kind(&error)), "{error}");
            let (kept, wanted) = match mode {
                PersistenceMode::PerServiceCall => {
                    (vec![Role::User, Role::Assistant, Role::Tool], vec![Reply::stream(TEXT)])
                }
                _ => (vec![], vec![Reply::stream(CALL), Reply::stream(TEXT)]),
            };
            assert_eq!(roles(&store).await, kept, "{mode:?}, {fault:?}");
            let undisturbed = last_messages(&server);

            let server = Server::start(wanted).await;
            let answer = run(&server, &store, mode, request).await.unwrap();
            assert_eq!(answer.text(), "done");
            assert_eq!(last_messages(&server), undisturbed, "{mode:?}, {fault:?}");
            let whole = [Role::User, Role::Assistant, Role::Tool, Role::Assistant];
            assert_eq!(roles(&store).await, whole, "{mode:?}, {fault:?}");
        }
    }
}

/// Runs a request in a new stack, which has nothing in memory, like the stack of a new process.
async fn run(
    server: &Server,
    store: &MemoryStore,
    mode: PersistenceMode,
    request: ChatRequest,
) -> Result<Answer, BoxError> {
    let definition = ToolDefinition::new("f", "does f", json!({"type": "object"}));
    let mut pipeline = ChatPipeline::builder(server.model())
        .tools(Tools::new().with(tool_fn(definition, |_| async { Ok("f did it") })))
        .history(store.clone())
        .persistence(mode)
        .build()?;
    std::future::poll_fn(|cx| pipeline.poll_ready(cx)).await?;
    pipeline.call(request).await?.collect().await
}

/// Finds the model client's error among the sources of the layers' error, and returns `cut off` or
/// `refused`. Panics for any other kind.
fn provider_error_kind(error: &BoxError) -> &'static str {
    let mut error: &(dyn std::error::Error + 'static) = error.as_ref();
    loop {
        match error.downcast_ref::<ProviderError>() {
            Some(found) if matches!(found.kind(), Kind::Truncated { .. }) => return "cut off",
            Some(found) if matches!(found.status(), Some(429 | 503)) => return "refused",
            Some(other) => panic!("{other}"),
            None => error = error.source().expect("the model client's error is the source"),
        }
    }
}

async fn roles(store: &MemoryStore) -> Vec<Role> {
    let history = store.load(&key()).await.unwrap();
    history.messages.iter().map(|message| message.role).collect()
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "orders")
}

fn last_messages(server: &Server) -> Value {
    server.received().last().unwrap().body["messages"].clone()
}
