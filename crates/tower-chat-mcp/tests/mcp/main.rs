//! Tests of whole pipelines with the tools of a real MCP server, which is a child process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "nothing outside uses these tests")]

mod calls;
mod example;
mod faults;
mod listing;

use std::{path::PathBuf, sync::Arc};

use rmcp::{RoleClient, ServiceExt, service::RunningService, transport::TokioChildProcess};
use tower::{Service, ServiceExt as _};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore,
    Message, PersistenceMode, ToolCall, Tools,
    layer::ToolLoopLayer,
    store::{InvocationQuery, ToolCallQueries},
    tool::ToolInvocation,
};
use tower_chat_mcp::McpTools;
use tower_chat_testkit::{ScriptedModel, Step};

const BOTH_MODES: [PersistenceMode; 2] = [PersistenceMode::PerRun, PersistenceMode::PerServiceCall];

/// Returns the path of an example's program. Cargo builds a package's examples before it runs the tests.
fn example_path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

/// Starts a server and returns a connection to it. The server ends with the connection.
async fn connect(arguments: &[&str]) -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(example_path("mcp_test_server"));
    command.args(arguments);
    ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap()
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

/// Returns an answer of the scripted model that calls tools. `calls` contains the name and the
/// arguments of each call.
fn calls<const N: usize>(calls: [(&str, &str); N]) -> Step {
    let mut id = 0;
    Step::message(Message::tool_calls(calls.map(|(name, arguments)| {
        id += 1;
        ToolCall::new(format!("c{id}"), name, arguments)
    })))
}

/// An agent with the tools of a server.
struct Agent {
    store: MemoryStore,
    model: ScriptedModel,
    client: ChatPipeline,
}

impl Agent {
    async fn new(tools: &McpTools, mode: PersistenceMode, script: Vec<Step>) -> Self {
        let tools = tools.add_to(Tools::new()).await.unwrap();
        let (store, model) = (MemoryStore::new(), ScriptedModel::new(script));
        let client = ChatPipeline::builder(model.clone())
            .tool_loop(ToolLoopLayer::new(tools).include_error_details(true))
            .history(store.clone())
            .persistence(mode)
            .build()
            .unwrap();
        Self { store, model, client }
    }

    async fn ask(&self, text: &str) -> Result<Answer, BoxError> {
        self.send(ChatRequest::user(text)).await
    }

    async fn send(&self, request: ChatRequest) -> Result<Answer, BoxError> {
        let request = request.in_conversation(key());
        self.client.clone().ready().await?.call(request).await?.collect().await
    }

    async fn stored_messages(&self) -> Vec<Arc<Message>> {
        self.store.load(&key()).await.unwrap().messages.iter().cloned().collect()
    }

    async fn record(&self) -> Vec<ToolInvocation> {
        let invocations = self.store.invocations(&InvocationQuery::of(&key())).await.unwrap();
        assert_eq!(invocations.unreadable, []);
        invocations.found.into_iter().map(|(_, invocation)| invocation).collect()
    }
}
