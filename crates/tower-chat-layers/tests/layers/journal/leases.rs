//! Tests requests to a conversation whose open run another process executes under a lease. Such a
//! request waits, or fails with an error that names the holder of the lease.

use std::time::Duration;

use tower_chat::{
    BoxError, HistoryStore, PersistenceError, PersistencePolicy,
    policy::ConcurrentRuns,
    recovery::{JournalPolicy, OnOpenRun, Recovered, RecoveryPolicy, UnknownCalls, recover},
    store::{LeaseEnd, StoreHandle},
};
use tower_chat_testkit::{FaultyStore, Gate, RecordedMetrics, Step, cases};

use super::booking_tools::*;
use crate::common::*;

const LEASE: u64 = 15;

fn queueing() -> PersistencePolicy {
    policy().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 3 })
}

/// Starts a run whose process dies during the call c1. Its lease is no longer renewed.
fn left_by_a_dead_process(setup: &Setup, booking_tools: &BookingTools, streamed: bool) {
    let gate = Gate::closed();
    let elsewhere = setup.elsewhere();
    // Dropping the future would write to the store, which a process that dies cannot do. The thread
    // therefore forgets the future and its runtime.
    let booking_tools = booking_tools.clone().with_gate_before("c1", &gate);
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let client = elsewhere.stack(&booking_model(), booking_tools.tools());
        let mut run = Box::pin(send(&client, ask("trip", streamed)));
        runtime.block_on(async {
            tokio::select! {
                biased;
                answer = &mut run => panic!("not interrupted: {answer:?}"),
                () = gate.reached(1) => {}
            }
        });
        std::mem::forget(run);
        std::mem::forget(runtime);
    });
    // The thread is joined without an await, during which the paused clock could advance.
    dead.join().unwrap();
}

fn held(outcome: Result<tower_chat::Answer, BoxError>) -> (u64, std::time::SystemTime) {
    match refused(outcome) {
        PersistenceError::RunHeld { holder, until, .. } => (holder, until),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_error_names_the_holder_and_the_time_until_which_the_run_is_held() {
    for streamed in BOTH_WAYS {
        let (store, clock) = (store(), TestClock::default());
        let setup = Setup::new(&store).clock(&clock);
        left_by_a_dead_process(&setup, &BookingTools::default(), streamed);
        let lease = open(&store).await.unwrap().open.lease;
        let model = booking_model();
        let client = setup.stack(&model, BookingTools::default().tools());
        let error = refused(send(&client, ask("and then?", streamed)).await);
        assert!(error.is_retryable());
        let text = error.to_string();
        assert!(text.contains(&format!("{:016x}", lease.holder)), "{text}");
        assert!(text.contains("until 1970-01-12T13:46:55Z"), "{text}");
        assert!(text.contains("another process"), "{text}");
        let held = held(Err(error.into()));
        assert_eq!(held, (lease.holder, lease.until.time().unwrap()));
        assert_eq!(model.requests().len(), 0, "the model is not called");
    }
}

#[tokio::test]
async fn a_lease_expires_exactly_at_its_end() {
    for streamed in BOTH_WAYS {
        let (store, clock) = (store(), TestClock::default());
        let setup = Setup::new(&store).clock(&clock);
        let booking_tools = BookingTools::default();
        left_by_a_dead_process(&setup, &booking_tools, streamed);
        let client = setup.stack(&booking_model(), booking_tools.reopened().tools());
        clock.advance(LEASE - 1);
        held(send(&client, ask("before its end", streamed)).await);
        clock.advance(1);
        let answer = send(&client, ask("at its end", streamed)).await.unwrap();
        assert_eq!(answer.text(), "hello");
        assert_eq!(answer.finish.recovered.unwrap().answer.text(), "booked");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_waits_for_the_lease_of_a_dead_process_and_takes_the_run_over() {
    for (streamed, on_open_run) in
        cases!(BOTH_WAYS, [OnOpenRun::Recover, OnOpenRun::Commit, OnOpenRun::Discard])
    {
        let (store, clock) = (store(), TestClock::default());
        clock.follow_tokio();
        let journal = JournalPolicy::default().on_open_run(on_open_run);
        let setup = Setup::new(&store).clock(&clock).policy(queueing().with_journal(journal));
        let booking_tools = BookingTools::default();
        left_by_a_dead_process(&setup, &booking_tools, streamed);
        let (model, began) = (booking_model(), tokio::time::Instant::now());
        let client = setup.stack(&model, booking_tools.reopened().tools());
        let answer = send(&client, ask("and then?", streamed)).await.unwrap();
        let waited = began.elapsed().as_secs();
        assert!((LEASE - 1..LEASE + 2).contains(&waited), "{waited} s");
        assert_eq!(answer.text(), "hello");
        let history = stored(&store).await;
        let kept = match on_open_run {
            OnOpenRun::Recover => WHOLE_RUN.len(),
            OnOpenRun::Commit => 3,
            _ => 0,
        };
        assert_eq!(history.len(), kept + 2, "{on_open_run:?} {history:?}");
        let recovered = answer.finish.recovered.map(|run| run.answer.text());
        let expected = (on_open_run == OnOpenRun::Recover).then(|| "booked".to_owned());
        assert_eq!(recovered, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_continues_as_soon_as_the_other_process_has_ended_its_run() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store).policy(queueing());
        let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
        let other = setup.elsewhere().stack(&booking_model(), booking_tools.tools());
        let running = tokio::spawn(async move { send(&other, ask("trip", streamed)).await });
        gate.reached(1).await;
        let model = booking_model();
        let client = setup.stack(&model, booking_tools.reopened().tools());
        let waiting = tokio::spawn(async move { send(&client, ask("and then?", streamed)).await });
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert!(!waiting.is_finished());
        let began = tokio::time::Instant::now();
        gate.open();
        running.await.unwrap().unwrap();
        let answer = waiting.await.unwrap().unwrap();
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(answer.finish.recovered, None);
        assert_eq!(model.requests().len(), 1);
        let mut expected: Vec<_> = WHOLE_RUN.map(str::to_owned).into();
        expected.extend(["user and then?".to_owned(), "assistant hello".to_owned()]);
        assert_eq!(stored(&store).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_waits_no_longer_than_its_limit_for_a_process_that_is_alive() {
    let store = store();
    for limit in [0, 3, 40] {
        let gate = Gate::closed();
        let journal = JournalPolicy::default().with_max_lease_wait(Duration::from_secs(limit));
        let setup = Setup::new(&store).policy(queueing().with_journal(journal));
        let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
        let other = setup.elsewhere().stack(&booking_model(), booking_tools.tools());
        let running = tokio::spawn(async move { send(&other, ask("trip", false)).await });
        gate.reached(1).await;
        let (model, began) = (booking_model(), tokio::time::Instant::now());
        let client = setup.stack(&model, BookingTools::default().tools());
        held(send(&client, ask("and then?", false)).await);
        assert_eq!(began.elapsed().as_secs(), limit);
        assert_eq!(model.requests().len(), 0);
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        store.delete(&key()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_processes_that_queue_one_recovers_the_run_and_all_are_answered() {
    for streamed in BOTH_WAYS {
        let (store, clock) = (store(), TestClock::default());
        clock.follow_tokio();
        let setup = Setup::new(&store).clock(&clock).policy(queueing());
        let booking_tools = BookingTools::default();
        left_by_a_dead_process(&setup, &booking_tools, streamed);
        let model = booking_model();
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let client = setup.elsewhere().stack(&model, booking_tools.reopened().tools());
                let request = ask(&format!("and then {number}?"), streamed);
                tokio::spawn(async move { send(&client, request).await })
            })
            .collect();
        let mut recovered = 0;
        for waiting in waiting {
            match waiting.await.unwrap() {
                Ok(answer) => recovered += usize::from(answer.finish.recovered.is_some()),
                // If no run is open, two runs that begin at the same time conflict.
                Err(error) => {
                    let error = refused(Err(error));
                    assert!(matches!(error, PersistenceError::NotStored(_)), "{error:?}");
                }
            }
        }
        assert_eq!(recovered, 1);
        // The call c1 may have run before the first process died. It is therefore not run again.
        assert_eq!(booking_tools.ran(), ["c2", "c3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn recover_waits_where_it_is_configured_and_names_the_holder_otherwise() {
    let (store, clock) = (store(), TestClock::default());
    clock.follow_tokio();
    let setup = Setup::new(&store).clock(&clock);
    let booking_tools = BookingTools::default();
    left_by_a_dead_process(&setup, &booking_tools, false);
    let holder = open(&store).await.unwrap().open.lease.holder;
    let mut client = setup.stack(&booking_model(), booking_tools.reopened().tools());
    let now = RecoveryPolicy::resume().with_unknown_calls(UnknownCalls::Answer);
    let error = recover(&mut client, &store, &key(), now.clone()).await.unwrap_err();
    assert_eq!(held(Err(error)).0, holder);
    let too_short = now.clone().with_max_wait(Duration::from_secs(2));
    let error = recover(&mut client, &store, &key(), too_short).await.unwrap_err();
    assert_eq!(held(Err(error)).0, holder);
    let long_enough = now.with_max_wait(Duration::from_secs(60));
    let recovered = recover(&mut client, &store, &key(), long_enough).await.unwrap();
    let Recovered::Resumed(answer) = recovered else { panic!("{recovered:?}") };
    assert_eq!(answer.text(), "booked");
    assert_eq!(stored(&store).await.len(), WHOLE_RUN.len());
}

#[tokio::test]
async fn a_process_that_could_not_give_its_lease_back_continues_with_its_own_run_at_once() {
    for streamed in BOTH_WAYS {
        let (store, clock) = (store(), TestClock::default());
        let setup = Setup::new(&store).clock(&clock);
        let model = booking_model_with(0, [Step::error("overloaded")]);
        let booking_tools = BookingTools::default();
        let client = setup.stack(&model, booking_tools.tools());
        // The first write (the input) succeeds. The second write, which releases the lease, fails.
        store.let_appends_through(1);
        store.fail_next_append(disk_full());
        let request = ask("trip", streamed);
        send(&client, request.clone()).await.unwrap_err();
        let lease = open(&store).await.unwrap().open.lease;
        assert!(lease.until.time().is_some_and(|until| clock.now() < until), "{lease:?}");
        let elsewhere = setup.elsewhere().stack(&model, booking_tools.tools());
        assert_eq!(held(send(&elsewhere, request.clone()).await).0, lease.holder);
        send(&client, request).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn a_store_that_one_process_uses_has_no_leases_and_no_process_waits() {
    for streamed in BOTH_WAYS {
        let store = FaultyStore::new(memory());
        assert!(store.handle().is_exclusive() && !StoreHandle::new().is_exclusive());
        let (setup, gate) = (Setup::new(&store), Gate::closed());
        let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
        let client = setup.stack(&booking_model(), booking_tools.tools());
        let mut run = Box::pin(send(&client, ask("trip", streamed)));
        tokio::select! {
            biased;
            answer = &mut run => panic!("not interrupted: {answer:?}"),
            () = gate.reached(1) => {}
        }
        assert_eq!(open(&store).await.unwrap().open.lease.until, LeaseEnd::NotHeld);
        let after = FaultyStore::new(store.inner().clone());
        let model = booking_model();
        let client = Setup::new(&after).elsewhere().stack(&model, booking_tools.reopened().tools());
        let answer = send(&client, ask("and then?", streamed)).await.unwrap();
        assert_eq!(answer.finish.recovered.unwrap().answer.text(), "booked");
        drop(run);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_without_leases_receives_no_renewals() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (FaultyStore::new(memory()), Gate::closed());
        let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
        let client = Setup::new(&store).stack(&booking_model(), booking_tools.tools());
        let mut run = Box::pin(send(&client, ask("trip", streamed)));
        tokio::select! {
            biased;
            answer = &mut run => panic!("not interrupted: {answer:?}"),
            () = gate.reached(1) => {}
        }
        let appends = store.appends();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.appends(), appends);
    }
}

#[tokio::test(start_paused = true)]
async fn takeovers_and_renewals_of_leases_are_counted() {
    let metrics = RecordedMetrics::new();
    let _recording = metrics.record_this_thread();
    let (store, clock, gate) = (store(), TestClock::default(), Gate::closed());
    clock.follow_tokio();
    let setup = Setup::new(&store).clock(&clock).policy(queueing());
    let booking_tools = BookingTools::default();
    left_by_a_dead_process(&setup, &booking_tools, false);
    let tools = booking_tools.reopened().with_gate_before("c2", &gate).tools();
    let client = setup.stack(&booking_model(), tools);
    let run = tokio::spawn(async move { send(&client, ask("and then?", false)).await });
    gate.reached(1).await;
    // A lease is renewed after a third of its duration.
    tokio::time::sleep(Duration::from_secs(LEASE / 3 * 2 + 1)).await;
    let lines = ["tower_chat.run.lease_renewals 2", "tower_chat.run.takeovers 1"];
    assert_eq!(metrics.lines_of("tower_chat.run"), lines);
    gate.open();
    run.await.unwrap().unwrap();
}
