//! Tests the outcome of a run whose caller disconnects, under each policy.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_chat::{
    HistoryStore, PersistenceError, PersistencePolicy,
    recovery::{JournalPolicy, OnDisconnect, OnOpenRun, Recovered, RecoveryPolicy, recover},
    store::{LeaseEnd, ToolCallQueries},
    tool::CallPosition,
    validate::validate_messages,
};
use tower_chat_testkit::{FaultyStore, Gate, Injection, Operation, Step, StoreFault, cases};

use super::booking_tools::*;
use crate::common::*;

fn on_disconnect(choice: OnDisconnect) -> PersistencePolicy {
    policy().with_journal(JournalPolicy::default().on_disconnect(choice))
}

/// Drops a run at one of four steps: before its first answer, during the call c1, during the call
/// c2, or in its second service call.
async fn dropped(setup: &Setup, step: usize, streamed: bool) -> BookingTools {
    let (gate, booking_tools) = (Gate::closed(), BookingTools::default());
    let (model, waiting) = match step {
        0 => (booking_model_with(0, [Step::hang()]), booking_tools.clone()),
        1 => (booking_model(), booking_tools.clone().with_gate_before("c1", &gate)),
        2 => (booking_model(), booking_tools.clone().with_gate_before("c2", &gate)),
        _ => (booking_model_with(1, [Step::hang()]), booking_tools.clone()),
    };
    let client = setup.stack(&model, waiting.tools());
    drop_when(&client, ask("trip", streamed), async {
        match step {
            0 => model.called(1).await,
            1 | 2 => gate.reached(1).await,
            _ => model.called(2).await,
        }
    })
    .await;
    booking_tools
}

#[tokio::test]
async fn the_disconnect_policy_decides_whether_a_dropped_run_is_committed_or_discarded() {
    for (streamed, concurrent, step) in cases!(BOTH_WAYS, [false, true], 0..4) {
        for (choice, kept) in
            [(OnDisconnect::Commit, [1, 3, 3, 3][step]), (OnDisconnect::Discard, 0)]
        {
            let store = store();
            let setup = Setup::new(&store).policy(on_disconnect(choice));
            let setup = setup.concurrent(concurrent);
            let booking_tools = dropped(&setup, step, streamed).await;
            let case_name = format!("{choice:?} {step} {streamed} {concurrent}");
            assert!(open(&store).await.is_none(), "{case_name}");
            let history = stored(&store).await;
            assert_eq!(history.len(), kept, "{case_name} {history:?}");
            let stored = store.inner().load(&key()).await.unwrap();
            validate_messages(stored.messages.iter().map(|message| &**message)).unwrap();
            if kept == 3 {
                for call in ["c1", "c2"] {
                    let has_run = booking_tools.times(call) > 0;
                    let text = &history[2];
                    assert_eq!(text.contains(&format!("{call}=")), has_run, "{text}");
                    assert_eq!(text.contains(&format!("{call}!")), !has_run, "{text}");
                }
            }
            let model = booking_model();
            let client = setup.stack(&model, booking_tools.tools());
            let answer = send(&client, ask("and then?", streamed)).await.unwrap();
            assert_eq!((answer.text(), model.requests().len()), ("hello".into(), 1));
        }
    }
}

#[tokio::test]
async fn the_record_of_a_run_that_is_committed_by_its_drop_says_what_became_of_its_calls() {
    use tower_chat::{store::InvocationQuery, tool::ToolStatus};
    let store = store();
    let setup = Setup::new(&store).policy(on_disconnect(OnDisconnect::Commit));
    dropped(&setup, 2, false).await;
    let rows = store.invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(_, call)| (call.call_id, call.status, call.result.map(|result| result.text())))
        .collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0], ("c1".into(), ToolStatus::Ok, Some("book c1".into())));
    assert_eq!((&*rows[1].0, rows[1].1), ("c2", ToolStatus::Interrupted));
}

#[tokio::test]
async fn each_result_that_a_drop_commits_names_the_call_that_it_answers() {
    Cases::all()
        .modes([Journaled], "only a journaled run remains open after a dropped response")
        .check(async |case| {
            for resumed in [false, true] {
                let (store, gate) = (case.store().await, Gate::closed());
                let setup = Setup::new(&store);
                let (model, booking_tools) = (booking_model(), BookingTools::safe());
                let waiting = booking_tools.clone().with_gate_before("c2", &gate);
                let request = case.ask("trip");
                if resumed {
                    let client = setup.stack(&model, waiting.tools());
                    drop_when(&client, request.clone(), gate.reached(1)).await;
                }
                let setup = setup.policy(on_disconnect(OnDisconnect::Commit));
                let client = setup.stack(&model, waiting.tools());
                let attempts = 1 + usize::from(resumed);
                drop_when(&client, request, gate.reached(attempts)).await;
                assert!(open(&store).await.is_none());
                let messages = store.inner().load(&key()).await.unwrap().messages;
                let asking = messages.get(1).unwrap().id.unwrap();
                let results = messages.get(2).unwrap().results();
                let named: Vec<_> = results.map(|it| (it.text(), it.call)).collect();
                let position = |index| Some(CallPosition { message: asking, index });
                let interrupted = (INTERRUPTED.to_owned(), position(1));
                let expected = [("book c1".to_owned(), position(0)), interrupted];
                assert_eq!(named, expected, "resumed: {resumed}");
            }
        })
        .await;
}

#[tokio::test]
async fn a_run_that_cannot_be_read_after_it_was_taken_over_stays_open() {
    for (streamed, choice) in cases!(BOTH_WAYS, [OnDisconnect::Commit, OnDisconnect::Discard]) {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let failing = left.clone();
        let store = FaultyStore::with_injector(memory(), move |operation| match operation {
            Operation::OpenRun if failing.fetch_sub(1, Ordering::SeqCst) == 0 => {
                Injection::none().with(StoreFault::Before(disk_full()))
            }
            _ => Injection::none(),
        });
        let setup = Setup::new(&store);
        let model = booking_model_with(1, [Step::error("overloaded")]);
        let booking_tools = BookingTools::default();
        let request = ask("trip", streamed);
        send(&setup.stack(&model, booking_tools.tools()), request.clone()).await.unwrap_err();
        let client = setup.policy(on_disconnect(choice)).stack(&model, booking_tools.tools());
        left.store(1, Ordering::SeqCst);
        let error = refused(send(&client, request.clone()).await);
        assert!(matches!(error, PersistenceError::NotLoaded { .. }), "{choice:?} {error:?}");
        assert_eq!(
            open(&store).await.unwrap().open.lease.attempt,
            2,
            "the second attempt owns the run"
        );
        assert_eq!(staged(&store).await, WHOLE_RUN[..2], "{choice:?}");
        left.store(usize::MAX, Ordering::SeqCst);
        send(&client, request).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn the_partial_text_of_a_dropped_answer_is_stored_if_the_policy_says_so() {
    for choice in [OnDisconnect::LeaveOpen, OnDisconnect::Commit] {
        let store = store();
        let setup = Setup::new(&store).policy(on_disconnect(choice).with_partial_text(true));
        let model = booking_model_with(0, [Step::text("half an answer").hangs_after(1)]);
        let client = setup.stack(&model, BookingTools::default().tools());
        let mut response = head(&client, ask("hi", true)).await.unwrap();
        let first = response.next().await.unwrap().unwrap();
        drop(response);
        let tower_chat::ChatUpdate::TextDelta(text) = first else { panic!("{first:?}") };
        send(&client, ask("and then?", true)).await.unwrap();
        let expected = ["user hi".into(), format!("assistant {text}"), "user and then?".into()];
        assert_eq!(stored(&store).await[..3], expected, "{choice:?}");
    }
}

#[tokio::test]
async fn a_dropped_run_is_resumed_by_the_same_request_and_by_recover() {
    for (streamed, step) in cases!(BOTH_WAYS, 0..4) {
        let store = store();
        let setup = Setup::new(&store);
        let booking_tools = dropped(&setup, step, streamed).await;
        let mut client = setup.stack(&booking_model(), booking_tools.tools());
        let policy = RecoveryPolicy::resume();
        let recovered = recover(&mut client, &store, &key(), policy).await.unwrap();
        assert!(matches!(recovered, Recovered::Resumed(_)), "{recovered:?}");
        assert_eq!(stored(&store).await.len(), WHOLE_RUN.len());
    }
}

#[tokio::test]
async fn a_run_whose_recovery_is_dropped_is_paid_for_only_once() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let failing = booking_model_with(1, [Step::error("overloaded"), Step::hang()]);
        let booking_tools = BookingTools::default();
        let client = setup.stack(&failing, booking_tools.tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        assert_ne!(
            open(&store).await.unwrap().open.lease.until,
            LeaseEnd::Abandoned,
            "the run failed before it was dropped"
        );
        drop_when(&client, ask("one", streamed), failing.called(3)).await;
        assert_eq!(open(&store).await.unwrap().open.lease.until, LeaseEnd::Abandoned);
        let model = booking_model();
        let client = setup.stack(&model, booking_tools.tools());
        send(&client, ask("two", streamed)).await.unwrap();
        assert_eq!(model.requests().len(), 1);
        assert_eq!(stored(&store).await[..3], WHOLE_RUN[..3]);
    }
}

#[tokio::test]
async fn a_dropped_run_is_committed_or_discarded_by_the_policy_for_open_runs() {
    Cases::all()
        .modes([Journaled], "only journaled mode has open runs")
        .check(async |case| {
            for (on_open_run, kept) in [(OnOpenRun::Commit, 3), (OnOpenRun::Discard, 0)] {
                let store = case.store().await;
                let journal = JournalPolicy::default().on_open_run(on_open_run);
                let setup = Setup::new(&store).policy(policy().with_journal(journal));
                dropped(&setup, 3, case.streamed).await;
                let client = setup.stack(&booking_model(), BookingTools::default().tools());
                send(&client, case.ask("and then?")).await.unwrap();
                assert_eq!(stored(&store).await.len(), kept + 2);
            }
            let store = case.store().await;
            let journal = JournalPolicy::default().on_open_run(OnOpenRun::Reject);
            let setup = Setup::new(&store).policy(policy().with_journal(journal));
            dropped(&setup, 3, case.streamed).await;
            let client = setup.stack(&booking_model(), BookingTools::default().tools());
            refused(send(&client, case.ask("and then?")).await);
            assert!(open(&store).await.is_some());
        })
        .await;
}
