//! Serves an endpoint with a scripted model on the loopback interface.

use axum::{Router, extract::Request, middleware, response::Response};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tower_chat::{
    ChatPipeline, HistoryStore, Message, PersistenceMode, Role, ToolDefinition, Tools,
    message::Messages, tool_fn,
};
use tower_chat_http::{ChatEndpoint, Scope};
use tower_chat_testkit::{ScriptedModel, Step};

/// A server that runs until the tokio runtime of the test ends.
pub(crate) struct Served {
    /// The model of the stack.
    pub(crate) model: ScriptedModel,
    address: String,
}

impl Served {
    /// Returns the URL of a path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }
}

/// Serves an endpoint whose stack has the tool `order_status`. Clients authenticate with a bearer
/// token.
pub(crate) async fn serve(
    steps: impl IntoIterator<Item = Step>,
    store: impl HistoryStore + Clone,
    mode: PersistenceMode,
) -> Served {
    let model = ScriptedModel::new(steps);
    let endpoint = ChatEndpoint::new(stack(model.clone(), store.clone(), mode), store);
    let address = listen(endpoint.with_models(["scripted"]).into_router()).await;
    Served { model, address }
}

/// Returns the stack of the served endpoint.
pub(crate) fn stack(
    model: ScriptedModel,
    store: impl HistoryStore,
    mode: PersistenceMode,
) -> ChatPipeline {
    let parameters = json!({"type": "object", "properties": {"order": {"type": "integer"}}});
    let definition = ToolDefinition::new("order_status", "Where an order is.", parameters);
    let order_status = tool_fn(definition, |_| async { Ok("Order 7 is on its way.") });
    ChatPipeline::builder(model)
        .tools(Tools::new().with(order_status))
        .history(store)
        .persistence(mode)
        .build()
        .unwrap()
}

/// Serves routes behind a layer that inserts Alice's scope into a request with her token. Returns
/// the URL of the server.
pub(crate) async fn listen(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let routes = routes.layer(middleware::from_fn(identify));
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}

async fn identify(mut request: Request, next: middleware::Next) -> Response {
    let key = request.headers().get("authorization").and_then(|key| key.to_str().ok());
    if key == Some("Bearer key-of-alice") {
        request.extensions_mut().insert(Scope("alice".into()));
    }
    next.run(request).await
}

/// Returns each message in a short form: the role, followed by the text, the calls and the results
/// that the message contains.
pub(crate) fn sketch(messages: &Messages) -> Vec<Value> {
    messages.iter().map(|message| sketch_of(message)).collect()
}

fn sketch_of(message: &Message) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "other",
    };
    let calls = message.calls().map(|call| (call.id.clone().unwrap_or_default(), json!(call.name)));
    let results =
        message.results().map(|result| (result.call_id.clone().unwrap(), json!(result.text())));
    let tools: Map<String, Value> = calls.chain(results).collect();
    let mut sketch = vec![json!(role)];
    if !message.text().is_empty() {
        sketch.push(json!(message.text()));
    }
    if !tools.is_empty() {
        sketch.push(Value::Object(tools));
    }
    Value::Array(sketch)
}
