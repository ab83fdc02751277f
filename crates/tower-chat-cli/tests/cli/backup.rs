//! Tests `tower-chat backup`.

use std::fs;

use crate::support::*;

fn backup(store: &str, to: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let output = run(&[&["backup", "--store", store, "--to", to], more].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

#[test]
fn a_backup_has_no_problems_and_exports_the_same_conversations() {
    let store = Store::new();
    fill_intact(&store);
    let copy = store.folder().join("copy.db").display().to_string();
    let (code, printed, complained) = backup(&store.argument(), &copy, &[]);
    assert_eq!((code, complained.as_str()), (Some(0), ""));
    let bytes = fs::metadata(&copy).unwrap().len();
    assert_eq!(printed, format!("`{copy}` has {bytes} bytes\n"));
    let copied = format!("sqlite:{copy}");
    assert_eq!(export_text(&copied, &["--record"]), export_text(&store.argument(), &["--record"]));
    assert_eq!(run(&["verify", "--store", &copied]).status.code(), Some(0));
}

#[test]
fn backup_replaces_an_existing_file_only_if_requested() {
    let store = Store::new();
    fill_intact(&store);
    let there = store.file("there.db", "mine");
    let (code, _, complained) = backup(&store.argument(), &there, &[]);
    assert_eq!(code, Some(2));
    assert_eq!(
        complained,
        format!(
            "error: the file `{there}` exists: replace it with --replace, or give another path with \
             --to; nothing was changed\n"
        )
    );
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    let (code, printed, _) = backup(&store.argument(), &there, &["--replace", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let bytes = fs::metadata(&there).unwrap().len();
    assert_eq!((code, printed), (Some(0), serde_json::json!({"file": there, "bytes": bytes})));
    let copied = format!("sqlite:{there}");
    assert_eq!(export_text(&copied, &[]), export_text(&store.argument(), &[]));
}

#[test]
fn a_backup_that_fails_is_reported() {
    let store = Store::new();
    fill_intact(&store);
    let inside = |name: &str| store.folder().join(name).display().to_string();
    for (from, to, expected) in [
        (store.argument(), inside("none/copy.db"), "does not exist"),
        (store.argument(), "/proc/copy.db".to_owned(), "cannot copy the store to `/proc"),
        (format!("sqlite:{}", inside("none.db")), inside("copy.db"), "no conversation store at"),
        (format!("sqlite:{}", store.file("text", "no store")), inside("copy.db"), "not a SQLite"),
        ("memory:".to_owned(), inside("copy.db"), "has nothing to copy"),
    ] {
        let (code, printed, complained) = backup(&from, &to, &[]);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{to}");
        assert!(complained.contains(expected), "{complained}");
        assert!(!store.folder().join("copy.db").exists());
    }
}
