//! Tests of receipts that are written to a file step by step.

use std::{fs, path::Path};

use tower_chat::{
    BoxError, MemoryStore,
    store::Directory,
    transfer::{
        Event, Operation, OutcomeKind, Receipt, ReceiptLog, ReceiptLogError, Selection, Transfer,
        copy, delete_scope,
    },
};

use crate::conversations::{add_run, assert_same, key};

async fn source() -> MemoryStore {
    let store = MemoryStore::new();
    for (number, id) in (1..).zip(["a", "b", "c", "d"]) {
        add_run(&store, &key(id), number, &[&format!("of {id}"), &format!("more of {id}")]).await;
    }
    store
}

fn deletion() -> Transfer {
    Transfer::new(Operation::Delete, Selection::scope("alice")).from("a store")
}

/// Continues a deletion until an event, which is written to the receipt if `is_written`.
async fn delete_until(
    store: &MemoryStore,
    path: &Path,
    last: usize,
    is_written: bool,
) -> Result<Receipt, BoxError> {
    let mut log = ReceiptLog::open(path, deletion())?;
    if let Some(begun) = log.begun().cloned()
        && store.summary(&begun).await?.is_none()
    {
        log.was_deleted()?;
    }
    let mut events = 0;
    let mut progress = |event: &Event| {
        events += 1;
        if events <= last || is_written {
            log.record(event)?;
        }
        if events > last { Err("the process dies".into()) } else { Ok(()) }
    };
    delete_scope(store, "alice", &mut progress).await?;
    Ok(log.complete()?)
}

#[tokio::test]
async fn the_receipt_of_an_interrupted_and_repeated_deletion_counts_everything_once() {
    for is_written in [false, true] {
        for last in 0..9 {
            let store = source().await;
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("receipt.jsonl");
            delete_until(&store, &path, last, is_written).await.unwrap_err();
            let receipt = delete_until(&store, &path, usize::MAX, true).await.unwrap();
            let deleted = receipt.total(OutcomeKind::Deleted);
            assert_eq!((deleted.conversations, deleted.messages), (4, 8), "{last} {is_written}");
            let text = fs::read_to_string(&path).unwrap();
            assert_eq!(text.matches("{\"done\":").count(), 4, "{text}");
            assert_eq!(text.matches("{\"transfer\":").count(), 2, "{text}");
            assert!(text.lines().last().unwrap().starts_with("{\"receipt\":"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_repeated_copy_continues_after_the_last_conversation_of_its_receipt() {
    let (from, to) = (source().await, MemoryStore::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipt.jsonl");
    let alice = Selection::scope("alice");
    let transfer = Transfer::new(Operation::Copy, alice.clone()).from("one").to("another");
    let mut log = ReceiptLog::open(&path, transfer.clone()).unwrap();
    let mut done = 0;
    let mut progress = |event: &Event| {
        log.record(event)?;
        done += usize::from(matches!(event, Event::Done(_)));
        if done == 2 { Err("that is enough".into()) } else { Ok(()) }
    };
    copy(&from, &to, &alice, &mut progress).await.unwrap_err();
    // The test truncates the last line, as a crash could do.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();

    let mut log = ReceiptLog::open(&path, transfer).unwrap();
    assert_eq!(log.last(), Some(&key("a")));
    let rest = alice.after(log.last().unwrap().clone());
    copy(&from, &to, &rest, &mut |event| Ok(log.record(event)?)).await.unwrap();
    let receipt = log.complete().unwrap();
    assert_eq!(receipt.total(OutcomeKind::Written).conversations, 3);
    assert_eq!(receipt.total(OutcomeKind::Unchanged).conversations, 1); // finished before, but its line was truncated
    for id in ["a", "b", "c", "d"] {
        assert_same(&from, &to, &key(id)).await;
    }
    let json = serde_json::to_string(&receipt).unwrap();
    assert_eq!(serde_json::from_str::<Receipt>(&json).unwrap(), receipt);
}

#[tokio::test]
async fn a_new_receipt_begins_in_the_file_of_a_complete_receipt() {
    let (from, to) = (source().await, MemoryStore::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipt.jsonl");
    let transfer = Transfer::new(Operation::Copy, Selection::everything());
    for expected in [OutcomeKind::Written, OutcomeKind::Unchanged] {
        let mut log = ReceiptLog::open(&path, transfer.clone()).unwrap();
        assert_eq!(log.last(), None);
        let mut progress = |event: &Event| Ok(log.record(event)?);
        copy(&from, &to, &Selection::everything(), &mut progress).await.unwrap();
        let receipt = log.complete().unwrap();
        assert_eq!(receipt.total(expected).conversations, 4);
        assert_eq!(receipt.scopes["alice"].len(), 1);
    }
}

#[tokio::test]
async fn a_receipt_of_another_transfer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipt.jsonl");
    ReceiptLog::open(&path, deletion()).unwrap().complete().unwrap();
    let other = Transfer::new(Operation::Delete, Selection::scope("bob")).from("a store");
    assert!(matches!(ReceiptLog::open(&path, other), Err(ReceiptLogError::OtherTransfer)));
}

#[tokio::test]
async fn a_file_that_is_not_a_receipt_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("receipt.jsonl");
    ReceiptLog::open(&path, deletion()).unwrap().complete().unwrap();
    let whole = fs::read(&path).unwrap();
    let no_receipts = [
        b"no receipt\n".to_vec(),
        b"no line".to_vec(),
        b"{".repeat(2),
        b"{\"transfer\":7".to_vec(),
        b"{\"begins\":{".to_vec(),
        b"\n".to_vec(),
        b"{\"receipt\":{}}\n".to_vec(),
        b"SQLite format 3\0\0\0".to_vec(),
        [&whole[..], b"something else"].concat(),
        [&whole[..], b"\xff"].concat(),
    ];
    for contents in no_receipts {
        fs::write(&path, &contents).unwrap();
        let shown = String::from_utf8_lossy(&contents).into_owned();
        let opened = ReceiptLog::open(&path, deletion());
        assert!(matches!(opened, Err(ReceiptLogError::NotAReceipt)), "{shown}");
        assert_eq!(fs::read(&path).unwrap(), contents, "{shown}");
    }
    // A killed process may have written only a part of the first line.
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        ReceiptLog::open(&path, deletion()).unwrap().complete().unwrap();
    }
}
