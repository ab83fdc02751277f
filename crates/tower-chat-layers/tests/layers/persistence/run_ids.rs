//! Tests that a run id is an idempotency key. A request with the id of a stored run is a repetition
//! if it has the same input, and fails otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tower::Layer;
use tower_chat::{
    HistoryStore, Message, Part, PersistenceError, Role,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::{Media, MediaSource, MessageId, Messages},
    run::{Clock, Conversation, RunId},
    store::{
        Directory, Revision,
        author::{Slot, Write},
    },
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

fn run() -> RunId {
    RunId::from_bytes([0xc4; 16])
}

fn in_run<const N: usize>(case: Case, messages: [Message; N]) -> tower_chat::ChatRequest {
    case.request_with(messages).in_run(Conversation { key: key(), run: run() })
}

fn image(address: &str) -> Message {
    let media = Media::new("image/png", MediaSource::Url(address.into()));
    Message::new(Role::User, vec![Part::text("what is this?"), Part::Media(media)])
}

fn pairs() -> [(Message, Message); 3] {
    [
        (Message::user("pay 5"), Message::user("pay 500")),
        (image("https://a.example/1"), image("https://a.example/2")),
        (Message::user("pay 5"), image("https://a.example/1")),
    ]
}

fn is_reused(error: &PersistenceError) -> bool {
    matches!(error, PersistenceError::RunIdReused { run: of, .. } if *of == run())
}

#[tokio::test]
async fn the_id_of_a_complete_run_is_not_used_again_with_another_input() {
    for (first, other) in pairs() {
        every_case(async |case| {
            let (store, model, client) =
                case.begin([case.calls([("look", "c1")]), Step::text("done")]).await;
            let answer = send(&client, in_run(case, [first.clone()])).await.unwrap();
            let before = stored(&store).await;
            for is_elsewhere in [false, true] {
                let store = if is_elsewhere { store.in_another_process() } else { store.clone() };
                let client = case.agent(&model, &store);
                let error = refused(send(&client, in_run(case, [other.clone()])).await);
                assert!(is_reused(&error), "{error:?}");
                let added = [first.clone(), Message::user("and more")];
                assert!(is_reused(&refused(send(&client, in_run(case, added)).await)));
                assert_eq!((durable(&store).await, model.requests().len()), (before.clone(), 2));
                let again = send(&client, in_run(case, [first.clone()])).await.unwrap();
                assert_eq!(shorts(&again.messages), shorts(&answer.messages));
            }
            model.push(Step::text("other"));
            send(&client, case.request_with([other.clone()])).await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn the_id_of_an_interrupted_run_is_not_used_again_with_another_input() {
    let cases =
        Cases::all().modes([PerServiceCall, Journaled], "per-run mode stores nothing of the run");
    for (first, other) in pairs() {
        cases
            .clone()
            .check(async |case| {
                let (store, model, client) = case
                    .begin([
                        case.calls([("look", "c1")]),
                        Step::error("overloaded"),
                        Step::text("done"),
                    ])
                    .await;
                send(&client, in_run(case, [first.clone()])).await.unwrap_err();
                let before = durable(&store).await;
                let error = refused(send(&client, in_run(case, [other.clone()])).await);
                assert!(is_reused(&error), "{error:?}");
                let longer = [first.clone(), Message::user("and more")];
                let error = refused(send(&client, in_run(case, longer)).await);
                assert!(is_reused(&error), "{error:?}");
                assert_eq!((durable(&store).await, model.requests().len()), (before, 2));
                let again = send(&client, in_run(case, [first.clone()])).await.unwrap();
                assert_eq!(again.text(), "done");
            })
            .await;
    }
}

#[tokio::test]
async fn a_run_of_which_only_the_input_is_stored_accepts_further_input() {
    let cases = Cases::all().modes([PerServiceCall, Journaled], "per-run mode stores no input");
    cases
        .check(async |case| {
            let (store, model, client) =
                case.begin([Step::error("overloaded"), Step::text("done")]).await;
            send(&client, in_run(case, [Message::user("pay 5")])).await.unwrap_err();
            let at = Message::system("It is 10:42.");
            let longer = [at.clone(), Message::user("pay 5"), at, Message::user("and more")];
            send(&client, in_run(case, longer)).await.unwrap();
            let all = ["user pay 5", "system It is 10:42.", "user and more", "assistant done"];
            assert_eq!(stored(&store).await, all);
            assert_eq!(sent_texts(&model, 1), all[..3]);
        })
        .await;
}

/// Returns pairs of inputs that differ only in their system messages.
fn with_other_system_messages() -> [(Vec<Message>, Vec<Message>); 5] {
    let question = || Message::user("pay 5");
    let at = |time: &str| vec![Message::system(format!("It is {time}.")), question()];
    [
        (at("10:41"), vec![question()]),
        (vec![question()], at("10:41")),
        (at("10:41"), vec![question(), Message::system("It is 10:42.")]),
        (vec![question(), Message::system("It is 10:41.")], vec![question()]),
        (at("10:41"), vec![Message::new(Role::Developer, vec![Part::text("new")]), question()]),
    ]
}

fn ask_again(case: Case, messages: &[Message]) -> tower_chat::ChatRequest {
    let mut request = in_run(case, []);
    request.set_new_messages(Messages::from_iter(messages.iter().cloned()));
    request
}

fn texts(input: &[Message], rest: &[&str]) -> Vec<String> {
    let of_input = shorts(input.iter().cloned().map(Arc::new).collect::<Vec<_>>().iter());
    of_input.into_iter().chain(rest.iter().map(|text| (*text).to_owned())).collect()
}

#[tokio::test]
async fn the_stored_input_is_used_again_whatever_system_messages_a_repeated_request_has() {
    for (first, again) in with_other_system_messages() {
        let cases = Cases::all().modes([PerServiceCall, Journaled], "per-run mode stores no input");
        let check = async |case: Case| {
            let (store, model, client) =
                case.begin([Step::error("overloaded"), Step::text("done")]).await;
            send(&client, ask_again(case, &first)).await.unwrap_err();
            send(&client, ask_again(case, &again)).await.unwrap();
            assert_eq!(stored(&store).await, texts(&first, &["assistant done"]));
            assert_eq!(sent_texts(&model, 1), texts(&first, &[]));
        };
        cases.check(check).await;
    }
}

#[tokio::test]
async fn a_complete_run_is_answered_whatever_system_messages_a_repeated_request_has() {
    for (first, again) in with_other_system_messages() {
        every_case(async |case| {
            let (store, model, client) =
                case.begin([case.calls([("look", "c1")]), Step::text("done")]).await;
            let answer = send(&client, ask_again(case, &first)).await.unwrap();
            let before = stored(&store).await;
            let repeated = send(&client, ask_again(case, &again)).await.unwrap();
            assert_eq!(repeated.messages, answer.messages);
            assert_eq!((stored(&store).await, model.requests().len()), (before, 2));
        })
        .await;
    }
}

#[tokio::test]
async fn an_interrupted_run_continues_whatever_system_messages_a_repeated_request_has() {
    for (first, again) in with_other_system_messages() {
        let cases = Cases::all().modes([PerServiceCall, Journaled], "per-run mode stores no round");
        let check = async |case: Case| {
            let look = case.calls([("look", "c1")]);
            let answers = [look, Step::error("overloaded"), Step::text("done")];
            let (store, tool_log, model, client) = case.begin_with_log(answers).await;
            send(&client, ask_again(case, &first)).await.unwrap_err();
            send(&client, ask_again(case, &again)).await.unwrap();
            let history = stored(&store).await;
            assert_eq!(history[..first.len()], texts(&first, &[]));
            assert_eq!(history.last().unwrap(), "assistant done");
            let questions = history.iter().filter(|text| text.starts_with("user")).count();
            let sent = sent_texts(&model, 2);
            assert_eq!((questions, &sent[..]), (1, &history[..history.len() - 1]));
            assert_eq!(tool_log.names().len(), 1);
        };
        cases.check(check).await;
    }
}

#[tokio::test]
async fn a_decision_about_an_approval_is_part_of_the_input() {
    every_case(async |case| {
        let (store, tool_log, model, client) =
            case.begin_with_log([case.calls([("pay", "c1")]), Step::text("done")]).await;
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let asked: Vec<_> = answer.approval_requests().cloned().collect();
        let deciding = |decision| Message::new(Role::User, vec![Part::ApprovalResponse(decision)]);
        let no = in_run(case, [deciding(asked[0].reject("too dear"))]);
        send(&client, no.clone()).await.unwrap();
        let yes = in_run(case, [deciding(asked[0].approve())]);
        let error = refused(send(&client, yes).await);
        assert!(is_reused(&error), "{error:?}");
        send(&client, no).await.unwrap();
        assert_eq!((tool_log.names().len(), model.requests().len()), (0, 2));
        assert_eq!(stored(&store).await.len(), 5);
    })
    .await;
}

#[tokio::test]
async fn a_repeated_request_may_have_other_system_messages_and_metadata() {
    every_case(async |case| {
        let (_, model, client) = case.begin([Step::text("done")]).await;
        let at = |time: &str| {
            let mut sent = Message::user("where?");
            sent.metadata.insert("sent".into(), time.into());
            in_run(case, [Message::system(format!("It is {time}.")), sent])
        };
        send(&client, at("10:41")).await.unwrap();
        assert_eq!(send(&client, at("10:42")).await.unwrap().text(), "done");
        assert_eq!(model.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_run_of_an_older_release_has_no_digest_and_is_not_compared() {
    every_case(async |case| {
        let (store, model) = (case.store().await, ScriptedModel::new([]));
        let messages = [Message::user("pay 5"), Message::assistant("paid")];
        let messages: Vec<_> = (0..)
            .zip(messages)
            .map(|(index, mut message)| {
                message.id = Some(MessageId { run: run(), index });
                Arc::new(message)
            })
            .collect();
        let id = MessageId { run: run(), index: 0 };
        let write = Write::new(key(), id, Revision::ABSENT, messages);
        store.inner().append(Slot::unbounded(), vec![write]).await.unwrap();
        let client = case.agent(&model, &store);
        let answer = send(&client, in_run(case, [Message::user("pay 500")])).await.unwrap();
        assert_eq!(answer.text(), "paid");
    })
    .await;
}

#[tokio::test]
async fn the_id_of_a_run_of_a_persister_alone_is_compared_too() {
    for streamed in BOTH_WAYS {
        let case = Case {
            mode: PerServiceCall,
            streamed,
            backend: crate::case::Backend::Memory,
            ids: crate::case::Ids::Distinct,
        };
        let store = store();
        let model = ScriptedModel::new([
            case.calls([("look", "c1")]),
            Step::error("overloaded"),
            Step::text("done"),
        ]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(below));
        send(&client, in_run(case, [Message::user("pay 5")])).await.unwrap_err();
        let other = || in_run(case, [Message::user("pay 500")]);
        assert!(is_reused(&refused(send(&client, other()).await)));
        let longer = in_run(case, [Message::user("pay 5"), Message::user("and more")]);
        assert!(is_reused(&refused(send(&client, longer).await)));
        send(&client, in_run(case, [Message::user("pay 5")])).await.unwrap();
        assert!(is_reused(&refused(send(&client, other()).await)));
        assert_eq!(model.requests().len(), 3);
    }
}

#[derive(Clone)]
struct Watch(Arc<AtomicU64>);

impl Watch {
    fn at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_run_started_when_its_first_request_arrived_whatever_its_id_says() {
    every_case(async |case| {
        let watch = Watch(Arc::new(AtomicU64::new(1_800_000_000)));
        let store = case.store().await;
        let (slow, gate) = (watch.clone(), Gate::closed());
        let model = ScriptedModel::new([
            case.calls([("wait", "c1")]),
            Step::respond(move |_| {
                slow.0.fetch_add(60, Ordering::SeqCst);
                Step::text("done")
            }),
        ]);
        gate.open();
        let of_clock = watch.clone();
        let clock = Clock::new(move || of_clock.at());
        let below = PerServiceCallPersistence::new(store.clone()).clock(clock.clone());
        let tool_loop = ToolLoopLayer::new(tools_with_gate(&ToolLog::default(), &gate));
        let above = PerRunPersistence::new(store.clone()).mode(case.mode).clock(clock);
        let client = boxed(above.layer(tool_loop.layer(below.layer(model))));
        let arrived = watch.at();
        send(&client, in_run(case, [Message::user("go")])).await.unwrap();
        watch.0.fetch_add(60, Ordering::SeqCst);
        send(&client, in_run(case, [Message::user("go")])).await.unwrap();
        store.inner().flush().await.unwrap();
        let runs = store.inner().runs(&key(), None, 10).await.unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0].started_at(), arrived);
        assert_eq!(runs[0].last_written_at, arrived + Duration::from_secs(60));
        let summary = store.inner().summary(&key()).await.unwrap().unwrap();
        assert_eq!(summary.created_at, arrived);
    })
    .await;
}
