//! The MCP server for the tests of `chat`. The server communicates over standard input and output,
//! and logs each call of its tools as a line of the file that its argument names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs::OpenOptions, io::Write, path::PathBuf};

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

struct Harbour {
    log: PathBuf,
}

impl Harbour {
    fn write(&self, line: &str) {
        let file = OpenOptions::new().create(true).append(true).open(&self.log);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

fn tool(name: &'static str, description: &'static str, reads: bool) -> Tool {
    let schema = json!({"type": "object", "properties": {"port": {"type": "string"}}});
    let schema: JsonObject = serde_json::from_value(schema).unwrap();
    let annotations = ToolAnnotations::new().read_only(reads);
    Tool::new(name, description, schema).with_annotations(annotations)
}

impl ServerHandler for Harbour {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![
            tool("fog", "Whether there is fog over a port.", true),
            tool("book_berth", "Books a berth.", false),
            tool("hold", "Waits until it is cancelled.", false),
            tool("sink", "Fails.", true),
        ]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let port = arguments.get("port").and_then(Value::as_str).unwrap_or("nowhere");
        self.write(&format!("{} {port}", request.name));
        let text = |text: String| vec![ContentBlock::text(text)];
        let result = match &*request.name {
            "fog" => CallToolResult::success(text(format!("Fog over {port}."))),
            "book_berth" => CallToolResult::success(text(format!("A berth in {port} is booked."))),
            "sink" => CallToolResult::error(text(format!("Nothing sinks in {port}."))),
            _ => {
                context.ct.cancelled().await;
                self.write("cancelled");
                CallToolResult::success(text("stopped".to_owned()))
            }
        };
        Ok(result.into())
    }
}

#[tokio::main]
async fn main() {
    eprintln!("the harbour\u{1b}[2J is open");
    let log = std::env::args_os().nth(1).unwrap().into();
    Harbour { log }.serve(stdio()).await.unwrap().waiting().await.unwrap();
}
