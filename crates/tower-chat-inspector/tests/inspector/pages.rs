//! What the pages show.

use axum::body::Body;
use http::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use tower::{Service as _, ServiceExt as _};
use tower_chat::{
    ChatRequest, MemoryStore, Message, PersistenceMode, ToolCall,
    replay::{ReplayPolicy, Window},
    store::HistoryStore as _,
};
use tower_chat_inspector::Inspector;
use tower_chat_testkit::{Gate, Step};

use crate::support::*;

#[tokio::test]
async fn a_conversation_is_found_by_its_scope_title_and_id() {
    let router = Inspector::new(filled().await).into_router();
    let scopes = page(&router, "/").await;
    assert!(scopes.contains("href=\"/?scope=alice\""), "{scopes}");
    let all = page(&router, "/?scope=alice").await;
    assert!(all.contains("Lost things") && all.contains("quoted"), "{all}");
    for (q, expected) in [("lost", true), ("ERRANDS", true), ("nowhere", false)] {
        let found = page(&router, &format!("/?scope=alice&q={q}&state=idle")).await;
        assert_eq!(found.contains("Lost things"), expected, "{q}");
        assert!(!found.contains("quoted"), "{q}");
    }
    let waiting = page(&router, "/?scope=alice&state=waiting_for_approval").await;
    assert!(waiting.contains("No conversations."));
    assert!(page(&router, "/?scope=bob").await.contains("No conversations."));
}

#[tokio::test]
async fn pages_of_the_directory_have_every_conversation_once() {
    let store = filled().await;
    for number in 0..118 {
        let request =
            ChatRequest::user("Hello.").in_conversation(key(&format!("number {number:03}")));
        let steps = vec![Step::text(format!("Answer {number}."))];
        let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
        run.await.unwrap().collect().await.unwrap();
    }
    let router = Inspector::new(store).with_all_scopes().into_router();
    for (first, filter, expected) in [("/", "number", 118), ("/?q=number%2000", "number 00", 10)] {
        let (mut next, mut found) = (Some(first.to_owned()), Vec::new());
        while let Some(address) = next {
            let page = page(&router, &address).await;
            let ids = page.split("<bdi>").filter_map(|piece| piece.split("</bdi>").next());
            found.extend(ids.filter(|id| id.starts_with(filter)).map(str::to_owned));
            let link = page.split("<p><a href=\"").nth(1).and_then(|rest| rest.split('"').next());
            next = link.map(|link| link.replace("&amp;", "&").replace("&#38;", "&"));
        }
        let count = found.len();
        found.sort();
        found.dedup();
        assert_eq!((found.len(), count), (expected, expected), "{first}");
    }
}

#[tokio::test]
async fn the_calls_of_a_run_stand_with_their_results() {
    let router = Inspector::new(filled().await).into_router();
    let shown = page(&router, "/conversation?scope=alice&id=errands").await;
    assert_in_order(
        &shown,
        &[
            "Lost things",
            "per_service_call",
            "committed after each service call",
            "Find my things.",
            "<bdi>find</bdi>",
            ">ok</span>",
            "keys",
            "found by",
            "<bdi>fail</bdi>",
            ">error</span>",
            "purse",
            "the disk is full",
            "2 results, shown with their calls",
            "The keys are here.",
        ],
    );
    let json = page(&router, "/message?scope=alice&id=errands&number=1").await;
    assert!(json.contains("Find my things."), "{json}");
    let missing = send(&router, get("/message?scope=alice&id=errands&number=9")).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    let tools = page(&router, "/tools?scope=alice").await;
    assert_in_order(&tools, &["<bdi>fail</bdi>", "100.0 %", "<bdi>find</bdi>", "0.0 %"]);
    let usage = page(&router, "/usage?scope=alice").await;
    assert!(usage.contains("2 tool calls"), "{usage}");
}

#[tokio::test]
async fn a_long_conversation_is_shown_in_parts() {
    let store = filled().await;
    for number in 0..40 {
        let request = ChatRequest::user(format!("Question {number}.")).in_conversation(key("long"));
        let steps = vec![Step::text(format!("Answer {number}."))];
        let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
        run.await.unwrap().collect().await.unwrap();
    }
    let router = Inspector::new(store).into_router();
    let last = page(&router, "/conversation?scope=alice&id=long").await;
    assert_in_order(&last, &["before=31", "Question 15.", "Answer 39."]);
    assert!(!last.contains("Answer 14."));
    let first = page(&router, "/conversation?scope=alice&id=long&before=31").await;
    assert_in_order(&first, &["Question 0.", "Answer 14.", "The latest messages"]);
    assert!(!first.contains("Question 15.") && !first.contains("data-changes"));
}

#[tokio::test]
async fn stored_texts_are_never_markup() {
    let router = Inspector::new(filled().await).into_router();
    let id = "%3Cscript%3Ealert('x')%3C/script%3E%20%E2%80%AE%1B%5B2J%20%26amp;%20%22quoted%22";
    for address in [
        "/?scope=alice".to_owned(),
        format!("/conversation?scope=alice&id={id}"),
        format!("/next?scope=alice&id={id}"),
    ] {
        let shown = page(&router, &address).await;
        assert!(!shown.contains("<script>alert") && !shown.contains('\u{202e}'), "{address}");
        assert!(!shown.contains('\u{1b}') && !shown.contains(" style="), "{address}");
        assert!(shown.contains("\\u{202e}\\u{1b}[2J"), "{address}");
    }
    let shown = page(&router, &format!("/conversation?scope=alice&id={id}")).await;
    assert!(shown.contains(&format!("cut: {} bytes in all", HOSTILE.len() * 500)), "{shown}");
}

#[tokio::test]
async fn what_the_model_is_sent_depends_on_the_policy() {
    let store = filled().await;
    let request = ChatRequest::user("And my hat?").in_conversation(key("errands"));
    let steps = vec![Step::text("It is on your head.")];
    let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
    run.await.unwrap().collect().await.unwrap();
    let inspector = Inspector::new(store)
        .with_policy("all", ReplayPolicy::default())
        .with_policy("short", ReplayPolicy::default().with_window(Window::messages(1)));
    let router = inspector.into_router();
    let all = page(&router, "/next?scope=alice&id=errands").await;
    assert!(
        all.contains("Of 6 messages 6 are sent as they are stored, 0 changed, and 0 not."),
        "{all}"
    );
    let short = page(&router, "/next?scope=alice&id=errands&policy=short").await;
    assert_in_order(
        &short,
        &["left out", "it is outside the window", "Find my things.", ">sent<", "And my hat?"],
    );
    let unknown = send(&router, get("/next?scope=alice&id=errands&policy=other")).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

fn end(run: &str, end: &str) -> Request<Body> {
    Request::post(format!("/runs/end?scope=alice&id=open&run={run}"))
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(format!("end={end}")))
        .unwrap()
}

#[tokio::test]
async fn an_open_run_is_shown_and_ended_only_where_writes_are_allowed() {
    let store = filled().await;
    let call = ToolCall::new("c1", "find", r#"{"what": "hat"}"#);
    let steps = vec![Step::message(Message::tool_calls([call])), Step::error("the model is gone")];
    let request = ChatRequest::user("Where is my hat?").in_conversation(key("open"));
    let run = pipeline(&store, steps, PersistenceMode::Journaled).oneshot(request);
    assert!(run.await.is_err());
    let open = store.open_run(&key("open")).await.unwrap().unwrap();
    let name = open.open.run.to_string();

    let reading = Inspector::new(store.clone()).into_router();
    let shown = page(&reading, "/conversation?scope=alice&id=open").await;
    assert_in_order(&shown, &["staged: not part of the history yet", "Where is my hat?", "hat"]);
    let listed = page(&reading, "/runs?scope=alice").await;
    assert_in_order(&listed, &["open", &name, "no process holds it", "<bdi>find</bdi>", "done"]);
    assert!(!listed.contains("<button"));
    assert_eq!(send(&reading, end(&name, "commit")).await.status(), StatusCode::FORBIDDEN);

    let writing = Inspector::new(store.clone()).with_writes(true).into_router();
    assert!(page(&writing, "/runs?scope=alice").await.contains("<button"));
    assert_eq!(send(&writing, end(&name, "other")).await.status(), StatusCode::BAD_REQUEST);
    assert!(store.open_run(&key("open")).await.unwrap().is_some());
    assert_eq!(send(&writing, end(&name, "commit")).await.status(), StatusCode::SEE_OTHER);
    assert!(store.open_run(&key("open")).await.unwrap().is_none());
    let shown = page(&writing, "/conversation?scope=alice&id=open").await;
    assert_in_order(&shown, &["committed at its end", "Where is my hat?"]);
    assert_eq!(send(&writing, end(&name, "discard")).await.status(), StatusCode::CONFLICT);
    assert_eq!(store.load(&key("open")).await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn a_batch_is_decided_about_where_an_agent_can_go_on() {
    let store = filled().await;
    let calls = [
        ToolCall::new("p1", "pay", r#"{"cents": 990}"#),
        ToolCall::new("p2", "pay", r#"{"cents": 120}"#),
    ];
    let steps = vec![Step::message(Message::tool_calls(calls)), Step::text("One bill is paid.")];
    let mut agent = pipeline(&store, steps, PersistenceMode::PerServiceCall);
    let request = ChatRequest::user("Pay the bills.").in_conversation(key("bills"));
    agent.ready().await.unwrap().call(request).await.unwrap().collect().await.unwrap();

    let reading = Inspector::new(store.clone()).with_agent(agent.clone()).into_router();
    let shown = page(&reading, "/runs?scope=alice").await;
    assert_in_order(&shown, &["decided about in the program", "bills", "pay", "990", "pay", "120"]);
    let writing = Inspector::new(store.clone()).with_writes(true).with_agent(agent).into_router();
    let shown = page(&writing, "/runs?scope=alice").await;
    let fields: Vec<&str> = shown
        .split("type=\"radio\" name=\"")
        .skip(1)
        .step_by(2)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let [first, second] = fields[..] else { panic!("{shown}") };
    let decide = |form: String| {
        Request::post("/runs/decide?scope=alice&id=bills")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Body::from(form))
            .unwrap()
    };
    let both = format!("{first}=approve&{second}=reject&reason=Too+much");
    for (router, form, status) in [
        (&reading, &both, StatusCode::FORBIDDEN),
        (&writing, &format!("{first}=approve"), StatusCode::CONFLICT),
        (&writing, &format!("{first}=approve&{second}=perhaps"), StatusCode::CONFLICT),
        (&writing, &both, StatusCode::SEE_OTHER),
        (&writing, &both, StatusCode::CONFLICT),
    ] {
        assert_eq!(send(router, decide(form.clone())).await.status(), status, "{form}");
    }
    let shown = page(&writing, "/conversation?scope=alice&id=bills").await;
    assert_in_order(&shown, &["paid with {&#34;cents&#34;: 990}", "Too much", "One bill is paid."]);
}

#[tokio::test]
async fn a_run_that_is_under_way_here_cannot_be_ended() {
    let (store, gate) = (MemoryStore::new(), Gate::closed());
    let steps = vec![Step::text("At last.").waits(&gate)];
    let run = pipeline(&store, steps, PersistenceMode::Journaled)
        .oneshot(ChatRequest::user("When?").in_conversation(key("open")));
    let run = tokio::spawn(async move { run.await.unwrap().collect().await.unwrap() });
    gate.reached(1).await;
    let open = store.open_run(&key("open")).await.unwrap().unwrap();
    let router = Inspector::new(store).with_writes(true).into_router();
    let shown = page(&router, "/runs?scope=alice").await;
    assert!(shown.contains("a process may still write it") && !shown.contains("<button"));
    let ended = send(&router, end(&open.open.run.to_string(), "discard")).await;
    assert_eq!(ended.status(), StatusCode::CONFLICT);
    gate.open();
    assert_eq!(run.await.unwrap().text(), "At last.");
}

#[tokio::test]
async fn every_conversation_that_waits_is_listed_or_linked() {
    let store = MemoryStore::new();
    for number in 0..51 {
        let pay = ToolCall::new("p1", "pay", format!(r#"{{"cents": {number}}}"#));
        let steps = vec![Step::message(Message::tool_calls([pay]))];
        let request = ChatRequest::user(format!("Pay bill {number}."));
        let request = request.in_conversation(key(&format!("bill {number}")));
        let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
        run.await.unwrap().collect().await.unwrap();
    }
    let router = Inspector::new(store).into_router();
    let shown = page(&router, "/runs?scope=alice").await;
    assert_eq!(shown.matches("<bdi>pay</bdi>").count(), 50);
    let link = shown.split("<a href=\"").find(|rest| rest.contains("More conversations")).unwrap();
    let link = link.split('"').next().unwrap().replace("&#38;", "&");
    let rest = page(&router, &link).await;
    let listed = (0..51).filter(|number| {
        let id = format!("<bdi>bill {number}</bdi>");
        assert!(shown.contains(&id) != rest.contains(&id), "{id}");
        rest.contains(&id)
    });
    assert_eq!(listed.count(), 1);
}
