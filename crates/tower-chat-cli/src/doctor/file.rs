//! Checks a SQLite file.

use std::path::Path;

use tower_chat_sqlite::SqliteStore;

use super::findings::{Findings, Level};
use crate::error::CliError;

/// The size, in bytes, of a write-ahead log that checkpoints do not reset.
const LONG_LOG: u64 = 256 << 20;

/// Checks the file. Returns whether the file can be read.
pub(super) async fn check(path: &Path, findings: &mut Findings) -> Result<bool, CliError> {
    let settings = SqliteStore::file_settings(path).await?;
    findings.ok("file", format!("`{}`, {} bytes", path.display(), settings.file_bytes));
    check_folder(path, settings.file_bytes, findings);
    findings.expect(
        settings.journal_mode == "wal",
        Level::Warning,
        "journal mode",
        settings.journal_mode.as_str(),
        "make sure that no other program changes it: a store that is opened for writing sets it to wal",
    );
    findings.ok("synchronous", "each program sets it when it opens the store; FULL by default");
    findings.expect(
        settings.log_bytes <= LONG_LOG,
        Level::Warning,
        "write-ahead log",
        format!("{} bytes", settings.log_bytes),
        "find the program with a long read, or close all programs once",
    );
    findings.expect(
        settings.free_bytes <= settings.file_bytes / 2,
        Level::Warning,
        "unused space",
        format!("{} bytes", settings.free_bytes),
        "return it to the disk with `tower-chat vacuum`",
    );
    findings.expect(
        settings.damage.is_empty(),
        Level::Problem,
        "quick check",
        match settings.damage.first() {
            None => "well".to_owned(),
            Some(first) => format!("faults: {}; the first is: {first}", settings.damage.len()),
        },
        "restore a backup, or see with `tower-chat verify` what is lost",
    );
    let (version, supported) = (settings.version, settings.supported_version);
    findings.expect(
        version == supported,
        Level::Warning,
        "schema",
        format!("version {version} of {supported}"),
        "migrate it with `tower-chat migrate`",
    );
    Ok(version == supported && settings.damage.is_empty())
}

/// Checks the permissions of the file and its folder, and the free space on the disk.
#[cfg(unix)]
fn check_folder(path: &Path, bytes: u64, findings: &mut Findings) {
    use rustix::fs::{Access, access};
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let advice = "change the permissions: the log is created beside the file";
    for (check, path) in [("file can be written", path), ("folder can be written", folder)] {
        let can_write = access(path, Access::WRITE_OK).is_ok();
        let found = if can_write { "yes" } else { "no" };
        findings.expect(can_write, Level::Problem, check, found, advice);
    }
    if let Ok(disk) = rustix::fs::statvfs(folder) {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        findings.expect(
            free >= bytes.max(64 << 20),
            Level::Warning,
            "free on the disk",
            format!("{free} bytes"),
            "free some space: a full disk accepts no writes, and a vacuum needs twice the size of the file",
        );
    }
    #[cfg(target_os = "linux")]
    check_file_system(folder, findings);
}

#[cfg(not(unix))]
fn check_folder(_: &Path, _: u64, _: &mut Findings) {}

/// Adds a problem for a network file system, on which the file locks of SQLite do not work.
#[cfg(target_os = "linux")]
fn check_file_system(folder: &Path, findings: &mut Findings) {
    // The magic numbers of network file systems, as defined in `linux/magic.h`.
    const OF_A_NETWORK: [(u32, &str); 6] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB 2"),
        (0x0102_1997, "9P"),
        (0x5346_414f, "AFS"),
    ];
    let Ok(disk) = rustix::fs::statfs(folder) else { return };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "32 bits on every system"
    )]
    let kind = disk.f_type as u32;
    match OF_A_NETWORK.iter().find(|(number, _)| *number == kind) {
        Some((_, name)) => findings.problem(
            "file system",
            *name,
            "move the file to a disk of this machine, or use PostgreSQL",
        ),
        None => findings.ok("file system", "of this machine, according to the operating system"),
    }
}
