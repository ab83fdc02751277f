//! Tests commands on stores of older versions. Commands that write migrate such a store, and
//! commands that read do not.

use std::{fs, path::Path};

use serde_json::json;

use crate::support::*;

/// The version of a SQLite file in this release.
const NOW: i64 = 7;
/// The version of the PostgreSQL tables in this release.
const TABLES: i64 = 7;

/// The commands that only read.
const READING: [&[&str]; 6] =
    [&["list"], &["usage"], &["export"], &["tools"], &["runs"], &["export", "--record"]];

/// Returns a store whose file an older release has written, and the bytes of the file.
fn file_of(version: i64) -> (TestStore, Vec<u8>) {
    let store = TestStore::new(Kind::Sqlite);
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tower-chat-sqlite/tests/fixtures");
    let bytes = fs::read(fixtures.join(format!("v{version}.db"))).unwrap();
    fs::write(store.folder().join("chat.db"), &bytes).unwrap();
    (store, bytes)
}

/// Creates the PostgreSQL tables of version 1 from an SQL file.
fn tables_of_version_1(file: &str) -> TestStore {
    let store = TestStore::new(Kind::Postgres);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tower-chat-postgres/tests/fixtures/version_1");
    let tables = fs::read_to_string(fixtures.join(file)).unwrap();
    let functions = fs::read_to_string(fixtures.join("functions.sql")).unwrap();
    let sql = format!("{tables}{functions}").replace("{name_scope}", "");
    store.execute_sql(&sql.replace("{schema}", &format!("\"{}\"", store.name())));
    store
}

/// Runs `migrate`, and returns the exit code, the standard output and the standard error.
fn migrate(store: &TestStore, more: &[&str]) -> (Option<i32>, String, String) {
    let output = store.run(&[&["migrate"], more].concat());
    (output.status.code(), stdout(&output), stderr(&output))
}

fn done(code: i32, printed: &str) -> (Option<i32>, String, String) {
    (Some(code), format!("{printed}\n"), String::new())
}

#[test]
fn only_migrate_updates_a_file_of_an_older_version_and_only_once() {
    for version in 1..NOW {
        let (store, before) = file_of(version);
        let path = store.folder().join("chat.db");
        let file = format!("`{}`", path.display());
        for command in READING {
            let output = store.run(command);
            assert_eq!(output.status.code(), Some(2), "{version} {command:?}");
            let expected = format!(
                "version {version} of an older release, and this release needs version {NOW}: migrate"
            );
            assert!(stderr(&output).contains(&expected), "{command:?}: {}", stderr(&output));
            assert!(stderr(&output).contains("`tower-chat migrate`"), "{}", stderr(&output));
        }
        let planned =
            done(1, &format!("{file}: version {version}, to be migrated to version {NOW}"));
        assert_eq!(migrate(&store, &["--dry-run"]), planned);
        let (code, printed, _) = migrate(&store, &["--dry-run", "--json"]);
        let json = json!({"migration": "needed", "from": version, "to": NOW, "done": false});
        assert_eq!((code, serde_json::from_str(&printed).ok()), (Some(1), Some(json)));
        assert_eq!(fs::read(&path).unwrap(), before, "nothing was changed");
        let migrated =
            done(0, &format!("{file}: migrated from version {version} to version {NOW}"));
        assert_eq!(migrate(&store, &[]), migrated);
        for more in [&["--dry-run"][..], &[]] {
            assert_eq!(migrate(&store, more), done(0, &format!("{file} is up to date")));
        }
        let exported = store.prints(&["export", "--scope", "alice"]);
        assert!(exported.contains("Where is my order?"), "{version}: {exported}");
    }
}

#[test]
fn only_migrate_updates_tables_of_an_older_version() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    for file in ["tables.sql", "divided_tables.sql"] {
        let store = tables_of_version_1(file);
        let schema = format!("schema `{}`", store.name());
        for command in READING {
            let output = store.run(command);
            assert_eq!(output.status.code(), Some(2), "{command:?}");
            let expected = format!(
                "version 1 of an older release, and this release needs version {TABLES}: migrate them"
            );
            assert!(stderr(&output).contains(&expected), "{command:?}: {}", stderr(&output));
        }
        let planned = done(1, &format!("{schema}: version 1, to be migrated to version {TABLES}"));
        assert_eq!(migrate(&store, &["--dry-run"]), planned);
        assert_eq!(migrate(&store, &["--dry-run"]), planned);
        let migrated = done(0, &format!("{schema}: migrated from version 1 to version {TABLES}"));
        assert_eq!(migrate(&store, &[]), migrated);
        assert_eq!(migrate(&store, &[]), done(0, "the tables are up to date"));
        assert_eq!(store.prints(&["runs"]), "no open runs\n");
    }
}

#[test]
fn migrate_creates_missing_tables_and_reading_commands_do_not() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    let store = TestStore::new(Kind::Postgres);
    let schema = format!("schema `{}`", store.name());
    for command in READING {
        let output = store.run(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let expected = format!("there are no tables of conversations in {schema}");
        assert!(stderr(&output).contains(&expected), "{command:?}: {}", stderr(&output));
    }
    let planned = done(1, &format!("{schema}: there are no tables: they would be created"));
    assert_eq!(migrate(&store, &["--dry-run"]), planned);
    assert_eq!(migrate(&store, &[]), done(0, &format!("{schema}: the tables were created")));
    assert_eq!(migrate(&store, &["--dry-run"]), done(0, "the tables are up to date"));
    assert_eq!(store.prints(&["runs"]), "no open runs\n");
}

#[test]
fn redis_and_a_store_in_memory_have_nothing_to_migrate() {
    if !TestStore::is_missing(Kind::Redis) {
        let store = TestStore::new(Kind::Redis);
        let nothing = "a store in Redis has no tables, and every release can read it";
        assert_eq!(migrate(&store, &[]), done(0, nothing));
    }
    let store = TestStore::new(Kind::Sqlite);
    let (code, printed, complained) = migrate(&store, &[]);
    assert_eq!((code, printed.as_str()), (Some(2), ""));
    assert!(complained.contains("there is no conversation store at"), "{complained}");
    assert!(!store.folder().join("chat.db").exists());
    let output = run(&["migrate", "--store", "memory:"]);
    assert!(stderr(&output).contains("a store in memory has nothing to migrate"));
}
