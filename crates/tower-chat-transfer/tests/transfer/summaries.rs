//! Tests of the summaries of a conversation. The model receives the last summary, which is in force,
//! instead of the messages that it covers.

use std::time::Duration;

use async_trait::async_trait;
use tower_chat::{
    HistoryStore, MemoryStore,
    store::{
        Capability, Directory, HistorySummary, Journal, Keep, Maintenance, StoreError, Summaries,
        ToolCallQueries, author,
    },
    transfer::{Difference, OutcomeKind, Selection, TransferError, TransferStep, copy},
};

use crate::{
    conversations::{add_run, add_summary, at, export_alice, fill, import_file, key, lines},
    numbers::changed,
    stores::Kind,
};

/// A store without summaries.
struct NoSummaries(MemoryStore);

#[async_trait]
impl author::StoreWrapper for NoSummaries {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    fn journal(&self) -> Option<&dyn Journal> {
        self.0.journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.0.directory()
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        self.0.tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        self.0.maintenance()
    }
}

/// Copies the conversation `coats`. Returns the kind of the outcome, and the differences.
async fn copied(from: &dyn HistoryStore, to: &dyn HistoryStore) -> (OutcomeKind, Vec<Difference>) {
    let receipt = copy(from, to, &Selection::scope("alice"), &mut |_| Ok(())).await.unwrap();
    let kind = receipt.scopes["alice"].keys().next().copied().unwrap();
    let differences = receipt.differing.first().map(|step: &TransferStep| &*step.differences);
    (kind, differences.unwrap_or_default().to_vec())
}

async fn summaries(store: &dyn HistoryStore) -> Vec<HistorySummary> {
    store.history_summaries(&key("coats")).await.unwrap()
}

#[tokio::test]
async fn a_repeated_copy_adds_later_summaries() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    fill(&from, &key("coats")).await;
    assert_eq!(copied(&from, &to).await, (OutcomeKind::Written, vec![]));
    add_summary(&from, &key("coats"), 7, "Everything.").await;
    assert_eq!(copied(&from, &to).await, (OutcomeKind::Extended, vec![]));
    assert_eq!(summaries(&to).await, summaries(&from).await);
    assert_eq!(copied(&from, &to).await, (OutcomeKind::Unchanged, vec![]));
}

#[tokio::test]
async fn other_summaries_of_the_target_remain_and_are_reported() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    fill(&from, &key("coats")).await;
    copied(&from, &to).await;
    let own = add_summary(&to, &key("coats"), 7, "Of the target.").await;
    add_summary(&from, &key("coats"), 7, "Of the source.").await;
    let difference = vec![Difference::Summaries];
    assert_eq!(copied(&from, &to).await, (OutcomeKind::Unchanged, difference));
    assert_eq!(summaries(&to).await.last(), Some(&own));
}

#[tokio::test]
async fn a_target_without_summaries_gets_the_messages_and_the_difference_is_reported() {
    let (from, to) = (MemoryStore::new(), NoSummaries(MemoryStore::new()));
    fill(&from, &key("coats")).await;
    for kind in [OutcomeKind::Written, OutcomeKind::Unchanged] {
        assert_eq!(copied(&from, &to).await, (kind, vec![Difference::Summaries]));
    }
    let history = HistoryStore::load(&to, &key("coats")).await.unwrap();
    assert_eq!(history.messages, from.load(&key("coats")).await.unwrap().messages);
    // The copy in the other direction has no summaries, and nothing to report.
    let back = MemoryStore::new();
    assert_eq!(copied(&to, &back).await, (OutcomeKind::Written, vec![]));
}

/// A wrapper may hide the summaries of its inner store, whose head names one.
#[tokio::test]
async fn a_source_that_does_not_provide_its_summaries_is_not_copied() {
    let inner = MemoryStore::new();
    fill(&inner, &key("coats")).await;
    let selection = Selection::scope("alice");
    let to = MemoryStore::new();
    let error = copy(&NoSummaries(inner), &to, &selection, &mut |_| Ok(())).await.unwrap_err();
    let missing = StoreError::MissingCapability { capability: Capability::Summaries };
    let TransferError::Store(found) = &error else { panic!("{error:?}") };
    assert_eq!(found.to_string(), missing.to_string());
}

/// A store in memory has the exact time of a summary, and other stores have milliseconds.
#[tokio::test]
async fn the_time_of_a_summary_is_copied_in_milliseconds() {
    for kind in Kind::all() {
        let (from, to) = (MemoryStore::new(), kind.open().await);
        add_run(&from, &key("coats"), 1, &["one"]).await;
        let last = from.load(&key("coats")).await.unwrap().message(1).unwrap().id.unwrap();
        let exact = HistorySummary::new(1, last, "One.").with_time(at(5) + Duration::from_nanos(9));
        from.add_summary(&key("coats"), &exact, 0).await.unwrap();
        for outcome in [OutcomeKind::Written, OutcomeKind::Unchanged] {
            assert_eq!(copied(&from, &*to).await, (outcome, vec![]));
        }
        assert_eq!(summaries(&*to).await, [exact.with_time(at(5))]);
    }
}

/// The target numbers the messages from 1. The summary covers the same messages there.
#[tokio::test]
async fn the_range_of_a_summary_is_renumbered_with_the_messages() {
    for kind in Kind::all() {
        let (from, to) = (kind.open().await, kind.open().await);
        let key = key("coats");
        for (second, text) in [(1, "one"), (5, "two"), (9, "three"), (12, "four")] {
            add_run(&*from, &key, second, &[text]).await;
        }
        let summary = add_summary(&*from, &key, 3, "One to three.").await;
        from.prune(&key, Keep::Messages(2)).await.unwrap();
        for again in [OutcomeKind::Written, OutcomeKind::Unchanged] {
            let (outcome, differences) = copied(&*from, &*to).await;
            assert_eq!(outcome, again);
            assert_eq!(differences, [Difference::Renumbered { pruned: 2 }]);
        }
        let mut expected = summary.clone();
        expected.covers_to = 1;
        assert_eq!(summaries(&*to).await, [expected]);
    }
}

/// An export without lines `summary` has no summaries.
#[tokio::test]
async fn a_file_without_summaries_is_imported() {
    let from = MemoryStore::new();
    fill(&from, &key("coats")).await;
    let file = String::from_utf8(export_alice(&from).await).unwrap();
    let is_summary = |line: &&str| line.starts_with(r#"{"summary""#);
    let of_summaries: Vec<&str> = file.lines().filter(is_summary).collect();
    assert_eq!(of_summaries.len(), 2);
    let mut earlier = file.clone().into_bytes();
    for line in of_summaries {
        let text = String::from_utf8(earlier).unwrap();
        earlier = changed(&text, &format!("{line}\n"), "");
    }
    let to = MemoryStore::new();
    assert_eq!(import_file(&to, &earlier).await.differing, []);
    assert_eq!(summaries(&to).await, []);
    // The summaries of the later file are added.
    let receipt = import_file(&to, file.as_bytes()).await;
    assert_eq!(receipt.total(OutcomeKind::Extended).conversations, 1);
    assert_eq!(summaries(&to).await, summaries(&from).await);
}

/// The target has none of the messages that the summary covers.
#[tokio::test]
async fn a_summary_of_pruned_messages_only_is_reported() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    let key = key("coats");
    for (second, text) in [(1, "one"), (5, "two"), (9, "three")] {
        add_run(&from, &key, second, &[text]).await;
    }
    add_summary(&from, &key, 2, "One and two.").await;
    from.prune(&key, Keep::Messages(1)).await.unwrap();
    let differences = [Difference::Renumbered { pruned: 2 }, Difference::Summaries];
    assert_eq!(copied(&from, &to).await, (OutcomeKind::Written, differences.to_vec()));
    let file = export_alice(&from).await;
    assert_eq!(lines(&file).iter().filter(|line| line.starts_with(r#"{"summary""#)).count(), 1);
    let receipt = import_file(&MemoryStore::new(), &file).await;
    assert_eq!(receipt.differing[0].differences, differences);
}
