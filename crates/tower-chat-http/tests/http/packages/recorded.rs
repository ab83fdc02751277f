//! Sends recorded requests with OpenAI's Python and JavaScript packages, once to the endpoint, and
//! once directly to a server that replays OpenAI's recorded answers. The model client of the
//! endpoint sends its requests to the same server. The package must therefore receive equal answers
//! in both cases.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    process::Command,
    sync::Arc,
};

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    middleware,
    response::Response,
    routing::post,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower_chat::{ChatPipeline, MemoryStore, PersistenceMode};
use tower_chat_http::{ChatEndpoint, Scope};
use tower_chat_providers::OpenAiChat;
use tower_chat_testkit::{
    recordings::{Api, Exchange, Recordings},
    skip,
};

use super::install;

#[tokio::test(flavor = "multi_thread")]
async fn the_packages_of_openai_receive_the_recorded_answers() {
    let mut packages = Vec::new();
    for (name, installed) in [("Python", install::python()), ("JavaScript", install::javascript())]
    {
        match installed {
            Ok(program) => packages.push((name, program)),
            Err(reason) => skip(&format!("recorded answers to OpenAI's {name} package"), reason),
        }
    }
    let exchanges = first_requests(&Recordings::all());
    assert!(!exchanges.is_empty(), "no recorded request begins a conversation");
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests.jsonl");
    fs::write(&requests, lines(&exchanges)).unwrap();
    let recorded = recorded(exchanges.clone()).await;
    for (name, program) in packages {
        let direct = program.ask(&recorded, &requests).await;
        assert_eq!(direct.len(), exchanges.len(), "{name}: {direct:?}");
        for mode in
            [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
        {
            let endpoint = endpoint(&recorded, mode, exchanges.len()).await;
            let through = program.ask(&endpoint, &requests).await;
            for ((through, direct), exchange) in through.iter().zip(&direct).zip(&exchanges) {
                let mut direct = direct.clone();
                if direct["finish_reason"].is_null() {
                    // Some recorded streams have no finish reason, but the endpoint always sends a
                    // finish reason.
                    direct["finish_reason"] = through["finish_reason"].clone();
                }
                assert_eq!(*through, direct, "{name}, {mode:?}: {}", exchange.source);
            }
            assert_eq!(through.len(), direct.len(), "{name}, {mode:?}");
        }
        println!("{name}: {} recorded answers in each mode", exchanges.len());
    }
}

/// Returns the recorded exchanges that begin a conversation and have an answer. Prints the number
/// of excluded exchanges for each reason.
fn first_requests(recordings: &Recordings) -> Vec<Exchange> {
    let cassettes = recordings.cassettes().unwrap();
    let exchanges = cassettes.into_iter().flat_map(|cassette| cassette.exchanges);
    let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for exchange in exchanges.filter(|it| it.api().unwrap() == Api::ChatCompletions) {
        match reason_to_leave_out(&exchange) {
            Some(reason) => *left_out.entry(reason).or_default() += 1,
            None => found.push(exchange),
        }
    }
    println!("left out: {left_out:?}");
    found
}

fn reason_to_leave_out(exchange: &Exchange) -> Option<&'static str> {
    let request = &exchange.request;
    let role = |message: &Value| message["role"].as_str().unwrap_or_default().to_owned();
    let roles: Vec<String> =
        request["messages"].as_array().into_iter().flatten().map(role).collect();
    let is_first = |role: &String| ["system", "developer", "user"].contains(&role.as_str());
    if !exchange.is_success() {
        return Some("refused by the service");
    }
    if exchange.reported_error().unwrap().is_some() {
        return Some("failed inside of its answer");
    }
    if exchange.folder != "openai_chat" {
        return Some("of another service than OpenAI");
    }
    if roles.is_empty() || !roles.iter().all(is_first) {
        return Some("goes on with a conversation");
    }
    if !request["functions"].is_null() {
        return Some("declares functions in place of tools");
    }
    if is_cut_off_in_a_call(exchange) {
        // The answers would differ, because the stack adds an error result for an incomplete call
        // and calls the model again.
        return Some("cut off inside of a call");
    }
    (request["n"].as_u64().unwrap_or(1) > 1).then_some("asks for several choices")
}

/// Returns whether the answer contains calls and ended at the token limit.
fn is_cut_off_in_a_call(exchange: &Exchange) -> bool {
    let answer: String = exchange.text().unwrap().split_whitespace().collect();
    answer.contains(r#""finish_reason":"length""#) && answer.contains(r#""tool_calls":[{"#)
}

/// Returns the input of the script: one request per line. The model name in each request contains
/// the number of the request, by which the server finds the recorded answer.
fn lines(exchanges: &[Exchange]) -> String {
    let line = |(number, exchange): (usize, &Exchange)| {
        let mut body = exchange.request.clone();
        body["model"] = json!(model(number));
        format!("{}\n", json!({"conversation": format!("c{number}"), "body": body}))
    };
    exchanges.iter().enumerate().map(line).collect()
}

fn model(number: usize) -> String {
    format!("recorded-{number}")
}

/// Starts a server that replays the recorded answers, and returns its URL.
async fn recorded(exchanges: Vec<Exchange>) -> String {
    let answers = exchanges.into_iter().enumerate();
    let answers: HashMap<String, Exchange> =
        answers.map(|(number, exchange)| (model(number), exchange)).collect();
    listen(Router::new().route("/v1/chat/completions", post(answer)).with_state(Arc::new(answers)))
        .await
}

async fn answer(
    State(answers): State<Arc<HashMap<String, Exchange>>>,
    body: Bytes,
) -> Response<axum::body::Body> {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let exchange = &answers[request["model"].as_str().unwrap()];
    assert_eq!(request["messages"], exchange.request["messages"], "{}", exchange.source);
    let kind = if exchange.is_streamed() { "text/event-stream" } else { "application/json" };
    Response::builder().header("content-type", kind).body(exchange.body.clone().into()).unwrap()
}

/// Starts an endpoint whose model client sends its requests to `server`, and returns the URL of the
/// endpoint.
async fn endpoint(server: &str, mode: PersistenceMode, models: usize) -> String {
    let store = MemoryStore::new();
    let client = OpenAiChat::compatible(server).unwrap();
    let stack =
        ChatPipeline::builder(client).history(store.clone()).persistence(mode).build().unwrap();
    let endpoint = ChatEndpoint::new(stack, store).with_models((0..models).map(model));
    let identify = middleware::from_fn(async |mut request: Request, next: middleware::Next| {
        request.extensions_mut().insert(Scope("alice".into()));
        next.run(request).await
    });
    listen(endpoint.into_router().layer(identify)).await
}

async fn listen(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    address
}

impl install::Program {
    /// Runs the script, which sends all requests to `base_url`, and returns the answers that the
    /// script prints.
    async fn ask(&self, base_url: &str, requests: &Path) -> Vec<Value> {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/packages").join(self.script);
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).arg(script).arg(base_url).arg(requests);
        // These variables could make the package send its requests to another machine.
        for name in ["OPENAI_BASE_URL", "OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let output = tokio::process::Command::from(command).output().await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{base_url}: {errors}");
        let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
