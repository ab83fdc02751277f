//! Tests the event streams with which the page of a conversation updates itself.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tower::{Layer as _, ServiceExt as _};
use tower_chat::{
    ChatRequest, ChatUpdate, Finish, HistoryStore as _, MemoryStore, PersistenceMode,
};
use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog};
use tower_chat_inspector::Inspector;
use tower_chat_testkit::{Gate, Step};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_follower_receives_an_event_after_every_stored_change() {
    let store = filled().await;
    let router = Inspector::new(store.clone()).into_router();
    let response = send(&router, get("/changes?scope=alice&id=errands")).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut events = Vec::new();
    for number in 0..3 {
        let event = loop {
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let text = String::from_utf8(frame.to_vec()).unwrap();
            // Other chunks are keep-alive comments.
            if text.starts_with("event: changed\n") {
                break text;
            }
        };
        assert!(!events.contains(&event), "{event}");
        events.push(event);
        let request = ChatRequest::user(format!("And {number}?")).in_conversation(key("errands"));
        let steps = vec![Step::text(format!("Answer {number}."))];
        let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
        run.await.unwrap().collect().await.unwrap();
    }
}

#[tokio::test]
async fn the_number_of_followers_is_bounded_and_followers_end_with_the_server() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let router = Inspector::new(filled().await);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pages = router.clone().into_router();
    let mut followers = Vec::new();
    for _ in 0..64 {
        let response = send(&pages, get("/changes?scope=alice&id=errands")).await;
        assert_eq!(response.status(), StatusCode::OK);
        followers.push(response);
    }
    let refused = send(&pages, get("/changes?scope=alice&id=errands")).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(followers.pop());
    let again = send(&pages, get("/changes?scope=alice&id=errands")).await;
    assert_eq!(again.status(), StatusCode::OK);

    let serving = tokio::spawn(router.serve(listener, async { drop(stopped.await) }));
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    // Completes only if the event stream ends.
    again.into_body().collect().await.unwrap();
}

/// Reads an event stream up to the next event with this name, and returns the data of the event.
async fn next_event(body: &mut Body, name: &str) -> String {
    loop {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        if let Some(data) = text.strip_prefix(&format!("event: {name}\ndata: ")) {
            return data.trim_end().to_owned();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_answer_in_progress_is_sent_until_its_message_is_complete() {
    let (store, log, gate) = (MemoryStore::new(), MemoryUpdateLog::new(), Gate::closed());
    let long = "é".repeat(3000);
    let deltas = ["<b>\u{202e}\n", long.as_str(), "end"];
    let deltas = deltas.map(|text| ChatUpdate::TextDelta(text.to_owned()));
    let finish = ChatUpdate::Finish(Finish::stop().into());
    let updates: Vec<ChatUpdate> = deltas.into_iter().chain([finish]).collect();
    let steps = vec![
        Step::updates(updates.clone()).hangs_after(1),
        Step::updates(updates).waits_after(3, &gate),
    ];
    let stack = DetachedRunsLayer::new(log.clone());
    let stack = stack.layer(pipeline(&store, steps, PersistenceMode::Journaled));
    for id in ["short", "long"] {
        let request = ChatRequest::user("How?").in_conversation(key(id)).streamed();
        tokio::spawn(stack.clone().oneshot(request));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // A second layer with the same update log, as in a process that does not execute the runs.
    let inspector = Inspector::new(store).with_runs(DetachedRunsLayer::new(log));
    let router = inspector.into_router();
    let shown = page(&router, "/conversation?scope=alice&id=short").await;
    assert!(shown.contains("id=\"live\" hidden"), "{shown}");
    let mut short = send(&router, get("/changes?scope=alice&id=short")).await.into_body();
    assert_eq!(next_event(&mut short, "text").await, r#""<b>\\u{202e}\n""#);
    let mut body = send(&router, get("/changes?scope=alice&id=long")).await.into_body();
    let text = next_event(&mut body, "text").await;
    assert!(text == format!("\"…{}end\"", "é".repeat((4096 - 3) / 2)), "{text}");
    gate.open();
    assert_eq!(next_event(&mut body, "text").await, "\"\"");
}

const ERRANDS: &str = "/changes?scope=alice&id=errands";

async fn follow(router: &Router, page: &str, from: &str) -> Response<Body> {
    let mut request = get(page);
    let address: SocketAddr = from.parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(address));
    send(router, request).await
}

#[tokio::test]
async fn requests_to_follow_unknown_conversations_do_not_count_against_the_limit() {
    let router = Inspector::new(filled().await).into_router();
    for number in 0..200 {
        let unknown = format!("/changes?scope=alice&id=unknown{number}");
        let response = follow(&router, &unknown, "192.0.2.1:1").await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
    assert_eq!(follow(&router, ERRANDS, "192.0.2.1:1").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_conversation_that_has_only_staged_messages_can_be_followed() {
    let store = MemoryStore::new();
    let run = pipeline(&store, vec![Step::error("gone")], PersistenceMode::Journaled)
        .oneshot(ChatRequest::user("When?").in_conversation(key("staged")));
    assert!(run.await.is_err());
    assert!(store.head(&key("staged")).await.unwrap().open_run.is_some());
    let router = Inspector::new(store).into_router();
    let response = send(&router, get("/changes?scope=alice&id=staged")).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn one_address_cannot_use_all_places_of_followers() {
    let router = Inspector::new(filled().await).into_router();
    let mut followers = Vec::new();
    for port in 0..16 {
        let response = follow(&router, ERRANDS, &format!("192.0.2.1:{port}")).await;
        assert_eq!(response.status(), StatusCode::OK);
        followers.push(response);
    }
    for same in ["192.0.2.1:99", "[::ffff:192.0.2.1]:99"] {
        let refused = follow(&router, ERRANDS, same).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(follow(&router, ERRANDS, "192.0.2.2:1").await.status(), StatusCode::OK);
    drop(followers.pop());
    assert_eq!(follow(&router, ERRANDS, "192.0.2.1:99").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_follower_ends_after_some_minutes_and_its_place_is_free_again() {
    let router = Inspector::new(filled().await).into_router();
    let mut followers = Vec::new();
    for port in 0..16 {
        followers.push(follow(&router, ERRANDS, &format!("192.0.2.1:{port}")).await);
    }
    let begun = Instant::now();
    for follower in followers {
        follower.into_body().collect().await.unwrap();
    }
    assert!(begun.elapsed() <= Duration::from_secs(600), "{:?}", begun.elapsed());
    assert_eq!(follow(&router, ERRANDS, "192.0.2.1:1").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_follower_ends_when_its_conversation_is_deleted() {
    let store = filled().await;
    let router = Inspector::new(store.clone()).into_router();
    let response = follow(&router, ERRANDS, "192.0.2.1:1").await;
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    store.delete(&key("errands")).await.unwrap();
    let begun = Instant::now();
    body.collect().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_server_limits_followers_by_address_and_ends_although_clients_stall() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let inspector = Inspector::new(filled().await).with_writes(true);
    let serving = tokio::spawn(inspector.serve(listener, async { drop(stopped.await) }));
    let mut connections = Vec::new();
    let mut connect = async |text: String, status: &str| {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(text.as_bytes()).await.unwrap();
        let mut line = vec![0; status.len()];
        if !status.is_empty() {
            connection.read_exact(&mut line).await.unwrap();
        }
        assert_eq!(String::from_utf8_lossy(&line), status);
        connections.push(connection);
    };
    let head = format!("HTTP/1.1\r\nHost: {address}\r\n");
    for _ in 0..16 {
        connect(format!("GET {ERRANDS} {head}\r\n"), "HTTP/1.1 200").await;
    }
    connect(format!("GET {ERRANDS} {head}\r\n"), "HTTP/1.1 429").await;
    let half_body =
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\nend";
    for stall in [
        String::new(),
        "GET /".to_owned(),
        format!("GET / {head}"),
        format!("POST /runs/end?scope=alice&id=errands&run=1 {head}{half_body}"),
        format!("GET /style.css {head}\r\n"),
    ] {
        connect(stall, "").await;
    }
    // The server accepts connections in their order, and has accepted all earlier connections.
    connect(format!("GET / {head}\r\n"), "HTTP/1.1 200").await;
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(60), serving).await;
    ended.expect("the server ends").unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}
