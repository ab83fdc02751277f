//! Reads the output of strace: the system calls of a workload, with their data.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

/// A system call that succeeded.
#[derive(Debug)]
pub(super) struct Traced {
    /// The line on which the call began. It has no effect before this line.
    pub(super) begin: usize,
    /// The line on which the call returned, if it returned. Its effect is complete at this line.
    pub(super) end: Option<usize>,
    pub(super) call: Call,
}

/// The calls that change files, and the calls that determine to which file a descriptor refers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call {
    Open {
        path: PathBuf,
        creates: bool,
        truncates: bool,
        file: i64,
    },
    Seek {
        file: i64,
        to: u64,
    },
    Write {
        file: i64,
        at: Option<u64>,
        data: Vec<u8>,
    },
    Truncate {
        file: i64,
        size: u64,
    },
    Sync {
        file: i64,
    },
    Close {
        file: i64,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Unlink {
        path: PathBuf,
    },
    MapShared {
        file: i64,
    },
    /// A call whose effect on the disk is not modelled.
    Other {
        name: String,
        file: Option<i64>,
    },
}

pub(super) const TRACED: &str = "trace=open,openat,creat,write,pwrite64,writev,pwritev,pwritev2,\
    fsync,fdatasync,sync_file_range,ftruncate,truncate,fallocate,copy_file_range,sendfile,unlink,\
    unlinkat,rename,renameat,renameat2,link,linkat,symlink,close,dup,dup2,dup3,mmap,lseek";

#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("the trace cannot be read")]
    Io(#[from] std::io::Error),
    #[error("line {line} of the trace cannot be parsed: {text}")]
    Line { line: usize, text: String },
}

/// Returns the calls, in an order in which each descriptor is opened before it is used.
pub(super) fn read(path: &Path) -> Result<Vec<Traced>, TraceError> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut unfinished: HashMap<String, (usize, String)> = HashMap::new();
    let mut found = Vec::new();
    let mut text = String::new();
    for line in 0.. {
        text.clear();
        if reader.read_line(&mut text)? == 0 {
            break;
        }
        let Some((process, event)) = text.trim_end().split_once(' ') else { continue };
        let event = event.trim_start();
        if event.starts_with("---") || event.starts_with("+++") {
            continue;
        }
        if let Some(begun) = event.strip_suffix("<unfinished ...>") {
            unfinished.insert(process.to_owned(), (line, begun.to_owned()));
            continue;
        }
        let (begin, whole) = match event.strip_prefix("<... ") {
            Some(resumed) => {
                let Some((begin, begun)) = unfinished.remove(process) else { continue };
                let rest = resumed.split_once(" resumed>").map_or("", |(_, rest)| rest);
                (begin, begun + rest)
            }
            None => (line, event.to_owned()),
        };
        if let Some(call) = call(&whole).ok_or_else(|| unparsable(line, &whole))? {
            found.push(Traced { begin, end: Some(line), call });
        }
    }
    // A call that never returned may nevertheless have taken effect.
    for (begin, begun) in unfinished.into_values() {
        if let Some(call) =
            call(&format!("{begun}) = 0")).ok_or_else(|| unparsable(begin, &begun))?
        {
            found.push(Traced { begin, end: None, call });
        }
    }
    found.sort_by_key(Traced::order);
    Ok(found)
}

impl Traced {
    /// Returns the line by which calls are sorted: for an `open` or a seek the line on which it
    /// returned, and for every other call the line on which it began. Otherwise, an `open` could
    /// come before the close that made its descriptor number free.
    fn order(&self) -> usize {
        match self.call {
            Call::Open { .. } | Call::Seek { .. } => self.end.unwrap_or(self.begin),
            _ => self.begin,
        }
    }
}

fn unparsable(line: usize, text: &str) -> TraceError {
    TraceError::Line { line, text: text.chars().take(200).collect() }
}

#[expect(clippy::option_option, reason = "a line that cannot be parsed is not a failed call")]
fn call(text: &str) -> Option<Option<Call>> {
    let (name, rest) = text.split_once('(')?;
    // `) = ` cannot occur in an argument, because all strings are hexadecimal.
    let (arguments, result) = rest.rsplit_once(") = ").or_else(|| {
        // strace pads short calls with spaces.
        let (arguments, result) = rest.rsplit_once(" = ")?;
        Some((arguments.trim_end().strip_suffix(')')?, result))
    })?;
    let result = result.split(' ').next()?;
    if result.starts_with('-') || result == "?" {
        return Some(None);
    }
    let strings: Vec<Vec<u8>> =
        arguments.split('"').skip(1).step_by(2).map(bytes).collect::<Option<_>>()?;
    let path = |index: usize| {
        let bytes = strings.get(index)?;
        Some(PathBuf::from(String::from_utf8(bytes.clone()).ok()?))
    };
    // Paths relative to an open folder cannot be resolved. No workload uses them.
    let is_relative = path(0).is_some_and(|path| path.is_relative());
    let number = |index: usize| arguments.split(", ").nth(index)?.trim().parse::<u64>().ok();
    let file = || arguments.split([',', ')']).next()?.trim().parse::<i64>().ok();
    let last = || arguments.rsplit(", ").next()?.trim().parse::<u64>().ok();
    let written = || {
        let mut data = strings.concat();
        data.truncate(result.parse().ok()?);
        Some(data)
    };
    Some(Some(match name {
        "open" | "openat" | "creat" if !is_relative => Call::Open {
            path: path(0)?,
            creates: arguments.contains("O_CREAT") || name == "creat",
            truncates: arguments.contains("O_TRUNC") || name == "creat",
            file: result.parse().ok()?,
        },
        "open" | "openat" | "creat" => return Some(None),
        "lseek" => Call::Seek { file: file()?, to: result.parse().ok()? },
        "write" | "writev" => Call::Write { file: file()?, at: None, data: written()? },
        "pwrite64" | "pwritev" => {
            Call::Write { file: file()?, at: Some(last()?), data: written()? }
        }
        "ftruncate" => Call::Truncate { file: file()?, size: number(1)? },
        "fsync" | "fdatasync" => Call::Sync { file: file()? },
        "close" => Call::Close { file: file()? },
        "link" | "linkat" => Call::Link { from: path(0)?, to: path(1)? },
        "rename" | "renameat" | "renameat2" => Call::Rename { from: path(0)?, to: path(1)? },
        "unlink" | "unlinkat" => Call::Unlink { path: path(0)? },
        "mmap" => {
            let is_shared = arguments.contains("MAP_SHARED") && arguments.contains("PROT_WRITE");
            let file = arguments.split(", ").nth(4).and_then(|file| file.parse().ok())?;
            match is_shared {
                true => Call::MapShared { file },
                false => return Some(None),
            }
        }
        name => Call::Other { name: name.to_owned(), file: file() },
    }))
}

/// Returns the bytes of a string in the hexadecimal form of strace.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let groups = text.as_bytes().chunks_exact(4);
    if !groups.remainder().is_empty() {
        return None;
    }
    groups
        .map(|group| match group {
            [b'\\', b'x', high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Call {
        call(text).unwrap().unwrap()
    }

    #[test]
    fn lines_of_strace_are_parsed() {
        let path = r"\x2f\x61\x2d\x77\x61\x6c";
        assert_eq!(
            of(&format!("openat(AT_FDCWD, \"{path}\", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 4")),
            Call::Open { path: "/a-wal".into(), creates: true, truncates: false, file: 4 }
        );
        assert_eq!(
            of(r#"pwrite64(4, "\x00\xff\x61", 3, 4096) = 2"#),
            Call::Write { file: 4, at: Some(4096), data: vec![0, 0xff] }
        );
        assert_eq!(
            of(r#"write(12, "\x41\x0a", 2)        = 2"#),
            Call::Write { file: 12, at: None, data: b"A\n".to_vec() }
        );
        assert_eq!(of("ftruncate(5, 32768)     = 0"), Call::Truncate { file: 5, size: 32_768 });
        assert_eq!(of("fdatasync(7)   = 0"), Call::Sync { file: 7 });
        assert_eq!(
            of(&format!("rename(\"{path}\", \"{path}\\x32\") = 0")),
            Call::Rename { from: "/a-wal".into(), to: "/a-wal2".into() }
        );
        let mapped = "mmap(NULL, 32768, PROT_READ|PROT_WRITE, MAP_SHARED, 5, 0) = 0x7f1319848000";
        assert_eq!(of(mapped), Call::MapShared { file: 5 });
        assert_eq!(call("unlink(\"\\x61\") = -1 ENOENT (No such file or directory)"), Some(None));
        assert_eq!(call("what is this"), None);
    }

    #[test]
    fn a_system_call_that_strace_prints_in_two_lines_is_read_as_one_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let lines = [
            r#"11 pwrite64(3, "\x31", 1, 512 <unfinished ...>"#,
            "12 fdatasync(4 <unfinished ...>",
            "11 <... pwrite64 resumed>)            = 1",
            "12 <... fdatasync resumed>)           = 0",
            "12 +++ exited with 0 +++",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found = read(&path).unwrap();
        let spans: Vec<_> = found.iter().map(|traced| (traced.begin, traced.end)).collect();
        assert_eq!(spans, [(0, Some(2)), (1, Some(3))]);
        assert_eq!(found[0].call, Call::Write { file: 3, at: Some(512), data: b"1".to_vec() });
        assert_eq!(found[1].call, Call::Sync { file: 4 });
    }

    #[test]
    fn a_descriptor_that_is_opened_again_during_its_close_is_open_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace");
        let lines = [
            r#"11 openat(AT_FDCWD, "\x2f\x61", O_RDWR <unfinished ...>"#,
            "12 close(5)           = 0",
            "11 <... openat resumed>) = 5",
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let found: Vec<_> = read(&path).unwrap().into_iter().map(|traced| traced.call).collect();
        let opened = Call::Open { path: "/a".into(), creates: false, truncates: false, file: 5 };
        assert_eq!(found, [Call::Close { file: 5 }, opened]);
    }
}
