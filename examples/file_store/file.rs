//! The file of a conversation.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use tower_chat::store::{StoreError, author::ToolRecord};

use crate::{conversation::Conversation, line::Line};

/// A file of lines. Each line is written with one system call and is synced.
#[derive(Debug)]
pub(crate) struct ConversationFile {
    path: PathBuf,
    file: File,
    /// The length of the complete lines, in bytes.
    length: u64,
    /// Whether the file may have an incomplete line after them.
    is_torn: bool,
}

impl ConversationFile {
    /// Creates the file of a conversation. The file gets its name only after the content is synced.
    pub(crate) fn create(path: PathBuf, now: &Conversation) -> Result<Self, StoreError> {
        Self::replace_file(path, now).map_err(failed("write a conversation"))
    }

    /// Opens a file, and removes an incomplete last line, which a crash may leave. Returns `None`
    /// if the file has no complete line.
    pub(crate) fn open(path: PathBuf) -> Result<Option<(Self, Conversation)>, StoreError> {
        let read = failed("read a conversation");
        let bytes = fs::read(&path).map_err(&read)?;
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let mut now = None;
        for line in bytes.get(..end).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| StoreError::Corrupt { reason: format!("{path:?}: {error}") })?;
            now = Some(line.apply(now)?);
        }
        let Some(now) = now else { return Ok(None) };
        let file = OpenOptions::new().append(true).open(&path).map_err(&read)?;
        file.set_len(end as u64).and_then(|()| file.sync_all()).map_err(&read)?;
        Ok(Some((Self { path, file, length: end as u64, is_torn: false }, now)))
    }

    /// Appends the change of a write as one line, and syncs the file. If an operation fails, the
    /// incomplete line is removed.
    pub(crate) fn append(
        &mut self,
        now: &Conversation,
        after: u64,
        tools: &[ToolRecord],
    ) -> Result<(), StoreError> {
        let line = encoded(&Line::grown(now, after, tools)).map_err(failed("encode a write"))?;
        self.write(&line).map_err(failed("append to a conversation"))?;
        self.length += line.len() as u64;
        Ok(())
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
        }
        self.is_torn = true;
        if let Err(error) = self.file.write_all(line).and_then(|()| self.file.sync_data()) {
            // If the truncation fails, the next write repeats it first.
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.is_torn = false;
        Ok(())
    }

    /// Replaces the file with the current conversation, so that removed messages are not in the
    /// file.
    pub(crate) fn rewrite(&mut self, now: &Conversation) -> Result<(), StoreError> {
        *self =
            Self::replace_file(self.path.clone(), now).map_err(failed("rewrite a conversation"))?;
        Ok(())
    }

    pub(crate) fn remove(self) -> Result<(), StoreError> {
        let removed = fs::remove_file(&self.path).and_then(|()| sync_folder(&self.path));
        removed.map_err(failed("delete a conversation"))
    }

    fn replace_file(path: PathBuf, now: &Conversation) -> io::Result<Self> {
        let line = encoded(&Line::whole(now))?;
        let unnamed = path.with_extension("new");
        let mut file = File::create(&unnamed)?;
        file.write_all(&line)?;
        file.sync_all()?;
        fs::rename(&unnamed, &path)?;
        sync_folder(&path)?;
        let file = OpenOptions::new().append(true).open(&path)?;
        Ok(Self { path, file, length: line.len() as u64, is_torn: false })
    }
}

/// Syncs a folder, which makes the name of a file in it durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn encoded(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(crate) fn failed(action: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::backend(action, true, error)
}
