//! Reports of tests that cannot run on this machine.

use std::{env, fmt::Display, io::Write as _};

/// Reports a test that cannot run on this machine. The test then returns.
///
/// The line `skipped: WHAT: REASON` is written directly to standard error, because the test harness
/// captures the output of successful tests.
/// `cargo test 2>&1 | tee test.log; grep ^skipped: test.log` therefore lists everything that was
/// not tested.
///
/// # Panics
///
/// If the environment has `TOWER_CHAT_CI=1`, in which case no test may be skipped.
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
    // A failure to write the line must not fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
