//! The errors of a transfer.

use tower_chat_core::{BoxError, store::StoreError};

/// A transfer failed. The conversations that the transfer has finished remain transferred. Call the
/// function again to continue the transfer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A store failed.
    #[error("a history store failed; repeat the transfer to continue it")]
    Store(#[from] StoreError),
    /// The file is not an export, or is damaged or incomplete.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file could not be read or written.
    #[error("the file of the export could not be {action}; repeat the transfer to continue it")]
    Io {
        /// `read` or `written`.
        action: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The callback returned an error, which has stopped the transfer.
    #[error("the transfer was stopped by its caller")]
    Stopped(#[source] BoxError),
}

impl TransferError {
    pub(crate) fn reading(source: std::io::Error) -> Self {
        Self::Io { action: "read", source }
    }

    pub(crate) fn writing(source: std::io::Error) -> Self {
        Self::Io { action: "written", source }
    }
}

/// A file is not a complete export. The import has written nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The first line is not the first line of an export.
    #[error(
        "line 1 is not the first line of an export of tower-chat, which is \
         {{\"format\":\"tower-chat\",\"version\":1}}: give a file that `export` has written, or name the format of \
         this file"
    )]
    NotAnExport,
    /// A newer release wrote the file.
    #[error(
        "line 1: the export has version {version}, and this release reads version {newest}: import \
         it with the release that wrote it, or a newer one"
    )]
    UnknownVersion {
        /// The version in the file.
        version: u64,
        /// The newest version that this release reads.
        newest: u64,
    },
    /// A line was changed, damaged, removed or added.
    #[error(
        "line {line}: {reason}: the file was changed or damaged after it was exported; restore it \
         from a copy, or export again"
    )]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// A description of the damage.
        reason: String,
    },
    /// The file ends before the line `complete`, which is the last line of an export.
    #[error(
        "the file ends at line {line}, and the export is not complete: continue the export (`--resume`), or copy the \
         file again"
    )]
    Incomplete {
        /// The number of the last complete line, from 1.
        line: u64,
    },
}

impl FileError {
    pub(crate) fn damaged(line: u64, reason: impl ToString) -> Self {
        Self::Damaged { line, reason: reason.to_string() }
    }
}
