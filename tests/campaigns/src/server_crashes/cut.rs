//! Puts the files of a server into a state in which a loss of power may leave them.

use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tower_chat_testkit::Rng;

use super::strace::Extent;

/// What a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// How much was written and not synced, and is gone.
pub(super) type Lost = u64;

/// Ends append-only files at random between what was synced and what was written.
pub(super) fn cut_appended(
    extents: &HashMap<PathBuf, Extent>,
    files: &[PathBuf],
    rng: &mut Rng,
) -> io::Result<Lost> {
    let mut lost = 0;
    for file in files {
        let written = fs::metadata(file)?.len();
        let synced = extents.get(file).map_or(written, |extent| extent.synced.min(written));
        let end = match rng.one_in(2) {
            true => synced,
            false => {
                synced + rng.below(usize::try_from(written - synced).unwrap_or(usize::MAX)) as u64
            }
        };
        OpenOptions::new().write(true).open(file)?.set_len(end)?;
        lost += written - end;
    }
    Ok(lost)
}

/// Removes a transaction that a cut has torn from the end of append-only files, as `docs/scaling.md` asks for
/// after a loss of power. Redis 7.0 by itself forgets a torn transaction when it starts, leaves its first
/// commands in the file, and carries them out when it starts the next time.
pub(super) fn repair_appended(files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        let mut check = Command::new("redis-check-aof");
        check.arg("--fix").arg(file).stdin(Stdio::piped());
        let mut check = check.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(mut answers) = check.stdin.take() {
            match answers.write_all(b"y\n") {
                // It asks only where there is something to repair.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        if !check.wait()?.success() {
            return Err(io::Error::other(format!("{} cannot be repaired", file.display())));
        }
    }
    Ok(())
}

/// Puts back the data of a PostgreSQL server as they were at its last checkpoint, with the write-ahead
/// log of now, of which unsynced sectors are there by chance.
pub(super) fn cut_postgres(
    extents: &HashMap<PathBuf, Extent>,
    data: &Path,
    at_checkpoint: &Path,
    rng: &mut Rng,
) -> io::Result<Lost> {
    let mut lost = 0;
    let log = data.join("pg_wal");
    for entry in fs::read_dir(&log)? {
        let file = entry?.path();
        let Some(extent) = extents.get(&file).filter(|_| file.is_file()) else { continue };
        let open = OpenOptions::new().write(true).open(&file)?;
        // A segment that was made since is full of zeros, and was synced so.
        let former = file.file_name().map(|name| at_checkpoint.join("pg_wal").join(name));
        let former = former.and_then(|former| fs::File::open(former).ok());
        let end = extent.written.min(open.metadata()?.len());
        // The server rewrites the page that it has not filled: one that was synced once stays.
        let mut sector = extent.synced;
        while sector < end {
            if rng.one_in(2) {
                let mut content = [0; SECTOR as usize];
                if let Some(former) = &former {
                    former.read_exact_at(&mut content, sector)?;
                }
                open.write_all_at(&content, sector)?;
                lost += SECTOR;
            }
            sector += SECTOR;
        }
    }
    let kept = data.with_extension("log");
    fs::rename(&log, &kept)?;
    fs::remove_dir_all(data)?;
    copy(at_checkpoint, data)?;
    let log = data.join("pg_wal");
    fs::remove_dir_all(&log)?;
    fs::rename(&kept, &log)?;
    match fs::remove_file(data.join("postmaster.pid")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(lost),
    }
}

/// Copies a folder with its owners and permissions.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("--archive").arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("`cp` of {} failed", from.display()))),
    }
}
