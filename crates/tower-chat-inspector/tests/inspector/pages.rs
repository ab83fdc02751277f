//! Tests the content of the pages.

use std::{
    sync::{Arc, Mutex},
    time::SystemTime,
};

use axum::body::Body;
use http::{
    Request, StatusCode,
    header::{CONTENT_TYPE, HOST},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tower::{Service as _, ServiceExt as _};
use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, HistoryStore as _, MemoryStore, Message,
    PersistenceMode, ToolCall, ToolResult,
    message::MessageId,
    replay::{ReplayPolicy, Window},
    run::RunId,
    store::{
        self, CallSelection, DescriptionPatch, Directory, Head, History, HistorySummary,
        InvocationQuery, Invocations, Journal, Lease, LeaseEnd, Maintenance, Revision, StoreError,
        Summaries, ToolTotals,
        author::{OpenRunContent, Staged, Write},
    },
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
async fn the_pages_of_the_directory_list_every_conversation_once() {
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
async fn the_calls_of_a_run_are_shown_with_their_results() {
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
            "2 results, shown with the calls",
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
async fn a_long_conversation_is_shown_in_pages() {
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
async fn stored_texts_are_never_interpreted_as_html() {
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
    assert!(shown.contains(&format!("cut: {} bytes in total", HOSTILE.len() * 500)), "{shown}");
}

#[tokio::test]
async fn the_page_of_the_next_request_depends_on_the_replay_policy() {
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
    assert!(all.contains("6 messages: 6 sent as stored, 0 changed, 0 left out."), "{all}");
    let short = page(&router, "/next?scope=alice&id=errands&policy=short").await;
    assert_in_order(
        &short,
        &["left out", "it is outside the window", "Find my things.", ">sent<", "And my hat?"],
    );
    let unknown = send(&router, get("/next?scope=alice&id=errands&policy=other")).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_summary_in_force_is_shown_with_the_messages_that_it_covers() {
    let store = filled().await;
    let history = store.load(&key("errands")).await.unwrap();
    let last = history.message(4).and_then(|message| message.id).unwrap();
    let summary = HistorySummary::new(4, last, "<b>Keys</b> were found.")
        .with_made_by(Some("small\u{202e}".into()));
    store.add_summary(&key("errands"), &summary, history.head.rewrites).await.unwrap();
    let router = Inspector::new(store).into_router();
    let shown = page(&router, "/next?scope=alice&id=errands").await;
    assert_in_order(
        &shown,
        &[
            "0 sent as stored, 0 changed, 4 left out.",
            "A summary by small\\u{202e} of ",
            "is sent instead of the messages up to number 4:",
            "&#60;b&#62;Keys",
            "left out",
            "a summary is sent instead",
            "Find my things.",
        ],
    );
}

/// Forks a conversation before the message `before`.
async fn fork(store: &MemoryStore, from: &str, before: u64, to: &str) {
    store.fork_at(&key(from), Some(before), &key(to)).await.unwrap();
}

fn unescaped(link: &str) -> String {
    link.replace("&amp;", "&").replace("&#38;", "&")
}

/// Returns the links of the page that contain this text.
fn links(page: &str, text: &str) -> Vec<String> {
    let links = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.filter(|link| link.contains(text)).map(unescaped).collect()
}

#[tokio::test]
async fn a_branch_and_its_parent_link_to_each_other() {
    let store = filled().await;
    let request = ChatRequest::user("And my hat?").in_conversation(key("errands"));
    let steps = vec![Step::text("It is on your head.")];
    let run = pipeline(&store, steps, PersistenceMode::PerRun).oneshot(request);
    run.await.unwrap().collect().await.unwrap();
    fork(&store, "errands", 5, "a hat").await;
    fork(&store, "errands", 1, HOSTILE_BRANCH).await;
    let title = DescriptionPatch::new().with_title("No <b>hat</b>");
    store.change_description(&key("a hat"), &title).await.unwrap();
    let router = Inspector::new(store.clone()).into_router();

    let parent = page(&router, "/conversation?scope=alice&id=errands").await;
    assert!(!parent.contains("branch of") && !parent.contains("All branches"), "{parent}");
    assert_in_order(&parent, &["<h2>Branches</h2>", "</ul>", "Find my things."]);
    assert_in_order(
        &parent,
        &["No &#60;b&#62;hat", "<small><bdi>a hat</bdi>", ", after message 4"],
    );
    assert_in_order(&parent, &["&#60;i&#62;\\u{202e}", ", before its first message"]);
    assert!(!parent.contains("<i>") && !parent.contains('\u{202e}'), "{parent}");

    let branch = links(&parent, "id=a%20hat");
    let branch = page(&router, &branch[0]).await;
    assert_in_order(&branch, &["<dt>branch of</dt>", "errands", ", after message 4"]);
    assert!(!branch.contains("<h2>Branches</h2>") && !branch.contains("And my hat?"));
    let link = &links(&branch, "id=errands")[0];
    let shown = page(&router, link).await;
    assert_in_order(&shown, &["The keys are here.", "The latest messages"]);
    assert!(!shown.contains("And my hat?"), "the link leads to the messages of the branch");

    store.delete(&key("errands")).await.unwrap();
    let branch = page(&router, "/conversation?scope=alice&id=a%20hat").await;
    assert_in_order(&branch, &["<dt>branch of</dt>", "errands, which was deleted", "message 4"]);
    assert_eq!(links(&branch, "id=errands"), [""; 0]);
}

const HOSTILE_BRANCH: &str = "<i>\u{202e} & \"branch\"";

#[tokio::test]
async fn the_id_of_a_parent_in_another_scope_is_not_shown() {
    let store = filled().await;
    let bob = ConversationKey::new("bob", "copied");
    store.fork_at(&key("errands"), None, &bob).await.unwrap();
    let router = Inspector::new(store).into_router();
    let shown = page(&router, "/conversation?scope=bob&id=copied").await;
    assert_in_order(&shown, &["branch of", "a conversation of another scope", "after message 4"]);
    assert!(!shown.contains("errands"), "{shown}");
    let parent = page(&router, "/conversation?scope=alice&id=errands").await;
    assert!(!parent.contains("Branches") && !parent.contains("copied"), "{parent}");
}

#[tokio::test]
async fn the_pages_of_branches_list_every_branch_once() {
    let store = filled().await;
    for number in 0..61 {
        fork(&store, "errands", 5, &format!("branch {number:02}")).await;
    }
    let router = Inspector::new(store).into_router();
    let parent = page(&router, "/conversation?scope=alice&id=errands").await;
    assert_eq!(parent.matches("after message 4").count(), 10);
    let all = links(&parent, "branches_of=errands");
    assert_eq!(all.len(), 1, "{parent}");
    let (mut next, mut found) = (Some(all[0].clone()), Vec::new());
    while let Some(address) = next {
        let page = page(&router, &address).await;
        assert_in_order(&page, &["<h1>Branches</h1>", "id=errands", "errands"]);
        assert!(page.contains(r#"name="branches_of" value="errands""#), "{page}");
        let ids = page.split("<bdi>").filter_map(|piece| piece.split("</bdi>").next());
        found.extend(ids.filter(|id| id.starts_with("branch ")).map(str::to_owned));
        next = links(&page, "after=").pop();
    }
    let count = found.len();
    found.sort();
    found.dedup();
    assert_eq!((found.len(), count), (61, 61));
    let searched = page(&router, "/?scope=alice&branches_of=errands&q=branch%2007").await;
    assert!(searched.contains("branch 07") && !searched.contains("branch 08"), "{searched}");
    let none = page(&router, "/?scope=alice&branches_of=nowhere").await;
    assert!(none.contains("No conversations."), "{none}");
    let all_scopes = Inspector::new(filled().await).with_all_scopes().into_router();
    let missing = send(&all_scopes, get("/?branches_of=errands")).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

fn end(run: &str, end: &str) -> Request<Body> {
    Request::post(format!("/runs/end?scope=alice&id=open&run={run}"))
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(format!("end={end}")))
        .unwrap()
}

#[tokio::test]
async fn an_open_run_can_be_ended_only_if_writes_are_allowed() {
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
    assert_in_order(
        &listed,
        &["open", &name, "no process holds its lease", "<bdi>find</bdi>", "done"],
    );
    assert!(!listed.contains("<button"));
    assert_eq!(send(&reading, end(&name, "commit")).await.status(), StatusCode::FORBIDDEN);

    let writing = Inspector::new(store.clone()).with_writes(true).into_router();
    assert!(page(&writing, "/runs?scope=alice").await.contains("<button"));
    assert_eq!(send(&writing, end(&name, "other")).await.status(), StatusCode::BAD_REQUEST);
    assert!(store.open_run(&key("open")).await.unwrap().is_some());
    assert_eq!(send(&writing, end(&name, "commit")).await.status(), StatusCode::SEE_OTHER);
    assert!(store.open_run(&key("open")).await.unwrap().is_none());
    let shown = page(&writing, "/conversation?scope=alice&id=open").await;
    assert_in_order(&shown, &["committed at the end of the run", "Where is my hat?"]);
    assert_eq!(send(&writing, end(&name, "discard")).await.status(), StatusCode::CONFLICT);
    assert_eq!(store.load(&key("open")).await.unwrap().messages.len(), 3);
}

#[tokio::test]
async fn a_batch_is_decided_only_as_a_whole_and_only_if_writes_are_allowed() {
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
    assert_in_order(&shown, &["can approve or reject them", "bills", "pay", "990", "pay", "120"]);
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
async fn a_run_that_a_process_may_still_write_cannot_be_ended() {
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
async fn every_conversation_that_waits_for_approval_is_listed_or_on_a_linked_page() {
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

/// Adds a conversation with waiting calls, and returns the pipeline that can continue it.
async fn waiting(store: &MemoryStore, id: &str, calls: Vec<ToolCall>) -> ChatPipeline {
    let steps = vec![Step::message(Message::tool_calls(calls)), Step::text("It is paid.")];
    let mut agent = pipeline(store, steps, PersistenceMode::PerServiceCall);
    let request = ChatRequest::user("Pay.").in_conversation(key(id));
    agent.ready().await.unwrap().call(request).await.unwrap().collect().await.unwrap();
    agent
}

fn decide(id: &str, form: String) -> Request<Body> {
    Request::post(format!("/runs/decide?scope=alice&id={id}"))
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(form))
        .unwrap()
}

/// Computes the name of the form field for a call in the same way as the page.
fn field(id: &str, name: &str, arguments: &str) -> String {
    let mut digest = Sha256::new();
    for text in [id, name, arguments] {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_call_can_be_approved_only_if_its_complete_arguments_are_shown() {
    for (filler, is_shown) in
        [(10, true), (4_096, true), (5_000, true), (200_000, true), (300_000, false)]
    {
        let store = MemoryStore::new();
        let arguments =
            format!(r#"{{"to": "bob", "why": "{}", "end": "mallory"}}"#, "x".repeat(filler));
        let calls = vec![ToolCall::new("p1", "pay", arguments.as_str())];
        let agent = waiting(&store, "bill", calls).await;
        let router =
            Inspector::new(store.clone()).with_writes(true).with_agent(agent).into_router();
        let shown = page(&router, "/runs?scope=alice").await;
        assert_eq!(shown.contains("mallory"), is_shown, "{filler}");
        assert_eq!(shown.contains("value=\"approve\""), is_shown, "{filler}");
        assert_eq!(shown.contains("too large for a decision in a page"), !is_shown, "{filler}");
        let head = store.head(&key("bill")).await.unwrap();
        let request = &head.pending_approvals[0][0];
        let name = field(&request.id, "pay", &arguments);
        assert_eq!(shown.contains(&name), is_shown, "{filler}");
        let decided = send(&router, decide("bill", format!("{name}=approve"))).await;
        let expected = if is_shown { StatusCode::SEE_OTHER } else { StatusCode::CONFLICT };
        assert_eq!(decided.status(), expected, "{filler}");
        let paid = store.load(&key("bill")).await.unwrap().messages.len() > 2;
        assert_eq!(paid, is_shown, "{filler}");
    }
}

#[tokio::test]
async fn a_batch_can_be_approved_only_if_all_its_calls_are_shown() {
    let store = MemoryStore::new();
    let calls = |count: usize, filler: usize| {
        let arguments =
            |number| format!(r#"{{"cents": {number}, "why": "{}"}}"#, "x".repeat(filler));
        let call = |number| ToolCall::new(format!("p{number}"), "pay", arguments(number));
        (0..count).map(call).collect::<Vec<_>>()
    };
    waiting(&store, "hundred", calls(100, 10)).await;
    let agent = waiting(&store, "many", calls(900, 300)).await;
    let router = Inspector::new(store.clone()).with_writes(true).with_agent(agent).into_router();
    let shown = page(&router, "/runs?scope=alice").await;
    assert_eq!(shown.matches("value=\"approve\"").count(), 100);
    assert_in_order(&shown, &["900 calls with"]);
    assert!(shown.len() < 400_000, "{}", shown.len());
}

#[tokio::test]
async fn a_decision_is_refused_if_the_form_names_another_tool_or_other_arguments() {
    let store = MemoryStore::new();
    let agent =
        waiting(&store, "bill", vec![ToolCall::new("p1", "pay", r#"{"cents": 990}"#)]).await;
    let router = Inspector::new(store.clone()).with_writes(true).with_agent(agent).into_router();
    let id = store.head(&key("bill")).await.unwrap().pending_approvals[0][0].id.clone();
    for (name, arguments) in [("pay", r#"{"cents": 99000}"#), ("find", r#"{"cents": 990}"#)] {
        let form = format!("{}=approve", field(&id, name, arguments));
        assert_eq!(send(&router, decide("bill", form)).await.status(), StatusCode::CONFLICT);
    }
    let name = field(&id, "pay", r#"{"cents": 990}"#);
    let twice = format!("{name}=reject&{name}=approve");
    assert_eq!(send(&router, decide("bill", twice)).await.status(), StatusCode::BAD_REQUEST);
    let once = format!("{name}=approve");
    assert_eq!(send(&router, decide("bill", once)).await.status(), StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn every_page_shows_invisible_characters_as_escapes() {
    let hidden = "send\u{200b} to bob\u{e0041}\u{ad}\u{202e}\u{2028}\u{feff}\u{e0100}\u{fff9}";
    let store = MemoryStore::new();
    let call = ToolCall::new("p1", "pay", json!({"to": hidden}).to_string());
    waiting(&store, hidden, vec![call]).await;
    let request = ChatRequest::user(hidden).in_conversation(key("said"));
    let run = pipeline(&store, vec![Step::text(hidden)], PersistenceMode::PerRun).oneshot(request);
    run.await.unwrap().collect().await.unwrap();
    let title = DescriptionPatch::new().with_title(hidden);
    store.change_description(&key("said"), &title).await.unwrap();
    let router = Inspector::new(store).into_router();
    for address in [
        "/?scope=alice",
        "/conversation?scope=alice&id=said",
        "/next?scope=alice&id=said",
        "/message?scope=alice&id=said&number=1",
        "/runs?scope=alice",
    ] {
        let shown = page(&router, address).await;
        let found =
            shown.chars().find(|character| hidden.contains(*character) && !character.is_ascii());
        assert_eq!(found, None, "{address}: {shown}");
        assert!(shown.contains("200b"), "{address}: {shown}");
    }
}

#[tokio::test]
async fn an_answer_with_many_calls_is_shown_in_pages() {
    let store = MemoryStore::new();
    let calls = (0..100_000).map(|number| ToolCall::new(format!("c{number}"), "look", "{}"));
    let results =
        (0..100_000).map(|number| ToolResult::new(format!("c{number}"), format!("seen {number}.")));
    let messages = [Message::tool_calls(calls), Message::tool_results(results)];
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key("many"), id, Revision::ABSENT, messages.map(Into::into));
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    let router = Inspector::new(store).into_router();
    let first = page(&router, "/conversation?scope=alice&id=many").await;
    assert_in_order(&first, &["seen 0.", "seen 99.", "calls 1 to 100 of 100000"]);
    assert!(first.len() < 200_000 && !first.contains("seen 100."), "{}", first.len());
    let link = first.split("<a href=\"").find(|rest| rest.contains("more calls")).unwrap();
    let link = link.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    let second = page(&router, &link).await;
    assert_in_order(&second, &["seen 100.", "seen 199.", "calls 101 to 200 of 100000"]);
    let last = page(&router, "/conversation?scope=alice&id=many&only=1&from=99990").await;
    assert_in_order(&last, &["seen 99990.", "seen 99999.", "calls 99991 to 100000 of 100000"]);
    let missing = send(&router, get("/conversation?scope=alice&id=many&only=7")).await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_long_open_run_is_shown_in_pages() {
    let store = MemoryStore::new();
    for number in 0..10 {
        let request = ChatRequest::user(format!("Before {number}.")).in_conversation(key("open"));
        let run =
            pipeline(&store, vec![Step::text("Yes.")], PersistenceMode::PerRun).oneshot(request);
        run.await.unwrap().collect().await.unwrap();
    }
    let lease = Lease {
        attempt: 1,
        holder: 7,
        renewed_at: SystemTime::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = Staged { lease, close: None, service_id: None, partial_text: None };
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = (0..40_000).map(|number| Message::user(format!("Staged {number}.")).into());
    let at = store.head(&key("open")).await.unwrap().revision;
    let write = Write::new(key("open"), id, at, messages).staged(staged).beginning_attempt();
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();

    let router = Inspector::new(store).into_router();
    let last = page(&router, "/conversation?scope=alice&id=open").await;
    assert_in_order(&last, &["before=39971", "staged: not part", "Staged 39950.", "Staged 39999."]);
    assert!(last.len() < 100_000 && !last.contains("Staged 39949."), "{}", last.len());
    let middle = page(&router, "/conversation?scope=alice&id=open&before=71").await;
    assert_in_order(&middle, &["before=21", "Staged 0.", "Staged 49."]);
    let mixed = page(&router, "/conversation?scope=alice&id=open&before=41").await;
    assert_in_order(
        &mixed,
        &["Before 0.", "Before 9.", "staged: not part", "Staged 0.", "Staged 19."],
    );
    assert!(!mixed.contains("Earlier messages") && !mixed.contains("Staged 20."));
    let first = page(&router, "/conversation?scope=alice&id=open&before=21").await;
    assert_in_order(&first, &["Before 0.", "Before 9."]);
    assert!(!first.contains("staged: not part"));
}

#[tokio::test]
async fn a_conversation_of_very_long_messages_is_shown_completely_in_pages() {
    let store = MemoryStore::new();
    let messages =
        (0..40).map(|number| Message::user(format!("{number}. {}", "x".repeat(1 << 20))));
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key("long"), id, Revision::ABSENT, messages.map(Into::into));
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    let router = Inspector::new(store).into_router();
    let (mut before, mut numbers) = (String::new(), Vec::new());
    loop {
        let shown = page(&router, &format!("/conversation?scope=alice&id=long{before}")).await;
        let rows = shown.split("id=\"message-").skip(1);
        let rows: Vec<u64> =
            rows.map(|row| row.split('"').next().unwrap().parse().unwrap()).collect();
        numbers.extend(rows.into_iter().rev());
        let Some((_, rest)) = shown.split_once("before=") else { break };
        before = format!("&before={}", rest.split('"').next().unwrap());
    }
    assert_eq!(numbers, (1..=40).rev().collect::<Vec<_>>());
}

/// A store that fails to read the staged messages of open runs. With `has_damaged_rows`, the store
/// also fails to read the heads of conversations with an open run.
struct Damaged {
    inner: MemoryStore,
    has_damaged_rows: bool,
}

fn damaged() -> StoreError {
    StoreError::Corrupt { reason: "a row of an open run".to_owned() }
}

#[tower_chat::async_trait]
impl store::author::StoreWrapper for Damaged {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let head = self.inner().head(key).await?;
        if self.has_damaged_rows && head.open_run.is_some() { Err(damaged()) } else { Ok(head) }
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }
}

#[tower_chat::async_trait]
impl store::Journal for Damaged {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        match self.inner.open_run(key).await? {
            Some(_) => Err(damaged()),
            None => Ok(None),
        }
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.inner.open_runs(scope, after, limit).await
    }
}

#[tokio::test]
async fn a_damaged_open_run_does_not_hide_its_conversation_or_another_run() {
    let inner = MemoryStore::new();
    let request = |text: &str| ChatRequest::user(text).in_conversation(key("open"));
    let run = pipeline(&inner, vec![Step::text("In the hall.")], PersistenceMode::PerServiceCall);
    run.oneshot(request("Where is my hat?")).await.unwrap().collect().await.unwrap();
    let call = Step::message(Message::tool_calls([ToolCall::new("c1", "find", "{}")]));
    let steps = vec![call, Step::error("the model is gone")];
    let run = pipeline(&inner, steps, PersistenceMode::Journaled).oneshot(request("And my scarf?"));
    assert!(run.await.is_err());

    let store = Damaged { inner: inner.clone(), has_damaged_rows: false };
    let router = Inspector::new(store).into_router();
    let shown = page(&router, "/conversation?scope=alice&id=open").await;
    assert_in_order(&shown, &["a row of an open run", "Where is my hat?", "In the hall."]);
    assert!(!shown.contains("my scarf"), "{shown}");
    let listed = page(&router, "/runs?scope=alice").await;
    assert_in_order(&listed, &["open", "a row of an open run"]);

    let store = Damaged { inner, has_damaged_rows: true };
    let router = Inspector::new(store).with_writes(true).into_router();
    let listed = page(&router, "/runs?scope=alice").await;
    assert_in_order(&listed, &["open: ", "a row of an open run"]);
    assert!(!listed.contains("<button"), "{listed}");
}

/// A store that records which data the inspector reads.
struct Watched {
    inner: MemoryStore,
    reads: Arc<Mutex<Vec<&'static str>>>,
}

#[tower_chat::async_trait]
impl store::author::StoreWrapper for Watched {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.reads.lock().unwrap().push("load");
        self.inner().load(key).await
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.reads.lock().unwrap().push("calls");
        assert!(
            matches!(which, CallSelection::InMessages(_)),
            "a page asks for the calls of messages that it shows"
        );
        self.inner().calls(key, which).await
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }
}

#[tower_chat::async_trait]
impl store::ToolCallQueries for Watched {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.reads.lock().unwrap().push("invocations");
        self.inner.invocations(query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.inner.tool_totals(query).await
    }
}

#[tokio::test]
async fn pages_with_counts_do_not_read_messages_or_calls() {
    let reads = Arc::default();
    let store = Watched { inner: filled().await, reads: Arc::clone(&reads) };
    let router = Inspector::new(store).into_router();
    for address in
        ["/", "/?scope=alice", "/tools?scope=alice", "/usage?scope=alice", "/runs?scope=alice"]
    {
        page(&router, address).await;
        assert_eq!(*reads.lock().unwrap(), [""; 0], "{address}");
    }
    let tools = page(&router, "/tools?scope=alice").await;
    assert_in_order(
        &tools,
        &["The last 30 days", "Calls with a time", "<bdi>fail</bdi>", "Calls by day", ": 2</li>"],
    );
    page(&router, "/conversation?scope=alice&id=errands").await;
    assert_eq!(*reads.lock().unwrap(), ["calls"]);
}
