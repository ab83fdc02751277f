//! Tests that no acknowledged write is lost and no data are damaged if the disk is full, and that
//! the store works again when the disk has free space again.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::common::{append, key, texts, write};
use tower_chat_core::{
    RunId,
    store::{
        HistoryStore, Revision, StoreError,
        author::{AppendError, Write},
    },
};
use tower_chat_sqlite::{BackupError, OpenError, SqliteStore};

const FOLDER: &str = "TOWER_CHAT_SQLITE_SPACE_FOLDER";
const DISK: &str = "TOWER_CHAT_SQLITE_SPACE_DISK";
const BALLAST: u64 = 512 << 10;
const LIMIT: u64 = 5 << 20;

/// The limit that prevents files from growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disk {
    /// A file system of 3 MiB in memory, with an additional file that the test deletes to free
    /// space.
    Small,
    /// A limit on the size of every file that this process writes. The process can remove the
    /// limit.
    Limited,
}

impl Disk {
    fn make_room(self, folder: &Path) {
        match self {
            Self::Small => fs::remove_file(folder.join("ballast")).unwrap(),
            Self::Limited => {
                let own = std::process::id().to_string();
                let mut lift = Command::new("prlimit");
                assert!(
                    lift.args(["--pid", &own, "--fsize=unlimited:"]).status().unwrap().success()
                );
            }
        }
    }
}

/// Runs a test of this binary as a child, by a shell command that ends with `exec "$0" "$@"`.
fn run_child(test: &str, disk: Disk, folder: &Path, shell: &str) -> Output {
    let mut command = match disk {
        Disk::Small => Command::new("unshare"),
        Disk::Limited => Command::new("sh"),
    };
    if disk == Disk::Small {
        // The child has its own mount namespace. The file system that it mounts exists only as long
        // as the child.
        command.args(["--mount", "sh"]);
    }
    command
        .args(["-c", shell])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("space::{test}"), "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(DISK, format!("{disk:?}"))
        .output()
        .unwrap()
}

/// Runs a child with a limit on the file size, in blocks of 512 bytes. The shell ignores the signal
/// `SIGXFSZ`, so that writing returns an error instead.
fn run_limited(test: &str, folder: &Path, blocks: u64) {
    let shell = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" \"$@\"");
    assert_well(&run_child(test, Disk::Limited, folder, &shell));
}

fn assert_well(output: &Output) {
    let [printed, complained] =
        [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}\n{complained}");
}

/// In the child process, returns the folder of its store and the kind of limit. Returns `None` if
/// no other test has started this process.
fn child() -> Option<(PathBuf, Disk)> {
    let disk = match std::env::var(DISK).ok()?.as_str() {
        "Small" => Disk::Small,
        _ => Disk::Limited,
    };
    Some((std::env::var_os(FOLDER)?.into(), disk))
}

/// Appends until an append fails, and returns that write and its error.
async fn fill(
    store: &SqliteStore,
    at: &mut Revision,
    run: RunId,
    text: &str,
) -> (Write, AppendError) {
    loop {
        let write = write(&key("c"), run, *at, &[text]);
        match append(store, vec![write.clone()]).await {
            Ok(after) => *at = after,
            Err(error) => break (write, error),
        }
    }
}

/// Limits the size of each file. The database reaches the limit first, because checkpoints bound
/// the log.
#[test]
fn a_store_continues_after_its_file_has_reached_a_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    run_limited("child_fills_the_disk", folder.path(), LIMIT / 512);
}

#[test]
fn a_store_continues_after_its_file_system_was_full() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=3m tmpfs \"$TOWER_CHAT_SQLITE_SPACE_FOLDER\" || exit 77;
        exec \"$0\" \"$@\"";
    let output = run_child("child_fills_the_disk", Disk::Small, folder.path(), mount);
    // If the user is not permitted to mount a file system, this test uses the limit on the file
    // size instead.
    let may_mount = !matches!(output.status.code(), Some(1 | 77) if output.stdout.is_empty());
    if may_mount {
        assert_well(&output);
    } else {
        run_limited("child_fills_the_disk", folder.path(), LIMIT / 512);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_fills_the_disk() {
    let Some((folder, disk)) = child() else { return };
    let path = folder.join("chat.db");
    fs::write(folder.join("ballast"), vec![0; usize::try_from(BALLAST).unwrap()]).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let (run, text) = (RunId::new(), "x".repeat(20_000));
    let mut at = Revision::ABSENT;
    let (failed, error) = fill(&store, &mut at, run, &text).await;
    assert!(at.sequence > 20, "{at:?}");
    assert_full(&error.source, disk);
    assert!(error.source.is_retryable() && error.completed == 0);
    if disk == Disk::Limited {
        for path in [&path, &folder.join("chat.db-wal")] {
            let size = fs::metadata(path).unwrap().len();
            assert!(size + 4200 > LIMIT, "{} has {size} bytes", path.display());
        }
    }

    // The next large write fails with the same error, but reads and small writes succeed.
    let (_, again) = fill(&store, &mut at, run, &text).await;
    assert_full(&again.source, disk);
    assert_eq!(store.load(&key("c")).await.unwrap().head.revision, at);
    let (_, _) = fill(&store, &mut at, run, "y").await;
    let history = store.load(&key("c")).await.unwrap();
    assert_eq!(history.head.revision, at);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());

    if disk == Disk::Small {
        let error = store.vacuum().await.unwrap_err();
        assert_full(&error, disk);
        assert_eq!(texts(&store, &key("c")).await.len() as u64, at.sequence);
        let error = store.backup(folder.join("copy.db")).await.unwrap_err();
        assert!(matches!(error, BackupError::StorageFull { .. }), "{error:?}");
        assert!(error.is_retryable());
        let parts = fs::read_dir(&folder).unwrap();
        let parts = parts.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().contains("copy")
        });
        assert_eq!(parts.count(), 0, "the temporary file was removed");
        let error = SqliteStore::open(folder.join("new.db")).await.unwrap_err();
        assert!(matches!(error, OpenError::StorageFull { .. }), "{error:?}");
        assert!(error.is_retryable());
    }

    disk.make_room(&folder);
    if at == failed.expected() {
        at = append(&store, vec![failed]).await.unwrap();
    }
    for _ in 0..5 {
        at = append(&store, vec![write(&key("c"), run, at, &[&text])]).await.unwrap();
    }
    let stored = texts(&store, &key("c")).await;
    assert_eq!(stored.len() as u64, at.sequence);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
    SqliteStore::open(folder.join("new.db")).await.unwrap().close().await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, stored);
}

/// Checks the error of a write: SQLite reports a full disk with a specific error, and a limit on
/// the file size as a failed write.
fn assert_full(error: &StoreError, disk: Disk) {
    match disk {
        Disk::Small => assert!(matches!(error, StoreError::StorageFull { .. }), "{error:?}"),
        Disk::Limited => assert!(
            matches!(
                error,
                StoreError::StorageFull { .. } | StoreError::Backend { retryable: true, .. }
            ),
            "{error:?}"
        ),
    }
}

#[tokio::test]
async fn opening_fails_without_space_for_the_index_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    append(&store, vec![write(&key("c"), RunId::new(), Revision::ABSENT, &["one"])]).await.unwrap();
    store.close().await.unwrap();
    run_limited("child_opens_the_file", folder.path(), 40);
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_opens_the_file() {
    let Some((folder, disk)) = child() else { return };
    let path = folder.join("chat.db");
    for options in [SqliteStore::options(), SqliteStore::options().with_read_only(true)] {
        let error = options.open(&path).await.unwrap_err();
        assert!(matches!(error, OpenError::StorageFull { .. }), "{error:?}");
    }
    disk.make_room(&folder);
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
}

/// The disk has less free space than the log of one transaction that deletes the whole
/// conversation.
#[test]
fn a_large_conversation_is_deleted_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=3m tmpfs \"$TOWER_CHAT_SQLITE_SPACE_FOLDER\" || exit 77;
        exec \"$0\" \"$@\"";
    let output = run_child("child_deletes_on_a_full_disk", Disk::Small, folder.path(), mount);
    // If the user is not permitted to mount a file system, this test uses the limit on the file
    // size instead.
    let may_mount = !matches!(output.status.code(), Some(1 | 77) if output.stdout.is_empty());
    if may_mount {
        assert_well(&output);
    } else {
        run_limited("child_deletes_on_a_full_disk", folder.path(), LIMIT / 512);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_deletes_on_a_full_disk() {
    let Some((folder, _)) = child() else { return };
    let store = SqliteStore::open(folder.join("chat.db")).await.unwrap();
    let other = write(&key("other"), RunId::new(), Revision::ABSENT, &["kept"]);
    append(&store, vec![other]).await.unwrap();
    let mut at = Revision::ABSENT;
    for number in 0..70 {
        let text = format!("{number} {}", "y".repeat(20_000));
        let next = write(&key("c"), RunId::new(), at, &[&text]);
        at = append(&store, vec![next]).await.unwrap();
        if number % 20 == 0 {
            store.checkpoint().await.unwrap();
        }
    }
    store.checkpoint().await.unwrap();
    // Another file fills the disk, except for a tenth of the size of the conversation.
    let room = 160 << 10;
    let mut ballast = fs::File::create(folder.join("ballast")).unwrap();
    while ballast.write_all(&[0; 4096]).is_ok() {}
    ballast.set_len(ballast.metadata().unwrap().len() - room).unwrap();
    assert!(store.delete(&key("c")).await.unwrap());
    assert_eq!(store.head(&key("c")).await.unwrap().revision, Revision::ABSENT);
    assert_eq!(texts(&store, &key("other")).await, ["kept"]);
    let anew = write(&key("c"), RunId::new(), Revision::ABSENT, &["anew"]);
    append(&store, vec![anew]).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["anew"]);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}
