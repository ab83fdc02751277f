//! One failure, told to all who waited for the same load.

use std::{error::Error, fmt, sync::Arc};

use serde::de::Error as _;
use tower_chat_core::{format::FormatError, store::StoreError};

/// The same error once more.
pub(crate) fn repeated(error: &Arc<StoreError>) -> StoreError {
    match &**error {
        StoreError::Conflict(conflict) => StoreError::Conflict(conflict.clone()),
        StoreError::Claimed { key, call } => StoreError::Claimed { key: key.clone(), call: *call },
        StoreError::Exists { key } => StoreError::Exists { key: key.clone() },
        StoreError::Closed => StoreError::Closed,
        StoreError::ReadOnly => StoreError::ReadOnly,
        StoreError::Undecodable { key, sequence, source } => StoreError::Undecodable {
            key: key.clone(),
            sequence: *sequence,
            source: repeated_format(source),
        },
        StoreError::Corrupt { reason } => StoreError::Corrupt { reason: reason.clone() },
        StoreError::Backend { action, retryable, .. } => {
            StoreError::backend(action, *retryable, Source(error.clone()))
        }
        StoreError::StorageFull { action, .. } => {
            StoreError::StorageFull { action, source: Source(error.clone()).into() }
        }
        other => StoreError::backend(LOAD, other.is_retryable(), Whole(error.clone())),
    }
}

const LOAD: &str = "load a conversation";

fn repeated_format(error: &FormatError) -> FormatError {
    match error {
        FormatError::Newer { version } => FormatError::Newer { version: *version },
        FormatError::Malformed(error) => {
            FormatError::Malformed(serde_json::Error::custom(error.to_string()))
        }
        other => FormatError::Malformed(serde_json::Error::custom(other.to_string())),
    }
}

/// Stands for the source of a shared error.
#[derive(Debug)]
struct Source(Arc<StoreError>);

impl Source {
    fn source_of(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source_of() {
            Some(source) => fmt::Display::fmt(source, f),
            None => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl Error for Source {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source_of()?.source()
    }
}

/// Stands for a shared error of a kind that this release does not know.
#[derive(Debug)]
struct Whole(Arc<StoreError>);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Whole {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
