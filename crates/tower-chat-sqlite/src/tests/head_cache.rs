//! Tests that appends use the writer's cache of heads (the rows of conversations), and that the
//! writer clears the cache when another connection may have changed a head.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_chat_core::store::{HistoryStore, Maintenance, Revision, StoreError, author::Write};

use super::{Fixture, first, key, run, write};
use tower_chat_core::store::Rewrite;

use crate::SqliteStore;

/// Returns the number of virtual machine instructions that SQLite executes for an append.
async fn steps(fixture: &Fixture, write: Write) -> usize {
    let steps = Arc::new(AtomicUsize::new(0));
    let counted = steps.clone();
    let hook = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    fixture.store.queue().writer().observed().progress_handler(1, Some(hook)).unwrap();
    fixture.submit(vec![write]).await.await.unwrap();
    steps.load(Ordering::Relaxed)
}

#[tokio::test]
async fn an_append_reads_the_head_from_the_file_only_after_another_process_has_written() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    let two = write("c", run(1), one.result(), &["two"]);
    let three = write("c", run(1), two.result(), &["three"]);
    let four = write("c", run(1), three.result(), &["four"]);
    fixture.submit(vec![one]).await.await.unwrap();
    let known = steps(&fixture, two).await;
    fixture.other().execute("DELETE FROM conversations WHERE id = 77", []).unwrap();
    assert_eq!(steps(&fixture, three).await, known, "nothing was changed");
    let sql = "INSERT INTO conversations (scope, conversation, incarnation) VALUES ('s', 'c', 1)";
    fixture.other().execute(sql, []).unwrap();
    assert!(steps(&fixture, four).await > known, "the head was not read from the file");
}

#[tokio::test]
async fn an_append_conflicts_with_an_earlier_append_of_another_store_to_the_same_file() {
    let fixture = Fixture::new().await;
    let other = SqliteStore::open(fixture.folder.path().join("chat.db")).await.unwrap();
    let append = async |store: &SqliteStore, write: &Write| {
        let slot = store.reserve().await.unwrap();
        store.append(slot.without_blocking(), vec![write.clone()]).await
    };
    let ours = first("c", &["ours"]);
    append(&fixture.store, &ours).await.unwrap();
    let mut revision = ours.result();
    for round in 2..6 {
        let (one, two) = match round % 2 {
            0 => (&other, &fixture.store),
            _ => (&fixture.store, &other),
        };
        let theirs = write("c", run(round), revision, &["theirs"]);
        append(one, &theirs).await.unwrap();
        let late = write("c", run(99), revision, &["late"]);
        let error = append(two, &late).await.unwrap_err();
        assert!(
            matches!(&error.source, StoreError::Conflict(conflict)
                if conflict.found == theirs.result()),
            "{error:?}"
        );
        revision = theirs.result();
    }
    assert_eq!(fixture.texts(&key("c")).await, ["ours", "theirs", "theirs", "theirs", "theirs"]);
}

#[tokio::test]
async fn an_append_after_a_rewrite_deletion_or_fork_uses_the_new_revision() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    fixture.submit(vec![one.clone()]).await.await.unwrap();
    let rewritten = fixture.store.rewrite(Rewrite::new(key("c"), one.result())).await.unwrap();
    let two = write("c", run(1), one.result(), &["two"]);
    fixture.submit(vec![two]).await.await.unwrap_err();
    let two = write("c", run(1), rewritten, &["two"]);
    fixture.submit(vec![two.clone()]).await.await.unwrap();

    fixture.store.delete(&key("c")).await.unwrap();
    let three = write("c", run(1), two.result(), &["three"]);
    fixture.submit(vec![three]).await.await.unwrap_err();
    fixture.submit(vec![first("c", &["begun again"])]).await.await.unwrap();

    fixture.submit(vec![first("from", &["copied"])]).await.await.unwrap();
    fixture.store.delete(&key("c")).await.unwrap();
    let forked = fixture.store.fork_at(&key("from"), None, &key("c")).await.unwrap().revision;
    fixture.submit(vec![first("c", &["not there"])]).await.await.unwrap_err();
    fixture.submit(vec![write("c", run(2), forked, &["after"])]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["copied", "after"]);
}

#[tokio::test]
async fn a_rollback_clears_the_head_cache() {
    let fixture = Fixture::new().await;
    let one = first("c", &["one"]);
    fixture.submit(vec![one.clone()]).await.await.unwrap();
    // The commit hook makes the commit fail. SQLite's data version does not change, and therefore
    // does not show that the cached head is wrong.
    let fails = Arc::new(AtomicUsize::new(1));
    let hook = move || fails.fetch_sub(1, Ordering::Relaxed) == 1;
    fixture.store.queue().writer().observed().commit_hook(Some(hook)).unwrap();
    let two = write("c", run(1), one.result(), &["two"]);
    fixture.submit(vec![two.clone()]).await.await.unwrap_err();
    assert_eq!(fixture.store.head(&key("c")).await.unwrap().revision, one.result());
    fixture.submit(vec![two]).await.await.unwrap();
    assert_eq!(fixture.texts(&key("c")).await, ["one", "two"]);
}

#[tokio::test]
async fn writes_succeed_in_more_conversations_than_the_head_cache_contains() {
    let fixture = Fixture::new().await;
    let ids: Vec<String> = (0..700).map(|number| number.to_string()).collect();
    let firsts: Vec<Write> = ids.iter().map(|id| first(id, &["one"])).collect();
    let seconds: Vec<Write> = firsts
        .iter()
        .zip(&ids)
        .map(|(one, id)| write(id, run(1), one.result(), &["two"]))
        .collect();
    for writes in [firsts, seconds] {
        let last = writes.last().map(Write::result);
        assert_eq!(fixture.submit(writes).await.await.ok(), last);
    }
    for id in &ids {
        let head = fixture.store.head(&key(id)).await.unwrap();
        assert_eq!(head.revision, Revision { sequence: 2, ..head.revision });
    }
}
