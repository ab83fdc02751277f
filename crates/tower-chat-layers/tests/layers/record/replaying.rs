//! Tests which results of tools a later run sends to the model, under each replay policy.

use tower_chat::{
    ChatResponse, PersistenceError, PersistencePolicy, Role, ToolResult, Tools,
    error::BuildError,
    message::MessageId,
    replay::{
        Channel, Citations, CompactionTime, Freshness, OutdatedCalls, ReplayPolicy, ToolHistory,
        Truncation, Window,
    },
    run::RunId,
    store::{InvocationQuery, Revision, ToolCallQueries, author::Write},
    tool::SharedTools,
    tool_fn,
};
use tower_chat_testkit::Step;

use super::*;

struct Shop {
    case: Case,
    store: crate::common::Store,
    model: ScriptedModel,
    client: ChatPipeline,
    seconds: Arc<AtomicU64>,
    tools: SharedTools,
}

async fn shop(case: Case, policy: PersistencePolicy, script: Vec<Step>, answer: &str) -> Shop {
    let store = case.store().await;
    let model = ScriptedModel::new(script);
    let seconds = Arc::new(AtomicU64::new(1_000));
    let now = seconds.clone();
    let answer = answer.to_owned();
    let tools = SharedTools::new(Tools::new().with(tool_fn(definition("look"), move |_| {
        let answer = answer.clone();
        async move { Ok(answer) }
    })));
    let client = ChatPipeline::builder(model.clone())
        .tools(tools.clone())
        .history(store.clone())
        .persistence(case.mode)
        .policy(policy)
        .clock(Clock::new(move || at(now.load(Ordering::Relaxed))))
        .build()
        .unwrap();
    Shop { case, store, model, client, seconds, tools }
}

impl Shop {
    async fn send(&self, request: ChatRequest) -> ChatResponse {
        let request = self.case.way(request.in_conversation(key()));
        self.client.clone().ready().await.unwrap().call(request).await.unwrap()
    }

    async fn ask(&self, text: &str) {
        self.send(ChatRequest::user(text)).await.collect().await.unwrap();
    }

    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }

    fn shown(&self) -> Vec<String> {
        let request = self.model.requests().pop().unwrap();
        request.messages().iter().flat_map(|m| m.results()).map(|result| result.text()).collect()
    }

    async fn stored(&self) -> Vec<String> {
        let history = self.store.load(&key()).await.unwrap();
        history.messages.iter().flat_map(|m| m.results()).map(|result| result.text()).collect()
    }
}

fn two_turns() -> Vec<Step> {
    vec![calls([("look", "c1")]), Step::text("done"), Step::text("again"), Step::text("more")]
}

fn replaying(policy: ReplayPolicy) -> PersistencePolicy {
    PersistencePolicy::default().with_replay(policy)
}

#[tokio::test]
async fn a_result_as_old_as_the_window_is_shown_and_an_older_one_is_not_and_stays_in_the_record() {
    every_case(async |case| {
        let policy = replaying(ReplayPolicy::default().with_freshness(Freshness::default()));
        let shop = shop(case, policy, two_turns(), "looked").await;
        shop.ask("hi").await;
        shop.pass(300);
        shop.ask("and now?").await;
        assert_eq!(shop.shown(), ["looked"]);
        shop.pass(1);
        shop.ask("and now?").await;
        assert_eq!(shop.shown(), [] as [String; 0]);
        assert_eq!(shop.stored().await, ["looked"]);
        let record = shop.store.invocations(&InvocationQuery::of(&key())).await.unwrap();
        assert_eq!(record.found.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_channel_has_a_window_of_its_own() {
    every_case(async |case| {
        let freshness = Freshness::default().with_channel("voice", Duration::from_secs(10));
        let policy = replaying(ReplayPolicy::default().with_freshness(freshness));
        let shop = shop(case, policy, two_turns(), "looked").await;
        shop.ask("hi").await;
        shop.pass(11);
        shop.send(ChatRequest::user("x").with_extension(Channel::new("voice")))
            .await
            .collect()
            .await
            .unwrap();
        assert_eq!(shop.shown(), [] as [String; 0]);
        shop.ask("x").await;
        assert_eq!(shop.shown(), ["looked"]);
    })
    .await;
}

#[tokio::test]
async fn a_result_that_the_caller_brought_grows_stale_from_when_it_was_added() {
    every_case(async |case| {
        let policy = replaying(ReplayPolicy::default().with_freshness(Freshness::default()));
        let script = vec![
            calls([("ask", "c1")]),
            Step::text("thanks"),
            Step::text("still"),
            Step::text("gone"),
        ];
        let shop = shop(case, policy, script, "looked").await;
        shop.tools.update(|tools| tools.declare(definition("ask")));
        let send = async |request: ChatRequest| {
            shop.send(request).await.collect().await.unwrap();
        };
        send(ChatRequest::user("hi")).await;
        shop.pass(10_000);
        let brought = Message::tool_results([ToolResult::new("c1", "brought")]);
        send(ChatRequest::new([brought])).await;
        shop.pass(300);
        send(ChatRequest::user("and now?")).await;
        assert_eq!(shop.shown(), ["brought"]);
        shop.pass(1);
        send(ChatRequest::user("and then?")).await;
        assert_eq!(shop.shown(), [] as [String; 0]);
        assert_eq!(shop.stored().await, ["brought"]);
    })
    .await;
}

#[tokio::test]
async fn an_imported_result_is_as_old_as_it_says_or_as_its_run() {
    every_case(async |case| {
        for (added_at, expected) in [(None, 0), (Some(at(900)), 1), (Some(at(600)), 0)] {
            let policy = replaying(ReplayPolicy::default().with_freshness(Freshness::default()));
            let shop = shop(case, policy, vec![Step::text("hello")], "looked").await;
            let mut run = [0; 16];
            (run[6], run[8]) = (0x70, 0x80);
            let mut imported = [
                Message::user("where?"),
                Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
                Message::tool_results([ToolResult::new("c1", "imported")]),
                Message::assistant("there"),
            ];
            for (message, index) in imported.iter_mut().zip(0..) {
                message.id = Some(MessageId { run: RunId::from_bytes(run), index });
                message.added_at = added_at;
            }
            let id = imported[0].id.unwrap();
            let imported = imported.map(Arc::new);
            let write = Write::new(key(), id, Revision::ABSENT, imported);
            shop.store.append(shop.store.reserve().await.unwrap(), vec![write]).await.unwrap();
            shop.ask("and now?").await;
            assert_eq!(shop.shown().len(), expected, "{case} {added_at:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn without_a_readable_record_results_are_as_old_as_their_messages() {
    every_case(async |case| {
        let policy = replaying(ReplayPolicy::default().with_freshness(Freshness::default()));
        let shop = shop(case, policy, two_turns(), "looked").await;
        let unreadable = || tower_chat::store::StoreError::backend("read", true, "no");
        shop.ask("hi").await;
        shop.pass(300);
        shop.store.fail_next_query(unreadable());
        shop.ask("and now?").await;
        assert_eq!(shop.shown(), ["looked"]);
        shop.pass(1);
        shop.store.fail_next_query(unreadable());
        shop.ask("and then?").await;
        assert_eq!(shop.shown(), [] as [String; 0]);
    })
    .await;
}

#[tokio::test]
async fn replay_does_not_read_the_record_if_no_step_needs_it() {
    every_case(async |case| {
        let shop = shop(case, replaying(ReplayPolicy::default()), two_turns(), "looked").await;
        shop.ask("hi").await;
        shop.ask("and now?").await;
        assert_eq!(shop.store.queries(), 0);
        let omit = replaying(
            ReplayPolicy::default()
                .with_tool_history(ToolHistory::Omit)
                .with_freshness(Freshness::default()),
        );
        let shop = super::replaying::shop(case, omit, two_turns(), "looked").await;
        shop.ask("hi").await;
        shop.ask("and now?").await;
        assert_eq!((shop.shown().len(), shop.store.queries()), (0, 0));
    })
    .await;
}

#[tokio::test]
async fn calls_of_a_tool_that_is_gone_leave_the_replay() {
    every_case(async |case| {
        let policy = OutdatedCalls::keep().drop_unregistered();
        let policy = replaying(ReplayPolicy::default().with_outdated_calls(policy));
        let shop = shop(case, policy, two_turns(), "looked").await;
        shop.ask("hi").await;
        shop.ask("still there?").await;
        assert_eq!(shop.shown(), ["looked"]);
        shop.tools.set(Tools::new());
        shop.ask("and now?").await;
        assert_eq!(shop.shown(), [] as [String; 0]);
        assert_eq!(shop.stored().await, ["looked"]);
    })
    .await;
}

#[tokio::test]
async fn a_window_shows_the_newest_turns_alone_and_all_of_the_run() {
    every_case(async |case| {
        let policy =
            replaying(ReplayPolicy::default().with_window(Window::turns(1).with_low_water(1)));
        let shop = shop(case, policy, two_turns(), "looked").await;
        shop.ask("one").await;
        shop.ask("two").await;
        shop.ask("three").await;
        let request = shop.model.requests().pop().unwrap();
        let texts: Vec<String> = request
            .messages()
            .iter()
            .filter(|message| message.role == Role::User)
            .map(|message| message.text())
            .collect();
        assert_eq!(texts, ["two", "three"]);
    })
    .await;
}

#[tokio::test]
async fn a_long_result_is_stored_cut_and_seen_whole_by_its_own_run() {
    every_case(async |case| {
        let policy = PersistencePolicy::default().with_truncation(Truncation::to(20));
        let long = "é".repeat(100);
        let shop = shop(case, policy, two_turns(), &long).await;
        shop.ask("hi").await;
        assert_eq!(shop.shown(), std::slice::from_ref(&long));
        let stored = shop.stored().await.remove(0);
        assert!(stored.len() <= 20 && stored.ends_with("[truncated]"), "{case} {stored}");
        shop.ask("and now?").await;
        assert_eq!(shop.shown(), [stored]);
    })
    .await;
}

#[tokio::test]
async fn citations_can_be_compacted_when_a_whole_run_is_saved() {
    let found = r#"[{"source_number":0,"content":"a"},{"source_number":1,"content":"b"}]"#;
    let script =
        || vec![calls([("look", "c1")]), Step::text("It is b [source1]."), Step::text("x")];
    every_case(async |case| {
        for (when, stored) in [(CompactionTime::AtSave, 1), (CompactionTime::AtReplay, 2)] {
            if when == CompactionTime::AtSave && !case.is(PersistenceMode::PerRun) {
                continue; // The builder refuses this combination. The next test checks the refusal.
            }
            let policy = replaying(ReplayPolicy::default().with_citations(Citations::when(when)));
            let shop = shop(case, policy, script(), found).await;
            shop.ask("hi").await;
            let items = shop.stored().await.remove(0).matches("source_number").count();
            assert_eq!(items, stored, "{when:?}");
            shop.ask("and?").await;
            assert_eq!(shop.shown(), [r#"[{"source_number":1,"content":"b"}]"#], "{when:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn citations_at_save_are_refused_where_results_are_stored_before_the_answer() {
    Cases::all().modes([PersistenceMode::PerServiceCall, PersistenceMode::Journaled], "per-run mode accepts the setting, as the test above shows").check(async |case| {
            let compacting = || {
                let citations = Citations::when(CompactionTime::AtSave);
                replaying(ReplayPolicy::default().with_citations(citations))
            };
            let builder = ChatPipeline::builder(ScriptedModel::new([]));
            let built =
                builder.history(MemoryStore::new()).persistence(case.mode).policy(compacting()).build();
            assert!(matches!(built, Err(BuildError::CitationsAtSave { mode: it }) if it == case.mode));

            // The builder does not know the mode of a request. The request therefore fails.
            let shop = shop(Case { mode: PersistenceMode::PerRun, ..case }, compacting(), vec![Step::text("hello")], "").await;
            let request = ChatRequest::user("hi").in_conversation(key()).with_extension(case.mode);
            let request = case.way(request);
            let error = shop.client.clone().oneshot(request).await.unwrap_err();
            let error = error.downcast::<PersistenceError>().unwrap();
            assert!(
                matches!(*error, PersistenceError::CitationsAtSave { mode: it, .. } if it == case.mode)
            );
            assert_eq!(shop.model.requests().len(), 0, "the model is not called");
    }).await;
}
