//! A temporary file that only its owner may read.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// An empty file that only its owner may read and write. Dropping this value removes the file.
#[derive(Debug)]
pub(super) struct PrivateFile(pub(super) PathBuf);

impl PrivateFile {
    pub(super) fn beside(path: &Path) -> Option<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let mut name = OsString::from(".");
            name.push(path.file_name()?);
            name.push(format!(".{}-{number}.mode", std::process::id()));
            let path = path.with_file_name(name);
            match options.open(&path) {
                Ok(_) => return Some(Self(path)),
                // An earlier process with the same id has ended without removing its file.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
