//! The errors of reading a file.

use std::path::PathBuf;

use tower_chat_core::BoxError;

use crate::Format;

/// A file cannot be read completely. Nothing of it was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file cannot be read as a SQLite database.
    #[error(
        "cannot read {} as the SQLite database of {format}: name its format, or restore the file \
         from a copy",
        path.display()
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// The expected format.
        format: Format,
        /// The error of SQLite.
        source: BoxError,
    },
    /// The file has another format.
    #[error("{} is not a history of {format}: {reason}; name the format of the file", path.display())]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The expected format.
        format: Format,
        /// The detail that shows it.
        reason: String,
    },
    /// A part of the file cannot be read. Nothing of the file is imported.
    #[error(
        "cannot read {position} of {} as {format}: repair this part of the file, or remove it; nothing of the file \
         was imported",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The expected format.
        format: Format,
        /// The position in the file, such as `line 3` or `row 7 of agent_messages`.
        position: String,
        /// The field and the expected value.
        source: BoxError,
    },
}

/// A value that its format does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {expected}, but is {}", found.unwrap_or("missing"))]
pub(crate) struct WrongValue {
    /// The path of the field.
    pub(crate) field: String,
    pub(crate) expected: &'static str,
    pub(crate) found: Option<&'static str>,
}

/// A part of a file that cannot be read.
#[derive(Debug)]
pub(crate) struct ContentError {
    pub(crate) position: String,
    pub(crate) source: BoxError,
}

impl ContentError {
    pub(crate) fn at(position: impl std::fmt::Display, source: impl Into<BoxError>) -> Self {
        Self { position: position.to_string(), source: source.into() }
    }

    pub(crate) fn in_file(self, path: &std::path::Path, format: Format) -> ReadError {
        let Self { position, source } = self;
        ReadError::Content { path: path.to_owned(), format, position, source }
    }
}
