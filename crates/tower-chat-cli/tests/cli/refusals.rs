//! Tests that a command that fails prints the reason and changes nothing.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use tower_chat::PersistenceMode;

use crate::support::*;

fn refused(arguments: &[&str]) -> String {
    refusal(arguments, &run(arguments))
}

fn refusal(arguments: &[&str], output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(output));
    assert_eq!(stdout(output), "", "{arguments:?}");
    let printed = stderr(output);
    assert!(!printed.is_empty() && !printed.contains("panicked"), "{printed}");
    printed
}

/// A file with a conversation for `import --from openai-chat`.
const GREETING: &str = r#"{"id":"greeting","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]}"#;

/// Returns the arguments of the command that imports a file.
fn import<'a>(file: &'a str, store: &'a str) -> [&'a str; 8] {
    ["import", file, "--from", "openai-chat", "--scope", "play", "--store", store]
}

#[test]
fn arguments_that_the_command_does_not_accept_are_refused() {
    for arguments in [
        &[][..],
        &["sing"],
        &["export"],
        &["export", "--store", "memory:"],
        &["export", "--store", "sqlite:x.db", "--loud"],
    ] {
        refused(arguments);
    }
}

#[test]
fn help_is_printed_for_the_program_and_for_a_command() {
    for (arguments, printed) in [(&["--help"][..], "export"), (&["export", "--help"], "--record")] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains(printed) && stdout(&output).lines().count() < 60);
    }
}

#[test]
fn a_path_that_is_not_a_store_is_refused_and_not_changed() {
    let store = Store::new();
    let file = store.file("one.jsonl", GREETING);
    let notes = store.file("notes.txt", &"these are notes, and no database\n".repeat(100));
    let foreign = store.folder().join("foreign.db");
    rusqlite::Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    let newer = Store::new();
    fill_runs(&newer, 1, PersistenceMode::PerRun);
    make_newer(&newer.path());
    for (path, why) in [
        (store.folder().display().to_string(), ""),
        (notes.clone(), "not a SQLite database"),
        (foreign.display().to_string(), "not a conversation store"),
        (newer.path().display().to_string(), "newer release"),
        (store.folder().join("no/folder.db").display().to_string(), "does not exist"),
    ] {
        let before = fs::read(&path).ok();
        let argument = format!("sqlite:{path}");
        for arguments in [&import(&file, &argument)[..], &["export", "--store", &argument]] {
            let printed = refused(arguments);
            assert!(printed.contains(why) && printed.contains(&path), "{printed}");
        }
        assert_eq!(fs::read(&path).ok(), before, "{path}");
    }
}

/// Runs the command in such a way that the permissions of a read-only file apply. If the test runs
/// as root, the command runs without the capability that bypasses file permissions.
#[cfg(unix)]
fn run_held_to(read_only: &Path, arguments: &[&str]) -> Output {
    if fs::OpenOptions::new().append(true).open(read_only).is_err() {
        return run(arguments);
    }
    let command = tower_chat(arguments);
    let mut held = Command::new("setpriv");
    held.args(["--bounding-set", "-dac_override", "--"]).arg(command.get_program());
    held.args(command.get_args()).env_remove("RUST_LOG").stdin(Stdio::null());
    held.output().expect("setpriv runs")
}

#[cfg(unix)]
#[test]
fn a_store_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let store = Store::new();
    fill_runs(&store, 1, PersistenceMode::PerRun);
    let beside = Store::new();
    let more = beside.file("more.jsonl", GREETING);
    let permit = |folder: u32, file: u32| {
        fs::set_permissions(store.folder(), fs::Permissions::from_mode(folder)).unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(file)).unwrap();
    };
    permit(0o500, 0o400);
    let argument = store.argument();
    let arguments = import(&more, &argument);
    let printed = refusal(&arguments, &run_held_to(&store.path(), &arguments));
    assert!(printed.contains("cannot be written") && printed.contains("--store"), "{printed}");
    permit(0o700, 0o600);
    if cfg!(target_os = "linux") {
        refused(&import(&more, "sqlite:/proc/chat.db"));
    }
}

#[test]
fn an_age_without_a_valid_unit_is_refused_with_an_example_of_valid_ages() {
    let store = Store::new();
    let prune = ["prune", "--store", &store.argument()];
    let recover = ["recover", "--store", &store.argument(), "--end", "commit"];
    for command in [&prune[..], &recover] {
        for age in ["3600", "1w", "-1h", "1.5h", "h", ""] {
            let option = format!("--older-than={age}");
            let printed = refused(&[command, &[&option]].concat());
            assert!(printed.contains("an age has a unit: 30d, 12h, 15m or 45s"), "{printed}");
            assert!(printed.contains("--older-than <AGE>"), "{printed}");
        }
        let printed = refused(&[command, &["--older-than", "30d"]].concat());
        assert!(printed.contains("there is no conversation store"), "{printed}");
    }
}

#[test]
fn the_advice_of_an_error_names_options_of_the_command() {
    let store = Store::new();
    let path = store.path().display().to_string();
    let empty = store.file("empty.db", "");
    for path in [&path, &empty] {
        let argument = format!("sqlite:{path}");
        for command in ["export", "tools", "runs", "verify", "repair", "vacuum"] {
            let printed = refused(&[command, "--store", &argument]);
            let expected = format!(
                "error: there is no conversation store at `{path}`: check the path of --store\n"
            );
            assert_eq!(printed, expected, "{command}");
        }
    }
    assert!(!store.path().exists());
    assert_eq!(fs::read(&empty).unwrap(), b"");
    let printed = refused(&["export", "--store", "memory:"]);
    assert_eq!(
        printed,
        "error: a store in memory has nothing to export: give --store sqlite:PATH\n"
    );
}

#[test]
fn an_export_of_a_missing_store_is_refused_and_creates_no_file() {
    let store = Store::new();
    let printed = refused(&["export", "--store", &store.argument()]);
    assert!(printed.contains("there is no conversation store"), "{printed}");
    assert!(!store.path().exists());
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let store = Store::new();
    fill_runs(&store, 100, PersistenceMode::PerRun);
    let argument = store.argument();
    for command in ["export", "list", "verify"] {
        let mut child = tower_chat(&[command, "--store", &argument])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{command}");
    }
}
