//! The examples run without a key, and print what their documentation says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::PathBuf, process::Command};

/// Built beside this test: cargo builds a package's examples before it runs the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap();
    built.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn a_retry_under_the_persister_stores_once_and_one_over_it_twice() {
    let output = Command::new(example("provider_stack")).output().unwrap();
    let trace = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{trace}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "retry under the persister: Order 7 is on its way.\n  \
         requests: token-1 200, token-2 503, token-3 200\n  \
         4 messages stored by 2 submissions\n\
         retry over the persister: Order 7 is on its way.\n  \
         requests: token-1 200, token-2 503, token-3 200\n  \
         4 messages stored by 3 submissions\n"
    );
    assert!(trace.contains("finished processing request"), "{trace}");
    assert!(!trace.contains("token-"), "{trace}");
}
