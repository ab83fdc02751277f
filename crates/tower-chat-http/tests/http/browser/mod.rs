//! Tests the page of the example `resumable_chat` in a browser. During an answer, the test reloads
//! the page, opens a second tab, closes the page's connections, and kills and restarts the server.

#[path = "../../../../tower-chat-inspector/tests/inspector/browser/install.rs"]
mod install;

use std::{path::Path, process::Command};

use tower_chat_testkit::skip;

use crate::examples::example;

#[test]
fn an_answer_survives_reloads_cut_connections_and_a_killed_server() {
    let (node, chromium) = match install::browser() {
        Ok(installed) => installed,
        Err(reason) => return skip("the resumable chat in a browser", reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/browser/resume.mjs");
    let mut resume = Command::new("node");
    resume.current_dir(&node).arg(script).arg(chromium).arg(&node);
    resume.arg(example("browser_server")).arg(folder.path().join("chat.db"));
    let output = resume.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
}
