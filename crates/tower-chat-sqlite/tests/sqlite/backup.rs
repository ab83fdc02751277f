//! Tests that a backup of a store in use creates a complete copy or no copy.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::common::{append, key, texts, write};
use futures_util::FutureExt;
use rusqlite::Connection;
use tempfile::TempDir;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{HistoryStore, Revision, StoreError},
};
use tower_chat_sqlite::{Backup, BackupError, OpenError, SqliteStore};

struct Fixture {
    folder: TempDir,
    store: SqliteStore,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
        Self { folder, store }
    }

    async fn append(&self, id: &str, texts: &[&str]) -> Revision {
        let one = write(&key(id), RunId::new(), Revision::ABSENT, texts);
        append(&self.store, vec![one]).await.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Returns the names of the files in the folder that do not belong to the store.
    fn others(&self) -> Vec<String> {
        let mut names = self.files();
        names.retain(|name| !name.starts_with("chat.db"));
        names
    }
}

async fn open_intact(path: &Path) -> SqliteStore {
    let store = SqliteStore::options().with_create(false).open(path).await.unwrap();
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
    store
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_made_during_writes_contains_the_beginning_of_each_conversation_without_gaps() {
    const WRITERS: usize = 4;
    let fixture = Fixture::new().await;
    // The file is large enough for several steps of the backup.
    fixture.append("large", &["x".repeat(100_000).as_str(); 60]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let number = |text: &String| text.parse::<usize>().unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, stop) = (fixture.store.clone(), stop.clone());
            tokio::spawn(async move {
                let (key, run, mut at) = (key(&writer.to_string()), RunId::new(), Revision::ABSENT);
                while !stop.load(Ordering::Relaxed) || at.sequence < 20 {
                    let (one, two) = (at.sequence.to_string(), (at.sequence + 1).to_string());
                    let write = write(&key, run, at, &[&one, &two]);
                    at = append(&store, vec![write]).await.unwrap();
                }
                at
            })
        })
        .collect();
    let mut copies = Vec::new();
    for copy in 0..3 {
        let path = fixture.path(&format!("copy{copy}.db"));
        let before = fixture.store.head(&key("0")).await.unwrap().revision.sequence;
        let bytes = fixture.store.backup(&path).await.unwrap();
        assert_eq!(bytes, fs::metadata(&path).unwrap().len());
        copies.push((path, before));
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    for (path, before) in copies {
        let copy = open_intact(&path).await;
        for writer in 0..WRITERS {
            let key = key(&writer.to_string());
            let copied: Vec<usize> = texts(&copy, &key).await.iter().map(number).collect();
            assert_eq!(copied, (0..copied.len()).collect::<Vec<_>>(), "without a gap");
            assert_eq!(copied.len() % 2, 0, "the copy contains only whole writes");
            if writer == 0 {
                assert!(copied.len() as u64 >= before, "all messages from before the backup");
            }
            let head = copy.head(&key).await.unwrap();
            let more = write(&key, RunId::new(), head.revision, &["more"]);
            append(&copy, vec![more]).await.unwrap();
        }
        assert_eq!(copy.load(&key("large")).await.unwrap().messages.len(), 60);
    }
}

#[tokio::test]
async fn a_copy_contains_earlier_submissions() {
    let fixture = Fixture::new().await;
    let slot = fixture.store.reserve().await.unwrap();
    let one = write(&key("c"), RunId::new(), Revision::ABSENT, &["one"]);
    drop(fixture.store.append(slot, vec![one]));
    fixture.store.backup(fixture.path("copy.db")).await.unwrap();
    let copy = open_intact(&fixture.path("copy.db")).await;
    assert_eq!(texts(&copy, &key("c")).await, ["one"]);
}

#[tokio::test]
async fn a_backup_replaces_an_existing_file_only_with_replacing() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["one"]).await;
    let path = fixture.path("copy.db");
    fs::write(&path, "somebody's").unwrap();
    let error = fixture.store.backup(&path).await.unwrap_err();
    assert!(matches!(error, BackupError::Exists { .. }), "{error:?}");
    assert!(error.to_string().contains("copy.db"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
    Backup::of(&fixture.store).replacing(true).write(&path).await.unwrap();
    let copy = open_intact(&path).await;
    assert_eq!(texts(&copy, &key("c")).await, ["one"]);
    copy.close().await.unwrap();
    assert_eq!(fixture.others(), ["copy.db"]);
}

#[tokio::test]
async fn a_backup_refuses_a_path_beside_the_log_of_another_database() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["one"]).await;
    let open = SqliteStore::open(fixture.path("open.db")).await.unwrap();
    let at = write(&key("d"), RunId::new(), Revision::ABSENT, &["two"]);
    append(&open, vec![at]).await.unwrap();
    for name in ["open.db", "chat.db"] {
        let backup = Backup::of(&fixture.store).replacing(true);
        let error = backup.write(fixture.path(name)).await.unwrap_err();
        assert!(matches!(error, BackupError::InUse { .. }), "{error:?}");
    }
    // The backup also refuses the path if a log exists there without its database.
    fs::write(fixture.path("gone.db-wal"), "").unwrap();
    let error = fixture.store.backup(fixture.path("gone.db")).await.unwrap_err();
    assert!(matches!(error, BackupError::InUse { .. }), "{error:?}");
    assert_eq!(texts(&open, &key("d")).await, ["two"]);
    assert_eq!(texts(&fixture.store, &key("c")).await, ["one"]);
}

#[tokio::test]
async fn a_backup_replaces_an_earlier_copy_only_after_its_readers_have_closed_the_copy() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["before it was read"]).await;
    let path = fixture.path("copy.db");
    fixture.store.backup(&path).await.unwrap();
    let backup = Backup::of(&fixture.store).replacing(true);
    for round in 0..2 {
        let read_only = SqliteStore::options().with_read_only(true);
        let reader = read_only.open(&path).await.unwrap();
        assert_eq!(texts(&reader, &key("c")).await, ["before it was read"]);
        let refused = backup.clone().write(&path).await.unwrap_err();
        assert!(matches!(refused, BackupError::InUse { .. }), "{round}: {refused:?}");
        assert_eq!(texts(&reader, &key("c")).await, ["before it was read"]);
        drop(reader);
        assert_eq!(fixture.others(), ["copy.db"], "{round}");
        backup.clone().write(&path).await.unwrap();
    }
    // These files remain after a process was killed while it was reading a database.
    fs::write(fixture.path("copy.db-wal"), "").unwrap();
    fs::write(fixture.path("copy.db-shm"), vec![0; 32 << 10]).unwrap();
    fixture.append("d", &["after it was read"]).await;
    backup.clone().write(&path).await.unwrap();
    assert_eq!(fixture.others(), ["copy.db"]);
    let copy = open_intact(&path).await;
    assert_eq!(texts(&copy, &key("d")).await, ["after it was read"]);
    copy.close().await.unwrap();
}

#[tokio::test]
async fn a_backup_refuses_a_path_beside_a_log_with_content_and_does_not_change_the_log() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["of the first store"]).await;
    let path = fixture.path("crashed.db");
    let crashed = SqliteStore::open(fixture.path("live.db")).await.unwrap();
    let at = write(&key("e"), RunId::new(), Revision::ABSENT, &["only in its log"]);
    append(&crashed, vec![at]).await.unwrap();
    for end in ["", "-wal"] {
        let live = fixture.path(&format!("live.db{end}"));
        fs::copy(live, fixture.path(&format!("crashed.db{end}"))).unwrap();
    }
    let log = fs::read(fixture.path("crashed.db-wal")).unwrap();
    assert!(!log.is_empty());
    for _ in 0..2 {
        let backup = Backup::of(&fixture.store).replacing(true);
        let refused = backup.write(&path).await.unwrap_err();
        assert!(matches!(refused, BackupError::InUse { .. }), "{refused:?}");
        let reader = SqliteStore::options().with_read_only(true).open(&path).await.unwrap();
        assert_eq!(texts(&reader, &key("e")).await, ["only in its log"]);
        reader.close().await.unwrap();
        drop(reader);
        assert_eq!(fs::read(fixture.path("crashed.db-wal")).unwrap(), log);
    }
}

#[tokio::test]
async fn a_failed_backup_is_reported_and_leaves_no_file() {
    let fixture = Fixture::new().await;
    let error = fixture.store.backup(fixture.path("none/copy.db")).await.unwrap_err();
    assert!(matches!(error, BackupError::NoFolder { .. }), "{error:?}");
    fs::create_dir(fixture.path("folder")).unwrap();
    let backup = Backup::of(&fixture.store).replacing(true);
    let error = backup.write(fixture.path("folder")).await.unwrap_err();
    assert!(matches!(error, BackupError::Io { .. }), "{error:?}");
    let error = fixture.store.backup("/").await.unwrap_err();
    assert!(matches!(error, BackupError::Io { .. }), "{error:?}");
    assert_eq!(fixture.others(), ["folder"]);
}

#[tokio::test]
async fn a_copy_is_complete_or_absent_after_its_future_was_dropped() {
    let fixture = Fixture::new().await;
    fixture.append("large", &["x".repeat(100_000).as_str(); 30]).await;
    let path = fixture.path("copy.db");
    for _ in 0..20 {
        drop(fixture.store.backup(&path).now_or_never());
        // The copying thread detects that the future was dropped, and removes the temporary file.
        while fixture.others().iter().any(|name| name.ends_with(".part")) {
            tokio::task::yield_now().await;
        }
        if path.exists() {
            open_intact(&path).await.close().await.unwrap();
            fs::remove_file(&path).unwrap();
        }
    }
    fixture.append("c", &["the store goes on"]).await;
}

#[tokio::test]
async fn a_store_opened_read_only_can_be_copied() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["one"]).await;
    let reader =
        SqliteStore::options().with_read_only(true).open(fixture.path("chat.db")).await.unwrap();
    reader.backup(fixture.path("copy.db")).await.unwrap();
    drop(reader);
    fixture.store.close().await.unwrap();
    assert_eq!(fixture.files(), ["chat.db", "copy.db"]);
    Backup::of_file(fixture.path("chat.db")).write(fixture.path("second.db")).await.unwrap();
    assert_eq!(fixture.files(), ["chat.db", "copy.db", "second.db"]);
    assert_eq!(texts(&open_intact(&fixture.path("copy.db")).await, &key("c")).await, ["one"]);
}

#[tokio::test]
async fn a_backup_copies_a_file_of_an_older_version_without_migrating_the_copy() {
    let fixture = Fixture::new().await;
    for version in 1..=3 {
        let old = format!("{}/tests/fixtures/v{version}.db", env!("CARGO_MANIFEST_DIR"));
        let path = fixture.path(&format!("old{version}.db"));
        fs::copy(old, &path).unwrap();
        let copy = fixture.path(&format!("copy{version}.db"));
        Backup::of_file(&path).write(&copy).await.unwrap();
        let connection = Connection::open(&copy).unwrap();
        let found = connection.pragma_query_value(None, "user_version", |row| row.get(0));
        assert_eq!(found, Ok(version), "the copy is not migrated");
        drop(connection);
        let support = ConversationKey::new("alice", "support");
        assert_eq!(texts(&open_intact(&copy).await, &support).await[0], "Where is my order?");
    }
}

#[tokio::test]
async fn a_backup_refuses_a_file_that_is_not_a_store() {
    let fixture = Fixture::new().await;
    fs::write(fixture.path("text"), "no database ".repeat(100)).unwrap();
    Connection::open(fixture.path("theirs")).unwrap().execute_batch("CREATE TABLE a (a)").unwrap();
    let refused = async |name: &str| match Backup::of_file(fixture.path(name))
        .write(fixture.path("copy.db"))
        .await
    {
        Err(BackupError::Open(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused("text").await, OpenError::NotADatabase { .. }));
    assert!(matches!(refused("theirs").await, OpenError::NotOurs { .. }));
    assert!(matches!(refused("none").await, OpenError::Missing { .. }));
    assert!(!fixture.path("copy.db").exists());
}

#[tokio::test]
async fn a_backup_of_a_damaged_store_reports_the_damage() {
    let fixture = Fixture::new().await;
    fixture.append("c", &["x".repeat(50_000).as_str()]).await;
    fixture.store.close().await.unwrap();
    let path = fixture.path("chat.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..4096].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let error = fixture.store.backup(fixture.path("copy.db")).await.unwrap_err();
    let BackupError::Store(StoreError::Corrupt { .. }) = &error else { panic!("{error:?}") };
    assert!(error.source().is_some() && !error.is_retryable());
    assert!(fixture.others().is_empty(), "{:?}", fixture.others());
}

#[cfg(unix)]
#[tokio::test]
async fn a_copy_has_only_the_permissions_that_the_store_and_the_replaced_file_share() {
    use std::os::unix::fs::PermissionsExt;

    let fixture = Fixture::new().await;
    let allow = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = fixture.path("copy.db");
    for (store, replaced, expected) in [
        (0o600, None, 0o600),
        (0o640, None, 0o640),
        (0o644, None, 0o644),
        (0o644, Some(0o640), 0o640),
        (0o644, Some(0o604), 0o604),
        (0o600, Some(0o644), 0o600),
    ] {
        allow(&fixture.path("chat.db"), store);
        let _ = fs::remove_file(&path);
        if let Some(replaced) = replaced {
            fs::write(&path, "replaced").unwrap();
            allow(&path, replaced);
        }
        Backup::of(&fixture.store).replacing(true).write(&path).await.unwrap();
        assert_eq!(mode(&path), expected, "{store:o} {replaced:?}");
    }
}

#[tokio::test]
async fn a_backup_refuses_the_path_of_its_store_and_of_any_log_index_or_journal() {
    let fixture = Fixture::new().await;
    fs::write(fixture.path("other.db"), "").unwrap();
    let mut paths = vec![fixture.path("chat.db")];
    for name in ["chat.db", "other.db"] {
        paths.extend(["-wal", "-shm", "-journal"].map(|end| fixture.path(&format!("{name}{end}"))));
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(fixture.path("chat.db"), fixture.path("link.db")).unwrap();
        paths.extend(["link.db", "link.db-wal"].map(|name| fixture.path(name)));
    }
    fixture.store.close().await.unwrap();
    for path in paths {
        let before = fs::read(fixture.path("chat.db")).unwrap();
        let there = fs::read(&path).ok();
        let backup = Backup::of_file(fixture.path("chat.db")).replacing(true);
        let error = backup.write(&path).await.unwrap_err();
        assert!(matches!(error, BackupError::OfADatabase { .. }), "{}: {error:?}", path.display());
        assert!(!error.is_retryable());
        assert_eq!(fs::read(&path).ok(), there);
        assert_eq!(fs::read(fixture.path("chat.db")).unwrap(), before);
    }
}
