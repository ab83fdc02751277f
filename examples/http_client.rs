//! Adds a history to an existing HTTP client with JSON bodies and `tower-http` layers.
//!
//! The client and its layers (trace, concurrency limit, retry, timeout) are independent of
//! tower-chat. Two small functions convert texts to JSON and back, and a codec turns the client
//! into a model client.
//!
//! ```text
//! OPENAI_API_KEY=sk-... cargo run -p tower-chat-http --example http_client
//! ```
//!
//! Without a key, the program starts a server on this machine, which rejects the first requests as
//! overloaded.

use std::{
    env::var,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{Json, Router, routing::post};
use http::{HeaderValue, StatusCode, header::AUTHORIZATION};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt, retry::Policy, service_fn};
use tower_chat::{
    BoxError, ChatOptions, ChatPipeline, ChatRequest, ConversationKey, MemoryStore,
    adapt::AdaptLayer,
};
use tower_chat_wire::{body::BodyWire, codec::JsonClient};
use tower_http::{timeout::TimeoutLayer, trace::TraceLayer};

type TextRequest = http::Request<String>;
type TextResponse = http::Response<reqwest::Body>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let url = match var("OPENAI_API_KEY") {
        Ok(_) => "https://api.openai.com/v1/chat/completions".to_owned(),
        Err(_) => scripted_server().await?,
    };

    let model = ServiceBuilder::new()
        .layer(AdaptLayer::new(JsonClient::new(BodyWire::OpenAiChat, url)))
        .map_request(to_text)
        .and_then(to_json)
        .layer(TraceLayer::new_for_http())
        .concurrency_limit(4)
        .retry(OnServerError { attempts: 3 })
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(60)))
        .service(http_client());
    let mut chat = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;

    let mut options = ChatOptions::default();
    options.model = Some("gpt-4o-mini".to_owned());
    for text in ["My name is Alice.", "What is my name?"] {
        let request = ChatRequest::user(text).with_options(options.clone());
        let request = request.in_conversation(ConversationKey::new("alice", "names"));
        println!("{}", chat.ready().await?.call(request).await?.collect().await?.text());
    }
    Ok(())
}

/// Creates the client: reqwest as a service with `http` types.
fn http_client()
-> impl Service<TextRequest, Response = TextResponse, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync {
    let client = reqwest::Client::new();
    service_fn(move |request: TextRequest| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok(TextResponse::from(response))
        }
    })
}

fn to_text(request: http::Request<Value>) -> TextRequest {
    let mut request = request.map(|body| body.to_string());
    let key = var("OPENAI_API_KEY").ok();
    let key = key.and_then(|key| HeaderValue::try_from(format!("Bearer {key}")).ok());
    if let Some(key) = key {
        request.headers_mut().insert(AUTHORIZATION, key);
    }
    request
}

async fn to_json<B>(response: http::Response<B>) -> Result<http::Response<Value>, BoxError>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    use http_body_util::BodyExt;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(bytes.to_vec()));
    Ok(http::Response::from_parts(parts, body))
}

/// A retry policy for errors of the server.
#[derive(Clone)]
struct OnServerError {
    attempts: usize,
}

impl<B> Policy<TextRequest, http::Response<B>, BoxError> for OnServerError {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _request: &mut TextRequest,
        result: &mut Result<http::Response<B>, BoxError>,
    ) -> Option<Self::Future> {
        let failed = result.as_ref().map_or(true, |response| response.status().is_server_error());
        self.attempts = self.attempts.checked_sub(1).filter(|_| failed)?;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, request: &TextRequest) -> Option<TextRequest> {
        Some(request.clone())
    }
}

/// Starts a server that answers with the texts of the user, and returns its address.
async fn scripted_server() -> Result<String, BoxError> {
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let answer = |Json(body): Json<Value>| async move {
        if REQUESTS.fetch_add(1, Ordering::Relaxed) == 0 {
            return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": "overloaded"})));
        }
        let messages = body.get("messages").and_then(Value::as_array).cloned();
        let lines: Vec<String> = messages
            .unwrap_or_default()
            .iter()
            .filter(|message| message.get("role").is_some_and(|role| role == "user"))
            .filter_map(|message| message.get("content")?.as_str().map(str::to_owned))
            .collect();
        let content = format!("You said: {}", lines.join(" "));
        let message = json!({"role": "assistant", "content": content});
        let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
        (StatusCode::OK, Json(json!({"model": "scripted", "choices": choices})))
    };
    let routes = Router::new().route("/v1/chat/completions", post(answer));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(url)
}
