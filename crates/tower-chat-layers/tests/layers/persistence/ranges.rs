//! Tests that a run loads only the messages that the model may receive, unless an earlier message
//! matters.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use tower_chat::{
    ConversationKey, HistoryStore, Message, PersistencePolicy, ToolContext, Tools,
    policy::UnansweredInputs,
    replay::{ReplayPolicy, Window},
    store::{
        self, Directory, History, HistorySummary, Journal, Maintenance as _, StoreError,
        Summaries as _, ToolCallQueries, author::LoadFrom,
    },
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{FaultyStore, ScriptedModel, Step};

use crate::common::*;

/// A store that records how many messages each load returned.
struct Counting {
    inner: Store,
    loaded: Arc<Mutex<Vec<usize>>>,
    /// The id of a summary that another process removes after the next load of a range.
    removed: Arc<Mutex<Option<u64>>>,
}

#[async_trait]
impl store::author::StoreWrapper for Counting {
    type Inner = Store;

    fn inner(&self) -> &Store {
        &self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let history = self.inner.load(key).await?;
        self.loaded.lock().unwrap().push(history.messages.len());
        Ok(history)
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        let history = self.inner.load_from(key, from).await?;
        self.loaded.lock().unwrap().push(history.leading.len() + history.messages.len());
        let removed = self.removed.lock().unwrap().take();
        if let Some(removed) = removed {
            assert!(self.inner.remove_summary(key, removed).await?);
        }
        Ok(history)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.inner.journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.inner.directory()
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.inner.tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner.maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner.summaries()
    }
}

struct Counted {
    case: Case,
    store: Store,
    loaded: Arc<Mutex<Vec<usize>>>,
    removed: Arc<Mutex<Option<u64>>>,
    model: ScriptedModel,
}

impl Counted {
    async fn new(case: Case) -> Self {
        Self::with(case, (1..=40).map(|number| Step::text(format!("a{number}")))).await
    }

    async fn with(case: Case, script: impl IntoIterator<Item = Step>) -> Self {
        let (loaded, removed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let (inner, removes) = (case.store().await, removed.clone());
        let counting = Counting { inner, loaded: loaded.clone(), removed: removes };
        let store: Arc<dyn HistoryStore> = Arc::new(counting);
        let store = FaultyStore::new(store).shared_by_processes();
        Self { case, store, loaded, removed, model: ScriptedModel::new(script) }
    }

    fn client(&self, policy: PersistencePolicy) -> Client {
        let tools = tools(&ToolLog::default());
        self.case.stack(self.model.clone(), &self.store.in_another_process(), policy, tools)
    }

    async fn ask(&self, client: &Client, numbers: std::ops::RangeInclusive<usize>) {
        for number in numbers {
            send(client, self.case.ask(&format!("q{number}"))).await.unwrap();
        }
    }

    fn last_sent(&self) -> String {
        sent_texts(&self.model, self.model.requests().len() - 1).join(", ")
    }

    fn take_loaded(&self) -> Vec<usize> {
        std::mem::take(&mut self.loaded.lock().unwrap())
    }
}

fn two_turns() -> PersistencePolicy {
    let window = Window::turns(2).with_low_water(1);
    policy().with_replay(ReplayPolicy::default().with_window(window))
}

#[tokio::test]
async fn a_run_loads_the_messages_inside_the_window() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(two_turns());
        run.ask(&client, 1..=9).await;
        assert_eq!(run.last_sent(), "user q7, assistant a7, user q8, assistant a8, user q9");
        let loaded = run.take_loaded();
        assert!(loaded.iter().all(|count| *count <= 6), "{loaded:?}");

        let elsewhere = run.client(two_turns());
        run.ask(&elsewhere, 10..=10).await;
        assert_eq!(run.last_sent(), "user q9, assistant a9, user q10");
        assert_eq!(run.take_loaded(), [6]);

        let window = Window::turns(20);
        let larger = policy().with_replay(ReplayPolicy::default().with_window(window));
        run.ask(&run.client(larger), 11..=11).await;
        assert_eq!(run.take_loaded(), [20]);
        assert!(run.last_sent().starts_with("user q1, assistant a1, user q2"));
        assert_eq!(stored(&run.store).await.len(), 22);
    })
    .await;
}

#[tokio::test]
async fn system_messages_at_the_beginning_are_loaded_too() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(two_turns());
        let first = case.request_with([Message::system("be brief"), Message::user("q1")]);
        send(&client, first).await.unwrap();
        run.ask(&client, 2..=8).await;
        run.take_loaded();
        run.ask(&run.client(two_turns()), 9..=9).await;
        let expected = "system be brief, user q7, assistant a7, user q8, assistant a8, user q9";
        assert_eq!(run.last_sent(), expected);
        assert!(run.take_loaded().iter().all(|count| *count <= 7));
    })
    .await;
}

#[tokio::test]
async fn a_run_loads_the_messages_after_the_summary() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(policy());
        run.ask(&client, 1..=6).await;
        let store = run.store.inner();
        let last = store.load(&key()).await.unwrap().message(8).unwrap().id.unwrap();
        let summary = HistorySummary::new(8, last, "four turns");
        store.add_summary(&key(), &summary, 0).await.unwrap();
        // The first run after the summary loads all messages. The next runs load fewer.
        run.ask(&client, 7..=7).await;
        run.take_loaded();
        run.ask(&run.client(policy()), 8..=8).await;
        assert_eq!(run.take_loaded(), [6]);
        let sent = run.last_sent();
        assert!(sent.ends_with("four turns, user q5, assistant a5, user q6, assistant a6, user q7, assistant a7, user q8"), "{sent}");

        // Without the summary, the model receives all messages.
        store.remove_summary(&key(), summary.id).await.unwrap();
        run.ask(&run.client(policy()), 9..=9).await;
        assert_eq!(run.take_loaded(), [16]);
        assert!(run.last_sent().starts_with("user q1, assistant a1, user q2"));
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_sent_again_finds_its_run_before_the_range() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(two_turns());
        let first = case.ask("q1");
        send(&client, first.clone()).await.unwrap();
        run.ask(&client, 2..=8).await;
        let again = send(&run.client(two_turns()), first).await.unwrap();
        assert_eq!(again.text(), "a1");
        assert_eq!(run.model.requests().len(), 8);
        assert_eq!(stored(&run.store).await.len(), 16);
    })
    .await;
}

#[tokio::test]
async fn a_late_result_is_sent_with_a_call_before_the_range() {
    every_case(async |case| {
        let script = [Step::text("a1"), case.calls([("ask", "c1")])];
        let rest = (3..=20).map(|number| Step::text(format!("a{number}")));
        let run = Counted::with(case, script.into_iter().chain(rest)).await;
        let client = run.client(two_turns());
        run.ask(&client, 1..=9).await;
        // The call waits for its result, so its message is loaded.
        assert!(run.take_loaded().last().unwrap() > &10);
        let result = case.result("c1", "late");
        send(&run.client(two_turns()), case.request_with([Message::tool_results([result])]))
            .await
            .unwrap();
        let sent = run.last_sent();
        assert!(sent.ends_with("assistant ask#c1, tool c1=late"), "{sent}");
        run.ask(&client, 11..=18).await;
        run.take_loaded();
        run.ask(&run.client(two_turns()), 19..=19).await;
        let loaded = run.take_loaded();
        assert!(loaded.iter().all(|count| *count <= 6), "{loaded:?}");
    })
    .await;
}

#[tokio::test]
async fn a_prune_or_another_policy_makes_a_run_load_all_messages() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(two_turns());
        run.ask(&client, 1..=9).await;
        run.store.inner().prune(&key(), store::Keep::Messages(8)).await.unwrap();
        run.take_loaded();
        run.ask(&run.client(two_turns()), 10..=10).await;
        assert_eq!(run.take_loaded(), [8]);
        let without_tools = Tools::new();
        let other = case.stack(run.model.clone(), &run.store, policy(), without_tools);
        run.ask(&other, 11..=11).await;
        assert_eq!(run.take_loaded(), [10]);
        assert!(run.last_sent().starts_with("user q6, assistant a6"), "{}", run.last_sent());
    })
    .await;
}

#[tokio::test]
async fn a_stopped_run_has_results_for_interrupted_calls_although_earlier_messages_are_not_loaded()
{
    let reason = "only per-service-call mode reads the record of an interrupted run";
    Cases::all()
        .modes([PerServiceCall], reason)
        .check(async |case| {
            let texts = (1..=9).map(|number| Step::text(format!("a{number}")));
            let script = texts.chain([case.calls([("look", "c1")]), Step::hang()]);
            let run = Counted::with(case, script).await;
            let policy = || two_turns().with_inputs_of_dropped_call(UnansweredInputs::None);
            let client = run.client(policy());
            run.ask(&client, 1..=9).await;
            let mut request = case.ask("q10");
            tokio::select! {
                biased;
                answer = send(&client, request.clone()) => panic!("{answer:?}"),
                () = run.model.called(11) => {}
            }
            drop(client);
            let calls = "assistant look#c1".to_owned();
            assert_eq!(stored(&run.store).await.last(), Some(&calls));
            run.take_loaded();
            request.run_handle().stop();
            send(&run.client(policy()), request).await.unwrap();
            let loaded = run.take_loaded();
            assert!(loaded.iter().all(|count| *count <= 8), "{loaded:?}");
            let result = format!("tool c1!{INTERRUPTED}");
            assert_eq!(stored(&run.store).await[18..], ["user q10".to_owned(), calls, result]);
        })
        .await;
}

#[tokio::test]
async fn a_summary_that_is_removed_during_the_load_is_not_used() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(policy());
        run.ask(&client, 1..=6).await;
        let store = run.store.inner();
        let history = store.load(&key()).await.unwrap();
        for covers_to in [4, 8] {
            let last = history.message(covers_to).unwrap().id.unwrap();
            let summary = HistorySummary::new(covers_to, last, format!("up to {covers_to}"));
            store.add_summary(&key(), &summary, 0).await.unwrap();
            *run.removed.lock().unwrap() = (covers_to == 8).then_some(summary.id);
        }
        let removed = run.removed.lock().unwrap().take();
        run.ask(&client, 7..=7).await;
        *run.removed.lock().unwrap() = removed;
        run.ask(&run.client(policy()), 8..=8).await;
        assert_eq!(*run.removed.lock().unwrap(), None, "the summary was removed");
        let sent = run.last_sent();
        assert!(sent.contains("up to 4, user q3, assistant a3, user q4"), "{sent}");
    })
    .await;
}

#[tokio::test]
async fn a_stored_message_before_the_range_is_not_stored_again() {
    every_case(async |case| {
        let run = Counted::new(case).await;
        let client = run.client(two_turns());
        run.ask(&client, 1..=8).await;
        let first = run.store.inner().load(&key()).await.unwrap().message(1).unwrap().clone();
        let request = case.request_with([(*first).clone(), Message::user("q9")]);
        send(&run.client(two_turns()), request).await.unwrap();
        assert_eq!(run.last_sent(), "user q7, assistant a7, user q8, assistant a8, user q9");
        assert_eq!(stored(&run.store).await.len(), 18);
    })
    .await;
}

#[tokio::test]
async fn source_numbers_follow_those_before_the_range() {
    every_case(async |case| {
        let search = |call: &'static str| case.calls([("search", call)]);
        let texts = (2..=8).map(|number| Step::text(format!("a{number}")));
        let script = [search("c1"), Step::text("a1")].into_iter().chain(texts);
        let script = script.chain([search("c2"), Step::text("a9")]);
        let run = Counted::with(case, script).await;
        let numbered = tool_fn(definition("search"), |context: ToolContext| async move {
            let numbers = context.take_source_numbers(2);
            let sources = numbers.map(|number| json!({"source_number": number, "content": "x"}));
            Ok(ToolOutput::from(serde_json::Value::from_iter(sources).to_string()))
        });
        let tools = Tools::new().with(numbered);
        let client = |policy| {
            let store = run.store.in_another_process();
            case.stack(run.model.clone(), &store, policy, tools.clone())
        };
        run.ask(&client(two_turns()), 1..=8).await;
        run.take_loaded();
        run.ask(&client(two_turns()), 9..=9).await;
        assert!(run.take_loaded().iter().all(|count| *count <= 6));
        let sent = run.last_sent();
        let second = sent.rsplit("tool c2=").next().unwrap();
        assert!(second.contains("2") && second.contains("3") && !second.contains("0"), "{sent}");
    })
    .await;
}

#[tokio::test]
async fn results_of_the_same_run_leave_the_range() {
    every_id(async |case| {
        let labels = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"];
        let script = (1..).zip(labels).flat_map(|(number, label)| {
            [case.calls([("look", label)]), Step::text(format!("a{number}"))]
        });
        let run = Counted::with(case, script).await;
        let client = run.client(two_turns());
        run.ask(&client, 1..=7).await;
        run.take_loaded();
        run.ask(&run.client(two_turns()), 8..=8).await;
        // At most three turns with four messages each are loaded.
        let loaded = run.take_loaded();
        assert!(loaded.iter().all(|count| *count <= 12), "{loaded:?}");
    })
    .await;
}
