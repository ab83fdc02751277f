//! Reads the threads of LangGraph from the file of a `SqliteSaver`, which stores the state of a
//! graph in checkpoints. A thread is one conversation. A channel is a named value in the state; the
//! channel `messages` contains the conversation. The *writes* of a checkpoint are the changes of
//! channels after this checkpoint.

mod message;
mod msgpack;

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use tower_chat_core::{BoxError, RawJson};

use self::message::Messages;
use crate::{
    Format, ImportedConversation, ReadError,
    error::ContentError,
    node::{Node, Object},
    sqlite::Snapshot,
};

const FORMAT: Format = Format::LangGraph;

/// The channel that contains the messages of a `MessagesState`.
const CHANNEL: &str = "messages";

/// The key of the object for an `Overwrite`, a write that replaces the value of its channel.
const OVERWRITE: &str = "__overwrite__";

/// Reads the newest checkpoint of every thread, ordered by thread id.
pub(crate) fn read(path: &Path) -> Result<Vec<ImportedConversation>, ReadError> {
    let file = Snapshot::open(FORMAT, path, &["checkpoints", "writes"])?;
    let threads: Vec<(String, String, String)> = file.rows(
        "SELECT thread_id, min(checkpoint_id), max(checkpoint_id) FROM checkpoints \
         WHERE checkpoint_ns = '' GROUP BY thread_id ORDER BY thread_id",
        &[],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    threads
        .into_iter()
        .map(|(thread, oldest, newest)| {
            let mut conversation = Thread { file: &file, path, thread }.read(&newest)?;
            conversation.created_at = time_of(&oldest);
            Ok(conversation)
        })
        .collect()
}

struct Thread<'a> {
    file: &'a Snapshot<'a>,
    path: &'a Path,
    thread: String,
}

/// A row of the table `checkpoints`.
struct Checkpoint {
    parent: Option<String>,
    kind: Option<String>,
    bytes: Vec<u8>,
}

/// A value of the table `writes`.
struct StoredValue {
    kind: Option<String>,
    bytes: Vec<u8>,
}

impl Thread<'_> {
    fn read(self, newest: &str) -> Result<ImportedConversation, ReadError> {
        let mut messages = Messages::new(ImportedConversation::new(&*self.thread));
        let position = format!("thread {:?}, checkpoint {newest}", self.thread);
        match self.state(newest)? {
            None => messages.conversation.lose(
                &position,
                "its state",
                format!("it has no channel {CHANNEL:?}, which contains the conversation"),
            ),
            Some(values) => {
                for (position, value) in values {
                    let applied = messages.apply(&value, &position);
                    applied.map_err(|error| self.wrong(&position, error))?;
                }
            }
        }
        let unfinished = self.writes(newest)?.len();
        if unfinished > 0 {
            let reason =
                "its step has not ended: resume the thread in LangGraph, then import it again";
            let what = format!("the writes of finished tasks ({unfinished})");
            messages.conversation.lose(&position, what, reason);
        }
        Ok(messages.into_conversation())
    }

    /// Returns the values from which the channel at the checkpoint `newest` is computed, oldest
    /// first: the state of the channel in the most recent checkpoint that contains it, and all
    /// later writes to the channel. Each value has a position for error messages. Returns `None` if
    /// there are no values.
    fn state(&self, newest: &str) -> Result<Option<Vec<(String, Node)>>, ReadError> {
        let (mut values, mut next) = (Vec::new(), Some(newest.to_owned()));
        let mut walked = std::collections::HashSet::new();
        while let Some(id) = next.filter(|id| walked.insert(id.clone())) {
            let position = format!("thread {:?}, checkpoint {id}", self.thread);
            let Some(checkpoint) = self.checkpoint(&id)? else { break };
            if walked.len() > 1 {
                // The writes of a checkpoint take effect in the next checkpoint, and are therefore
                // not read for the newest one.
                let mut written = Vec::new();
                for value in self.writes(&id)? {
                    written.push((position.clone(), self.decode(&position, value)?));
                }
                values.extend(written.into_iter().rev());
            }
            let stored = StoredValue { kind: checkpoint.kind, bytes: checkpoint.bytes };
            let state = self.decode(&position, stored)?;
            let channel = channel(&state).map_err(|error| self.wrong(&position, error))?;
            if let Some(channel) = channel {
                values.push((position, channel));
                next = None;
            } else {
                next = checkpoint.parent;
            }
        }
        values.reverse();
        Ok((!values.is_empty()).then_some(values))
    }

    fn checkpoint(&self, id: &str) -> Result<Option<Checkpoint>, ReadError> {
        let found = self.file.rows(
            "SELECT parent_checkpoint_id, type, checkpoint FROM checkpoints \
             WHERE thread_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2",
            &[&self.thread, id],
            |row| Ok(Checkpoint { parent: row.get(0)?, kind: row.get(1)?, bytes: row.get(2)? }),
        )?;
        Ok(found.into_iter().next())
    }

    /// Returns the values that a checkpoint has written to the channel, in the order of LangGraph.
    fn writes(&self, checkpoint: &str) -> Result<Vec<StoredValue>, ReadError> {
        // In files of older releases, the table has no column `task_path`.
        let columns: Vec<String> =
            self.file
                .rows("SELECT name FROM pragma_table_info('writes')", &[], |row| row.get(0))?;
        let path = match columns.iter().any(|name| name == "task_path") {
            true => "task_path, ",
            false => "",
        };
        self.file.rows(
            &format!(
                "SELECT type, value FROM writes WHERE thread_id = ?1 AND checkpoint_ns = '' \
                 AND checkpoint_id = ?2 AND channel = ?3 ORDER BY {path}task_id, idx"
            ),
            &[&self.thread, checkpoint, CHANNEL],
            |row| Ok(StoredValue { kind: row.get(0)?, bytes: row.get(1)? }),
        )
    }

    fn decode(&self, position: &str, value: StoredValue) -> Result<Node, ReadError> {
        decode(value).map(Node::root).map_err(|error| self.wrong(position, error))
    }

    fn wrong(&self, position: &str, error: impl Into<BoxError>) -> ReadError {
        ContentError::at(position, error).in_file(self.path, FORMAT)
    }
}

/// Returns the creation time of a checkpoint, which its id, a UUID version 6, contains.
fn time_of(id: &str) -> Option<SystemTime> {
    /// The time from the epoch of UUIDs to 1970, in units of 100 ns.
    const TO_1970: u64 = 0x01b2_1dd2_1381_4000;
    let digits: String = id.chars().filter(|c| *c != '-').collect();
    let high = digits.get(..12)?;
    let (version, low) = (digits.get(12..13)?, digits.get(13..16)?);
    let steps = u64::from_str_radix(&format!("{high}{low}"), 16).ok()?;
    let since = Duration::from_nanos(steps.checked_sub(TO_1970)?.checked_mul(100)?);
    if version == "6" { SystemTime::UNIX_EPOCH.checked_add(since) } else { None }
}

fn decode(value: StoredValue) -> Result<RawJson, BoxError> {
    match value.kind.as_deref() {
        Some("msgpack") => msgpack::to_json(&value.bytes),
        Some("json") => Ok(std::str::from_utf8(&value.bytes)?.parse()?),
        Some("null") => Ok("null".parse()?),
        Some(kind) if kind.contains('+') => {
            Err(format!("it is encrypted ({kind}): store it with a plain serializer first").into())
        }
        Some(kind) => Err(format!("it is serialized as {kind:?}, and not as MessagePack").into()),
        None => Err("the name of the serialization format is missing".into()),
    }
}

/// Returns the value of the channel in the state of a checkpoint, if there is one.
fn channel(state: &Node) -> Result<Option<Node>, crate::error::WrongValue> {
    let values = state.object()?.get("channel_values").map(|values| values.object()).transpose()?;
    Ok(values.and_then(|values: Object| values.get(CHANNEL)))
}
