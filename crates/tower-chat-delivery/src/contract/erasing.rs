//! Tests of the erasure of runs.
//!
//! A conversation has an id in a *scope*, which is a group of conversations, such as those of one
//! user.

use tower_chat_layers::{
    HistoryStore, MemoryStore, Message, MessageId,
    store::{Revision, author::Write},
};

use super::{LEASE, Subject, at, run_in, stored};
use crate::{DetachedRunsLayer, Erase, RunState, UpdateLogError, UpdatePosition};

async fn begun(subject: &Subject, scope: &str, id: &str) -> crate::RunKey {
    let run = run_in(scope, id);
    subject.begin(&run, 1).await;
    subject.append(&run, (1, 0), &["a"]).await;
    run
}

async fn is_there(subject: &Subject, run: &crate::RunKey) -> bool {
    let page = subject.page(run, UpdatePosition::START, 10).await;
    assert_eq!(page.state == RunState::Unknown, page.updates.is_empty());
    page.state != RunState::Unknown
}

/// Erasing a conversation erases all of its runs, and no other runs.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_conversation_is_erased(subject: Subject) {
    let (first, second) = (begun(&subject, "s", "c").await, begun(&subject, "s", "c").await);
    let others = [begun(&subject, "s", "d").await, begun(&subject, "t", "c").await];
    let erase = Erase::Conversation(&first.conversation);
    assert_eq!(subject.log.erase(erase).await.ok(), Some(2));
    assert!(!is_there(&subject, &first).await && !is_there(&subject, &second).await);
    for other in &others {
        assert!(is_there(&subject, other).await);
    }
    assert_eq!(subject.log.erase(erase).await.ok(), Some(0));
}

/// [`DetachedRunsLayer::erasing_store`] erases the updates of a deleted conversation, even if the store
/// contains no message of the conversation.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn updates_are_erased_with_their_conversation(subject: Subject) {
    let (run, other) = (begun(&subject, "s", "c").await, begun(&subject, "s", "d").await);
    let key = &run.conversation;
    let store = DetachedRunsLayer::new(subject.log.clone()).erasing_store(MemoryStore::new());
    let id = MessageId { run: run.run, index: 0 };
    let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a").into()]);
    let slot = store.reserve().await.expect("a slot");
    store.append(slot, vec![write]).await.expect("the message is stored");
    assert_eq!(store.delete(key).await.ok(), Some(true));
    assert!(!is_there(&subject, &run).await);
    assert!(is_there(&subject, &other).await);
    assert_eq!(store.delete(&other.conversation).await.ok(), Some(false));
    assert!(!is_there(&subject, &other).await);
}

/// Erasing a scope erases all of its runs, and no other runs.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn a_scope_is_erased(subject: Subject) {
    let runs = [begun(&subject, "s", "c").await, begun(&subject, "s", "d").await];
    let other = begun(&subject, "st", "c").await;
    assert_eq!(subject.log.erase(Erase::Scope("s")).await.ok(), Some(2));
    for run in &runs {
        assert!(!is_there(&subject, run).await);
    }
    assert!(is_there(&subject, &other).await);
}

/// [`Erase::EndedBy`] erases the runs that ended at the given time or earlier. A run that was not
/// closed ends when its lease expires.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn old_runs_are_erased(subject: Subject) {
    let ended = begun(&subject, "s", "ended").await;
    subject.close(&ended, 1).await;
    let killed = begun(&subject, "s", "killed").await;
    subject.clock.advance(LEASE);
    let time = subject.clock.clock().now();
    subject.clock.advance(LEASE);
    let later = begun(&subject, "s", "later").await;
    subject.close(&later, 1).await;
    let open = begun(&subject, "s", "open").await;
    assert_eq!(subject.log.erase(Erase::EndedBy(time)).await.ok(), Some(2));
    assert!(!is_there(&subject, &ended).await && !is_there(&subject, &killed).await);
    assert!(is_there(&subject, &later).await && is_there(&subject, &open).await);
}

/// After a run was erased, the process of the run cannot append updates.
///
/// # Panics
///
/// Panics if the log breaks the rule.
pub async fn an_erased_run_takes_no_more_updates(subject: Subject) {
    let run = begun(&subject, "s", "c").await;
    subject.log.erase(Erase::Scope("s")).await.expect("the scope is erased");
    let append = subject.log.append(&run, at((1, 1)), &stored(&["b"]), None).await;
    let is_refused =
        matches!(append, Err(UpdateLogError::NotOwner { found: RunState::Unknown, .. }));
    assert!(is_refused, "{append:?}");
    assert!(subject.log.renew(&run, 1, LEASE).await.is_err());
    assert!(!is_there(&subject, &run).await);
}
