//! Tests the routes of runs that continue after their client has disconnected.

use axum::{body::Body, response::Response};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_chat::{
    ChatUpdate, ConversationKey, Finish, HistoryStore, MemoryStore, PersistenceMode, run::RunId,
};
use tower_chat_delivery::{
    DetachedRunsLayer, MemoryUpdateLog, RunKey, UpdateLog, UpdateLogOptions,
};
use tower_chat_http::{ChatEndpoint, RUN_HEADER, Scope};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::support::stack;

struct Fixture {
    store: MemoryStore,
    runs: DetachedRunsLayer,
    endpoint: ChatEndpoint,
}

impl Fixture {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self::with_log(steps, MemoryUpdateLog::new())
    }

    fn with_log(steps: impl IntoIterator<Item = Step>, log: MemoryUpdateLog) -> Self {
        let store = MemoryStore::new();
        let runs = DetachedRunsLayer::new(log);
        let model = ScriptedModel::new(steps);
        let stack = stack(model, store.clone(), PersistenceMode::PerServiceCall);
        let endpoint = ChatEndpoint::new(runs.layer(stack), store.clone()).with_runs(runs.clone());
        Self { store, runs, endpoint }
    }

    async fn send(&self, scope: Option<&str>, mut request: Request<Body>) -> Response {
        if let Some(scope) = scope {
            request.extensions_mut().insert(Scope(scope.into()));
        }
        self.endpoint.clone().into_router().oneshot(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.send(Some("alice"), Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Sends a question whose answer is streamed. `run` is the run id in the header of the request,
    /// if any.
    async fn ask(&self, question: &str, run: Option<&str>) -> Response {
        let body = json!({"conversation": "c", "stream": true,
            "messages": [{"role": "user", "content": question}]});
        let mut request = Request::post("/v1/chat/completions");
        if let Some(run) = run {
            request = request.header(RUN_HEADER, run);
        }
        self.send(Some("alice"), request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Sends a question, and disconnects before the answer ends. Returns the path of the run.
    async fn begin(&self) -> String {
        let response = self.ask("What should I wear?", None).await;
        assert_eq!(response.status(), StatusCode::OK);
        let run = response.headers()[RUN_HEADER].to_str().unwrap();
        format!("/v1/conversations/c/runs/{run}")
    }

    async fn events(&self, path: &str) -> Vec<(String, String, Value)> {
        events_of(self.get(path).await).await
    }
}

async fn text_of(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.into()).unwrap()
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&text_of(response).await).unwrap()
}

/// Returns the name, the id and the data of each event of a stream.
async fn events_of(response: Response) -> Vec<(String, String, Value)> {
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = text_of(response).await;
    let events = text.split_terminator("\n\n").map(|event| {
        let field = |name: &str| {
            let mut lines = event.lines();
            lines.find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        (field("event: "), field("id: "), serde_json::from_str(&field("data: ")).unwrap())
    });
    events.collect()
}

fn step() -> Step {
    Step::updates([
        ChatUpdate::TextDelta("Take ".to_owned()),
        ChatUpdate::TextDelta("a coat.".to_owned()),
        ChatUpdate::Finish(Finish::stop().into()),
    ])
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnected_can_read_the_remaining_updates_later() {
    let gate = Gate::closed();
    let fixture = Fixture::new([step().waits_after(1, &gate)]);
    let run = fixture.begin().await;
    let running = json_of(fixture.get(&run).await).await;
    assert_eq!(running["state"], "in_progress");
    gate.open();
    let events = fixture.events(&format!("{run}/events")).await;
    let [first, second, message, end] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*first.0, &first.2), ("text", &json!({"text": "Take "})));
    assert_eq!((&*second.0, &second.2), ("text", &json!({"text": "a coat."})));
    assert_eq!((&*message.0, &message.2["text"]), ("message", &json!("Take a coat.")));
    assert_eq!((&*end.0, &*end.1, &end.2), ("end", "", &json!({"end": "completed"})));

    // A client can send the id of the last event in two ways: a browser sends the header when it
    // reconnects, and a page that was loaded again sends the query parameter.
    let request = Request::get(format!("{run}/events")).header("last-event-id", &first.1);
    let rest = fixture.send(Some("alice"), request.body(Body::empty()).unwrap()).await;
    assert_eq!(events_of(rest).await, events[1..]);
    let rest = fixture.events(&format!("{run}/events?x=1&after={}", second.1)).await;
    assert_eq!(rest, events[2..]);
    fixture.runs.drained().await;
    assert_eq!(json_of(fixture.get(&run).await).await["state"], "completed");
    let key = ConversationKey::new("alice", "c");
    assert_eq!(fixture.store.load(&key).await.unwrap().messages.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_stores_the_text_that_it_has_received() {
    let fixture = Fixture::new([step().hangs_after(1)]);
    let run = fixture.begin().await;
    let stop = || Request::post(format!("{run}/stop")).body(Body::empty()).unwrap();
    let stopping = json_of(fixture.send(Some("alice"), stop()).await).await;
    assert_eq!(stopping["state"], "stopping");
    let events = fixture.events(&format!("{run}/events")).await;
    let names: Vec<&str> = events.iter().map(|event| &*event.0).collect();
    assert_eq!(names, ["text", "message", "end"]);
    fixture.runs.drained().await;
    let stopped = json_of(fixture.send(Some("alice"), stop()).await).await;
    assert_eq!(stopped["state"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_client_can_access_only_the_runs_of_its_scope() {
    let fixture = Fixture::new([step().hangs_after(1)]);
    let run = fixture.begin().await;
    let requests = || {
        [
            Request::get(&run).body(Body::empty()).unwrap(),
            Request::get(format!("{run}/events")).body(Body::empty()).unwrap(),
            Request::post(format!("{run}/stop")).body(Body::empty()).unwrap(),
        ]
    };
    for request in requests() {
        let response = fixture.send(Some("bob"), request).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(json_of(response).await["error"]["code"], "run_not_found");
    }
    for request in requests() {
        assert_eq!(fixture.send(None, request).await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(json_of(fixture.get(&run).await).await["state"], "in_progress");
    let other_conversation = run.replace("/c/", "/d/");
    assert_eq!(fixture.get(&other_conversation).await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn invalid_run_ids_and_positions_are_refused() {
    let fixture = Fixture::new([step().hangs_after(1)]);
    let run = fixture.begin().await;
    let response = fixture.get(&format!("{run}/events?after=first")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(json_of(response).await["error"]["code"], "invalid_position");
    let response = fixture.get("/v1/conversations/c/runs/7/events").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_update_log_is_reported_as_a_storage_error() {
    let options = UpdateLogOptions::default().with_max_runs(0);
    let fixture = Fixture::with_log([step()], MemoryUpdateLog::with_options(options));
    let response = fixture.ask("What should I wear?", None).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(json_of(response).await["error"]["code"], "history_error");
}

#[tokio::test(start_paused = true)]
async fn a_client_may_choose_the_id_of_its_run() {
    let id = "6f1b0f0c-8f0e-4d55-9a0b-3a4ff0f5f001";
    let question = "What should I wear?";
    let gate = Gate::closed();
    let fixture = Fixture::new([step().waits_after(1, &gate)]);
    // The first response is dropped. The same request then joins the run, and after the end of the
    // run it receives the stored answer.
    drop(fixture.ask(question, Some(id)).await);
    let joined = fixture.ask(question, Some(id)).await;
    assert_eq!(joined.headers()[RUN_HEADER], id);
    let response = fixture.ask("What else?", Some(id)).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(json_of(response).await["error"]["code"], "run_id_reused");
    gate.open();
    assert!(text_of(joined).await.contains("a coat."));
    fixture.runs.drained().await;
    let again = fixture.ask(question, Some(id)).await;
    assert_eq!(again.headers()[RUN_HEADER], id);
    assert!(text_of(again).await.contains("Take a coat."));
    fixture.runs.drained().await;
    let key = ConversationKey::new("alice", "c");
    assert_eq!(fixture.store.load(&key).await.unwrap().messages.len(), 2);

    let response = fixture.ask("What else?", Some(id)).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(json_of(response).await["error"]["code"], "run_id_reused");
    let response = fixture.ask(question, Some("7")).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(json_of(response).await["error"]["code"], "invalid_header");
}

/// A request with a run id contains the input of this run. The endpoint does not treat this input
/// as a repetition of an equal question in an earlier run, even if the client marks the request as
/// a retry.
#[tokio::test(start_paused = true)]
async fn the_input_of_a_run_with_a_client_id_is_not_treated_as_a_repetition() {
    let id = "6f1b0f0c-8f0e-4d55-9a0b-3a4ff0f5f003";
    let fixture = Fixture::new([step(), Step::text("Take boots.").whole()]);
    text_of(fixture.ask("What should I wear?", None).await).await;
    fixture.runs.drained().await;
    let named = |messages: Value| {
        let body = json!({"conversation": "c", "messages": messages});
        let request = Request::post("/v1/chat/completions").header(RUN_HEADER, id);
        let request = request.header("x-stainless-retry-count", "1");
        fixture.send(Some("alice"), request.body(Body::from(body.to_string())).unwrap())
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let response = named(json!([user("What should I wear?")])).await;
    assert_eq!(response.headers()[RUN_HEADER], id);
    fixture.runs.drained().await;
    let key = ConversationKey::new("alice", "c");
    assert_eq!(fixture.store.load(&key).await.unwrap().messages.len(), 4);

    let answer = json!({"role": "assistant", "content": "Take a coat."});
    let other = json!([user("What should I wear?"), answer, user("What else?")]);
    let response = named(other).await;
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_client_id_continues_after_a_failure() {
    let id = "6f1b0f0c-8f0e-4d55-9a0b-3a4ff0f5f002";
    let fixture = Fixture::new([Step::error(tower_chat::error::Retryability::Retryable), step()]);
    let failed = fixture.ask("What should I wear?", Some(id)).await;
    assert!(failed.status().is_server_error());
    let answered = fixture.ask("What should I wear?", Some(id)).await;
    assert!(text_of(answered).await.contains("a coat."));
    fixture.runs.drained().await;
    let key = ConversationKey::new("alice", "c");
    assert_eq!(fixture.store.load(&key).await.unwrap().messages.len(), 2);
}

/// The update log contains an attempt whose process died. The second attempt calls a tool, and its
/// message without text must replace the text of the first attempt.
#[tokio::test(start_paused = true)]
async fn a_message_without_text_replaces_the_text_of_an_earlier_attempt() {
    let log = MemoryUpdateLog::new();
    let call =
        tower_chat::Message::tool_calls([tower_chat::ToolCall::new("s1", "order_status", "{}")]);
    let fixture = Fixture::with_log([Step::message(call), step()], log.clone());
    let id = RunId::new();
    let run = RunKey::new(ConversationKey::new("alice", "c"), id);
    log.begin(&run, 1, std::time::Duration::ZERO).await.unwrap();
    let response = fixture.ask("What should I wear?", Some(&id.to_string())).await;
    text_of(response).await;
    let events = fixture.events(&format!("/v1/conversations/c/runs/{id}/events")).await;
    let names: Vec<&str> = events.iter().map(|event| &*event.0).collect();
    assert_eq!(names, ["restarted", "message", "text", "text", "message", "end"]);
    assert_eq!(events[1].2, json!({"index": 1, "text": ""}));
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_run_contain_no_tool_calls_and_no_results() {
    let call =
        tower_chat::Message::tool_calls([tower_chat::ToolCall::new("s1", "order_status", "{}")]);
    let fixture = Fixture::new([Step::message(call), step()]);
    let run = fixture.begin().await;
    let events = fixture.events(&format!("{run}/events")).await;
    let names: Vec<&str> = events.iter().map(|event| &*event.0).collect();
    assert_eq!(names, ["text", "text", "message", "end"]);
}
