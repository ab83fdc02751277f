//! Tests that no write overtakes an acknowledged one.

use futures_util::FutureExt;
use tower_chat_core::{
    ConversationKey,
    store::{HistoryStore, Revision, StoreError},
};

use super::{append, append_all, behind, key, stored, write, write_to};

#[tokio::test]
async fn a_write_that_does_not_go_on_from_the_last_is_a_conflict_at_once() {
    let store = behind();
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    append_all(&store, first, &["2", "3"]).await;
    let error = append(&store, write(first, "late")).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(_)));
    assert_eq!(stored(&store).await, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_write_that_is_repeated_is_stored_once() {
    let store = behind();
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    let again = write(first, "2");
    let revision = append(&store, again.clone()).await.unwrap();
    assert_eq!(append(&store, again.clone()).await.unwrap(), revision);
    assert_eq!(append(&store, again).await.unwrap(), revision);
    assert_eq!(stored(&store).await, ["1", "2"]);
}

#[tokio::test]
async fn a_submission_to_several_conversations_waits_for_all_of_them() {
    let store = behind();
    let other = ConversationKey::new("alice", "other");
    let end = append_all(&store, Revision::ABSENT, &["1", "2"]).await;
    let first = append(&store, write_to(&other, Revision::ABSENT, "a")).await.unwrap();
    let second = append(&store, write_to(&other, first, "b")).await.unwrap();
    assert_eq!(store.unstored_writes(), 2);

    let both = vec![write(end, "3"), write_to(&other, second, "c")];
    let third = both[0].result();
    let ticket = store.append(store.reserve().await.unwrap(), both);
    // The writes before this write have no outcome yet, so this write is not gathered, and is
    // queued after them.
    let fourth = store.append(store.reserve().await.unwrap(), vec![write(third, "4")]);
    assert_eq!(store.load(&other).await.unwrap().messages.len(), 3);
    ticket.await.unwrap();
    fourth.await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3", "4"]);
    assert_eq!(store.head(&key()).await.unwrap().revision.sequence, 4);
}

#[tokio::test]
async fn writes_that_come_while_others_are_stored_are_stored_after_them() {
    let store = behind();
    let end = append_all(&store, Revision::ABSENT, &["1", "2"]).await;
    store.inner().hold_appends();
    let flushing = tokio::spawn({
        let store = store.clone();
        async move { store.flush().await }
    });
    while store.inner().appends() < 2 {
        tokio::task::yield_now().await;
    }
    append_all(&store, end, &["3", "4"]).await;
    assert_eq!(store.unstored_writes(), 3);
    store.inner().release_appends();
    flushing.await.unwrap().unwrap();
    store.flush().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2", "3", "4"]);
    assert_eq!(store.unstored_writes(), 0);
}

/// A write that is not gathered may follow gathered writes only if its writer has read their
/// revision.
#[tokio::test]
async fn a_write_that_has_not_seen_one_that_waited_is_a_conflict_at_once() {
    let store = behind();
    let first = append_all(&store, Revision::ABSENT, &["1"]).await;
    let second = append_all(&store, first, &["2"]).await;
    let other = write_to(&ConversationKey::new("alice", "other"), Revision::ABSENT, "a");
    let both = vec![write(second, "3"), other];
    store.append(store.reserve().await.unwrap(), both).await.unwrap();
    // From now on writes are gathered again.
    store.flush().await.unwrap();
    let error = append(&store, write(second, "late")).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(_)));
    assert_eq!(stored(&store).await, ["1", "2", "3"]);
}

/// A revision that is read during a deletion belongs to the deleted conversation.
#[tokio::test]
async fn a_write_after_a_deletion_does_not_go_on_from_what_was_before() {
    let (store, key) = (behind(), key());
    store.inner().hold_appends();
    let first = write(Revision::ABSENT, "1");
    let second = write(first.result(), "2");
    let last = second.result();
    let before = store.append(store.reserve().await.unwrap(), vec![first]);
    let mut deletion = store.delete(&key);
    assert!((&mut deletion).now_or_never().is_none());
    let meanwhile = store.append(store.reserve().await.unwrap(), vec![second]);
    store.inner().release_appends();
    before.await.unwrap();
    meanwhile.await.unwrap();
    assert!(deletion.await.unwrap());
    let error = append(&store, write(last, "late")).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Conflict(_)));
}

#[tokio::test]
async fn a_delay_may_be_for_ever() {
    let store = crate::write_behind::behind_by(std::time::Duration::MAX);
    append_all(&store, Revision::ABSENT, &["1", "2"]).await;
    assert_eq!(store.unstored_writes(), 1);
    store.flush().await.unwrap();
    assert_eq!(stored(&store).await, ["1", "2"]);
}

#[test]
fn runs_on_many_threads_lose_nothing() {
    const WRITES: usize = 200;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let store = crate::write_behind::behind_by(std::time::Duration::from_micros(50));
        let keys: Vec<_> =
            (0..8).map(|it| ConversationKey::new("alice", format!("c{it}"))).collect();
        let writers = keys.iter().cloned().map(|key| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut revision = Revision::ABSENT;
                for text in 0..WRITES {
                    let write = write_to(&key, revision, &text.to_string());
                    revision = append(&store, write).await.unwrap();
                    if text % 37 == 0 {
                        assert_eq!(store.head(&key).await.unwrap().revision, revision);
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        store.flush().await.unwrap();
        for key in keys {
            let history = store.inner().inner().load(&key).await.unwrap();
            let texts: Vec<_> = history.messages.iter().map(|it| it.text()).collect();
            assert_eq!(texts, (0..WRITES).map(|it| it.to_string()).collect::<Vec<_>>());
        }
    });
}
