//! The errors that can occur when a file is read.

use std::path::PathBuf;

use tower_chat_core::BoxError;

use crate::Format;

/// Reading a file failed. No conversation of the file was returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system failed to open or read the file.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// SQLite failed to read the file, which must be a database in this format.
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
        /// The reason why the file cannot have the expected format.
        reason: String,
    },
    /// A part of the file is invalid, for example because a field has an unexpected type.
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
        /// The error that names the field and the expected value.
        source: BoxError,
    },
}

/// The error for a field whose value the format does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {expected}, but is {}", found.unwrap_or("missing"))]
pub(crate) struct WrongValue {
    /// The path of the field.
    pub(crate) field: String,
    pub(crate) expected: &'static str,
    pub(crate) found: Option<&'static str>,
}

/// The error for an invalid part of a file, with the position of the part.
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
