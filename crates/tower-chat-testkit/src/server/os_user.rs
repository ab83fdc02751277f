//! [`OsUser`], the operating system's user that runs a server.

use std::{fs, os::unix::fs::chown, path::Path, process::Command};

/// The user that runs a server: the user of this process or, if this process runs as root, another
/// user, because database servers refuse to run as root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsUser {
    /// The ids of the user and the group. `None` for the user of this process.
    other: Option<(u32, u32)>,
}

impl OsUser {
    /// Returns the user of this process, unless it is root. For root, returns the first existing
    /// user of `preferred`, or the user `nobody`.
    ///
    /// # Panics
    ///
    /// Panics if this process runs as root and none of these users exists.
    pub fn not_root(preferred: &[&str]) -> Self {
        if !is_root() {
            return Self { other: None };
        }
        let accounts = fs::read_to_string("/etc/passwd").expect("/etc/passwd is read");
        let other = preferred.iter().chain(&["nobody"]).find_map(|name| find(&accounts, name));
        Self { other: Some(other.expect("there is a user other than root")) }
    }

    /// Returns a command that runs as this user.
    pub fn command(&self, program: &Path) -> Command {
        let Some((user, group)) = self.other else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={user}"))
            .arg(format!("--regid={group}"))
            .arg("--clear-groups")
            .arg("--")
            .arg(program);
        command
    }

    /// Makes this user the owner of a file or a folder.
    ///
    /// # Panics
    ///
    /// Panics if the owner cannot be changed.
    pub fn own(&self, path: &Path) {
        if let Some((user, group)) = self.other {
            chown(path, Some(user), Some(group)).expect("root changes the owner of the file");
        }
    }
}

pub(super) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("`id` runs");
    id.stdout.trim_ascii() == b"0"
}

/// Returns the user id and the group id of a user. `accounts` is the text of `/etc/passwd`.
fn find(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let fields = accounts
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name))?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn an_os_user_is_matched_by_its_whole_name() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\nnobody2:x:7:8::/:\nnobody:x:65534:65533::/:";
        assert_eq!(find(accounts, "nobody"), Some((65534, 65533)));
        assert_eq!(find(accounts, "postgres"), None);
    }
}
