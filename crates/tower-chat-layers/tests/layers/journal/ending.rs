//! Tests how open runs are ended, which part of a cut-off answer is stored, and which runs end
//! although no further request is sent.

use tower_chat::{
    ChatOptions, HistoryStore, Message, PersistenceError, PersistencePolicy,
    layer::ToolLoopLayer,
    recovery::{
        JournalPolicy, OnOpenRun, Recovered, RecoveryPolicy, RunEnd, close, open_run, recover,
    },
    store::{InvocationQuery, Journal, LeaseEnd, StoreError, ToolCallQueries},
    tool::ToolOutput,
    tool_fn,
    validate::validate_messages,
};
use tower_chat_testkit::{FaultyStore, Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

fn on_open_run(choice: OnOpenRun) -> PersistencePolicy {
    policy().with_journal(JournalPolicy::default().on_open_run(choice))
}

/// Interrupts a run at one of four steps: before its first answer, during the call c1, during the
/// call c2, or in its second service call. The run remains open.
async fn left_open(setup: &Setup, step: usize) {
    let gate = Gate::closed();
    let booking_tools = BookingTools::default();
    let (model, booking_tools) = match step {
        0 => (booking_model_with(0, [Step::hang()]), booking_tools),
        1 => (booking_model(), booking_tools.with_gate_before("c1", &gate)),
        2 => (booking_model(), booking_tools.with_gate_before("c2", &gate)),
        _ => (booking_model_with(1, [Step::hang()]), booking_tools),
    };
    let client = setup.stack(&model, booking_tools.tools());
    drop_when(&client, ask("trip", false), async {
        match step {
            0 => model.called(1).await,
            1 | 2 => gate.reached(1).await,
            _ => model.called(2).await,
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_committed_as_it_is_is_valid_for_every_provider() {
    for (by_policy, step) in cases!([false, true], 0..4) {
        let store = store();
        let setup = Setup::new(&store).policy(on_open_run(OnOpenRun::Commit));
        left_open(&setup, step).await;
        let model = booking_model();
        let client = setup.stack(&model, BookingTools::default().tools());
        if !by_policy {
            assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
            assert!(!close(&store, &key(), RunEnd::Commit).await.unwrap(), "no run is open");
            let history = store.inner().load(&key()).await.unwrap();
            validate_messages(history.messages.iter().map(|message| &**message)).unwrap();
            let recorded = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
            let recorded = recorded.found.into_iter().map(|(_, call)| call.result.unwrap().text());
            let results = history.messages.iter().flat_map(|message| message.results());
            let results: Vec<_> = results.map(|result| result.text()).collect();
            assert_eq!(
                recorded.collect::<Vec<_>>(),
                results,
                "the record contains the same results"
            );
        }
        send(&client, ask("hi", false)).await.unwrap();
        let history = stored(&store).await;
        let kept = [1, 3, 3, 3][step];
        assert_eq!(history.len(), kept + 2, "{history:?}");
        assert_eq!(history[0], "user trip");
        if step > 0 {
            assert_eq!(history[1], WHOLE_RUN[1]);
            let results = &history[2];
            assert_eq!(results.contains("c1=book c1"), step > 1, "{results}");
            assert_eq!(results.contains("may or may not"), step < 3, "{results}");
            assert_eq!(results.contains("was not run"), step == 1, "{results}");
        }
        assert_eq!(
            sent_texts(&model, 0),
            history[..kept + 1],
            "the model receives the whole history"
        );
    }
}

#[tokio::test]
async fn a_discarded_run_leaves_no_messages() {
    for step in 0..4 {
        let store = store();
        let setup = Setup::new(&store).policy(on_open_run(OnOpenRun::Discard));
        left_open(&setup, step).await;
        let model = booking_model();
        send(&setup.stack(&model, BookingTools::default().tools()), ask("hi", false))
            .await
            .unwrap();
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        assert_eq!(sent_texts(&model, 0), ["user hi"]);
    }
}

#[tokio::test]
async fn a_recovered_run_continues_with_the_options_of_the_recovery() {
    let store = store();
    let setup = Setup::new(&store);
    left_open(&setup, 3).await;
    let model = booking_model();
    let mut client = setup.stack(&model, BookingTools::default().tools());
    let mut options = ChatOptions::default();
    options.model = Some("a cheaper one".to_owned());
    let policy = RecoveryPolicy::resume().with_options(options);
    recover(&mut client, &store, &key(), policy).await.unwrap();
    let requests = model.requests();
    let models: Vec<_> = requests.iter().map(|request| request.options.model.as_deref()).collect();
    assert_eq!(models, [Some("a cheaper one"); 2]);
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

#[tokio::test]
async fn a_recovery_that_ends_the_run_does_not_continue_with_it() {
    for (end, kept) in [(RunEnd::Commit, 3), (RunEnd::Discard, 0)] {
        let store = store();
        let setup = Setup::new(&store);
        left_open(&setup, 3).await;
        let model = booking_model();
        let mut client = setup.stack(&model, BookingTools::default().tools());
        for expected in [Recovered::Ended(end), Recovered::NothingOpen] {
            let policy = RecoveryPolicy::end(end);
            let recovered = recover(&mut client, &store, &key(), policy).await.unwrap();
            assert_eq!(recovered, expected);
            assert_eq!(stored(&store).await, WHOLE_RUN[..kept]);
        }
        assert_eq!(model.requests().len(), 0);
    }
}

#[tokio::test]
async fn only_one_of_two_processes_that_end_a_run_concurrently_succeeds() {
    for (end, kept) in [(RunEnd::Commit, 3), (RunEnd::Discard, 0)] {
        let (store, gate) = (store(), Gate::closed());
        left_open(&Setup::new(&store), 1).await;
        // Both processes have read the open run.
        store.hold_next_reserve(&gate);
        let elsewhere = store.in_another_process();
        let late = tokio::spawn(async move { close(&elsewhere, &key(), end).await });
        gate.reached(1).await;
        assert!(close(&store, &key(), end).await.unwrap());
        gate.open();
        let error = late.await.unwrap().unwrap_err();
        assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
        assert_eq!(stored(&store).await.len(), kept);
    }
}

#[tokio::test]
async fn the_report_of_a_discarded_run_cannot_be_resumed_and_the_model_is_not_called() {
    for (streamed, another_is_open, step) in cases!(BOTH_WAYS, [false, true], 0..4) {
        let store = store();
        let setup = Setup::new(&store).policy(on_open_run(OnOpenRun::Recover));
        left_open(&setup, step).await;
        let report = open_run(&store, &key()).await.unwrap().unwrap();
        assert!(close(&store, &key(), RunEnd::Discard).await.unwrap());
        if another_is_open {
            left_open(&setup, 0).await;
        }
        let before = (stored(&store).await, staged(&store).await);
        let model = booking_model();
        let client = setup.elsewhere().stack(&model, BookingTools::default().tools());
        let resume = report.resume();
        let resume = if streamed { resume.streamed() } else { resume };
        let refused = refused(send(&client, resume).await);
        let PersistenceError::RunGone { key: of, run } = &refused else { panic!("{refused:?}") };
        assert_eq!((of, *run), (&key(), report.open.run));
        assert!(!refused.is_retryable());
        assert_eq!(model.requests().len(), 0, "the model is not called");
        assert_eq!((stored(&store).await, staged(&store).await), before);
    }
}

#[tokio::test]
async fn a_run_that_was_committed_meanwhile_is_answered_from_the_store() {
    for (streamed, another_is_open, step) in cases!(BOTH_WAYS, [false, true], 0..4) {
        let store = store();
        let setup = Setup::new(&store);
        left_open(&setup, step).await;
        let report = open_run(&store, &key()).await.unwrap().unwrap();
        let resume = || match streamed {
            true => report.resume().streamed(),
            false => report.resume(),
        };
        let booking_tools = BookingTools::default();
        let client = setup.elsewhere().stack(&booking_model(), booking_tools.tools());
        let answer = send(&client, resume()).await.unwrap();
        if another_is_open {
            left_open(&setup, 0).await;
        }
        let model = booking_model();
        let again = setup.stack(&model, booking_tools.tools());
        let again = send(&again, resume()).await.unwrap();
        assert_eq!(shorts(&again.messages), shorts(&answer.messages));
        assert_eq!(model.requests().len(), 0);
        assert_eq!(staged(&store).await.len(), usize::from(another_is_open));
    }
}

#[tokio::test]
async fn a_run_that_was_committed_before_it_was_answered_continues_when_it_is_sent_again() {
    for (streamed, mode, by_report) in cases!(BOTH_WAYS, ALL_MODES, [false, true]) {
        let store = store();
        let setup = Setup::new(&store);
        let model = booking_model_with(0, [Step::hang()]);
        let client = setup.stack(&model, BookingTools::default().tools());
        let mut request = ask("trip", streamed);
        drop_when(&client, request.clone(), model.called(1)).await;
        let report = open_run(&store, &key()).await.unwrap().unwrap();
        if by_report {
            request = if streamed { report.resume().streamed() } else { report.resume() };
        }
        assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
        let resume = || request.clone().with_extension(mode);
        let client = setup.elsewhere().stack(&model, BookingTools::default().tools());
        let answer = send(&client, resume()).await.unwrap();
        assert_eq!(shorts(&answer.messages), WHOLE_RUN[1..]);
        assert_eq!(stored(&store).await, WHOLE_RUN);
        assert_eq!(all_seen(&model)[1..], undisturbed());
        let again = send(&client, resume()).await.unwrap();
        assert_eq!(shorts(&again.messages), WHOLE_RUN[1..]);
        assert_eq!(model.requests().len(), 1 + SERVICE_CALLS);
    }
}

#[tokio::test]
async fn a_run_that_was_committed_before_it_was_answered_is_overtaken_by_the_next() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store).policy(on_open_run(OnOpenRun::Commit));
        let model = booking_model_with(0, [Step::hang()]);
        let client = setup.stack(&model, BookingTools::default().tools());
        let request = ask("trip", streamed);
        drop_when(&client, request.clone(), model.called(1)).await;
        send(&client, ask("hi", streamed)).await.unwrap();
        let error = refused(send(&client, request).await);
        assert!(matches!(error, PersistenceError::RunOvertaken { .. }), "{error:?}");
        assert_eq!(model.requests().len(), 2, "the model is not called");
    }
}

#[tokio::test]
async fn a_reported_open_run_is_resumed_in_the_foreground() {
    let store = store();
    let setup = Setup::new(&store);
    left_open(&setup, 0).await;
    let report = open_run(&store, &key()).await.unwrap().unwrap();
    let mut options = ChatOptions::default();
    options.background = true;
    let model = booking_model();
    let client = setup.stack(&model, BookingTools::default().tools());
    send(&client, report.resume().with_options(options)).await.unwrap();
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

fn keeping() -> PersistencePolicy {
    policy().with_partial_text(true)
}

/// Returns a step with a long answer, of which the caller reads only a part.
fn long_answer() -> Step {
    use tower_chat::{ChatUpdate, Finish};
    Step::updates([
        ChatUpdate::TextDelta("It rains ".into()),
        ChatUpdate::TextDelta("in Paris".into()),
        ChatUpdate::Message(Message::assistant("It rains in Paris").into()),
        ChatUpdate::Finish(Finish::stop().into()),
    ])
}

async fn partial(store: &Store) -> Option<String> {
    open(store).await.unwrap().open.partial_text.map(|text| text.to_string())
}

#[tokio::test]
async fn the_partial_text_of_an_interrupted_answer_is_stored_if_the_policy_says_so() {
    for (keep, cause) in cases!([false, true], ["dropped", "failed", "cut off"]) {
        let store = store();
        let setup = Setup::new(&store).policy(if keep { keeping() } else { policy() });
        let cut = match cause {
            "dropped" => long_answer().hangs_after(1),
            "failed" => long_answer().fails_after(1, "reset"),
            _ => long_answer().cut_off_after(1),
        };
        let model = ScriptedModel::new([cut, long_answer(), Step::text("bye")]);
        let client = setup.stack(&model, BookingTools::default().tools());
        let request = ask("weather?", true);
        let appends = {
            let mut response = head(&client, request.clone()).await.unwrap();
            response.next().await.unwrap().unwrap();
            if cause != "dropped" {
                response.next().await.unwrap().unwrap_err();
            }
            store.appends()
        };
        let kept = keep.then(|| "It rains ".to_owned());
        assert_eq!(partial(&store).await, kept);
        assert!(
            store.appends() <= appends + 1,
            "the text is part of the write that releases the lease"
        );
        assert_eq!(stored(&store).await, [""; 0]);
        let answer = send(&client, request).await.unwrap();
        assert_eq!(answer.text(), "It rains in Paris");
        assert_eq!(stored(&store).await, ["user weather?", "assistant It rains in Paris"]);
    }
}

#[tokio::test]
async fn a_partial_text_is_forgotten_when_its_call_is_answered_and_marked_when_it_is_committed() {
    let store = store();
    let setup = Setup::new(&store).policy(keeping());
    let gate = Gate::closed();
    let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
    let model = ScriptedModel::new([
        long_answer().cut_off_after(2),
        calls([("book", "c1")]),
        long_answer().cut_off_after(1),
    ]);
    let client = setup.stack(&model, booking_tools.tools());
    let request = ask("weather?", true);
    send(&client, request.clone()).await.unwrap_err();
    assert_eq!(partial(&store).await.as_deref(), Some("It rains in Paris"));
    let looking = async {
        gate.reached(1).await;
        assert_eq!(partial(&store).await, None);
        gate.open();
    };
    let (outcome, ()) = tokio::join!(send(&client, request), looking);
    outcome.unwrap_err();
    assert_eq!(partial(&store).await.as_deref(), Some("It rains "));
    assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
    let history = store.inner().load(&key()).await.unwrap().messages;
    let last = history.last().unwrap();
    assert_eq!(short(last), "assistant It rains ");
    assert_eq!(last.metadata.get("interrupted"), Some(&serde_json::Value::Bool(true)));
    validate_messages(history.iter().map(|message| &**message)).unwrap();
}

#[tokio::test]
async fn a_run_that_a_tool_ends_is_the_same_whether_or_not_it_was_interrupted() {
    for (keep, interrupted, streamed) in cases!([false, true], [false, true], BOTH_WAYS) {
        let store = store();
        let setup = Setup::new(&store).policy(policy().with_trailing_results(keep));
        let model = ScriptedModel::new([calls([("stop", "c1")])]);
        let request = ask("stop", streamed);
        if interrupted {
            let gate = Gate::closed();
            let waiting = gate.clone();
            let mut definition = definition("stop");
            definition.safe_to_retry = true;
            let tools = tower_chat::Tools::new().with(tool_fn(definition, move |_| {
                let gate = waiting.clone();
                async move {
                    gate.pass().await;
                    Ok::<_, tower_chat::BoxError>(ToolOutput::from(""))
                }
            }));
            let client = setup.stack(&model, tools);
            drop_when(&client, request.clone(), gate.reached(1)).await;
        }
        let mut definition = definition("stop");
        definition.safe_to_retry = true;
        let tools = tower_chat::Tools::new().with(tool_fn(definition, |context| async move {
            let answer = format!("stopped {}", label_of(&context));
            Ok::<_, tower_chat::BoxError>(ToolOutput::from(answer).terminate())
        }));
        let answer = send(&setup.stack(&model, tools), request).await.unwrap();
        let all = ["user stop", "assistant stop#c1", "tool c1=stopped c1"];
        let case_name = (keep, interrupted, streamed);
        assert_eq!(shorts(&answer.messages), all[1..], "{case_name:?}");
        assert_eq!(stored(&store).await, all[..if keep { 3 } else { 2 }], "{case_name:?}");
        let query = tower_chat::store::InvocationQuery::of(&key());
        let calls = store.inner().invocations(&query).await.unwrap().found;
        assert_eq!(calls[0].1.result.as_ref().unwrap().text(), "stopped c1", "{case_name:?}");
        assert!(open(&store).await.is_none());
    }
}

#[tokio::test]
async fn a_message_that_is_queued_after_the_commit_is_left_for_the_next_run() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let model = ScriptedModel::new([Step::text("hello"), Step::text("and hello")]);
        let handle = tower_chat::run::RunHandle::new();
        let request = ask("hi", streamed).with_extension(handle.clone());
        handle.queue(Message::user("early"));
        let client = setup.looped(&model, ToolLoopLayer::new(BookingTools::default().tools()));
        send(&client, request).await.unwrap();
        handle.queue(Message::user("late"));
        assert_eq!(stored(&store).await, ["user hi", "user early", "assistant hello"]);
        assert!(handle.has_queued());
    }
}

#[tokio::test]
async fn closing_the_store_after_a_run_was_dropped_loses_no_messages() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = booking_model_with(1, [Step::hang()]);
        let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
        drop_when(&client, ask("trip", streamed), async {
            model.called(2).await;
            store.hold_appends();
        })
        .await;
        drop(client);
        let closing = tokio::spawn({
            let store = store.clone();
            async move { store.close().await }
        });
        store.holding(1).await;
        store.release_appends();
        closing.await.unwrap().unwrap();
        let after = FaultyStore::new(store.inner().clone());
        let content = after.inner().open_run(&key()).await.unwrap().unwrap();
        assert_eq!(content.open.lease.until, LeaseEnd::Abandoned);
        assert_eq!(shorts(&content.messages), WHOLE_RUN[..2]);
        assert_eq!(calls_known(&after).await, ["c1 Done", "c2 Done"]);
    }
}
