//! Fuzz targets for the client of an MCP server: the server sends damaged answers.

use rmcp::{RoleClient, ServiceExt as _, service::RunningService};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream},
    runtime::Runtime,
};
use tower::{Service, ServiceExt as _, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, Message, Tool, ToolCall, Tools,
};
use tower_chat_mcp::McpTools;
use tower_chat_testkit::Rng;

use super::Entry;

const INITIALIZED: &str = r#"{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
    "serverInfo": {"name": "harbour", "version": "3"}}"#;
const LAST_PAGE: &str = r#"{"tools": [{"name": "tides", "inputSchema": {"type": "object"}}]}"#;

const PAGES: [&str; 3] = [
    r#"{"tools": [{"name": "look.up", "title": "Look up", "description": "Finds a ship.",
        "inputSchema": {"type": "object", "properties": {"ship": {"type": "string"}}},
        "outputSchema": {"type": "object", "properties": {"pier": {"type": "integer"}}},
        "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false}},
        {"name": "moor", "inputSchema": {"type": "object", "required": ["pier"]},
        "annotations": {"title": "Moor a ship", "destructiveHint": true},
        "icons": [{"src": "data:image/png;base64,aGk=", "mimeType": "image/png"}],
        "execution": {"taskSupport": "optional"}, "_meta": {"version": 2}}]}"#,
    r#"{"tools": [{"name": "depart", "inputSchema": {"type": "object"}}], "nextCursor": "1",
        "ttlMs": 1000, "cacheScope": "private"}"#,
    r#"{"tools": []}"#,
];

const RESULTS: [&str; 4] = [
    r#"{"content": [{"type": "text", "text": "Pier 9."}, {"type": "text", "text": "{\"pier\":9}",
        "annotations": {"audience": ["user"], "priority": 0.5}}], "structuredContent": {"pier": 9}}"#,
    r#"{"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///log", "text": "Foggy."}},
        {"type": "resource", "resource": {"uri": "file:///map", "mimeType": "image/png", "blob": "aGk="}},
        {"type": "resource_link", "uri": "file:///crew", "name": "crew", "size": 3}]}"#,
    r#"{"content": [{"type": "text", "text": "No such ship."}], "isError": true, "_meta": {"try": 1}}"#,
    r#"{"resultType": "input_required", "requestState": "s", "inputRequests": {"a":
        {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema":
        {"type": "object", "properties": {}}}}}}"#,
];

pub(crate) fn targets() -> [Entry; 2] {
    [
        Entry::new("mcp-tools", "the list of an MCP server: McpTools::list", || {
            let runtime = runtime();
            let run = move |bytes: &[u8], _: &mut Rng| {
                let client = connection(bytes.to_vec(), RESULTS[0].into());
                runtime.block_on(async { lists_tools(client.await).await })
            };
            (PAGES.map(Vec::from).to_vec(), Box::new(run))
        })
        .slow(),
        Entry::new("mcp-results", "the result of an MCP server's tool", || {
            let runtime = runtime();
            let run = move |bytes: &[u8], _: &mut Rng| {
                let client = connection(LAST_PAGE.into(), bytes.to_vec());
                runtime.block_on(async { calls_tool(client.await).await })
            };
            (RESULTS.map(Vec::from).to_vec(), Box::new(run))
        })
        .slow(),
    ]
}

type Client = RunningService<RoleClient, ()>;

async fn lists_tools(mut client: Client) -> bool {
    let tools = McpTools::new(&client).with_prefix("harbour_");
    let tools = tools.needs_approval(|tool| !tool.hints().read_only);
    let is_accepted = match tools.list().await {
        Ok(listed) => {
            for tool in &listed {
                assert!((1..=64).contains(&tool.definition().name.len()));
            }
            listed.into_iter().try_fold(Tools::new(), Tools::try_with).is_ok()
        }
        Err(error) => error.to_string().is_empty(),
    };
    client.close().await.expect("the client ends");
    is_accepted
}

async fn calls_tool(mut client: Client) -> bool {
    let tools = McpTools::new(&client).add_to(Tools::new()).await.expect("a list that is whole");
    let model = service_fn(|request: ChatRequest| async move {
        let is_answered = request.messages().last().is_some_and(|last| last.results().count() > 0);
        let answer = match is_answered {
            true => Message::assistant("Done."),
            false => Message::tool_calls([ToolCall::new("c1", "tides", "{}")]),
        };
        Ok::<_, BoxError>(ChatResponse::whole([answer], Finish::stop()))
    });
    let mut pipeline = ChatPipeline::builder(model).tools(tools).build().expect("a stack");
    let response =
        pipeline.ready().await.expect("a stack is ready").call(ChatRequest::user("Ask."));
    let answer = response.await.expect("an answer").collect().await.expect("a whole answer");
    client.close().await.expect("the client ends");
    let mut results = answer.messages.iter().flat_map(|message| message.results());
    !results.next().expect("each call has a result").is_error
}

/// Returns a client of a server. The server answers a request for its tools with `page`, and each
/// call with `result`.
async fn connection(page: Vec<u8>, result: Vec<u8>) -> Client {
    let (ours, servers) = tokio::io::duplex(1 << 20);
    tokio::spawn(serve(servers, page, result));
    ().serve(ours).await.expect("the server answers the first request")
}

async fn serve(stream: DuplexStream, page: Vec<u8>, result: Vec<u8>) {
    let (read, mut write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(request) = serde_json::from_str::<Value>(&line) else { return };
        let (Some(id), Some(method)) = (request.get("id"), request.get("method")) else { continue };
        let is_first_page = request.pointer("/params/cursor").is_none();
        let answer = match method.as_str() {
            Some("initialize") => INITIALIZED.as_bytes(),
            Some("tools/list") if is_first_page => &page,
            Some("tools/list") => LAST_PAGE.as_bytes(),
            Some("tools/call") => &result,
            _ => b"",
        };
        let mut answer = [b"{\"jsonrpc\":\"2.0\",\"result\":", answer, b",\"id\":"].concat();
        answer.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        // If the client cannot read the line of the answer, it skips the line and waits. This error
        // then answers the request.
        let error = r#"{"jsonrpc":"2.0","error":{"code":-32603,"message":"Not now."},"id":"#;
        let whole = [&*answer, format!("{id}}}\n{error}{id}}}\n").as_bytes()].concat();
        if write.write_all(&whole).await.is_err() {
            return;
        }
    }
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
}
