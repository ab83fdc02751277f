//! Tests which part of a cut-off answer is stored under `PersistencePolicy::with_partial_text`.

use futures_util::StreamExt;
use tower::{Layer, service_fn};
use tower_chat::{
    ChatRequest, ChatUpdate, Finish, HistoryStore, Message, PersistenceMode, PersistencePolicy,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::Messages,
    policy::UnansweredInputs,
    validate::validate_messages,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

const TEXT: &str = "It rains in Paris";
const ALL: [&str; 4] =
    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant It rains in Paris"];

fn keeping() -> PersistencePolicy {
    policy().with_partial_text(true)
}

fn long_answer() -> Step {
    Step::updates([
        ChatUpdate::TextDelta("It rains ".into()),
        ChatUpdate::TextDelta("in Paris".into()),
        ChatUpdate::Message(Message::assistant(TEXT).into()),
        ChatUpdate::Finish(Finish::stop().into()),
    ])
}

fn client(
    model: &ScriptedModel,
    store: &Store,
    mode: PersistenceMode,
    policy: PersistencePolicy,
) -> Client {
    stack(model.clone(), store, mode, policy, tools(&ToolLog::default()))
}

/// Returns the standard stack in per-service-call mode, with or without `PerRunPersistence`.
fn per_service_call(
    has_layer_above: bool,
    model: &ScriptedModel,
    store: &Store,
    policy: PersistencePolicy,
) -> Client {
    if has_layer_above {
        return client(model, store, PerServiceCall, policy);
    }
    let below = PerServiceCallPersistence::new(store.clone()).policy(policy);
    let tool_loop = ToolLoopLayer::new(tools(&ToolLog::default()));
    boxed(tool_loop.layer(below.layer(model.clone())))
}

async fn marked(store: &Store) -> Vec<String> {
    store.inner().flush().await.unwrap();
    let history = store.inner().load(&key()).await.unwrap().messages;
    validate_messages(history.iter().map(|message| &**message)).unwrap();
    let is_marked = |message: &&std::sync::Arc<Message>| {
        message.metadata.get("interrupted") == Some(&serde_json::Value::Bool(true))
    };
    shorts(history.iter().filter(is_marked))
}

#[tokio::test]
async fn a_stream_dropped_after_any_update_keeps_the_text_that_was_shown() {
    for (mode, keep) in [(PerRun, true), (PerServiceCall, false), (PerServiceCall, true)] {
        let model = || ScriptedModel::new([calls([("look", "c1")]), long_answer()]);
        let policy = || policy().with_partial_text(keep);
        let whole = client(&model(), &store(), mode, policy());
        let updates = head(&whole, ask("where?", true)).await.unwrap().count().await;
        let mut texts = Vec::new();
        for taken in 0..=updates {
            let store = store();
            let client = client(&model(), &store, mode, policy());
            let response = head(&client, ask("where?", true)).await.unwrap();
            let shown: Vec<_> = response.take(taken).map(Result::unwrap).collect().await;
            let delta = |update: &ChatUpdate| match update {
                ChatUpdate::TextDelta(delta) => Some(delta.clone()),
                _ => None,
            };
            let text: String = shown.iter().filter_map(delta).collect();
            let (left, marked) = (stored(&store).await, marked(&store).await);
            if left.len() == 4 && marked.is_empty() {
                assert_eq!(left, ALL, "{mode:?}, after {taken}");
                continue;
            }
            let keeps = keep && mode == PerServiceCall;
            // The layers may have received one more update than the caller.
            if !keeps || (text.is_empty() && marked.is_empty()) {
                assert_eq!(marked, [""; 0], "{mode:?}, after {taken}");
                assert!(left.len() < 4, "{left:?}");
                continue;
            }
            assert_eq!(left[..3], ALL[..3]);
            assert_eq!(marked, [left[3].clone()], "the marked message is the last one");
            assert_eq!(left.len(), 4);
            let kept = left[3].strip_prefix("assistant ").unwrap();
            assert!(kept.starts_with(&text) && TEXT.starts_with(kept), "{kept:?}, shown {text:?}");
            texts.push(kept.to_owned());
        }
        let expected: &[&str] =
            if mode == PerServiceCall && keep { &["It rains ", TEXT] } else { &[] };
        texts.dedup();
        assert_eq!(texts, expected, "{mode:?}");
    }
}

#[tokio::test]
async fn partial_text_is_stored_after_the_input_of_its_service_call_for_every_interruption() {
    for (calls_before, has_layer_above) in cases!([0, 1], [true, false]) {
        for cause in ["dropped", "failed", "cut off"] {
            let store = store();
            let cut = match cause {
                "dropped" => long_answer().hangs_after(1),
                "failed" => long_answer().fails_after(1, "reset"),
                _ => long_answer().cut_off_after(1),
            };
            let first = (calls_before == 1).then(|| calls([("look", "c1")]));
            let model = ScriptedModel::new(first.into_iter().chain([cut]));
            let client = per_service_call(has_layer_above, &model, &store, keeping());
            let mut response = head(&client, ask("where?", true)).await.unwrap();
            while let Some(Ok(update)) = response.next().await {
                if cause == "dropped" && matches!(update, ChatUpdate::TextDelta(_)) {
                    break;
                }
            }
            drop(response);
            let mut expected = ALL[..1 + 2 * calls_before].to_vec();
            expected.push("assistant It rains ");
            assert_eq!(stored(&store).await, expected, "{cause} {has_layer_above}");
            assert_eq!(marked(&store).await, ["assistant It rains "]);
        }
    }
}

#[tokio::test]
async fn the_text_of_a_complete_message_is_stored_before_the_partial_text_after_it() {
    let cases = Cases::all()
        .modes([PerServiceCall], "only this mode stores the text as a message immediately");
    let cases = cases.streamed("a whole answer shows no part of its text");
    cases
        .check(async |case| {
            let store = case.store().await;
            let cut = Step::updates([
                ChatUpdate::TextDelta("a draft".into()),
                ChatUpdate::Message(Message::assistant("The first message. ").into()),
                ChatUpdate::TextDelta("Half of".into()),
            ]);
            let model = ScriptedModel::new([cut.hangs_after(3)]);
            let client = client(&model, &store, case.mode, keeping());
            let mut response = head(&client, case.ask("where?")).await.unwrap();
            while let Some(update) = response.next().await {
                if matches!(update.unwrap(), ChatUpdate::TextDelta(text) if text == "Half of") {
                    break;
                }
            }
            drop(response);
            let kept = "assistant The first message. Half of";
            assert_eq!(stored(&store).await, ["user where?", kept]);
            assert_eq!(marked(&store).await, [kept]);
        })
        .await;
}

#[tokio::test]
async fn a_repeated_run_continues_without_its_partial_text_and_later_runs_replay_the_text() {
    for (streamed, cuts, has_layer_above) in cases!(BOTH_WAYS, [1, 2], [true, false]) {
        let store = store();
        let steps = (0..cuts).map(|_| long_answer().cut_off_after(1));
        let model = ScriptedModel::new(steps.chain([
            calls([("look", "c1")]),
            long_answer(),
            Step::text("bye"),
        ]));
        let client = per_service_call(has_layer_above, &model, &store, keeping());
        let request = ask("where?", true);
        for _ in 0..cuts {
            send(&client, request.clone()).await.unwrap_err();
        }
        let mut request = request;
        if !streamed {
            request.options = Default::default();
        }
        let answer = send(&client, request.clone()).await.unwrap();
        assert_eq!(shorts(&answer.messages), ALL[1..]);
        assert_eq!(sent_texts(&model, cuts), ALL[..1]);
        assert_eq!(sent_texts(&model, cuts + 1), ALL[..3]);
        let mut history = vec!["user where?"];
        history.extend(vec!["assistant It rains "; cuts]);
        history.extend(&ALL[1..]);
        assert_eq!(stored(&store).await, history);

        let again = send(&client, request).await.unwrap();
        assert_eq!(shorts(&again.messages), ALL[1..], "the stored answer");
        assert_eq!(model.requests().len(), cuts + 2);

        send(&client, ask("and then?", streamed)).await.unwrap();
        history.push("user and then?");
        assert_eq!(sent_texts(&model, cuts + 2), history);
    }
}

#[tokio::test]
async fn a_run_with_a_partial_text_accepts_further_input() {
    for (streamed, has_layer_above) in cases!(BOTH_WAYS, [true, false]) {
        let store = store();
        let model = ScriptedModel::new([long_answer().cut_off_after(1), Step::text("At noon.")]);
        let client = per_service_call(has_layer_above, &model, &store, keeping());
        let first = ask("where?", true);
        send(&client, first.clone()).await.unwrap_err();
        let mut longer = first.clone();
        longer.options = ask("", streamed).options;
        longer.set_new_messages(Messages::from_iter([
            Message::user("where?"),
            Message::system("Answer in one sentence."),
            Message::user("and when?"),
        ]));
        let added = ["system Answer in one sentence.", "user and when?"];
        for _ in 0..2 {
            let answer = send(&client, longer.clone()).await.unwrap();
            assert_eq!(shorts(&answer.messages), ["assistant At noon."]);
            let expected = ["user where?", "assistant It rains ", added[0], added[1]];
            let expected = expected.into_iter().chain(["assistant At noon."]);
            assert_eq!(stored(&store).await, Vec::from_iter(expected));
        }
        assert_eq!(sent_texts(&model, 1), ["user where?", added[0], added[1]]);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_queued_message_before_a_partial_text_is_stored_and_does_not_return_to_its_queue() {
    let policies = [UnansweredInputs::All, UnansweredInputs::Results, UnansweredInputs::None];
    for (kept, has_layer_above) in cases!(policies, [true, false]) {
        for (cut, texts) in [
            (long_answer().fails_after(1, "reset"), &["assistant It rains "][..]),
            (Step::error("down"), &[]),
        ] {
            let store = store();
            let model = ScriptedModel::new([cut]);
            let policy = keeping().with_inputs_of_failed_call(kept);
            let client = per_service_call(has_layer_above, &model, &store, policy);
            let mut request = ask("where?", true);
            let handle = request.run_handle();
            handle.queue(Message::user("also when?"));
            send(&client, request).await.unwrap_err();
            let is_stored = !texts.is_empty() || kept == UnansweredInputs::All;
            let mut expected = vec![];
            if is_stored {
                expected.extend(["user where?", "user also when?"]);
            }
            expected.extend(texts);
            assert_eq!(stored(&store).await, expected, "{kept:?} {has_layer_above}");
            let left: Vec<_> = handle.take_queued().iter().map(Message::text).collect();
            let expected = if is_stored { vec![] } else { vec!["also when?"] };
            assert_eq!(left, expected, "{kept:?} {has_layer_above}");
        }
    }
}

#[tokio::test]
async fn a_retry_below_the_loop_leaves_no_partial_text_of_the_first_attempt() {
    for cause in ["dropped", "failed"] {
        let store = store();
        let model = ScriptedModel::new([
            match cause {
                "dropped" => long_answer().hangs_after(1),
                _ => long_answer().fails_after(1, "reset"),
            },
            long_answer(),
        ]);
        let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        let retrying = service_fn(move |request: ChatRequest| {
            let below = below.clone();
            async move {
                let mut first = head(&below, request.clone()).await?;
                first.next().await.unwrap().unwrap();
                if cause == "failed" {
                    first.next().await.unwrap().unwrap_err();
                }
                drop(first);
                head(&below, request).await
            }
        });
        let above = PerRunPersistence::new(store.clone()).mode(PerServiceCall).policy(keeping());
        let client = boxed(
            above.layer(
                ToolLoopLayer::new(tools(&ToolLog::default()))
                    .assume_persister_below(true)
                    .layer(retrying),
            ),
        );
        send(&client, ask("where?", true)).await.unwrap();
        assert_eq!(stored(&store).await, [ALL[0], ALL[3]], "{cause}");
        assert_eq!(marked(&store).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_persister_alone_stores_no_partial_text() {
    let store = store();
    let model = ScriptedModel::new([long_answer().hangs_after(1)]);
    let layer = PerServiceCallPersistence::new(store.clone()).policy(keeping());
    let client = boxed(layer.layer(model));
    let mut response = head(&client, ask("where?", true)).await.unwrap();
    response.next().await.unwrap().unwrap();
    drop(response);
    assert_eq!(stored(&store).await, ["user where?"]);
}
