//! Tests that stores in folders without write permission can be read.
#![cfg(unix)]

use std::{
    fs::{self, Permissions},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::*;

/// The id of the user `nobody`. If root runs the tests, the tests start the command as this user.
const NOBODY: u32 = 65_534;

/// A store in a folder without write permission, and an executable for every user.
struct Unwritable {
    store: Store,
    program: Store,
}

impl Unwritable {
    fn new(fill: impl Fn(&Store)) -> Self {
        let unwritable = Self { store: Store::new(), program: Store::new() };
        fill(&unwritable.store);
        let program = unwritable.program();
        // A child process would inherit a file that this process writes, and a file that is open
        // for writing cannot be executed.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_tower-chat")).arg(&program).status();
        assert!(copied.unwrap().success());
        permit(&program, 0o755);
        permit(unwritable.program.folder(), 0o755);
        for file in fs::read_dir(unwritable.store.folder()).unwrap() {
            permit(&file.unwrap().path(), 0o444);
        }
        permit(unwritable.store.folder(), 0o555);
        unwritable
    }

    fn program(&self) -> PathBuf {
        self.program.folder().join("tower-chat")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.program());
        command.args(arguments).env_remove("RUST_LOG").stdin(Stdio::null());
        if fs::write(self.store.folder().join("written"), "").is_ok() {
            fs::remove_file(self.store.folder().join("written")).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output().expect("the command runs")
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = fs::read_dir(self.store.folder()).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        files.sort();
        files
    }
}

impl Drop for Unwritable {
    fn drop(&mut self) {
        permit(self.store.folder(), 0o755);
    }
}

fn permit(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_closed_store_in_a_read_only_folder_can_be_read_and_copied() {
    let unwritable = Unwritable::new(fill_intact);
    let argument = unwritable.store.argument();
    let before = unwritable.files();
    // The same store in a folder with write permission.
    let copy = Store::new();
    fs::copy(unwritable.store.path(), copy.path()).unwrap();
    let copied = copy.argument();
    for command in [
        &["export", "--record", "--store", &argument][..],
        &["tools", "--list", "--store", &argument],
        &["runs", "--store", &argument],
        &["verify", "--store", &argument],
        &["prune", "--keep-messages", "1", "--dry-run", "--store", &argument],
    ] {
        let elsewhere: Vec<_> =
            command.iter().map(|it| if *it == argument { &copied } else { *it }).collect();
        let expected = run(&elsewhere);
        let output = unwritable.run(command);
        let codes = (output.status.code(), expected.status.code());
        assert_eq!(codes, (Some(0), Some(0)), "{command:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), stdout(&expected), "{command:?}");
        assert!(unwritable.files() == before, "{command:?}");
    }
    let copies = Store::new();
    permit(copies.folder(), 0o777);
    let copy = copies.path().display().to_string();
    let output = unwritable.run(&["backup", "--store", &argument, "--to", &copy]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = export_text(&copies.argument(), &["--record"]);
    assert_eq!(text, export_text(&copied, &["--record"]));
    assert!(unwritable.files() == before);
}

#[test]
fn a_writing_command_on_a_read_only_store_fails_with_advice() {
    let unwritable = Unwritable::new(fill_intact);
    let argument = unwritable.store.argument();
    let before = unwritable.files();
    for command in [
        &["vacuum", "--store", &argument][..],
        &["repair", "--store", &argument],
        &["prune", "--keep-messages", "1", "--store", &argument],
        &["recover", "--end", "commit", "--store", &argument],
    ] {
        let output = unwritable.run(command);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {printed}");
        assert!(printed.contains("cannot be written") && printed.contains("--store"), "{printed}");
        assert!(unwritable.files() == before, "{command:?}");
    }
}

#[test]
fn a_read_only_store_whose_log_has_content_is_refused() {
    // The store is in the state that a killed program leaves behind.
    let unwritable = Unwritable::new(|store| {
        fill_intact(store);
        let open = Store::new();
        fs::copy(store.path(), open.path()).unwrap();
        let connection = rusqlite::Connection::open(open.path()).unwrap();
        connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 1").unwrap();
        for name in ["chat.db", "chat.db-wal"] {
            fs::copy(open.folder().join(name), store.folder().join(name)).unwrap();
        }
    });
    let before = unwritable.files();
    assert_eq!(before.len(), 2, "the file and its log");
    for command in ["export", "verify"] {
        let output = unwritable.run(&[command, "--store", &unwritable.store.argument()]);
        let printed = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()), "{printed}");
        assert!(printed.contains("chat.db-wal` has content"), "{printed}");
        assert!(printed.contains("copy both files"), "{printed}");
        assert!(unwritable.files() == before);
    }
}
