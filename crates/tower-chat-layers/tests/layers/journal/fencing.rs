//! Tests two processes that execute the same run. A process cannot take over a run before its lease
//! has expired. An attempt that has lost its lease cannot write. No step is executed twice.

use std::time::Duration;

use tower_chat::{
    BoxError, Message, PersistenceError,
    recovery::{JournalPolicy, OnOpenRun, RunEnd, close, sweep},
    store::{Journal, LeaseEnd},
};
use tower_chat_testkit::{Gate, Step, cases};

use super::booking_tools::*;
use crate::common::*;

fn is_held(error: &PersistenceError) -> bool {
    matches!(error, PersistenceError::RunHeld { .. })
}

/// Asserts that the run has failed with a conflict, because it has lost its lease.
fn fenced(outcome: Result<tower_chat::Answer, BoxError>) {
    let error = refused(outcome);
    let PersistenceError::NotStored(not_stored) = &error else { panic!("{error:?}") };
    assert!(not_stored.conflict().is_some(), "{error:?}");
}

#[tokio::test]
async fn another_process_cannot_take_over_a_run_before_its_lease_expires() {
    for streamed in BOTH_WAYS {
        let (store, clock) = (store(), TestClock::default());
        let setup = Setup::new(&store).clock(&clock);
        let model = booking_model_with(1, [Step::hang()]);
        let (one, booking_tools) = (setup.clone(), BookingTools::default());
        let request = ask("trip", streamed);
        let held = {
            let client = one.stack(&model, booking_tools.tools());
            let request = request.clone();
            tokio::spawn(async move { send(&client, request).await })
        };
        model.called(2).await;
        let other = booking_model();
        let client = setup.elsewhere().stack(&other, booking_tools.tools());
        for _ in 0..2 {
            for request in [request.clone(), ask("hi", streamed)] {
                let error = refused(send(&client, request).await);
                assert!(is_held(&error) && error.is_retryable(), "{error:?}");
            }
            clock.advance(14);
            // The lease of 15 seconds has not expired after the first iteration. After the second
            // one, only a renewed lease has not expired.
            if clock.now() > TestClock::default().now() + Duration::from_secs(15) {
                break;
            }
        }
        assert_eq!(other.requests().len(), 0, "the model is not called");
        clock.advance(1);
        send(&client, request).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
        assert_eq!((other.requests().len(), booking_tools.ran().len()), (2, 3));
        held.abort();
        let _ = held.await;
        assert_eq!(
            stored(&store).await,
            WHOLE_RUN,
            "the attempt that lost its lease writes nothing"
        );
    }
}

#[tokio::test]
async fn a_late_answer_to_a_run_that_was_taken_over_is_refused_and_starts_no_tool() {
    for (streamed, waiting) in cases!(BOTH_WAYS, 0..SERVICE_CALLS) {
        // The number of answers that the other process has received before the late answer arrives.
        for other_answers in 0..=SERVICE_CALLS - waiting {
            let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
            let setup = Setup::new(&store).clock(&clock);
            let late_step = Step::respond(|request| Step::message(reply(request)));
            let model = booking_model_with(waiting, [late_step.waits(&gate)]);
            let (booking_tools, other_tools) = (BookingTools::default(), BookingTools::default());
            let request = ask("trip", streamed);
            let late = {
                let client = setup.stack(&model, booking_tools.tools());
                let request = request.clone();
                tokio::spawn(async move { send(&client, request).await })
            };
            model.called(waiting + 1).await;
            let before = booking_tools.ran().len();
            clock.advance(16);
            let other = booking_model_with(other_answers, [Step::hang()]);
            let client = setup.elsewhere().stack(&other, other_tools.tools());
            let taking = tokio::spawn(async move { send(&client, request).await });
            if other_answers == SERVICE_CALLS - waiting {
                while stored(&store).await.is_empty() {
                    tokio::task::yield_now().await;
                }
            } else {
                other.called(other_answers + 1).await;
            }
            gate.open();
            fenced(late.await.unwrap());
            let case_name = format!("waiting {waiting}, other {other_answers} {streamed}");
            assert_eq!(booking_tools.ran().len(), before, "no tool is started: {case_name}");
            let ran = before + other_tools.ran().len();
            assert!(ran <= TOOL_CALLS, "{case_name}");
            if other_answers == SERVICE_CALLS - waiting {
                taking.await.unwrap().unwrap();
                assert_eq!(ran, TOOL_CALLS, "{case_name}");
                assert_eq!(stored(&store).await, WHOLE_RUN, "{case_name}");
            } else {
                taking.abort();
                let _ = taking.await;
                assert_eq!(stored(&store).await, [""; 0], "{case_name}");
            }
        }
    }
}

#[tokio::test]
async fn an_outcome_of_a_run_that_was_taken_over_is_refused() {
    for concurrent in [false, true] {
        let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
        let setup = Setup::new(&store).clock(&clock).concurrent(concurrent);
        let booking_tools = BookingTools::default().with_gate_after("c1", &gate);
        let model = booking_model();
        let request = ask("trip", false);
        let late = {
            let client = setup.stack(&model, booking_tools.tools());
            let request = request.clone();
            tokio::spawn(async move { send(&client, request).await })
        };
        gate.reached(1).await;
        clock.advance(16);
        let client = setup.elsewhere().stack(&model, booking_tools.reopened().tools());
        send(&client, request).await.unwrap();
        gate.open();
        fenced(late.await.unwrap());
        let history = stored(&store).await;
        assert!(history[2].starts_with("tool c1!"), "c1 may or may not have run: {history:?}");
        assert_eq!(booking_tools.times("c1"), 1);
        assert_eq!(model.requests().len(), SERVICE_CALLS);
    }
}

#[tokio::test]
async fn only_one_of_two_processes_that_begin_the_same_run_concurrently_continues() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store);
        let booking_tools = BookingTools::default();
        let (one, other) = (booking_model(), booking_model());
        let request = ask("trip", streamed);
        store.hold_next_reserve(&gate);
        let late = {
            let client = setup.elsewhere().stack(&other, booking_tools.tools());
            let request = request.clone();
            tokio::spawn(async move { send(&client, request).await })
        };
        gate.reached(1).await;
        send(&setup.stack(&one, booking_tools.tools()), request.clone()).await.unwrap();
        gate.open();
        fenced(late.await.unwrap());
        assert_eq!((one.requests().len(), other.requests().len()), (3, 0));
        assert_eq!(booking_tools.ran().len(), TOOL_CALLS);
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn only_one_of_two_processes_that_take_over_a_run_concurrently_continues() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store);
        let booking_tools = BookingTools::default();
        let request = ask("trip", streamed);
        let model = booking_model_with(1, [Step::error("overloaded")]);
        send(&setup.stack(&model, booking_tools.tools()), request.clone()).await.unwrap_err();
        let hold = Gate::closed();
        let slow = Step::respond(|request| Step::message(reply(request))).waits(&hold);
        let (one, other) = (booking_model_with(0, [slow]), booking_model());
        store.hold_next_reserve(&gate);
        let late = {
            let client = setup.elsewhere().stack(&other, booking_tools.tools());
            let request = request.clone();
            tokio::spawn(async move { send(&client, request).await })
        };
        gate.reached(1).await;
        let early = {
            let client = setup.elsewhere().stack(&one, booking_tools.tools());
            tokio::spawn(async move { send(&client, request).await })
        };
        one.called(1).await;
        gate.open();
        fenced(late.await.unwrap());
        hold.open();
        early.await.unwrap().unwrap();
        assert_eq!((one.requests().len(), other.requests().len()), (2, 0));
        assert_eq!(booking_tools.ran(), ["c1", "c2", "c3"]);
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn a_process_that_reads_a_run_after_another_process_has_resumed_it_is_refused() {
    for streamed in BOTH_WAYS {
        let (store, gate, hold) = (store(), Gate::closed(), Gate::closed());
        let setup = Setup::new(&store);
        let booking_tools = BookingTools::default();
        let request = ask("trip", streamed);
        let model = booking_model_with(1, [Step::error("overloaded")]);
        send(&setup.stack(&model, booking_tools.tools()), request.clone()).await.unwrap_err();
        let slow = Step::respond(|request| Step::message(reply(request))).waits(&hold);
        let (one, other) = (booking_model_with(0, [slow]), booking_model());
        // This process has read a head with an open run that has no lease.
        store.hold_next_load(&gate);
        let late = {
            let client = setup.elsewhere().stack(&other, booking_tools.tools());
            let request = request.clone();
            tokio::spawn(async move { send(&client, request).await })
        };
        gate.reached(1).await;
        let early = {
            let client = setup.elsewhere().stack(&one, booking_tools.tools());
            tokio::spawn(async move { send(&client, request).await })
        };
        one.called(1).await;
        gate.open();
        let error = refused(late.await.unwrap());
        assert!(is_held(&error), "{error:?}");
        hold.open();
        early.await.unwrap().unwrap();
        assert_eq!((one.requests().len(), other.requests().len()), (2, 0));
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn an_open_run_that_another_process_ends_before_it_is_resumed_blocks_no_other_run() {
    let ends = [RunEnd::Commit, RunEnd::Discard];
    for (streamed, mode, end) in cases!(BOTH_WAYS, ALL_MODES, ends) {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store).policy(
            policy().with_journal(JournalPolicy::default().on_open_run(OnOpenRun::Recover)),
        );
        let (booking_tools, failing) =
            (BookingTools::default(), booking_model_with(1, [Step::error("overloaded")]));
        let client = setup.stack(&failing, booking_tools.tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        // This process has read a head with the open run.
        store.hold_next_load(&gate);
        let model = booking_model();
        let late = {
            let client = setup.elsewhere().mode(mode).stack(&model, booking_tools.tools());
            tokio::spawn(async move { send(&client, ask("and then?", streamed)).await })
        };
        gate.reached(1).await;
        assert!(close(&store, &key(), end).await.unwrap());
        let before = stored(&store).await;
        gate.open();
        let answer = late.await.unwrap().unwrap();
        assert!(answer.finish.recovered.is_none(), "{mode:?}");
        assert_eq!((answer.text().as_str(), model.requests().len()), ("hello", 1));
        let after = stored(&store).await;
        assert_eq!(after[..before.len()], before);
        assert_eq!(after[before.len()..], ["user and then?", "assistant hello"]);
    }
}

#[tokio::test]
async fn a_run_that_was_ended_by_another_process_can_write_no_more() {
    for (end, (waiting, shown)) in
        cases!([RunEnd::Commit, RunEnd::Discard], SHOWN.into_iter().enumerate())
    {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store);
        let late_step = Step::respond(|request| Step::message(reply(request)));
        let model = booking_model_with(waiting, [late_step.waits(&gate)]);
        let booking_tools = BookingTools::default();
        let client = setup.stack(&model, booking_tools.tools());
        let request = ask("trip", false);
        let late = tokio::spawn(async move { send(&client, request).await });
        model.called(waiting + 1).await;
        let ran = booking_tools.ran().len();
        assert!(close(&store, &key(), end).await.unwrap());
        let after = stored(&store).await;
        let kept = if end == RunEnd::Commit { shown } else { 0 };
        assert_eq!(after, WHOLE_RUN[..kept]);
        gate.open();
        fenced(late.await.unwrap());
        assert_eq!(stored(&store).await, after);
        assert!(open(&store).await.is_none());
        assert_eq!(booking_tools.ran().len(), ran);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_under_way_renews_its_lease() {
    let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
    let setup = Setup::new(&store).clock(&clock);
    let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
    let client = setup.stack(&booking_model(), booking_tools.tools());
    let running = tokio::spawn(async move { send(&client, ask("trip", false)).await });
    gate.reached(1).await;
    let other = setup.elsewhere().stack(&booking_model(), booking_tools.tools());
    for _ in 0..12 {
        clock.advance(5);
        tokio::time::sleep(Duration::from_millis(5001)).await;
        let until = open(&store).await.unwrap().open.lease.until.time().unwrap();
        assert!(until > clock.now() + Duration::from_secs(9), "{:?}", until);
        assert!(is_held(&refused(send(&other, ask("hi", false)).await)));
    }
    gate.open();
    running.await.unwrap().unwrap();
    let appends = store.appends();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.appends(), appends, "a run that has ended does not renew its lease");
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_new_input_renews_its_lease_from_its_first_answer_on() {
    let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
    let setup = Setup::new(&store).clock(&clock);
    let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
    let client =
        setup.stack(&booking_model_with(0, [Step::text("not yet")]), booking_tools.tools());
    send(&client, ask("trip", false)).await.unwrap();
    let running = tokio::spawn(async move { send(&client, request_with([], false)).await });
    gate.reached(1).await;
    for _ in 0..6 {
        clock.advance(5);
        tokio::time::sleep(Duration::from_millis(5001)).await;
        let until = open(&store).await.unwrap().open.lease.until.time().unwrap();
        assert!(until > clock.now() + Duration::from_secs(9), "{until:?}");
    }
    gate.open();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_renewal_of_a_lease_succeeds_after_a_renewal_has_failed() {
    let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
    let setup = Setup::new(&store).clock(&clock);
    let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
    let client = setup.stack(&booking_model(), booking_tools.tools());
    let running = tokio::spawn(async move { send(&client, ask("trip", false)).await });
    gate.reached(1).await;
    let begun_at = clock.now();
    store.fail_next_append(disk_full());
    for renewed_after in [0, 10, 15] {
        clock.advance(5);
        tokio::time::sleep(Duration::from_millis(5001)).await;
        let renewed_at = open(&store).await.unwrap().open.lease.renewed_at;
        assert_eq!(renewed_at, begun_at + Duration::from_secs(renewed_after));
    }
    gate.open();
    running.await.unwrap().unwrap();
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_does_not_renew_its_lease() {
    let store = store();
    let model = booking_model_with(1, [Step::hang()]);
    let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
    drop_when(&client, ask("trip", false), model.called(2)).await;
    let appends = store.appends();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.appends(), appends);
    assert_eq!(open(&store).await.unwrap().open.lease.until, LeaseEnd::Abandoned);
}

#[tokio::test]
async fn a_run_is_abandoned_if_the_caller_disconnects_while_the_run_is_taken_over() {
    let store = store();
    let setup = Setup::new(&store);
    let model = booking_model_with(1, [Step::error("overloaded")]);
    let client = setup.elsewhere().stack(&model, BookingTools::default().tools());
    let request = ask("trip", false);
    send(&client, request.clone()).await.unwrap_err();
    store.hold_appends();
    drop_when(&client, request, store.holding(1)).await;
    store.release_appends();
    let lease = open(&store).await.unwrap().open.lease;
    assert_eq!((lease.attempt, lease.until), (2, LeaseEnd::Abandoned));
}

#[tokio::test]
async fn without_a_lease_a_run_can_be_taken_over_at_once() {
    let (store, gate) = (store(), Gate::closed());
    let policy = policy().with_journal(JournalPolicy::default().with_lease(Duration::ZERO));
    let setup = Setup::new(&store).policy(policy);
    let booking_tools = BookingTools::safe().with_gate_before("c1", &gate);
    let client = setup.stack(&booking_model(), booking_tools.tools());
    let request = ask("trip", false);
    let again = request.clone();
    let late = tokio::spawn(async move { send(&client, request).await });
    gate.reached(1).await;
    assert_eq!(open(&store).await.unwrap().open.lease.until, LeaseEnd::NotHeld);
    send(&setup.elsewhere().stack(&booking_model(), booking_tools.reopened().tools()), again)
        .await
        .unwrap();
    gate.open();
    fenced(late.await.unwrap());
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

#[tokio::test]
async fn a_sweep_ends_old_open_runs_that_no_process_executes() {
    for end in [RunEnd::Commit, RunEnd::Discard] {
        let (store, clock) = (store(), TestClock::default());
        let setup = Setup::new(&store).clock(&clock);
        let failing = || booking_model_with(1, [Step::error("overloaded")]);
        let in_conversation = |id: &str| {
            let key = tower_chat::ConversationKey::new("alice", id);
            tower_chat::ChatRequest::new([Message::user("trip")]).in_conversation(key)
        };
        send(&setup.stack(&failing(), BookingTools::default().tools()), in_conversation("old"))
            .await
            .unwrap_err();
        let model = booking_model_with(1, [Step::hang()]);
        let client = setup.elsewhere().stack(&model, BookingTools::default().tools());
        let held = tokio::spawn(async move { send(&client, in_conversation("held")).await });
        model.called(2).await;
        let here = booking_model_with(1, [Step::hang()]);
        let client = setup.stack(&here, BookingTools::default().tools());
        let under_way = tokio::spawn(async move { send(&client, in_conversation("here")).await });
        here.called(2).await;
        clock.advance(10);
        send(&setup.stack(&failing(), BookingTools::default().tools()), in_conversation("young"))
            .await
            .unwrap_err();
        let age = Duration::from_secs(10);
        let swept = sweep(&store, "alice", clock.now(), age, end).await.unwrap();
        assert_eq!(swept.iter().map(|key| key.id()).collect::<Vec<_>>(), ["old"]);
        assert_eq!(sweep(&store, "bob", clock.now(), age, end).await.unwrap(), []);
        clock.advance(10);
        let swept = sweep(&store, "alice", clock.now(), age, end).await.unwrap();
        // The lease of the run in `held` has expired, and the run is ended. The run in `here` is
        // not ended, because this process executes it.
        assert_eq!(swept.iter().map(|key| key.id()).collect::<Vec<_>>(), ["held", "young"]);
        let left = store.open_runs("alice", None, 10).await.unwrap();
        assert_eq!(left.iter().map(|key| key.id()).collect::<Vec<_>>(), ["here"]);
        held.abort();
        under_way.abort();
        let _ = (held.await, under_way.await);
    }
}
