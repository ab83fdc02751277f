//! Tests of the end of a run, of leases, of requests to stop, and of expired runs.
//!
//! An *attempt* is one execution of a run. If the run has failed or its process died, its request
//! can be sent again, which begins the next attempt. The process of an attempt *owns* the run: only
//! this process may append updates to the log. The process must renew its *lease*, a time limit. If
//! the lease has expired, a reader may close the run, which stores the end of the run in the log.

use std::time::Duration;

use super::{LEASE, RETENTION, Subject, at, expected, run_in, sketch, stored};
use crate::{RunEnd, RunState, UpdateLogError, UpdatePosition};

const SECOND: Duration = Duration::from_secs(1);

/// After its end, a run has no owner, so that no attempt can append updates.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_closed_run_takes_no_more_updates(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.close(&run, 1).await;
    let append = subject.log.append(&run, at((1, 1)), &stored(&["b"]), None).await;
    assert!(matches!(append, Err(UpdateLogError::NotOwner { .. })), "{append:?}");
    let renew = subject.log.renew(&run, 1, LEASE).await;
    assert!(matches!(renew, Err(UpdateLogError::NotOwner { .. })), "{renew:?}");
    assert_eq!(subject.all(&run).await, expected(&[((1, 0), "a")]));
}

/// An append that closes the run stores its updates and the end together, or stores neither.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn the_last_updates_and_the_end_are_stored_together(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let completed = RunEnd::Completed;
    let gap = subject.log.append(&run, at((1, 1)), &stored(&["b"]), Some(&completed)).await;
    assert!(matches!(gap, Err(UpdateLogError::Gap { .. })), "{gap:?}");
    let open = RunState::Open { attempt: 1, stop_requested: false };
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, open);
    // The append is repeated, as if its outcome were unknown.
    for _ in 0..2 {
        let close = subject.log.append(&run, at((1, 0)), &stored(&["a"]), Some(&completed)).await;
        close.expect("the run is closed");
        let page = subject.page(&run, UpdatePosition::START, 10).await;
        assert_eq!(page.state, RunState::Closed { attempt: 1, end: RunEnd::Completed });
        assert_eq!(sketch(&page), expected(&[((1, 0), "a")]));
    }
}

/// Closing a run again is not an error, and does not change its end.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn the_first_end_of_an_attempt_stays(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let failed = RunEnd::Failed { message: "overloaded".to_owned() };
    let closed = RunState::Closed { attempt: 1, end: failed.clone() };
    for end in [failed, RunEnd::Completed] {
        let close = subject.log.append(&run, at((1, 0)), &stored(&["a"]), Some(&end)).await;
        close.expect("the run is closed");
        assert_eq!(subject.log.interrupt(&run).await.ok(), Some(closed.clone()));
    }
    assert_eq!(subject.all(&run).await, expected(&[((1, 0), "a")]));
}

/// The owner can renew its lease, even after the lease has expired.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_lease_expires_unless_it_is_renewed(subject: Subject) {
    let run = run_in("s", "c");
    let open = RunState::Open { attempt: 1, stop_requested: false };
    let expired = RunState::LeaseExpired { attempt: 1 };
    subject.begin(&run, 1).await;
    subject.clock.advance(LEASE - SECOND);
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, open);
    subject.log.renew(&run, 1, LEASE).await.expect("the lease is renewed");
    subject.clock.advance(LEASE - SECOND);
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, open);
    subject.clock.advance(SECOND);
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, expired);
    subject.append(&run, (1, 0), &["a"]).await;
    subject.log.renew(&run, 1, LEASE).await.expect("the lease is renewed");
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, open);
}

/// A reader cannot interrupt a run while the lease of its owner is valid.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn only_a_run_without_a_lease_can_be_interrupted(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let open = RunState::Open { attempt: 1, stop_requested: false };
    assert_eq!(subject.log.interrupt(&run).await.ok(), Some(open));
    subject.append(&run, (1, 0), &["a"]).await;
    subject.clock.advance(LEASE);
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Interrupted };
    assert_eq!(subject.log.interrupt(&run).await.ok(), Some(closed.clone()));
    assert_eq!(subject.page(&run, at((1, 0)), 1).await.state, closed);
}

/// The owner receives a request to stop with every renewal. Repeated requests change nothing.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_stop_is_seen_by_the_next_renewal(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let renewed = subject.log.renew(&run, 1, LEASE).await.expect("the lease is renewed");
    assert!(!renewed.stop_requested);
    let open = RunState::Open { attempt: 1, stop_requested: true };
    for _ in 0..2 {
        assert_eq!(subject.log.request_stop(&run).await.ok(), Some(open.clone()));
        let renewed = subject.log.renew(&run, 1, LEASE).await.expect("the lease is renewed");
        assert!(renewed.stop_requested);
    }
    subject.append(&run, (1, 0), &["the answer so far"]).await;
}

/// A request to stop does not change a run that has ended.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_stop_of_an_ended_run_changes_nothing(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.close(&run, 1).await;
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Completed };
    assert_eq!(subject.log.request_stop(&run).await.ok(), Some(closed.clone()));
    assert_eq!(subject.page(&run, UpdatePosition::START, 1).await.state, closed);
    subject.begin(&run, 2).await;
    let renewed = subject.log.renew(&run, 2, LEASE).await.expect("the lease is renewed");
    assert!(!renewed.stop_requested);
}

/// A request to stop does not apply to later attempts, so that a resumed run does not stop.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_stop_ends_with_its_attempt(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.log.request_stop(&run).await.expect("the stop is requested");
    subject.begin(&run, 2).await;
    let renewed = subject.log.renew(&run, 2, LEASE).await.expect("the lease is renewed");
    assert!(!renewed.stop_requested);
}

/// Updates can be read for the retention time after the end of their run.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_run_expires_after_its_end(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.clock.advance(LEASE - SECOND);
    subject.close(&run, 1).await;
    subject.clock.advance(RETENTION - SECOND);
    assert_eq!(subject.all(&run).await.len(), 1);
    subject.clock.advance(SECOND);
    let page = subject.page(&run, UpdatePosition::START, 10).await;
    assert_eq!((sketch(&page), page.state), (Vec::new(), RunState::Unknown));
    assert_eq!(subject.log.request_stop(&run).await.ok(), Some(RunState::Unknown));
}

/// A run whose process died expires even if no reader closes the run.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_run_without_an_end_expires_after_its_lease(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.clock.advance(LEASE + RETENTION - SECOND);
    let page = subject.page(&run, UpdatePosition::START, 10).await;
    assert_eq!(page.state, RunState::LeaseExpired { attempt: 1 });
    assert_eq!(page.updates.len(), 1);
    subject.clock.advance(SECOND);
    let page = subject.page(&run, UpdatePosition::START, 10).await;
    assert_eq!((sketch(&page), page.state), (Vec::new(), RunState::Unknown));
}

/// When an expired run begins again, its log does not contain the earlier updates.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_expired_run_begins_from_nothing(subject: Subject) {
    // `other` begins one second before `run` expires. A log that erases expired runs only at
    // intervals does not erase them again when `run` begins again.
    let (run, other) = (run_in("s", "c"), run_in("s", "d"));
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    subject.close(&run, 1).await;
    subject.clock.advance(RETENTION - SECOND);
    subject.begin(&other, 1).await;
    subject.clock.advance(SECOND);
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["b"]).await;
    assert_eq!(subject.all(&run).await, expected(&[((1, 0), "b")]));
}
