//! [`AtTheEnd`], which runs a script when the process ends.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Runs a shell script when this value is dropped, or when this process has ended for any reason. A
/// separate shell waits at a pipe that only this process has open for writing. When the pipe is
/// closed, the shell runs the script.
#[derive(Debug)]
pub struct AtTheEnd(Child);

impl AtTheEnd {
    /// Starts the shell that will run the script. In the script, the parameters are `$1` and so on.
    ///
    /// # Panics
    ///
    /// Panics if the shell cannot be started.
    pub fn run(script: &str, parameters: &[&str]) -> Self {
        let waiting = Command::new("sh")
            .arg("-c")
            // A signal to the process group, which ends this process, must not end the shell.
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
        // The exit status of the script is ignored, because a second panic during unwinding would
        // abort the process.
        drop(self.0.wait());
    }
}
