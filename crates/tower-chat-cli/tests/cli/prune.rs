//! Tests `tower-chat prune`.

use tower_chat::PersistenceMode;

use crate::support::*;

#[test]
fn prune_deletes_old_runs_and_causes_no_new_problems() {
    let store = Store::new();
    fill_runs(&store, 20, PersistenceMode::PerRun);
    let prune =
        |options: &[&str]| run(&[&["prune", "--store", &store.argument()], options].concat());
    let problems = || stdout(&run(&["verify", "--store", &store.argument()]));
    let shown = || export_text(&store.argument(), &[]);
    let (before, all, known) = (stored_messages(&store.path()), shown(), problems());

    let printed = |options: &[&str]| {
        let output = prune(options);
        assert_ne!(output.status.code(), Some(2), "{}", stderr(&output));
        stdout(&output)
    };
    let would = printed(&["--keep-messages", "1", "--dry-run"]);
    assert_eq!((stored_messages(&store.path()), shown()), (before, all.clone()));
    assert!(would.lines().last().unwrap().starts_with("would be deleted: "), "{would}");
    assert!(
        printed(&["--older-than", "40000d"])
            .ends_with("deleted: 0 messages in 0 runs of 0 conversations\n")
    );
    assert_eq!(shown(), all);

    let gone = printed(&["--keep-messages", "1"]);
    assert_eq!(
        gone.replace("deleted: ", "would be deleted: "),
        would,
        "it does what it said it would do"
    );
    let count: usize =
        gone.lines().last().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(count > 0, "{gone}");
    assert_eq!(stored_messages(&store.path()), before - count);
    for problem in problems().lines().filter(|line| line.starts_with("conversation")) {
        assert!(known.lines().any(|line| line == problem), "{problem}");
    }
    let again = printed(&["--keep-messages", "1"]);
    assert!(again.ends_with("deleted: 0 messages in 0 runs of 0 conversations\n"), "{again}");
    assert_eq!(shown().lines().count(), all.lines().count(), "every conversation has its last run");
}

#[test]
fn prune_is_refused_without_exactly_one_valid_limit() {
    let store = Store::new();
    for options in [
        &[][..],
        &["--keep-messages", "1", "--older-than", "1d"],
        &["--older-than", "5"],
        &["--keep-messages", "-1"],
    ] {
        let output = run(&[&["prune", "--store", &store.argument()], options].concat());
        assert_eq!(output.status.code(), Some(2), "{options:?}");
    }
    let output = run(&["prune", "--store", &store.argument(), "--keep-messages", "1"]);
    assert_eq!(output.status.code(), Some(2), "there is no such store");
}

#[test]
fn prune_skips_and_reports_a_damaged_conversation() {
    let store = Store::new();
    fill_runs(&store, 20, PersistenceMode::PerRun);
    let keys = export_text(&store.argument(), &[]).lines().count();
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    let id: String = connection
        .query_row("SELECT conversation FROM conversations ORDER BY id LIMIT 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    let rows = |number: i64| -> i64 {
        let sql = "SELECT count(*) FROM messages WHERE place >> 32 = ?1";
        connection.query_row(sql, [number], |row| row.get(0)).unwrap()
    };
    let first = rows(1);
    connection.execute("UPDATE conversations SET pruned = -1 WHERE id = 1", []).unwrap();
    for options in [&["--dry-run"][..], &[]] {
        let all = [&["prune", "--store", &store.argument(), "--keep-messages", "1"], options];
        let output = run(&all.concat());
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let printed = stdout(&output);
        let line = printed.lines().find(|line| line.contains(&id)).unwrap();
        assert!(line.contains("skipped") && line.contains("damaged"), "{printed}");
        assert!(!printed.contains(": 0 messages"), "the others are pruned: {printed}");
    }
    assert_eq!(rows(1), first);
    let output = run(&["verify", "--store", &store.argument()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains(&id), "{}", stdout(&output));
    assert!(keys > 1);
}
