//! Tests `tower-chat vacuum`.

use std::fs;

use tower_chat::PersistenceMode;

use crate::support::*;

fn vacuum(store: &str) -> (Option<i32>, String, String) {
    let output = run(&["vacuum", "--store", store]);
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn a_vacuum_makes_the_file_smaller_and_does_not_change_its_rows() {
    let store = Store::new();
    fill_runs(&store, 200, PersistenceMode::PerRun);
    let pruned = run(&["prune", "--store", &store.argument(), "--keep-messages", "1"]);
    assert_ne!(pruned.status.code(), Some(2), "{}", stderr(&pruned));
    let (rows, before) = (dump(&store.path()), fs::metadata(store.path()).unwrap().len());
    let (code, printed, complained) = vacuum(&store.argument());
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let after = fs::metadata(store.path()).unwrap().len();
    assert!(after < before, "{after} of {before} bytes");
    assert_eq!(
        printed,
        format!("`{}` has {after} bytes, and had {before} before\n", store.path().display())
    );
    assert_eq!(dump(&store.path()), rows);
    let output = run(&["vacuum", "--json", "--store", &store.argument()]);
    let printed: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&printed["bytes"], &printed["bytes_before"]), (&after.into(), &after.into()));
}

#[test]
fn a_vacuum_that_fails_is_reported() {
    let store = Store::new();
    for (location, expected) in [
        (store.argument(), "no conversation store at"),
        (format!("sqlite:{}", store.file("text", "no store")), "not a SQLite"),
        ("memory:".to_owned(), "has nothing to vacuum"),
    ] {
        let (code, printed, complained) = vacuum(&location);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{location}");
        assert!(complained.contains(expected), "{complained}");
    }
}
