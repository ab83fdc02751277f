//! A test of the memory that a transfer allocates. This test has its own process, because it counts
//! all allocations of the process.

#![allow(clippy::unwrap_used, reason = "a panic is a failing test")]

use peak_alloc::PeakAlloc;
use tokio::{fs::File, io::BufReader};
use tower_chat::{
    ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::author::Write,
    transfer::{ExportFile, Selection, copy, export, import},
};
use tower_chat_sqlite::SqliteStore;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MESSAGES: u32 = 10_000;
const BYTES: usize = 1_000;
/// The maximum number of bytes that a transfer of a conversation of 10 MB may allocate at a time. A
/// submission contains 1 MiB of messages, which are in memory in three forms: as messages, as JSON
/// and as rows.
const LIMIT: usize = 5 * 1024 * 1024;

/// Returns the output of a future, and the maximum of bytes that it has allocated at a time.
async fn peak_of<T>(future: impl Future<Output = T>) -> (T, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let output = future.await;
    (output, MEMORY.peak_usage().saturating_sub(before))
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_messages_are_exported_imported_and_copied_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| SqliteStore::open(folder.path().join(name));
    let (store, key) = (open("a.db").await.unwrap(), ConversationKey::new("alice", "long"));
    for first in (0..MESSAGES).step_by(100) {
        let run = RunId::new();
        let texts = (0..100).map(|index| format!("{:width$}", first + index, width = BYTES));
        let messages = texts.map(|text| Message::user(text).into());
        let revision = store.head(&key).await.unwrap().revision;
        let write = Write::new(key.clone(), MessageId { run, index: 0 }, revision, messages);
        store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    }
    let (path, all) = (folder.path().join("chat.jsonl"), Selection::scope("alice"));
    let mut file = File::create(&path).await.unwrap();
    let mut progress = |_: &_| Ok(());
    let (done, exporting) =
        peak_of(export(&store, &all, ExportFile::new(&mut file), &mut progress)).await;
    done.unwrap();
    drop(file);
    assert!(std::fs::metadata(&path).unwrap().len() > u64::from(MESSAGES) * BYTES as u64);

    let target = open("b.db").await.unwrap();
    let file = BufReader::new(File::open(&path).await.unwrap());
    let (done, importing) = peak_of(import(&target, file, &all, &mut progress)).await;
    done.unwrap();
    assert_eq!(target.load(&key).await.unwrap().messages.len(), MESSAGES as usize);

    let target = open("c.db").await.unwrap();
    let (done, copying) = peak_of(copy(&store, &target, &all, &mut progress)).await;
    done.unwrap();
    let (done, comparing) = peak_of(copy(&store, &target, &all, &mut progress)).await;
    done.unwrap();
    let peaks = [exporting, importing, copying, comparing];
    eprintln!("bytes at once, exporting, importing, copying, comparing: {peaks:?}");
    assert!(peaks.iter().all(|peak| *peak < LIMIT), "{peaks:?}");
}
