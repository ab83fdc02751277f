//! Determines from the system calls of a server which bytes of its files were synced.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::NamedTempFile;

use crate::Failure;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The end of the written bytes.
    pub(super) written: u64,
    /// The end of the written bytes when the last completed sync began.
    pub(super) synced: u64,
}

#[derive(Debug)]
pub(super) struct Strace {
    process: Child,
    output: NamedTempFile,
    /// The lengths of the files at the start of the recording.
    lengths: HashMap<PathBuf, u64>,
}

impl Strace {
    pub(super) fn attach(processes: &[u32], files: &[PathBuf]) -> Result<Self, Failure> {
        let cannot = |source: std::io::Error| Failure::CannotRun {
            what: "record a server with strace".to_owned(),
            source: Some(source.into()),
        };
        let mut lengths = HashMap::new();
        for file in files {
            let open = fs::File::open(file).map_err(cannot)?;
            open.sync_all().map_err(cannot)?;
            lengths.insert(file.clone(), open.metadata().map_err(cannot)?.len());
        }
        let output = NamedTempFile::new().map_err(cannot)?;
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-y",
            "-s",
            "0",
            "-e",
            "trace=write,writev,pwrite64,pwritev,fsync,fdatasync",
        ]);
        command.arg("-o").arg(output.path());
        for process in processes {
            command.args(["-p", &process.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(cannot)?;
        let errors = process
            .stderr
            .take()
            .ok_or_else(|| Failure::cannot_run("strace has no error output"))?;
        let mut lines = BufReader::new(errors).lines();
        for _ in processes {
            match lines.next() {
                Some(Ok(line)) if line.contains("attached") => {}
                line => {
                    return Err(Failure::cannot_run(format!("strace cannot attach: {line:?}")));
                }
            }
        }
        // strace writes a line to standard error when a process starts or ends. It would block if
        // no thread read these lines.
        thread::spawn(move || lines.for_each(drop));
        Ok(Self { process, output, lengths })
    }

    /// Waits until all processes have ended. Returns the written and synced bytes of each file.
    pub(super) fn finish(mut self) -> Result<HashMap<PathBuf, Extent>, Failure> {
        let cannot = |source: std::io::Error| Failure::CannotRun {
            what: "read the recording of strace".to_owned(),
            source: Some(source.into()),
        };
        self.process.wait().map_err(cannot)?;
        let recorded = fs::read_to_string(self.output.path()).map_err(cannot)?;
        let mut extents = Extents::new(&self.lengths);
        recorded.lines().for_each(|line| extents.read_line(line));
        Ok(extents.files)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[derive(Debug, Default)]
struct Extents {
    files: HashMap<PathBuf, Extent>,
    /// The calls that have not returned yet, by thread.
    pending: HashMap<String, Begun>,
}

#[derive(Debug, Clone)]
enum Begun {
    /// A write at this offset, or at the end of the file.
    Write { file: PathBuf, offset: Option<u64> },
    /// A sync, with the end of the written bytes when it began.
    Sync { file: PathBuf, written: u64 },
}

impl Extents {
    fn new(lengths: &HashMap<PathBuf, u64>) -> Self {
        let extent = |length: &u64| Extent { written: *length, synced: *length };
        let files = lengths.iter().map(|(file, length)| (file.clone(), extent(length))).collect();
        Self { files, pending: HashMap::new() }
    }

    /// Reads a line `THREAD CALL(FD<FILE>, ..., OFFSET) = RESULT`. If another thread is traced
    /// during the call, strace divides this line into two, and this function reads one of them.
    fn read_line(&mut self, line: &str) {
        let Some((thread, rest)) = line.split_once(' ') else { return };
        let rest = rest.trim_start();
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let begun = self.pending.remove(thread);
            if let (Some(begun), Some(result)) = (begun, result(resumed)) {
                self.end(begun, result);
            }
            return;
        }
        let Some(begun) = self.begin(rest) else { return };
        if rest.ends_with("<unfinished ...>") {
            self.pending.insert(thread.to_owned(), begun);
        } else if let Some(result) = result(rest) {
            self.end(begun, result);
        }
    }

    fn begin(&self, call: &str) -> Option<Begun> {
        let (name, arguments) = call.split_once('(')?;
        let file = arguments.split_once("</").and_then(|(_, path)| path.split_once('>'));
        let file = PathBuf::from(format!("/{}", file?.0));
        match name {
            "fsync" | "fdatasync" => {
                let written = self.files.get(&file).map_or(0, |extent| extent.written);
                Some(Begun::Sync { file, written })
            }
            "pwrite64" | "pwritev" => {
                let arguments = match arguments.split_once(" <unfinished") {
                    Some((arguments, _)) => arguments,
                    // strace pads short calls with spaces.
                    None => arguments.rsplit_once(" = ")?.0.trim_end().strip_suffix(')')?,
                };
                let offset = arguments.rsplit(", ").next()?.parse().ok()?;
                Some(Begun::Write { file, offset: Some(offset) })
            }
            "write" | "writev" => Some(Begun::Write { file, offset: None }),
            _ => None,
        }
    }

    fn end(&mut self, begun: Begun, result: u64) {
        match begun {
            Begun::Write { file, offset } => {
                let extent = self.files.entry(file).or_default();
                let end = offset.unwrap_or(extent.written) + result;
                extent.written = extent.written.max(end);
            }
            Begun::Sync { file, written } => {
                let extent = self.files.entry(file).or_default();
                extent.synced = extent.synced.max(written);
            }
        }
    }
}

/// Returns the result of a call. `None` if the call failed or its process was killed.
fn result(call: &str) -> Option<u64> {
    call.rsplit_once(" = ")?.1.split_whitespace().next()?.parse().ok()
}

pub(super) fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

fn parent_of(process: u32) -> Option<u32> {
    let status =
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, path::PathBuf};

    use super::{Extent, Extents};

    #[test]
    fn a_sync_covers_only_the_bytes_that_were_written_before_the_sync_began() {
        let file = PathBuf::from("/data/log");
        let mut extents = Extents::new(&HashMap::from([(file.clone(), 100)]));
        for line in [
            r#"7 write(5</data/log>, ""..., 20) = 20"#,
            "8 fdatasync(5</data/log> <unfinished ...>",
            r#"7 write(5</data/log>, ""..., 30) = 30"#,
            r#"7 write(9<socket:[12]>, ""..., 5) = 5"#,
        ] {
            extents.read_line(line);
        }
        assert_eq!(extents.files[&file], Extent { written: 150, synced: 100 });
        extents.read_line("8 <... fdatasync resumed>)          = 0");
        assert_eq!(extents.files[&file], Extent { written: 150, synced: 120 });
    }

    #[test]
    fn a_write_at_an_offset_extends_the_file_to_its_end() {
        let file = PathBuf::from("/data/pg_wal/1");
        let mut extents = Extents::default();
        for line in [
            r#"12 pwrite64(3</data/pg_wal/1>, ""..., 8192, 16384 <unfinished ...>"#,
            "12 <... pwrite64 resumed>)           = 8192",
            r#"12 pwrite64(3</data/pg_wal/1>, ""..., 8192, 0)    = 8192"#,
            "12 fdatasync(3</data/pg_wal/1>)          = 0",
            r#"12 pwrite64(3</data/pg_wal/1>, ""..., 8192, 24576) = ?"#,
            "12 +++ killed by SIGKILL +++",
        ] {
            extents.read_line(line);
        }
        assert_eq!(extents.files[&file], Extent { written: 24_576, synced: 24_576 });
    }
}
