//! Reports tests that cannot run on this machine.

use std::{env, fmt::Display, io::Write as _};

/// Reports that a test cannot run on this machine. The test must then return.
///
/// The function writes the line `skipped: WHAT: REASON` directly to standard error, because the
/// test harness would capture output that is printed with `eprintln!`.
/// `cargo test 2>&1 | tee test.log; grep ^skipped: test.log` therefore lists all skipped tests.
///
/// # Panics
///
/// Panics if the environment contains `TOWER_CHAT_CI=1`, because no test may then be skipped.
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
    // The test must not fail if the line cannot be written.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
