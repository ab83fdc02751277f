//! Tests of layers between a client and the network.

use std::{
    io::Write,
    process::Command,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use tower::ServiceBuilder;
use tower_chat_core::{BoxError, ChatRequest};
use tower_chat_providers::{
    Anthropic, Bedrock, Cohere, CompatibleService, FullBodyLayer, Ollama, OpenAiChat,
    OpenAiResponses, ProviderError, ReqwestTransport,
    auth::{AwsCredentials, SigV4Layer},
};
use tower_http::trace::{DefaultOnRequest, DefaultOnResponse, TraceLayer};
use tower_service::Service;
use tracing::Level;

use crate::{
    client::ask,
    server::{Reply, Server},
};

const ANSWER: &str = r#"{"choices":[{"index":0,"finish_reason":"stop",
    "message":{"role":"assistant","content":"Here."}}]}"#;

/// A transport that panics if it is called without having been polled to readiness. A clone is not
/// ready.
struct Polled {
    inner: ReqwestTransport,
    is_ready: bool,
}

impl Clone for Polled {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), is_ready: false }
    }
}

impl Service<Request<Bytes>> for Polled {
    type Response = Response<reqwest::Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without being ready");
        let call = self.inner.call(request);
        Box::pin(async move { call.await.map_err(Into::into) })
    }
}

#[tokio::test]
async fn a_request_is_sent_through_the_transport_that_was_polled_to_readiness() {
    let refusal = Reply::json(401, "{}");
    let server = Server::start([Reply::json(200, ANSWER), refusal, Reply::json(200, ANSWER)]).await;
    let transport = Polled { inner: ReqwestTransport::new().unwrap(), is_ready: false };
    let client = OpenAiChat::compatible_over(&server.url, transport);
    ask(&mut client.clone(), ChatRequest::user("first")).await.unwrap();
    // The layer must poll the transport to readiness again before it sends the request a second
    // time, with a new token.
    let token = || async { Ok::<_, BoxError>(tower_chat_providers::auth::Token::new("t-1234567")) };
    let bearer = tower_chat_providers::auth::AuthHeader::Bearer;
    let layer = tower_chat_providers::auth::AuthLayer::from_source(bearer, token);
    ask(&mut client.with_auth(layer), ChatRequest::user("second")).await.unwrap();
    assert_eq!(server.received().len(), 3);
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_a_refusal_and_the_key_is_not_sent_there() {
    let other = Server::start([Reply::json(200, ANSWER)]).await;
    let target = format!("{}/chat/completions", other.url);
    let away = Reply::json(307, "{}").header("location", &target);
    let here = Reply::json(308, "{}").header("location", "/v1/moved");
    let server = Server::start([away, here, Reply::json(200, ANSWER)]).await;
    let mut client = server.model().with_key("sk-redirected").unwrap();
    let error = ask(&mut client, ChatRequest::user("away")).await.unwrap_err();
    assert_eq!(error.downcast::<ProviderError>().unwrap().status(), Some(307));
    assert!(other.received().is_empty());
    ask(&mut client, ChatRequest::user("moved")).await.unwrap();
    assert_eq!(server.received()[2].target, "POST /v1/moved");
}

/// A writer that collects the traces of all levels.
#[derive(Clone, Default)]
struct Traces(Arc<Mutex<Vec<u8>>>);

impl Write for Traces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_trace_contains_a_key_a_signature_or_a_session_token() {
    const KEY: &str = "sk-ant-traced-1234567890";
    const SESSION: &str = "session-token-0987654321";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    let traces = Traces::default();
    let sink = traces.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let trace = || {
        TraceLayer::new_for_http()
            .make_span_with(tower_http::trace::DefaultMakeSpan::new().include_headers(true))
            .on_request(DefaultOnRequest::new().level(Level::INFO))
            .on_response(DefaultOnResponse::new().include_headers(true).level(Level::INFO))
    };
    let transport = || {
        ServiceBuilder::new()
            .layer(FullBodyLayer::new())
            .layer(trace())
            .service(ReqwestTransport::new().unwrap())
    };
    let repeats = |secret| Reply::json(403, format!(r#"{{"message":"no {secret}"}}"#));
    let server = Server::start([repeats(KEY), repeats(SESSION)]).await;
    let client = Anthropic::new(transport()).with_key(KEY).unwrap().with_model("claude-x");
    let mut client = client.with_base_url(&server.url);
    let refused = ask(&mut client, ChatRequest::user("by key")).await.unwrap_err();
    let credentials = AwsCredentials::new("AKIDEXAMPLE", SECRET).with_session_token(SESSION);
    let signed = SigV4Layer::new("us-east-1", "bedrock", credentials);
    let client = Bedrock::new("us-east-1", transport()).with_layer(signed).with_model("m");
    let mut client = client.with_base_url(&server.url);
    let denied = ask(&mut client, ChatRequest::user("by signature")).await.unwrap_err();

    let sent = server.received();
    assert_eq!(sent[0].header("x-api-key"), Some(KEY));
    assert_eq!(sent[1].header("x-amz-security-token"), Some(SESSION));
    let traced = String::from_utf8(traces.0.lock().unwrap().clone()).unwrap();
    assert!(traced.contains("Sensitive"), "{traced}");
    for text in [traced, format!("{refused:?} {refused} {denied:?} {denied} {client:?}")] {
        for secret in [KEY, SESSION, SECRET, "Signature="] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

const CHILD: &str = "transport::child_reads_its_environment";

#[test]
#[ignore = "the child of another test"]
fn child_reads_its_environment() {
    let client = Anthropic::from_env().unwrap();
    assert!(!format!("{client:?}").contains("sk-of-the-environment"));
    let missing = OpenAiChat::from_env().unwrap_err();
    assert_eq!(
        (missing.provider(), missing.to_string().as_str()),
        (
            "openai",
            "the openai client cannot be used: the variable OPENAI_API_KEY is not set, or empty: \
             set it to the key"
        )
    );
    let transport = ReqwestTransport::new().unwrap();
    let refused = OpenAiChat::new(transport).with_key("se\ncret").unwrap_err();
    assert_eq!(refused.provider(), "openai");
    assert!(!format!("{refused:?} {refused}").contains("cret"), "{refused:?}");
    assert!(format!("{:?}", Bedrock::from_env().unwrap()).contains("bedrock-runtime.eu-west-3"));
    assert!(format!("{client:?}").contains("http://proxy:8080/v1"), "{client:?}");
    let groq = OpenAiChat::service_from_env(CompatibleService::Groq).unwrap();
    assert!(format!("{groq:?}").contains("https://groq.test/openai/v1"), "{groq:?}");
    let refused = Cohere::from_env().unwrap_err();
    assert!(refused.to_string().contains("\"cohere.test/v2\" is not the address"), "{refused}");
    let ollama = Ollama::from_env().unwrap();
    assert!(format!("{ollama:?}").contains("http://gpu:11434"), "{ollama:?}");
}

#[test]
fn an_address_without_a_scheme_is_refused_when_the_client_is_created() {
    for address in ["localhost:8000/v1", "localhost", "", "ftp://host/v1", "http://"] {
        let refused = OpenAiChat::compatible(address).unwrap_err();
        assert!(refused.to_string().contains("http://localhost:8000/v1"), "{refused}");
        assert!(OpenAiResponses::compatible(address).is_err(), "{address}");
    }
    let refused = OpenAiChat::compatible("user:secret@host/v1").unwrap_err();
    assert!(!refused.to_string().contains("secret"), "{refused}");
    assert!(OpenAiChat::compatible("http://localhost:8000/v1").is_ok());
}

#[test]
fn keys_and_regions_are_read_from_the_environment() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", CHILD, "--ignored"]).env_remove("OPENAI_API_KEY");
    command.env("ANTHROPIC_API_KEY", "sk-of-the-environment").env_remove("BEDROCK_API_KEY");
    command.env("AWS_BEARER_TOKEN_BEDROCK", "token").env("AWS_REGION", "eu-west-3");
    command.env("ANTHROPIC_BASE_URL", "http://proxy:8080/").env("OLLAMA_HOST", "gpu");
    command.env("GROQ_API_KEY", "sk").env("GROQ_BASE_URL", "https://groq.test");
    command.env("COHERE_API_KEY", "sk").env("CO_API_URL", "cohere.test");
    command.env_remove("AWS_ENDPOINT_URL_BEDROCK_RUNTIME").env_remove("AWS_ENDPOINT_URL");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
