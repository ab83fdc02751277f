//! Changes the files of a server to a state that they may have after a power loss.

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

/// The number of bytes that a disk writes atomically.
const SECTOR: u64 = 512;

/// A number of bytes that were written but not synced, and are lost.
pub(super) type Lost = u64;

/// Cuts append-only files at a random position after the last synced byte.
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

/// Removes an incomplete transaction from the end of append-only files, as `docs/scaling.md`
/// requires after a power loss. Redis 7.0 ignores an incomplete transaction when it starts, but
/// leaves the first commands of the transaction in the file. At the next start, it would execute
/// these commands.
pub(super) fn repair_appended(files: &[PathBuf]) -> io::Result<()> {
    for file in files {
        let mut check = Command::new("redis-check-aof");
        check.arg("--fix").arg(file).stdin(Stdio::piped());
        let mut check = check.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(mut answers) = check.stdin.take() {
            match answers.write_all(b"y\n") {
                // If nothing needs repair, `redis-check-aof` closes its input without reading the
                // answer.
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

/// Restores the data of a PostgreSQL server to its last checkpoint. The write-ahead log keeps all
/// synced sectors, and a random choice of the others.
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
        // If a segment of the log did not exist at the checkpoint, the server filled it with zeros
        // and synced it when it was created.
        let former = file.file_name().map(|name| at_checkpoint.join("pg_wal").join(name));
        let former = former.and_then(|former| fs::File::open(former).ok());
        let end = extent.written.min(open.metadata()?.len());
        // The server writes its last, partly filled page again, but the synced sectors of the page
        // do not change.
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

pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("--archive").arg(from).arg(to).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("`cp` of {} failed", from.display()))),
    }
}
