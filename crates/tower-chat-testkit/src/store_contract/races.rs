//! The rules for concurrent operations.

use futures_util::future::join_all;
use tower_chat_core::store::Revision;

use super::{
    Store,
    fixture::{conflict, key, stored, submit, texts, write},
};

const WRITERS: usize = 16;

/// If several concurrent writes expect the same revision, one of them is stored and the others get
/// a conflict.
pub async fn of_concurrent_writers_to_one_conversation_exactly_one_wins(store: Store) {
    let key = key("race");
    let mut expected = Revision::ABSENT;
    for round in 1..=10 {
        let writes: Vec<_> = (0..WRITERS)
            .map(|number| write(&key, expected, &[&number.to_string(), "second"]))
            .collect();
        let tasks = writes.into_iter().map(|write| {
            let store = store.clone();
            tokio::spawn(async move { submit(&store, vec![write]).await })
        });
        let outcomes: Vec<_> = join_all(tasks).await;
        let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("the task did not panic"));
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, WRITERS - 1));
        expected = won.into_iter().flatten().next().expect("the winner's revision");
        for error in lost.into_iter().filter_map(Result::err) {
            assert_eq!(conflict(error).found, expected);
        }
        assert_eq!(texts(&store, &key).await.len(), 2 * round);
    }
}

/// Concurrent writes to different conversations all succeed.
pub async fn writers_to_different_conversations_do_not_disturb_each_other(store: Store) {
    let tasks = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = key(&format!("writer {writer}"));
            let mut expected = Revision::ABSENT;
            for number in 0..20 {
                let text = format!("{writer}.{number}");
                expected = stored(&store, write(&key, expected, &[&text])).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.expect("every write is stored");
    }
    for writer in 0..WRITERS {
        let expected: Vec<_> = (0..20).map(|number| format!("{writer}.{number}")).collect();
        assert_eq!(texts(&store, &key(&format!("writer {writer}"))).await, expected);
    }
}

/// A reader sees either all messages of a write or none of them. A later read never returns an
/// older state.
pub async fn readers_never_see_part_of_a_write(store: Store) {
    const MESSAGES: usize = 25;
    const WRITES: usize = 20;
    let key = key("whole writes");
    let readers = (0..3).map(|_| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let mut seen = 0;
            while seen < MESSAGES * WRITES {
                let length = texts(&store, &key).await.len();
                assert_eq!(length % MESSAGES, 0, "a reader saw only a part of a write");
                assert!(length >= seen, "a reader no longer sees a message that it has seen");
                seen = length;
                tokio::task::yield_now().await;
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut expected = Revision::ABSENT;
    for _ in 0..WRITES {
        expected = stored(&store, write(&key, expected, &["x"; MESSAGES])).await;
        tokio::task::yield_now().await;
    }
    for reader in join_all(readers).await {
        reader.expect("the reader sees whole writes");
    }
}
