//! A page that follows a conversation.

use http::StatusCode;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use tower_chat::{ChatRequest, PersistenceMode};
use tower_chat_inspector::Inspector;
use tower_chat_testkit::Step;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn an_event_tells_of_whatever_is_stored() {
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
            // What keeps the connection open is no event.
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
async fn followers_are_bounded_and_end_with_the_server() {
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
    // The body of a follower comes to its end.
    again.into_body().collect().await.unwrap();
}
