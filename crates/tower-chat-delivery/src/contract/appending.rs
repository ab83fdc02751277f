//! Tests of appends, and of the beginning of attempts.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, its request
//! can be sent again, which begins the next attempt. Each update has a position: the number of its
//! attempt, from 1, and its index in the attempt, from 0.

use super::{LEASE, MAX_BYTES, MAX_RUNS, MAX_UPDATES, Subject, at, expected, run_in, stored};
use crate::{RunEnd, RunState, StoredUpdate, UpdateLogError};

/// An append whose outcome is unknown can be repeated, alone or together with later updates.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_append_that_is_repeated_stores_nothing_twice(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a", "b"]).await;
    subject.append(&run, (1, 0), &["a", "b"]).await;
    subject.append(&run, (1, 1), &["b", "c"]).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.append(&run, (1, 3), &[]).await;
    let all = expected(&[((1, 0), "a"), ((1, 1), "b"), ((1, 2), "c")]);
    assert_eq!(subject.all(&run).await, all);
}

/// An append that would skip a position is refused.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_append_behind_a_gap_is_refused(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    let refused = subject.log.append(&run, at((1, 2)), &stored(&["c"]), None).await;
    let Err(UpdateLogError::Gap { expected: next, .. }) = refused else {
        panic!("the gap is accepted: {refused:?}");
    };
    assert_eq!(next, at((1, 1)));
    assert_eq!(subject.all(&run).await, expected(&[((1, 0), "a")]));
}

/// If two processes begin the same attempt, exactly one of them succeeds.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_attempt_begins_once(subject: Subject) {
    let run = run_in("s", "c");
    let (first, second) =
        tokio::join!(subject.log.begin(&run, 1, LEASE), subject.log.begin(&run, 1, LEASE));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    subject.begin(&run, 3).await;
    for attempt in [1, 2, 3] {
        let refused = subject.log.begin(&run, attempt, LEASE).await;
        assert!(matches!(refused, Err(UpdateLogError::NotOwner { .. })), "{refused:?}");
    }
}

/// After a later attempt has begun, writes of an earlier attempt fail and change nothing.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_later_attempt_refuses_the_writes_of_an_earlier_one(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.begin(&run, 2).await;
    let append = subject.log.append(&run, at((1, 1)), &stored(&["b"]), None).await;
    assert!(matches!(append, Err(UpdateLogError::NotOwner { .. })), "{append:?}");
    let renew = subject.log.renew(&run, 1, LEASE).await;
    assert!(matches!(renew, Err(UpdateLogError::NotOwner { .. })), "{renew:?}");
    let close = subject.log.append(&run, at((1, 1)), &[], Some(&RunEnd::Completed)).await;
    assert!(matches!(close, Err(UpdateLogError::NotOwner { .. })), "{close:?}");
    let page = subject.page(&run, at((0, 0)), 10).await;
    assert_eq!(page.state, RunState::Open { attempt: 2, stop_requested: false });
    assert_eq!(super::sketch(&page), expected(&[((1, 0), "a")]));
}

/// A later attempt adds to the updates of earlier attempts, and can begin after the run has ended.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_later_attempt_adds_to_the_updates_of_an_earlier_one(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a", "b"]).await;
    subject.close(&run, 1).await;
    subject.begin(&run, 2).await;
    subject.append(&run, (2, 0), &["c"]).await;
    let page = subject.page(&run, at((1, 0)), 10).await;
    assert_eq!(super::sketch(&page), expected(&[((1, 1), "b"), ((2, 0), "c")]));
    // This reader continues after a position of the first attempt that no update has.
    let page = subject.page(&run, at((1, 40)), 10).await;
    assert_eq!(super::sketch(&page), expected(&[((2, 0), "c")]));
    assert_eq!(page.state, RunState::Open { attempt: 2, stop_requested: false });
}

/// An append that would exceed a limit stores nothing, and smaller appends still succeed.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn the_updates_of_a_run_are_bounded(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let many: Vec<StoredUpdate> = (0..=MAX_UPDATES).map(|_| StoredUpdate::new("x")).collect();
    let refused = subject.log.append(&run, at((1, 0)), &many, None).await;
    assert!(matches!(refused, Err(UpdateLogError::LimitExceeded { .. })), "{refused:?}");
    let half = usize::try_from(MAX_BYTES / 2).expect("a length");
    let large = [StoredUpdate::new("x".repeat(half)), StoredUpdate::new("y".repeat(half + 1))];
    let refused = subject.log.append(&run, at((1, 0)), &large, None).await;
    assert!(matches!(refused, Err(UpdateLogError::LimitExceeded { .. })), "{refused:?}");
    assert_eq!(subject.all(&run).await, []);
    subject.log.append(&run, at((1, 0)), &large[..1], None).await.expect("half of the limit");
    // The limits count the updates of all attempts.
    subject.begin(&run, 2).await;
    let refused = subject.log.append(&run, at((2, 0)), &large[1..], None).await;
    assert!(matches!(refused, Err(UpdateLogError::LimitExceeded { .. })), "{refused:?}");
    subject.append(&run, (2, 0), &["z"]).await;
    assert_eq!(subject.all(&run).await.len(), 2);
}

/// A new run is refused while the log is full of runs that have not expired.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn the_number_of_runs_is_bounded(subject: Subject) {
    let runs: Vec<_> = (0..MAX_RUNS).map(|_| run_in("s", "c")).collect();
    for run in &runs {
        subject.begin(run, 1).await;
    }
    let one_more = run_in("s", "c");
    let refused = subject.log.begin(&one_more, 1, LEASE).await;
    assert!(matches!(refused, Err(UpdateLogError::LimitExceeded { .. })), "{refused:?}");
    // A later attempt at a run does not increase the number of runs.
    subject.begin(&runs[0], 2).await;
    subject.clock.advance(LEASE + super::RETENTION);
    subject.begin(&one_more, 1).await;
}
