//! The errors of `play`.

use std::{error::Error, io, path::PathBuf, str::Utf8Error};

use tower_chat::{BoxError, error::is_verdict};

use crate::playback::{PlayError, RecordingError};

#[derive(Debug, thiserror::Error)]
pub(super) enum CannotPlay {
    #[error("`{}` cannot be read", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("`{}` is not a text: line {line} is not UTF-8", file.display())]
    NotText { file: PathBuf, line: usize, source: Utf8Error },
    #[error("`{}` cannot be played", file.display())]
    Recording { file: PathBuf, source: RecordingError },
    #[error("the store cannot be used")]
    Open(#[source] BoxError),
    #[error(
        "{count} of the conversations are in the store already, the first is {first:?}: \
         go on with them with --resume, or use another store; nothing was written"
    )]
    AlreadyStored { count: usize, first: String },
    #[error("the store cannot be read")]
    Look(#[source] PlayError),
    #[error("the counts cannot be kept in `{}`", file.display())]
    Counters { file: PathBuf, source: io::Error },
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
    #[error("the runtime could not be started")]
    Runtime(#[source] io::Error),
}

pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // A transparent error has the same text as its source.
        if !is_verdict(cause) && !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
