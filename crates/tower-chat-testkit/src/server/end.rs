//! Scripts that run when a process ends.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Runs a shell script when this value is dropped, or when this process has ended for any reason: a
/// separate shell waits for the end of a pipe that only this process has open.
#[derive(Debug)]
pub struct AtTheEnd(Child);

impl AtTheEnd {
    /// Starts a shell that waits to run a script, whose parameters are `$1` and so on.
    ///
    /// # Panics
    ///
    /// If there is no shell.
    pub fn run(script: &str, parameters: &[&str]) -> Self {
        let waiting = Command::new("sh")
            .arg("-c")
            // A signal that ends this process must not end the shell.
            .arg(format!("trap '' INT TERM HUP; cat >/dev/null; {script}"))
            .arg("sh")
            .args(parameters)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self(waiting.expect("the shell is started"))
    }
}

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The status of the script is ignored, because a panic here could hide another panic.
        drop(self.0.wait());
    }
}
