//! Finds or installs the programs of a server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use super::{Missing, os_user};

/// The names of a server's programs, and the Debian package that contains them.
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// The name of the server, for messages.
    pub what: &'static str,
    /// The name of the Debian package.
    pub package: &'static str,
    /// The folders to search in addition to `PATH`. A `*` matches any folder name.
    pub folders: &'static [&'static str],
    /// The names of the required programs, which must all be in the same folder.
    pub names: &'static [&'static str],
}

/// Held during an installation, because the package manager accepts one command at a time.
static INSTALLING: Mutex<()> = Mutex::new(());

impl Programs {
    /// Returns the folder that contains all programs. Installs the programs if they are missing and
    /// this process runs as root.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] if the programs are not installed and cannot be installed.
    pub fn find(&self) -> Result<PathBuf, Missing> {
        if let Some(folder) = self.installed() {
            return Ok(folder);
        }
        let _one = INSTALLING.lock();
        let outcome = install(self.package);
        self.installed().ok_or_else(|| {
            let reason = outcome.err().unwrap_or_else(|| "its package lacks programs".to_owned());
            Missing { what: self.what, reason }
        })
    }

    /// Returns the folder that contains all programs, if they are installed.
    pub fn installed(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
        folders.extend(self.folders.iter().flat_map(|pattern| matching(pattern)));
        folders.into_iter().find(|folder| self.names.iter().all(|name| folder.join(name).is_file()))
    }
}

/// Returns the folders that match a pattern, in descending byte order of their paths. In this
/// order, version 16 precedes version 15, but version 9 precedes both.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once("/*/") else { return vec![pattern.into()] };
    let entries = fs::read_dir(Path::new(before)).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path().join(after)).collect();
    folders.sort();
    folders.reverse();
    folders
}

fn install(package: &str) -> Result<(), String> {
    if !os_user::is_root() {
        return Err(format!("only root may install it: `apt-get install {package}`"));
    }
    for arguments in [vec!["update"], vec!["install", "-y", "--no-install-recommends", package]] {
        let output = Command::new("apt-get")
            .args(["-qq", "-o", "DPkg::Lock::Timeout=300"])
            .args(&arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .map_err(|error| format!("`apt-get` does not run: {error}"))?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`apt-get {}` failed: {}", arguments.join(" "), printed.trim()));
        }
    }
    Ok(())
}
