//! Tests of reads, and of readers that wait.
//!
//! A *page* is the result of one read: some updates of a run, and the state of the run.

use std::time::Duration;

use super::{LEASE, Subject, at, expected, run_in, sketch};
use crate::{RunEnd, RunState, UpdateLogError, UpdatePosition};

/// The maximum time of a wait in these tests. If the log follows the contract, each wait ends long
/// before.
const LONG: Duration = Duration::from_secs(60);

/// A page begins with the first update after the position of the reader, and contains at most
/// `limit` updates.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_page_has_what_is_strictly_after_its_position(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a", "b", "c"]).await;
    subject.append(&run, (1, 3), &["d"]).await;
    let page = subject.page(&run, UpdatePosition::START, 2).await;
    assert_eq!(sketch(&page), expected(&[((1, 0), "a"), ((1, 1), "b")]));
    let page = subject.page(&run, at((1, 1)), 2).await;
    assert_eq!(sketch(&page), expected(&[((1, 2), "c"), ((1, 3), "d")]));
    let page = subject.page(&run, at((1, 3)), 2).await;
    assert_eq!(sketch(&page), []);
    assert_eq!(page.state, RunState::Open { attempt: 1, stop_requested: false });
}

/// Runs are separate if their conversations or their ids differ.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn runs_do_not_share_updates(subject: Subject) {
    let run = run_in("s", "c");
    let mut others = [run_in("s", "c"), run.clone(), run.clone()];
    others[1].conversation = tower_chat_layers::ConversationKey::new("s/c", "");
    others[2].conversation = tower_chat_layers::ConversationKey::new("", "s/c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    for other in &others {
        assert_eq!(subject.page(other, UpdatePosition::START, 10).await.state, RunState::Unknown);
        subject.begin(other, 1).await;
        subject.append(other, (1, 0), &["b"]).await;
    }
    assert_eq!(subject.all(&run).await, expected(&[((1, 0), "a")]));
}

/// The log does not interpret updates, and returns each text unchanged.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn texts_are_returned_as_they_were(subject: Subject) {
    let run = run_in("sc'ope\u{0}", "\u{1F980}");
    subject.begin(&run, 1).await;
    let texts = ["", "\u{0}", "'); DROP TABLE", "\u{1F980}\n", "{\"text\":1}"];
    subject.append(&run, (1, 0), &texts).await;
    let found: Vec<String> = subject.all(&run).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(found, texts);
}

/// A run that never began has no updates, and cannot be stopped.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_unknown_run_has_no_updates(subject: Subject) {
    let run = run_in("s", "c");
    let page = subject.page(&run, UpdatePosition::START, 10).await;
    assert_eq!((sketch(&page), page.state), (Vec::new(), RunState::Unknown));
    assert_eq!(subject.log.request_stop(&run).await.ok(), Some(RunState::Unknown));
    assert!(subject.log.renew(&run, 1, LEASE).await.is_err());
    assert_eq!(subject.log.interrupt(&run).await.ok(), Some(RunState::Unknown));
    let close = subject.log.append(&run, at((1, 0)), &[], Some(&RunEnd::Completed)).await;
    assert!(matches!(close, Err(UpdateLogError::NotOwner { .. })), "{close:?}");
}

/// Reads and waits until the run has an update after the position, or has ended.
async fn follow(
    subject: &Subject,
    run: &crate::RunKey,
    after: UpdatePosition,
) -> crate::UpdatePage {
    loop {
        let page = subject.page(run, after, 10).await;
        if !page.updates.is_empty() || !matches!(page.state, RunState::Open { .. }) {
            return page;
        }
        subject.log.wait(run, after, LONG).await.expect("the reader waits");
    }
}

/// A reader that waits receives the next update.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_waiting_reader_sees_an_append(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    let reader = tokio::spawn({
        let (subject, run) = (subject.clone(), run.clone());
        async move { follow(&subject, &run, at((1, 0))).await }
    });
    tokio::task::yield_now().await;
    subject.append(&run, (1, 1), &["b"]).await;
    let page = reader.await.expect("the reader ends");
    assert_eq!(sketch(&page), expected(&[((1, 1), "b")]));
}

/// The end of a run wakes a waiting reader.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_waiting_reader_sees_the_end(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    let reader = tokio::spawn({
        let (subject, run) = (subject.clone(), run.clone());
        async move { follow(&subject, &run, UpdatePosition::START).await }
    });
    tokio::task::yield_now().await;
    subject.close(&run, 1).await;
    let page = reader.await.expect("the reader ends");
    assert_eq!(page.state, RunState::Closed { attempt: 1, end: RunEnd::Completed });
}

/// A wait returns immediately if the next update of the reader is already stored.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_wait_for_what_is_there_ends_at_once(subject: Subject) {
    let run = run_in("s", "c");
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    let wait = subject.log.wait(&run, UpdatePosition::START, LONG);
    tokio::time::timeout(LONG / 2, wait).await.expect("the wait ends").expect("the log is read");
}
