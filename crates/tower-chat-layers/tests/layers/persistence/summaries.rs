//! Tests when runs make summaries, and which messages the model then receives. A summary that
//! cannot be made changes nothing.

use tower::{Layer, Service, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, Finish, HistoryStore, Message, Part, PersistenceError,
    PersistencePolicy, Role, ToolCall, ToolResult, Tools,
    layer::{PerServiceCallPersistence, ToolLoopLayer},
    message::{ContentKind, MessageId, RefusalMark, RefusalMarks},
    policy::{StoreFailure, Summarize},
    request::{EndedBy, FinishReason, Usage},
    run::RunId,
    store::{
        Directory, Keep, Maintenance, Revision, Rewrite, Summaries, UsageGrouping, UsageQuery,
        author::Write,
    },
    tool::ApprovalRequest,
};
use tower_chat_testkit::{
    FaultyStore, Gate, Injection, Operation, ScriptedModel, Step, StoreFault,
};

use crate::common::*;

const HEADING: &str =
    "user [Summary of the earlier conversation, whose messages are not sent again:]\n\n";

/// Each message has 10 tokens.
fn counter(_: &Message) -> usize {
    10
}

/// Returns a policy that makes summaries above this number of tokens, and always keeps one turn.
fn summarizing(tokens: usize, writer: &ScriptedModel) -> PersistencePolicy {
    policy().with_summarize(summarize(tokens, writer))
}

fn summarize(tokens: usize, writer: &ScriptedModel) -> Summarize {
    Summarize::above(tokens, writer.clone())
        .with_token_counter(counter)
        .with_kept_turns(1)
        .with_prompt("Summarise.")
}

fn writer() -> ScriptedModel {
    ScriptedModel::new((1..=9).map(|number| Step::text(format!("S{number}"))))
}

fn answering() -> ScriptedModel {
    ScriptedModel::new((1..=30).map(|number| Step::text(format!("a{number}"))))
}

/// Returns the short forms of the messages of a request. A summary begins with `summary`.
fn texts(request: &ChatRequest) -> Vec<String> {
    let texts = shorts(request.messages().iter()).into_iter();
    texts
        .map(|text| match text.strip_prefix(HEADING) {
            Some(summary) => format!("summary {summary}"),
            None => text,
        })
        .collect()
}

fn sent(model: &ScriptedModel, call: usize) -> String {
    texts(&model.requests()[call]).join(", ")
}

async fn ask_all(case: Case, client: &Client, numbers: std::ops::RangeInclusive<usize>) {
    for number in numbers {
        send(client, case.ask(&format!("q{number}"))).await.unwrap();
    }
}

/// Returns each summary: the number of its last covered message, and its text.
async fn summaries(store: &Store) -> Vec<(u64, String)> {
    let rows = store.inner().history_summaries(&key()).await.unwrap();
    rows.into_iter().map(|row| (row.covers_to, row.text.to_string())).collect()
}

fn row(covers_to: u64, text: &str) -> (u64, String) {
    (covers_to, text.to_owned())
}

#[tokio::test]
async fn a_run_over_the_limit_is_summarised_once_and_later_runs_use_the_summary() {
    Cases::all()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(65, &writer), Tools::new());
            ask_all(case, &client, 1..=3).await;
            assert_eq!(sent(&model, 2), "user q1, assistant a1, user q2, assistant a2, user q3");
            assert_eq!(writer.requests().len(), 0);

            ask_all(case, &client, 4..=4).await;
            assert_eq!(sent(&model, 3), "summary S1, user q3, assistant a3, user q4");
            let expected = "user q1, assistant a1, user q2, assistant a2, user Summarise.";
            assert_eq!(sent(&writer, 0), expected);
            assert!(writer.requests()[0].conversation().is_none());
            assert_eq!(summaries(&store).await, [row(4, "S1")]);

            let elsewhere = store.in_another_process();
            let other = case.stack(model.clone(), &elsewhere, policy(), Tools::new());
            ask_all(case, &other, 5..=5).await;
            let expected = "summary S1, user q3, assistant a3, user q4, assistant a4, user q5";
            assert_eq!(sent(&model, 4), expected);

            // A later summary covers the earlier one.
            ask_all(case, &client, 6..=6).await;
            assert_eq!(sent(&model, 5), "summary S2, user q5, assistant a5, user q6");
            let expected =
                "summary S1, user q3, assistant a3, user q4, assistant a4, user Summarise.";
            assert_eq!(sent(&writer, 1), expected);
            assert_eq!(summaries(&store).await, [row(4, "S1"), row(8, "S2")]);
            assert_eq!(stored(&store).await.len(), 12, "all messages are stored");

            let last = store.inner().head(&key()).await.unwrap().summary.unwrap();
            assert!(store.inner().remove_summary(&key(), last.id).await.unwrap());
            ask_all(case, &other, 7..=7).await;
            assert!(sent(&model, 6).starts_with("summary S1, user q3,"), "{}", sent(&model, 6));
        })
        .await;
}

#[tokio::test]
async fn between_two_summaries_requests_only_grow_at_their_end() {
    Cases::all()
        .check(async |case| {
            let (store, writer, tool_log) = (case.store().await, writer(), ToolLog::default());
            let steps = (0..24).map(|number| match number % 3 {
                0 => case.calls([("look", &*format!("c{number}"))]),
                _ => Step::text(format!("a{number}")),
            });
            let model = ScriptedModel::new(steps);
            let policy = summarizing(150, &writer);
            let client = case.stack(model.clone(), &store, policy, tools(&tool_log));
            ask_all(case, &client, 1..=16).await;
            let requests: Vec<_> = model.requests().iter().map(texts).collect();
            let changed = requests.windows(2).filter(|pair| !pair[1].starts_with(&pair[0]));
            assert_eq!(changed.count(), writer.requests().len());
            assert!((2..=5).contains(&writer.requests().len()), "{}", writer.requests().len());
            assert!(requests.iter().all(|request| request.len() <= 17));
        })
        .await;
}

#[tokio::test]
async fn a_summary_that_cannot_be_made_changes_nothing() {
    let finish = |reason| Step::answer([Message::assistant("half a")], Finish::new(reason));
    let failures: [(&str, &dyn Fn() -> Step); 5] = [
        ("the service fails", &|| Step::error("overloaded")),
        ("the answer has no text", &|| Step::text(" ")),
        ("the answer is cut off", &|| finish(FinishReason::Length)),
        ("a filter stops the answer", &|| finish(FinishReason::ContentFilter)),
        ("the model calls a tool", &|| calls([("look", "c1")])),
    ];
    for (failure, step) in failures {
        Cases::all()
            .check(async |case| {
                let writer = ScriptedModel::new([step(), Step::text("S1")]);
                let (store, model, logged) = (case.store().await, answering(), logged());
                let policy = summarizing(45, &writer);
                let client = case.stack(model.clone(), &store, policy, Tools::new());
                ask_all(case, &client, 1..=2).await;
                ask_all(case, &client, 3..=3).await;
                let expected = "user q1, assistant a1, user q2, assistant a2, user q3";
                assert_eq!(sent(&model, 2), expected, "{failure}");
                assert_eq!(summaries(&store).await, [], "{failure}");
                assert_eq!(logged.lines("no summary of the conversation could be made"), 1);
                ask_all(case, &client, 4..=4).await;
                assert_eq!(sent(&model, 3), "summary S1, user q3, assistant a3, user q4");
            })
            .await;
    }
}

#[tokio::test]
async fn messages_in_the_outbox_are_sent_after_the_summary() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=3).await;
            assert_eq!(summaries(&store).await, [row(2, "S1")]);
            let policy = policy().on_store_failure(StoreFailure::Continue);
            let client = case.stack(model.clone(), &store, policy, Tools::new());
            store.fail_next_append(disk_full());
            ask_all(case, &client, 4..=4).await;
            assert_eq!(store.handle().unsaved(&key()).len(), 1);
            let before = sent(&model, 3);
            assert_eq!(before, "summary S1, user q2, assistant a2, user q3, assistant a3, user q4");
            ask_all(case, &client, 5..=5).await;
            assert_eq!(sent(&model, 4), format!("{before}, assistant a4, user q5"));
        })
        .await;
}

#[tokio::test]
async fn a_run_continues_if_the_store_does_not_add_the_summary() {
    for is_stored in [false, true] {
        let store = FaultyStore::with_injector(memory(), move |operation| match operation {
            Operation::AddSummary => Injection::none().with(match is_stored {
                true => StoreFault::After(disk_full()),
                false => StoreFault::Before(disk_full()),
            }),
            _ => Injection::none(),
        });
        let (writer, model) = (writer(), answering());
        let policy = summarizing(45, &writer);
        let client = stack(model.clone(), &store, PerServiceCall, policy, Tools::new());
        for number in 1..=3 {
            send(&client, ask(&format!("q{number}"), false)).await.unwrap();
        }
        let expected = "user q1, assistant a1, user q2, assistant a2, user q3";
        assert_eq!(sent(&model, 2), expected);
        let stored = summaries(&store).await;
        assert_eq!(stored, if is_stored { vec![row(2, "S1")] } else { Vec::new() });
    }
}

#[tokio::test]
async fn of_two_processes_that_make_a_summary_one_wins_and_the_run_uses_it() {
    Cases::all()
        .check(async |case| {
            let (store, model, gate) = (case.store().await, answering(), Gate::closed());
            let slow = ScriptedModel::new([Step::text("slow").waits(&gate)]);
            let client = case.stack(model.clone(), &store, summarizing(45, &slow), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let other = async {
                gate.reached(1).await;
                let elsewhere = store.in_another_process();
                let fast = ScriptedModel::new([Step::text("fast")]);
                let made = summarize(0, &fast).now(&elsewhere, &key()).await.unwrap().unwrap();
                assert_eq!(&*made.text, "fast");
                gate.open();
            };
            tokio::join!(other, ask_all(case, &client, 3..=3));
            assert_eq!(sent(&model, 2), "summary fast, user q2, assistant a2, user q3");
            assert_eq!(summaries(&store).await, [row(2, "fast")]);
        })
        .await;
}

#[tokio::test]
async fn a_rewrite_during_a_summary_prevents_it() {
    let (store, gate) = (store(), Gate::closed());
    let client = agent(&answering(), &store, PerRun);
    for number in 1..=3 {
        send(&client, ask(&format!("q{number}"), false)).await.unwrap();
    }
    let slow = ScriptedModel::new([Step::text("it contains q1").waits(&gate)]);
    let rewrite = async {
        gate.reached(1).await;
        let history = store.load(&key()).await.unwrap();
        let mut redacted = (**history.messages.get(0).unwrap()).clone();
        redacted.parts = vec![Part::text("redacted")];
        let mut rewrite = Rewrite::new(key(), history.head.revision);
        rewrite.messages = vec![(1, redacted)];
        store.rewrite(rewrite).await.unwrap();
        gate.open();
    };
    let (summarize, conversation) = (summarize(100, &slow), key());
    let (made, ()) = tokio::join!(summarize.now(&store, &conversation), rewrite);
    let error = made.unwrap_err();
    assert!(matches!(error, PersistenceError::NotSummarized { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert_eq!(summaries(&store).await, []);
}

#[tokio::test]
async fn a_summary_made_on_request_covers_all_turns_but_the_newest() {
    let (store, writer, model) = (store(), writer(), answering());
    let client = agent(&model, &store, PerServiceCall);
    let now = async |tokens| {
        summarize(tokens, &writer)
            .now(&store, &key())
            .await
            .unwrap()
            .map(|made| made.text.to_string())
    };
    assert_eq!(now(100).await, None, "there is no conversation");
    for number in 1..=5 {
        send(&client, ask(&format!("q{number}"), false)).await.unwrap();
    }
    // One summary covers at most 40 tokens, which are two turns.
    assert_eq!(now(40).await.as_deref(), Some("S2"));
    assert_eq!(summaries(&store).await, [row(4, "S1"), row(8, "S2")]);
    let expected = "summary S1, user q3, assistant a3, user q4, assistant a4, user Summarise.";
    assert_eq!(sent(&writer, 1), expected);
    assert_eq!(now(100).await.as_deref(), Some("S2"), "nothing else may be covered");
    assert_eq!(writer.requests().len(), 2);
}

/// The result of the interrupted call is after the turns that the summary covers, in the open round.
#[tokio::test]
async fn the_request_for_a_summary_lacks_an_interrupted_call_with_a_later_result() {
    let (store, writer) = (store(), writer());
    let calls = |id: &str| Message::tool_calls([ToolCall::new(id, "look", "{}")]);
    let late = Message::tool_results([ToolResult::new("c1", "late")]);
    let runs = [
        vec![Message::user("q1"), calls("c1")],
        vec![Message::user("q2"), calls("c2")],
        vec![late],
    ];
    let mut revision = Revision::ABSENT;
    for messages in runs {
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key(), id, revision, messages.into_iter().map(Into::into));
        revision = write.result();
        let slot = store.inner().reserve().await.unwrap();
        store.inner().append(slot, vec![write]).await.unwrap();
    }
    summarize(10, &writer).now(&store, &key()).await.unwrap().unwrap();
    assert_eq!(summaries(&store).await, [row(2, "S1")]);
    assert_eq!(sent(&writer, 0), "user q1, user Summarise.");
}

#[tokio::test]
async fn a_run_keeps_the_summary_with_which_it_began() {
    Cases::all()
        .check(async |case| {
            let (store, gate) = (case.store().await, Gate::closed());
            let model = ScriptedModel::new([
                Step::text("a1"),
                Step::text("a2"),
                case.calls([("wait", "c1")]),
                Step::text("a3"),
                Step::text("a4"),
            ]);
            let tools = tools_with_gate(&ToolLog::default(), &gate);
            let client = case.stack(model.clone(), &store, policy(), tools);
            ask_all(case, &client, 1..=2).await;
            let other = async {
                gate.reached(1).await;
                let made = summarize(100, &writer()).now(store.inner(), &key()).await.unwrap();
                assert!(made.is_some());
                gate.open();
            };
            tokio::join!(other, ask_all(case, &client, 3..=3));
            let expected = "user q1, assistant a1, user q2, assistant a2, user q3, \
                            assistant wait#c1, tool c1=waited c1";
            assert_eq!(sent(&model, 3), expected);
            assert_eq!(stored(&store).await.len(), 8);
            ask_all(case, &client, 4..=4).await;
            assert!(sent(&model, 4).starts_with("summary S1, user q"), "{}", sent(&model, 4));
        })
        .await;
}

#[tokio::test]
async fn a_run_that_is_sent_again_keeps_its_answer_and_its_summary() {
    Cases::all()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(25, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let request = case.ask("q3");
            let answer = send(&client, request.clone()).await.unwrap();
            assert_eq!((model.requests().len(), writer.requests().len()), (3, 1));
            let again = send(&client, request).await.unwrap();
            assert_eq!(again.text(), answer.text());
            assert_eq!((model.requests().len(), writer.requests().len()), (3, 1), "{case}");
        })
        .await;
}

#[tokio::test]
async fn a_resumed_run_makes_no_summary_after_its_first_answer() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing of a failed run")
        .check(async |case| {
            let (store, writer, tool_log) = (case.store().await, writer(), ToolLog::default());
            let model = ScriptedModel::new([
                Step::text("a1"),
                Step::text("a2"),
                case.calls([("look", "c1")]),
                Step::error("overloaded"),
                Step::text("a3"),
            ]);
            let policy = || summarizing(45, &writer);
            let client = case.stack(model.clone(), &store, policy(), tools(&tool_log));
            ask_all(case, &client, 1..=2).await;
            let request = case.ask("q3");
            send(&client, request.clone()).await.unwrap_err();
            let expected = "summary S1, user q2, assistant a2, user q3";
            assert_eq!(sent(&model, 2), expected);
            let expected = format!("{expected}, assistant look#c1, tool c1=looked c1");
            assert_eq!(sent(&model, 3), expected);
            // The conversation has more tokens than the limit, but a resumed run makes no summary.
            let elsewhere = store.in_another_process();
            let other = case.stack(model.clone(), &elsewhere, policy(), tools(&tool_log));
            assert_eq!(send(&other, request).await.unwrap().text(), "a3");
            assert_eq!(sent(&model, 4), expected);
            assert_eq!(writer.requests().len(), 1);
        })
        .await;
}

#[tokio::test]
async fn a_run_whose_first_call_failed_makes_the_summary_when_it_is_sent_again() {
    Cases::all()
        .unless_journaled()
        .check(async |case| {
            let (store, model) = (
                case.store().await,
                ScriptedModel::new([
                    Step::text("a1"),
                    Step::text("a2"),
                    Step::error("overloaded"),
                    Step::text("a3"),
                ]),
            );
            let writer = ScriptedModel::new([Step::error("overloaded"), Step::text("S1")]);
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let request = case.ask("q3");
            send(&client, request.clone()).await.unwrap_err();
            assert_eq!(send(&client, request).await.unwrap().text(), "a3");
            assert_eq!(sent(&model, 3), "summary S1, user q2, assistant a2, user q3");
        })
        .await;
}

#[tokio::test]
async fn a_call_that_waits_for_approval_is_not_covered_and_can_be_approved() {
    Cases::all()
        .check(async |case| {
            let (store, writer, tool_log) = (case.store().await, writer(), ToolLog::default());
            let texts = |numbers: std::ops::RangeInclusive<usize>| {
                numbers.map(|number| Step::text(format!("a{number}")))
            };
            let pay = case.calls([("pay", "c1")]);
            let steps = texts(1..=1).chain([pay]).chain(texts(3..=9));
            let model = ScriptedModel::new(steps);
            let client =
                case.stack(model.clone(), &store, summarizing(45, &writer), tools(&tool_log));
            ask_all(case, &client, 1..=1).await;
            let asked = send(&client, case.ask("q2")).await.unwrap();
            ask_all(case, &client, 3..=5).await;
            assert_eq!(summaries(&store).await, [row(2, "S1")], "only the turn before it");
            let approval = asked.approval_requests().next().unwrap().approve();
            let approval = Message::new(Role::User, vec![approval.into()]);
            send(&client, case.request_with([approval])).await.unwrap();
            assert_eq!(tool_log.names(), ["pay"]);
            assert!(
                sent(&model, 5).ends_with("assistant pay#c1, tool c1=payed c1"),
                "{}",
                sent(&model, 5)
            );
        })
        .await;
}

/// If a tool ends a run, only the record of tool calls contains its result. The call does not wait.
#[tokio::test]
async fn a_run_that_a_tool_has_ended_is_covered() {
    Cases::all()
        .check(async |case| {
            let (store, writer, tool_log) = (case.store().await, writer(), ToolLog::default());
            let texts = (2..=4).map(|number| Step::text(format!("a{number}")));
            let steps = [case.calls([("stop", "c1")])].into_iter().chain(texts);
            let model = ScriptedModel::new(steps);
            let client =
                case.stack(model.clone(), &store, summarizing(45, &writer), tools(&tool_log));
            ask_all(case, &client, 1..=4).await;
            assert_eq!(sent(&model, 3), "summary S1, user q3, assistant a3, user q4");
            assert_eq!(tool_log.names(), ["stop"]);
        })
        .await;
}

#[tokio::test]
async fn the_stored_input_of_a_run_that_is_sent_again_counts_once() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing of a failed run")
        .check(async |case| {
            let (store, writer) = (case.store().await, writer());
            let failing = [Step::text("a1"), Step::text("a2"), Step::error("overloaded")];
            let model = ScriptedModel::new(failing.into_iter().chain([Step::text("a3")]));
            let client = case.stack(model.clone(), &store, summarizing(55, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let request = case.ask("q3");
            send(&client, request.clone()).await.unwrap_err();
            assert_eq!(send(&client, request).await.unwrap().text(), "a3");
            // The five messages of the request have 50 tokens.
            assert_eq!(writer.requests().len(), 0, "{case}");
        })
        .await;
}

#[tokio::test]
async fn a_request_with_an_invalid_decision_makes_no_summary() {
    Cases::all()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let unknown = ApprovalRequest::new("r", ToolCall::new("c1", "pay", "{}"), true);
            let decision = Message::new(Role::User, vec![unknown.approve().into()]);
            let input = [Message::user("q3"), decision];
            send(&client, case.request_with(input)).await.unwrap_err();
            assert_eq!((model.requests().len(), writer.requests().len()), (2, 0), "{case}");
            assert_eq!(summaries(&store).await, []);
            ask_all(case, &client, 3..=3).await;
            assert_eq!(sent(&model, 2), "summary S1, user q2, assistant a2, user q3");
        })
        .await;
}

#[tokio::test]
async fn the_usage_of_summaries_is_part_of_the_usage_of_their_run() {
    Cases::all()
        .check(async |case| {
            let store = case.store().await;
            let writer = ScriptedModel::new([costly("S1", 1000, 100)]);
            let model = ScriptedModel::new((1..=3).map(|number| Step::text(format!("a{number}"))));
            let client = case.stack(model, &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let answer = send(&client, case.ask("q3")).await.unwrap();
            assert_eq!(answer.finish.usage, Usage::new(1000, 100));
            store.inner().flush().await.unwrap();
            let query = UsageQuery::of(&key(), UsageGrouping::Conversation);
            let sum = store.inner().usage(&query).await.unwrap()[0].sum;
            assert_eq!(sum.tokens, Usage::new(1000, 100));
            assert_eq!(sum.service_calls, 4);
            let rows = store.inner().history_summaries(&key()).await.unwrap();
            assert_eq!(rows[0].usage.tokens, Usage::new(1000, 100));
        })
        .await;
}

#[tokio::test]
async fn the_tokens_that_the_provider_has_counted_decide() {
    Cases::all()
        .check(async |case| {
            let (store, writer) = (case.store().await, writer());
            // Each message has 50 tokens by the counter. The provider reports more or fewer.
            let model = ScriptedModel::new([
                costly("a1", 10, 10),
                costly("a2", 700, 100),
                costly("a3", 30, 10),
                costly("a4", 5, 5),
                costly("a5", 5, 5),
            ]);
            let client = case.stack(model.clone(), &store, summarizing(500, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            assert_eq!(writer.requests().len(), 0);
            ask_all(case, &client, 3..=3).await;
            assert_eq!(sent(&model, 2), "summary S1, user q2, assistant a2, user q3");
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 4..=4).await;
            assert_eq!(
                writer.requests().len(),
                2,
                "this stack has not made the service call before"
            );
            ask_all(case, &client, 5..=5).await;
            assert_eq!(writer.requests().len(), 2, "10 tokens, and 10 of the input");
        })
        .await;
}

#[tokio::test]
async fn the_service_of_summaries_may_share_the_permits_of_the_client() {
    Cases::all()
        .check(async |case| {
            let (store, model) = (case.store().await, answering());
            let limited = ConcurrencyLimitLayer::new(1).layer(model.clone());
            let policy = policy().with_summarize(
                Summarize::above(45, limited.clone())
                    .with_token_counter(counter)
                    .with_kept_turns(1),
            );
            let client = case.stack(limited, &store, policy, Tools::new());
            let client = boxed(TimeoutLayer::new(std::time::Duration::from_secs(10)).layer(client));
            ask_all(case, &client, 1..=3).await;
            assert_eq!(sent(&model, 3), "summary a3, user q2, assistant a2, user q3");
        })
        .await;
}

#[tokio::test]
async fn the_service_of_summaries_may_share_the_permits_of_a_stack_without_a_layer_above_the_loop()
{
    let (store, model) = (store(), answering());
    let limited = ConcurrencyLimitLayer::new(1).layer(model.clone());
    let summarize = Summarize::above(45, limited.clone());
    let summarize = summarize.with_token_counter(counter).with_kept_turns(1);
    let client = lone(limited, &store, policy().with_summarize(summarize), Tools::new());
    let client = boxed(TimeoutLayer::new(std::time::Duration::from_secs(10)).layer(client));
    for number in 1..=3 {
        send(&client, ask(&format!("q{number}"), false)).await.unwrap();
    }
    assert_eq!(sent(&model, 3), "summary a3, user q2, assistant a2, user q3");
}

#[tokio::test]
async fn an_answer_contains_the_usage_of_summaries_without_a_layer_above_the_loop() {
    let (store, writer) = (store(), ScriptedModel::new([costly("S1", 1000, 100)]));
    let client = lone(answering(), &store, summarizing(45, &writer), Tools::new());
    let mut usages = Vec::new();
    for number in 1..=4 {
        let answer = send(&client, ask(&format!("q{number}"), false)).await.unwrap();
        usages.push(answer.finish.usage);
        if number == 3 {
            assert_eq!(writer.requests().len(), 1);
        }
    }
    let none = Usage::default();
    assert_eq!(usages, [none, none, Usage::new(1000, 100), none]);
}

#[tokio::test]
async fn a_stop_during_a_summary_ends_the_run_without_a_further_service_call() {
    Cases::all()
        .check(async |case| {
            let (store, model, gate) = (case.store().await, answering(), Gate::closed());
            // The history needs several summaries.
            let client = case.stack(model.clone(), &store, policy(), Tools::new());
            ask_all(case, &client, 1..=4).await;
            let writer = ScriptedModel::new([Step::text("S1"), Step::text("S2").waits(&gate)]);
            let client = case.stack(model.clone(), &store, summarizing(25, &writer), Tools::new());
            let mut request = case.ask("q5");
            let handle = request.run_handle();
            let stop = async {
                gate.reached(1).await;
                handle.stop();
            };
            let limited = tokio::time::timeout(std::time::Duration::from_secs(10), async {
                tokio::join!(send(&client, request), stop).0
            });
            let answer = limited.await.expect("the stop ends the wait for the summary").unwrap();
            assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
            assert_eq!((model.requests().len(), writer.requests().len()), (4, 2));
            assert_eq!(summaries(&store).await, [row(2, "S1")], "it was made before the stop");
            assert!(stored(&store).await.contains(&"user q5".to_owned()));
        })
        .await;
}

#[tokio::test]
async fn a_run_that_is_already_stopped_makes_no_summary() {
    Cases::all()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            let mut request = case.ask("q3");
            request.run_handle().stop();
            let answer = send(&client, request).await.unwrap();
            assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
            assert_eq!((model.requests().len(), writer.requests().len()), (2, 0));
        })
        .await;
}

#[tokio::test]
async fn a_stop_during_a_summary_stores_the_question_without_a_layer_above_the_loop() {
    let (store, model, gate) = (store(), answering(), Gate::closed());
    let writer = ScriptedModel::new([Step::text("S1").waits(&gate)]);
    let client = lone(model.clone(), &store, summarizing(45, &writer), Tools::new());
    for number in 1..=2 {
        send(&client, ask(&format!("q{number}"), false)).await.unwrap();
    }
    let mut request = ask("q3", false);
    let handle = request.run_handle();
    let stop = async {
        gate.reached(1).await;
        handle.stop();
    };
    let (answer, ()) = tokio::join!(send(&client, request), stop);
    assert_eq!(answer.unwrap().finish.ended_by, Some(EndedBy::Stop));
    assert_eq!(model.requests().len(), 2);
    assert!(stored(&store).await.contains(&"user q3".to_owned()));
}

#[tokio::test]
async fn the_request_for_a_summary_contains_the_marks_of_refused_content() {
    Cases::all()
        .check(async |case| {
            let (store, writer, model) = (case.store().await, writer(), answering());
            let client = case.stack(model.clone(), &store, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 1..=2).await;
            store.inner().flush().await.unwrap();
            let history = store.inner().load(&key()).await.unwrap();
            let mut marked = (**history.messages.get(0).unwrap()).clone();
            let mark = RefusalMark::new("openai", marked.id.unwrap(), ContentKind::Text);
            RefusalMark::store_in(&mut marked, [mark.clone()]);
            let mut rewrite = Rewrite::new(key(), history.head.revision);
            rewrite.messages = vec![(1, marked)];
            store.inner().rewrite(rewrite).await.unwrap();
            let elsewhere = store.in_another_process();
            let client = case.stack(model, &elsewhere, summarizing(45, &writer), Tools::new());
            ask_all(case, &client, 3..=3).await;
            let marks = writer.requests()[0].extensions.get::<RefusalMarks>().cloned().unwrap();
            assert_eq!(marks.of_issuer("openai").collect::<Vec<_>>(), [&mark]);
        })
        .await;
}

#[tokio::test]
async fn a_size_that_the_provider_counted_before_a_prune_or_a_rewrite_does_not_decide() {
    for is_pruned in [true, false] {
        let (store, writer) = (store(), writer());
        let model = ScriptedModel::new([
            costly("a1", 500, 0),
            costly("a2", 500, 0),
            costly("a3", 700, 0),
            Step::text("a4"),
        ]);
        let client = stack(model, &store, PerServiceCall, summarizing(600, &writer), Tools::new());
        for number in 1..=3 {
            send(&client, ask(&format!("q{number}"), false)).await.unwrap();
        }
        store.inner().flush().await.unwrap();
        if is_pruned {
            store.inner().prune(&key(), Keep::Messages(4)).await.unwrap();
        } else {
            let history = store.inner().load(&key()).await.unwrap();
            let mut redacted = (**history.messages.get(0).unwrap()).clone();
            redacted.parts = vec![Part::text("redacted")];
            let mut rewrite = Rewrite::new(key(), history.head.revision);
            rewrite.messages = vec![(1, redacted)];
            store.inner().rewrite(rewrite).await.unwrap();
        }
        // The provider has reported 700 tokens before. The counter now counts at most 70 tokens.
        send(&client, ask("q4", false)).await.unwrap();
        assert_eq!(writer.requests().len(), 0, "after a prune: {is_pruned}");
    }
}

fn lone<S>(model: S, store: &Store, policy: PersistencePolicy, tools: Tools) -> Client
where
    S: Service<ChatRequest, Response = ChatResponse, Error = BoxError>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let below = PerServiceCallPersistence::new(store.clone()).policy(policy);
    boxed(ToolLoopLayer::new(tools).layer(below.layer(model)))
}

#[tokio::test]
async fn a_stack_without_a_layer_above_the_tool_loop_makes_summaries_too() {
    let (store, writer, tool_log) = (store(), writer(), ToolLog::default());
    let model = ScriptedModel::new([
        Step::text("a1"),
        Step::text("a2"),
        calls([("look", "c1")]),
        Step::text("a3"),
    ]);
    let client = lone(model.clone(), &store, summarizing(45, &writer), tools(&tool_log));
    for number in 1..=3 {
        send(&client, ask(&format!("q{number}"), false)).await.unwrap();
    }
    let expected = "summary S1, user q2, assistant a2, user q3";
    assert_eq!(sent(&model, 2), expected);
    assert_eq!(sent(&model, 3), format!("{expected}, assistant look#c1, tool c1=looked c1"));
    assert_eq!(writer.requests().len(), 1);
}
