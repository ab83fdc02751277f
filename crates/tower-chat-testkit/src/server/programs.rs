//! The programs of a server, where they are installed.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use super::{Missing, os_user};

/// What a server's programs are called, and how they come onto the machine.
#[derive(Debug, Clone, Copy)]
pub struct Programs {
    /// The server, in words.
    pub what: &'static str,
    /// Debian's package.
    pub package: &'static str,
    /// Folders, apart from `PATH`, in which to look; a `*` stands for any folder's name.
    pub folders: &'static [&'static str],
    /// The programs that must be there, all in one folder.
    pub names: &'static [&'static str],
}

/// The package manager takes one at a time.
static INSTALLING: Mutex<()> = Mutex::new(());

impl Programs {
    /// The folder that has them all; they are installed if that is possible.
    ///
    /// # Errors
    ///
    /// [`Missing`].
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

    /// The folder that has them all, where they are installed already.
    pub fn installed(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
        folders.extend(self.folders.iter().flat_map(|pattern| matching(pattern)));
        folders.into_iter().find(|folder| self.names.iter().all(|name| folder.join(name).is_file()))
    }
}

/// The folders that fit a pattern, the highest version first.
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
