//! An agent with the tools of an MCP server, which runs as a child process.
//!
//! ```text
//! cargo run -p tower-chat-mcp --example mcp_tools
//! ```
//!
//! The child process is this program, started in the role of the MCP server. `TokioChildProcess`
//! can start any other MCP server in the same way. The model is a script.

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, ToolAnnotations,
    },
    service::RequestContext,
    transport::{TokioChildProcess, stdio},
};
use serde_json::{Value, json};
use tower_chat::{
    BoxError, ChatPipeline, ConversationKey, MemoryStore, Message, Tool, ToolCall, Tools,
    store::{InvocationQuery, ToolCallQueries},
};
use tower_chat_mcp::McpTools;
use tower_chat_testkit::{ScriptedModel, Step};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    if std::env::args().any(|argument| argument == "serve") {
        Shop.serve(stdio()).await?.waiting().await?;
        return Ok(());
    }

    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.arg("serve");
    let mut server = ().serve(TokioChildProcess::new(command)?).await?;
    let shop =
        McpTools::new(&server).with_prefix("shop_").needs_approval(|tool| !tool.hints().read_only);
    for tool in shop.list().await? {
        let how = if tool.hints().read_only { "read only" } else { "asks first" };
        println!("{}: {} ({how})", tool.definition().name, tool.definition().description);
    }

    let store = MemoryStore::new();
    let client = ChatPipeline::builder(model())
        .tools(shop.add_to(Tools::new()).await?)
        .history(store.clone())
        .build()?;
    let key = ConversationKey::new("alice", "shop");
    let answer = client.ask(key.clone(), "Are there lamps?").await?;
    println!("{}", answer.text());
    for (_, call) in store.invocations(&InvocationQuery::of(&key)).await?.found {
        println!("recorded: {} {}", call.name, call.status);
    }
    server.close().await?;
    Ok(())
}

fn model() -> ScriptedModel {
    ScriptedModel::new([
        Step::message(Message::tool_calls([ToolCall::new(
            "call_1",
            "shop_stock",
            r#"{"article": "lamp"}"#,
        )])),
        Step::respond(|request| {
            let results = request.messages().iter().flat_map(|message| message.results());
            let stock: String = results.map(|result| result.text()).collect();
            Step::text(format!("There are {stock} left. Shall I order one?"))
        }),
    ])
}

/// A server with two tools.
struct Shop;

impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name, description, read_only| {
            let mut schema = JsonObject::new();
            schema.insert("type".to_owned(), json!("object"));
            schema.insert("properties".to_owned(), json!({"article": {"type": "string"}}));
            rmcp::model::Tool::new(name, description, schema)
                .with_annotations(ToolAnnotations::new().read_only(read_only))
        };
        Ok(ListToolsResult::with_all_items(vec![
            tool("stock", "How many of an article are in stock.", true),
            tool("order", "Orders an article.", false),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(article) = arguments.get("article").and_then(Value::as_str) else {
            let text = "Say which article.";
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into());
        };
        let text = match &*request.name {
            "stock" => format!("3 {article}s"),
            _ => format!("Ordered a {article}."),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
