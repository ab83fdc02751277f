//! The MCP server of the tests, over standard input and output.
//!
//! Each page of its list of tools has two tools. With the argument `circle`, the last page refers
//! to the first page again. With `endless`, every page refers to a further page. With `silent`, the
//! server never answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
        ToolAnnotations,
    },
    service::RequestContext,
    transport::stdio,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const PAGE: usize = 2;

struct TestServer {
    list: String,
    /// A semaphore to which each cancelled call adds a permit.
    cancelled: Arc<Semaphore>,
}

fn tool(name: &'static str, description: &'static str, annotations: ToolAnnotations) -> Tool {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let schema: JsonObject = serde_json::from_value(schema).unwrap();
    Tool::new(name, description, schema).with_annotations(annotations)
}

fn tools() -> Vec<Tool> {
    let writes = ToolAnnotations::new;
    let reads = || writes().read_only(true);
    vec![
        tool("weather", "The weather in a city.", reads()),
        tool("fail", "Fails.", reads()),
        tool("refuse", "Is refused by the server.", writes()),
        tool("wait", "Waits until it is cancelled.", writes().idempotent(true)),
        tool("cancellation", "Waits until a call was cancelled.", reads()),
        tool("exit", "Ends the server.", writes()),
        tool("picture.of", "A picture of a city.", reads()),
    ]
}

impl ServerHandler for TestServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let start: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        let all = tools();
        let page = all.iter().skip(start).take(PAGE).cloned().collect();
        let mut page = ListToolsResult::with_all_items(page);
        let next = start + PAGE;
        page.next_cursor = match self.list.as_str() {
            "circle" => Some("0".to_owned()),
            "endless" => Some(next.to_string()),
            "silent" => std::future::pending().await,
            _ => (next < all.len()).then(|| next.to_string()),
        };
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = |text: String| vec![ContentBlock::text(text)];
        let result = match &*request.name {
            "weather" => {
                let city = arguments.get("city").and_then(Value::as_str).unwrap_or("nowhere");
                let mut result = CallToolResult::success(text(format!("Rain in {city}.")));
                result.structured_content = Some(json!({"degrees": 7}));
                result
            }
            "fail" => CallToolResult::error(text("There is no such city.".to_owned())),
            "wait" => {
                context.ct.cancelled().await;
                self.cancelled.add_permits(1);
                CallToolResult::success(text("stopped".to_owned()))
            }
            "cancellation" => {
                self.cancelled.acquire().await.unwrap().forget();
                CallToolResult::success(text("a call was cancelled".to_owned()))
            }
            "exit" => std::process::exit(0),
            "picture.of" => CallToolResult::success(vec![ContentBlock::image("aGk=", "image/png")]),
            name => {
                return Err(ErrorData::invalid_params(format!("{name} is not for you"), None));
            }
        };
        Ok(result.into())
    }
}

#[tokio::main]
async fn main() {
    let server = TestServer {
        list: std::env::args().nth(1).unwrap_or_default(),
        cancelled: Arc::new(Semaphore::new(0)),
    };
    server.serve(stdio()).await.unwrap().waiting().await.unwrap();
}
