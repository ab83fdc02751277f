//! Tests of round trips between stores and files.

use tower_chat::store::{Directory, Maintenance};
use tower_chat::{
    ConversationKey,
    transfer::{Difference, Event, OutcomeKind, Selection, copy},
};

use crate::{
    conversations::{
        add_run, all_runs, assert_same, export_alice, fill, fill_pruned, import_file, key, lines,
    },
    stores::Kind,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_and_imported_conversation_is_the_same_in_every_store() {
    for (source, target) in pairs() {
        eprintln!("from {source:?} to {target:?}");
        let (from, to) = (source.open().await, target.open().await);
        fill(&*from, &key("coats")).await;
        fill(&*from, &key("boots")).await;
        let file = export_alice(&*from).await;

        let receipt = import_file(&*to, &file).await;
        let written = receipt.total(OutcomeKind::Written);
        assert_eq!((written.conversations, written.messages), (2, 14));
        assert_eq!((written.tool_calls, written.runs), (8, 6));
        assert_eq!(receipt.differing, []);
        assert_same(&*from, &*to, &key("coats")).await;
        assert_same(&*from, &*to, &key("boots")).await;
        assert_eq!(String::from_utf8(export_alice(&*to).await), String::from_utf8(file.clone()));

        let again = import_file(&*to, &file).await;
        assert_eq!(again.total(OutcomeKind::Unchanged), written);
        assert_eq!(again.total(OutcomeKind::Written).conversations, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copied_conversation_is_the_same_and_repeating_the_copy_changes_nothing() {
    for (source, target) in pairs() {
        eprintln!("from {source:?} to {target:?}");
        let (from, to) = (source.open().await, target.open().await);
        fill(&*from, &key("coats")).await;
        for expected in [OutcomeKind::Written, OutcomeKind::Unchanged] {
            let receipt =
                copy(&*from, &*to, &Selection::scope("alice"), &mut |_| Ok(())).await.unwrap();
            assert_eq!(receipt.total(expected).conversations, 1, "{receipt:?}");
        }
        assert_same(&*from, &*to, &key("coats")).await;

        // The source adds messages to the conversation, and the copy is repeated.
        add_run(&*from, &key("coats"), 90, &["And shoes?", "Brown ones."]).await;
        let receipt =
            copy(&*from, &*to, &Selection::scope("alice"), &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.total(OutcomeKind::Extended).conversations, 1, "{receipt:?}");
        assert_same(&*from, &*to, &key("coats")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_keeps_the_usage_of_pruned_and_discarded_runs_and_renumbers_messages() {
    for (source, target) in pairs() {
        eprintln!("from {source:?} to {target:?}");
        let (from, to) = (source.open().await, target.open().await);
        let key = key("pruned");
        fill_pruned(&*from, &key).await;
        let file = export_alice(&*from).await;
        let receipt = import_file(&*to, &file).await;
        assert_eq!(receipt.differing[0].differences, [Difference::Renumbered { pruned: 2 }]);
        assert_same(&*from, &*to, &key).await;
        assert_eq!(all_runs(&*to, &key).await.len(), 5);
        let again = import_file(&*to, &file).await;
        assert_eq!(again.total(OutcomeKind::Unchanged).conversations, 1, "{again:?}");
        // The exports of the source and the target must be equal, except for sequence numbers.
        let second = export_alice(&*to).await;
        assert_eq!(lines(&file).len(), lines(&second).len());
        let third = Kind::Memory.open().await;
        import_file(&*third, &second).await;
        assert_eq!(lines(&export_alice(&*third).await), lines(&second));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_imported_fork_has_its_times_and_a_row_for_each_run() {
    for (source, target) in pairs() {
        eprintln!("from {source:?} to {target:?}");
        let (from, to) = (source.open().await, target.open().await);
        fill(&*from, &key("coats")).await;
        from.fork_at(&key("coats"), None, &key("fork")).await.unwrap();
        let receipt = import_file(&*to, &export_alice(&*from).await).await;
        if source == Kind::Encrypted {
            // A fork of an encrypted store has a row for each run, because the encrypting wrapper
            // writes these rows separately.
            let differences: Vec<_> =
                receipt.differing.iter().map(|step| &*step.differences).collect();
            assert!(
                differences.is_empty() || differences == [[Difference::Times]],
                "{differences:?}"
            );
            continue;
        }
        let step = &receipt.differing[0];
        assert_eq!((step.id.as_str(), receipt.differing.len()), ("fork", 1));
        assert_eq!(step.differences, [Difference::RunCount, Difference::Runs]);
        let (was, is) = (
            from.summary(&key("fork")).await.unwrap().unwrap(),
            to.summary(&key("fork")).await.unwrap().unwrap(),
        );
        assert_eq!((is.created_at, is.last_active_at), (was.created_at, was.last_active_at));
        assert_eq!((is.runs, is.usage), (was.runs, was.usage));
        assert_eq!(is.description, was.description);
        assert_eq!(all_runs(&*to, &key("fork")).await.len(), 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_scopes_are_transferred_in_order_and_can_be_continued_after_any_conversation() {
    for kind in Kind::all() {
        eprintln!("from {kind:?}");
        let from = kind.open().await;
        let keys = [("", "a"), ("alice", "a"), ("alice", "b"), ("alice2", ""), ("b/c", "é")];
        let keys = keys.map(|(scope, id)| ConversationKey::new(scope, id));
        for (second, key) in (1..).zip(&keys) {
            add_run(&*from, key, second, &[&format!("number {second}")]).await;
        }
        let selections = [Selection::everything()];
        let after = keys.iter().map(|key| Selection::everything().after(key.clone()));
        for (first, selection) in selections.into_iter().chain(after).enumerate() {
            let (to, mut taken) = (Kind::Memory.open().await, Vec::new());
            let mut progress = |event: &Event| {
                if let Event::Done(step) = event {
                    taken.push(step.key());
                }
                Ok(())
            };
            copy(&*from, &*to, &selection, &mut progress).await.unwrap();
            assert_eq!(taken, keys[first..]);
        }
        let pair = Selection::scopes(["b/c".to_owned(), "alice".to_owned()]);
        let to = Kind::Memory.open().await;
        let receipt = copy(&*from, &*to, &pair, &mut |_| Ok(())).await.unwrap();
        assert_eq!(receipt.scopes.keys().collect::<Vec<_>>(), ["alice", "b/c"]);
    }
}

/// Returns pairs of a memory store with each kind of store, as target and as source, and a pair of
/// encrypted stores.
fn pairs() -> Vec<(Kind, Kind)> {
    let all = Kind::all();
    let targets = all.iter().map(|kind| (Kind::Memory, *kind));
    let sources = all.iter().map(|kind| (*kind, Kind::Memory)).skip(1);
    targets.chain(sources).chain([(Kind::Encrypted, Kind::Encrypted)]).collect()
}
