//! Tests of large conversations, and of conversations that change while they are read.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tower_chat::{
    HistoryStore, MemoryStore, Message,
    store::author::Write,
    transfer::{
        ExportFile, OutcomeKind, Selection, TransferOutcome, TransferRefusal, copy, export,
    },
};
use tower_chat_testkit::{FaultyStore, Injection, Operation};

use crate::{
    conversations::{
        activity, add_run, append, assert_same, export_alice, id, import_file, key, revision,
        run_at, usage,
    },
    stores::Kind,
};

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_imported_messages_are_the_same_in_every_store() {
    let source = Kind::Memory.open().await;
    let key = key("long");
    for run in 0..100 {
        let run_id = run_at(run);
        let messages = (0..100).map(|number| Message::user(format!("{run}, {number}")).into());
        let write =
            Write::new(key.clone(), id(run_id, 0), revision(&*source, &key).await, messages)
                .with_activity(activity(run, [usage("gpt-5", 1)]));
        append(&*source, write).await;
    }
    let file = export_alice(&*source).await;
    for kind in Kind::all() {
        let target = kind.open().await;
        let started = std::time::Instant::now();
        let receipt = import_file(&*target, &file).await;
        eprintln!("into {kind:?} in {:?}", started.elapsed());
        assert_eq!(receipt.total(OutcomeKind::Written).messages, 10_000);
        assert_same(&*source, &*target, &key).await;
    }
}

/// Returns a store that adds a run to `busy` before each of the first `times` reads of a page.
fn changing(store: &MemoryStore, times: usize) -> FaultyStore<MemoryStore> {
    let (inner, count) = (store.clone(), Arc::new(AtomicUsize::new(0)));
    FaultyStore::with_injector(store.clone(), move |operation: Operation| {
        if matches!(operation, Operation::MessagesBefore) {
            let number = count.fetch_add(1, Ordering::Relaxed);
            if number < times {
                let (busy, text) = (key("busy"), format!("meanwhile {number}"));
                let texts = [text.as_str()];
                let added = add_run(&inner, &busy, 100 + number as u64, &texts);
                futures_util::FutureExt::now_or_never(added).unwrap();
            }
        }
        Injection::none()
    })
}

#[tokio::test]
async fn an_export_contains_a_consistent_state_of_a_conversation_that_changes_meanwhile() {
    let source = MemoryStore::new();
    add_run(&source, &key("busy"), 1, &["one", "two"]).await;
    add_run(&source, &key("calm"), 2, &["three"]).await;
    let mut file = Vec::new();
    let alice = Selection::scope("alice");
    let store = changing(&source, 3);
    let receipt =
        export(&store, &alice, ExportFile::new(&mut file), &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Exported).messages, 2 + 3 + 1);
    assert_eq!(String::from_utf8_lossy(&file).matches("{\"abandoned\":").count(), 3);

    let target = MemoryStore::new();
    import_file(&target, &file).await;
    for id in ["busy", "calm"] {
        assert_same(&source, &target, &key(id)).await;
    }
}

#[tokio::test]
async fn only_a_conversation_that_changes_during_every_read_is_refused() {
    let source = MemoryStore::new();
    add_run(&source, &key("busy"), 1, &["one", "two"]).await;
    add_run(&source, &key("calm"), 2, &["three"]).await;
    let (target, store) = (MemoryStore::new(), changing(&source, usize::MAX));
    let alice = Selection::scope("alice");
    let mut file = Vec::new();
    // Each read of a page adds a run, so that no attempt to read the conversation succeeds.
    let receipt =
        export(&store, &alice, ExportFile::new(&mut file), &mut |_| Ok(())).await.unwrap();
    assert_eq!(receipt.total(OutcomeKind::Exported).conversations, 1);
    let changing = TransferOutcome::Refused(TransferRefusal::Changing { attempts: 8 });
    assert_eq!((&receipt.refused[0].outcome, receipt.refused.len()), (&changing, 1));
    let receipt = copy(&store, &target, &alice, &mut |_| Ok(())).await.unwrap();
    assert_eq!((&receipt.refused[0].outcome, receipt.refused.len()), (&changing, 1));
    assert_eq!(target.load(&key("calm")).await.unwrap().messages.len(), 1);
}
