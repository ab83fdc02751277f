//! Tests a tool loop between the two persistence layers.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{FutureExt, StreamExt, future::poll_immediate};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatRequest, ChatResponse, ConversationKey, HistoryStore,
    MemoryStore, Message, Part, PersistenceMode, PersistencePolicy, Role, Tool, ToolCall, Tools,
    error::ToolLoopError,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::Messages,
    policy::MissingPersister,
    tool::{ApprovalRequest, ToolOutput},
    tool_fn,
    validate::validate_request,
};

use tower_chat_testkit::cases;

use super::script::*;

const MODES: [PersistenceMode; 2] = [PersistenceMode::PerRun, PersistenceMode::PerServiceCall];

fn key() -> ConversationKey {
    ConversationKey::new("s", "c")
}

fn user(text: &str) -> ChatRequest {
    ChatRequest::user(text).in_conversation(key())
}

fn stack(
    store: &MemoryStore,
    mode: PersistenceMode,
    tool_loop: &ToolLoopLayer,
    script: &Script,
) -> impl Service<ChatRequest, Response = ChatResponse, Error = BoxError, Future: Send> + use<> {
    ServiceBuilder::new()
        .layer(PerRunPersistence::new(store.clone()).mode(mode))
        .layer(tool_loop.clone())
        .layer(PerServiceCallPersistence::new(store.clone()))
        .service(script.clone())
}

async fn answer(
    store: &MemoryStore,
    mode: PersistenceMode,
    tool_loop: &ToolLoopLayer,
    script: &Script,
    request: ChatRequest,
) -> Result<Answer, BoxError> {
    stack(store, mode, tool_loop, script).oneshot(request).await?.collect().await
}

async fn stored(store: &MemoryStore) -> Vec<String> {
    texts(store.load(&key()).await.unwrap().messages.iter())
}

fn hanging() -> impl Tool {
    tool_fn(definition("hang"), |_| async {
        std::future::pending::<()>().await;
        Ok("")
    })
}

#[tokio::test]
async fn a_round_is_stored_and_sent_whole_in_both_modes() {
    for (mode, request) in cases!(MODES, both(&user("hi"))) {
        let store = MemoryStore::new();
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        let answer = answer(&store, mode, &over(echo()), &script, request).await.unwrap();
        assert_eq!(script.texts(1), ["hi", "echo(1)", "=1"]);
        assert_eq!(stored(&store).await, ["hi", "echo(1)", "=1", "done"]);
        assert_eq!(texts(&answer.messages), ["echo(1)", "=1", "done"]);
        assert_eq!(answer.finish.history_owner, None);
    }
}

#[tokio::test]
async fn an_earlier_round_of_an_answer_is_sent_with_its_results_directly_after_its_calls() {
    let call = |id: &str| Message::tool_calls([ToolCall::new(id, "echo", id)]);
    for ((second, sent), request) in cases!(
        [
            (Message::assistant("one moment"), ["hi", "one moment", "echo(c1)", "=c1"].as_slice()),
            (call("c2"), &["hi", "echo(c1)", "=c1", "echo(c2)", "=c2"]),
        ],
        both(&user("hi"))
    ) {
        let reply = vec![call("c1"), second.clone()];
        let script = || Script::new([Reply::from(reply.clone()), "done".into()]);
        let bare = script();
        ask(&over(echo()), &bare, request.clone()).await.unwrap();
        let mut scripts = vec![bare];
        for mode in MODES {
            let script = script();
            let store = MemoryStore::new();
            answer(&store, mode, &over(echo()), &script, request.clone()).await.unwrap();
            scripts.push(script);
        }
        for script in scripts {
            assert_eq!(script.texts(1), sent);
            validate_request(&script.requests()[1]).unwrap();
        }
    }
}

#[tokio::test]
async fn results_that_were_finished_when_the_run_is_dropped_are_stored_per_service_call() {
    for (concurrent, request) in cases!([false, true], both(&user("hi"))) {
        let store = MemoryStore::new();
        let script = Script::new([calls([("echo", "1"), ("hang", "2"), ("echo", "3")])]);
        let tools = Tools::new().with(echo()).with(hanging());
        let tool_loop = ToolLoopLayer::new(tools).concurrent(concurrent);
        let service = stack(&store, PersistenceMode::PerServiceCall, &tool_loop, &script);
        {
            let mut run = pin!(async { service.oneshot(request).await?.collect().await });
            assert!(poll_immediate(&mut run).await.is_none());
        }
        let expected = if concurrent { "=1 =3" } else { "=1" };
        assert_eq!(stored(&store).await[2..], [expected]);
    }
}

#[tokio::test]
async fn results_of_the_round_that_fails_the_run_are_stored_when_the_error_is_seen() {
    for request in both(&user("hi")) {
        let store = MemoryStore::new();
        let script = Script::new([calls([("bad", "1"), ("echo", "2")])]);
        let tool_loop = ToolLoopLayer::new(Tools::new().with(failing("bad")).with(echo()))
            .max_failing_rounds(0);
        let service = stack(&store, PersistenceMode::PerServiceCall, &tool_loop, &script);
        let error = match service.oneshot(request).await {
            Err(error) => error,
            Ok(mut response) => loop {
                if let Err(error) = Pin::new(&mut response).next().await.unwrap() {
                    assert_eq!(
                        stored(&store).await.len(),
                        3,
                        "the messages are stored before the response is dropped"
                    );
                    break error;
                }
            },
        };
        assert!(error.is::<ToolLoopError>());
        assert_eq!(stored(&store).await[2..], ["!The tool failed. =2"]);
    }
}

#[tokio::test]
async fn a_repeated_loop_of_one_run_sends_the_same_messages_that_later_runs_replay() {
    let store = MemoryStore::new();
    let tries = Arc::new(AtomicUsize::new(0));
    let unsteady = tool_fn(definition("t"), move |_| {
        let output = match tries.fetch_add(1, Ordering::Relaxed) {
            0 => ToolOutput::error("busy"),
            _ => ToolOutput::from("fine"),
        };
        async { Ok(output) }
    });
    let script = Script::new([calls([("t", "")]), Message::assistant("done")]);
    let inner = ServiceBuilder::new()
        .layer(over(unsteady).max_failing_rounds(0))
        .layer(PerServiceCallPersistence::new(store.clone()))
        .service(script.clone());
    let twice = tower::service_fn(move |request: ChatRequest| {
        let inner = inner.clone();
        async move {
            inner.clone().oneshot(request.clone()).await.unwrap_err();
            inner.oneshot(request).await
        }
    });
    let mode = PersistenceMode::PerServiceCall;
    let service = PerRunPersistence::new(store.clone()).mode(mode).layer(twice);
    service.oneshot(user("hi")).await.unwrap();
    let live = script.texts(1);
    let next = Script::new(["next"]);
    answer(&store, mode, &over(echo()), &next, user("and?")).await.unwrap();
    assert_eq!(next.texts(0)[..live.len()], live);
}

#[tokio::test]
async fn results_of_a_failed_service_call_are_stored_once() {
    for request in both(&user("hi")) {
        let store = MemoryStore::new();
        let script = Script::new([calls([("echo", "1")]).into(), Reply::error("down")]);
        let mode = PersistenceMode::PerServiceCall;
        answer(&store, mode, &over(echo()), &script, request).await.unwrap_err();
        assert_eq!(stored(&store).await, ["hi", "echo(1)", "=1"]);
    }
}

fn approving(answer: &Answer) -> ChatRequest {
    let parts = answer.approval_requests().map(ApprovalRequest::approve).map(Part::from).collect();
    ChatRequest::new(Message::new(Role::User, parts)).in_conversation(key())
}

fn payment(log: &Log) -> ToolLoopLayer {
    over(log.tool(definition("pay").needs_approval()))
}

#[tokio::test]
async fn a_stored_approval_request_is_approved_by_a_later_run() {
    for (mode, streamed, call) in cases!(
        MODES,
        [false, true],
        [ToolCall::new("c0", "pay", "1"), ToolCall::without_id("pay", "1")]
    ) {
        let (store, log) = (MemoryStore::new(), Log::default());
        let script = Script::new([Message::tool_calls([call]), Message::assistant("done")]);
        let request = |request: ChatRequest| match streamed {
            true => request.streamed(),
            false => request,
        };
        let pay = payment(&log);
        let asked = request(user("hi"));
        let asked = answer(&store, mode, &pay, &script, asked).await.unwrap();
        assert_eq!(asked.approval_requests().count(), 1);
        let approval = request(approving(&asked));
        let done = answer(&store, mode, &pay, &script, approval).await.unwrap();
        assert_eq!(log.take(), ["1"]);
        assert_eq!(texts(&done.messages), ["=ran 1", "done"]);
        assert_eq!(script.texts(1), ["hi", "pay(1)", "=ran 1"]);
        let sent = script.requests()[1].messages().clone();
        let call_id = sent.get(1).unwrap().calls().next().unwrap().id.clone();
        assert_eq!(sent.get(2).unwrap().results().next().unwrap().call_id, call_id);

        let next = Script::new(["again"]);
        let again = request(approving(&asked));
        let error = answer(&store, mode, &pay, &next, again).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{error:?}");
        assert_eq!((log.take().len(), next.calls()), (0, 0));
    }
}

#[tokio::test]
async fn an_approved_call_that_ends_the_run_is_not_asked_for_again() {
    for mode in MODES {
        let store = MemoryStore::new();
        let script = Script::new([calls([("stop", "")])]);
        let stop = tool_fn(definition("stop").needs_approval(), |_| async {
            Ok(ToolOutput::from("stopped").terminate())
        });
        let tool_loop = over(stop);
        let asked = answer(&store, mode, &tool_loop, &script, user("hi")).await.unwrap();
        let ended = answer(&store, mode, &tool_loop, &script, approving(&asked)).await.unwrap();
        assert_eq!(texts(&ended.messages), ["=stopped"]);
        let next = Script::new(["done"]);
        answer(&store, mode, &tool_loop, &next, approving(&asked)).await.unwrap();
        assert_eq!(next.texts(0), ["hi", "stop()", "=stopped"], "{mode:?}");
    }
}

#[tokio::test]
async fn the_result_of_an_approved_call_is_stored_although_the_run_fails_afterwards() {
    let mode = PersistenceMode::PerServiceCall;
    for streamed in [false, true] {
        let (store, log) = (MemoryStore::new(), Log::default());
        let pay = payment(&log);
        let script = Script::new([calls([("pay", "1")]).into(), Reply::error("down")]);
        let asked = answer(&store, mode, &pay, &script, user("hi")).await.unwrap();
        let approval = match streamed {
            true => approving(&asked).streamed(),
            false => approving(&asked),
        };
        answer(&store, mode, &pay, &script, approval).await.unwrap_err();
        assert_eq!(log.take(), ["1"]);
        let next = Script::new(["done"]);
        answer(&store, mode, &pay, &next, approving(&asked)).await.unwrap();
        assert!(log.take().is_empty());
        assert_eq!(next.texts(0), ["hi", "pay(1)", "=ran 1"]);
    }
}

#[tokio::test]
async fn the_result_of_an_approved_call_is_stored_although_the_run_is_dropped_afterwards() {
    let mode = PersistenceMode::PerServiceCall;
    let (store, log) = (MemoryStore::new(), Log::default());
    let tools = Tools::new().with(log.tool(definition("pay").needs_approval())).with(hanging());
    let tool_loop = ToolLoopLayer::new(tools);
    let script = Script::new([calls([("pay", "1"), ("hang", "2")])]);
    let asked = answer(&store, mode, &tool_loop, &script, user("hi")).await.unwrap();
    let mut approval = approving(&asked);
    let mut own = (**approval.messages().get(0).unwrap()).clone();
    own.parts.push(Part::text("go"));
    approval.set_new_messages(own);
    assert!(stack(&store, mode, &tool_loop, &script).oneshot(approval).now_or_never().is_none());
    assert_eq!(log.take(), ["1"]);
    let next = Script::new(["done"]);
    answer(&store, mode, &tool_loop, &next, user("and?")).await.unwrap();
    assert_eq!(next.texts(0), ["hi", "pay(1)", "=ran 1", "go", "and?"]);
}

/// Returns a request for the rest of an answer that the service generates in the background. The
/// rest may contain tool calls.
fn continued() -> ChatRequest {
    let mut options = ChatOptions::default();
    options.continuation = Some("token".to_owned());
    ChatRequest::new(Messages::new()).in_conversation(key()).with_options(options)
}

#[tokio::test]
async fn a_continued_answer_that_asks_for_tools_is_stored_once() {
    for mode in MODES {
        let store = MemoryStore::new();
        let script = Script::new([calls([("echo", "1")]), Message::assistant("done")]);
        answer(&store, mode, &over(echo()), &script, continued()).await.unwrap();
        assert_eq!(stored(&store).await, ["echo(1)", "=1", "done"], "{mode:?}");
    }
}

#[tokio::test]
async fn a_continued_answer_that_is_dropped_stores_nothing() {
    for mode in MODES {
        let store = MemoryStore::new();
        let script = Script::new([calls([("echo", "1"), ("hang", "2")])]);
        let tool_loop = ToolLoopLayer::new(Tools::new().with(echo()).with(hanging()));
        let service = stack(&store, mode, &tool_loop, &script);
        assert!(service.oneshot(continued()).now_or_never().is_none());
        assert!(stored(&store).await.is_empty(), "{mode:?}");
    }
}

#[tokio::test]
async fn a_message_queued_while_a_call_waits_for_approval_does_not_continue_the_loop() {
    for mode in MODES {
        let mut request = user("hi");
        let handle = request.run_handle();
        let store = MemoryStore::new();
        let script = Script::new([calls([("pay", "1")]), Message::assistant("never")]);
        let model = script.clone();
        let queueing = handle.clone();
        let service = tower::service_fn(move |request: ChatRequest| {
            queueing.queue(Message::user("later"));
            model.clone().oneshot(request)
        });
        let service = ServiceBuilder::new()
            .layer(PerRunPersistence::new(store.clone()).mode(mode))
            .layer(payment(&Log::default()))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(service);
        let answer = service.oneshot(request).await.unwrap().collect().await.unwrap();
        assert_eq!((script.calls(), answer.approval_requests().count()), (1, 1));
        assert_eq!(handle.take_queued().len(), 1);
    }
}

#[tokio::test]
async fn without_a_persister_dropped_results_do_not_reach_the_store_without_their_calls() {
    let store = MemoryStore::new();
    let script = Script::new([calls([("echo", "1"), ("hang", "")])]);
    let tool_loop = ToolLoopLayer::new(Tools::new().with(echo()).with(hanging()));
    let policy = PersistencePolicy::default().on_missing_persister(MissingPersister::Warn);
    let persistence = PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall);
    let service = persistence.policy(policy).layer(tool_loop.layer(script));
    assert!(service.oneshot(user("hi")).now_or_never().is_none());
    assert!(stored(&store).await.is_empty());
}
