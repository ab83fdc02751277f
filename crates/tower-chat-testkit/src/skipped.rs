//! Tests that cannot run on this machine.

use std::{env, fmt::Display, io::Write as _};

/// Names a test that cannot run on this machine, which then returns.
///
/// The line `skipped: WHAT: REASON` goes to standard error past the test harness, which keeps to itself
/// what a successful test prints. So `cargo test 2>&1 | tee test.log; grep ^skipped: test.log` names
/// everything that was not tested.
///
/// # Panics
///
/// If the environment has `TOWER_CHAT_CI=1`: there, nothing may be skipped.
///
/// ```
/// use tower_chat_testkit::skip;
///
/// fn the_openai_package_is_answered() {
///     if let Err(error) = std::process::Command::new("python3").arg("--version").output() {
///         return skip("OpenAI's package for Python", error);
///     }
///     // ...
/// }
/// # the_openai_package_is_answered();
/// ```
pub fn skip(what: &str, reason: impl Display) {
    let is_ci = env::var_os("TOWER_CHAT_CI").is_some_and(|set| set == "1");
    assert!(!is_ci, "{what} must be tested: {reason}");
    let line = format!("\nskipped: {what}: {reason}\n");
    // Nobody reads a line that cannot be written, and the test is not about it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
