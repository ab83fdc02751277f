//! Tests the permissions of the files that commands write, and the files that commands refuse to
//! overwrite.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use crate::{
    support::*,
    transfer::{add, text},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_that_a_command_writes_has_the_permissions_of_the_store() {
    for (of_store, expected) in [(0o600, 0o600), (0o640, 0o640), (0o644, 0o644)] {
        let store = TestStore::new(Kind::Sqlite);
        add(&store, "alice", "coats", "Is it cold?");
        fs::set_permissions(store.path(), fs::Permissions::from_mode(of_store)).unwrap();
        let at = |name: &str| store.folder().join(name);
        let argument = |name: &str| text(&at(name));
        store.prints(&["export", "--to", &argument("chat.jsonl")]);
        let own = ["export", "--format", "tower-chat", "--to", &argument("own.jsonl")];
        store.prints(&[&own[..], &["--receipt", &argument("exported.jsonl")]].concat());
        store.prints(&["backup", "--to", &argument("backup.db")]);
        let target = format!("sqlite:{}", argument("copy.db"));
        store.prints(&["copy", "--to", &target, "--receipt", &argument("copied.jsonl")]);
        let import = ["import", &argument("own.jsonl"), "--receipt", &argument("imported.jsonl")];
        store.prints(&import);
        let delete = ["delete", "alice", "coats", "--receipt", &argument("deleted.jsonl")];
        store.prints(&delete);
        for name in [
            "chat.jsonl",
            "own.jsonl",
            "exported.jsonl",
            "backup.db",
            "copied.jsonl",
            "imported.jsonl",
            "deleted.jsonl",
        ] {
            assert_eq!(mode(&at(name)), expected, "{name} of {of_store:o}");
        }
        // The permissions of an existing file do not change.
        fs::set_permissions(at("deleted.jsonl"), fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(store.run(&delete).status.code(), Some(2));
        assert_eq!(mode(&at("deleted.jsonl")), 0o604);
    }
}

#[test]
fn no_command_overwrites_a_file_that_it_uses() {
    let store = TestStore::new(Kind::Sqlite);
    add(&store, "alice", "coats", "Is it cold?");
    let at = |name: &str| store.folder().join(name);
    let argument = |name: &str| text(&at(name));
    store.prints(&["export", "--format", "tower-chat", "--to", &argument("own.jsonl")]);
    fs::write(at("diary.txt"), "a diary without an end of line").unwrap();
    fs::write(at("other.db"), "").unwrap();
    fs::create_dir(at("sub")).unwrap();
    symlink("..", at("sub/up")).unwrap();
    symlink(store.path(), at("link.db")).unwrap();
    fs::hard_link(store.path(), at("hard.db")).unwrap();
    symlink("new.jsonl", at("link.jsonl")).unwrap();
    let beside = |ending: &str| format!("{}{ending}", text(&store.path()));
    let new = argument("new.jsonl");
    let export = ["export", "--format", "tower-chat", "--to"];
    let mut refused: Vec<Vec<String>> = Vec::new();
    let mut refuse = |arguments: &[&[&str]]| {
        refused.push(arguments.concat().into_iter().map(str::to_owned).collect());
    };
    // The path of the receipt and the path of the output refer to the same file.
    for receipt in ["new.jsonl", "sub/../new.jsonl", "sub/up/new.jsonl", "link.jsonl"] {
        refuse(&[&export, &[&new, "--receipt", &argument(receipt)]]);
    }
    refuse(&[&["import", &argument("own.jsonl"), "--receipt", &argument("own.jsonl")]]);
    // The store, a file that SQLite creates for it, and such a file of another database.
    let of_a_store =
        ["link.db", "hard.db", "link.db-wal", "other.db-shm", "sub/up/other.db-journal"];
    let parts = ["", "-wal", "-shm", "-journal"].map(beside);
    for file in parts.into_iter().chain(of_a_store.map(argument)) {
        refuse(&[&export, &[&file]]);
        refuse(&[&export, &[&file, "--resume"]]);
        refuse(&[&["export", "--to"], &[&file]]);
        refuse(&[&["backup", "--to"], &[&file]]);
        refuse(&[&["delete", "alice", "coats", "--receipt"], &[&file]]);
        refuse(&[&["copy", "--to", "memory:", "--receipt"], &[&file]]);
        refuse(&[&["import", &argument("own.jsonl"), "--receipt"], &[&file]]);
    }
    // The existing files are not receipts.
    for file in ["diary.txt", "own.jsonl"] {
        refuse(&[&["delete", "alice", "coats", "--receipt", &argument(file)]]);
        refuse(&[&export, &[&new, "--receipt", &argument(file)]]);
    }
    let contents = || {
        let names = ["diary.txt", "own.jsonl", "other.db"];
        let read = names.map(|name| fs::read(at(name)).unwrap());
        (read, store.prints(&["export", "--record"]))
    };
    let before = contents();
    for arguments in &refused {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let _ = fs::remove_file(at("new.jsonl"));
        let output = store.run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert_eq!(contents(), before, "{arguments:?}");
    }
    for name in ["other.db-shm", "other.db-journal", "link.db-wal"] {
        assert!(!at(name).exists(), "{name}");
    }
}
