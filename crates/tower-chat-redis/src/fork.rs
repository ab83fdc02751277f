//! Copies of conversations. A turn, the unit of a copy, consists of the messages of a run and of
//! the later runs that answer calls of this run.
//!
//! The original and the copy may be on different servers, so that one script cannot access both.
//! The store reads the visible data of the original from one snapshot, and writes them in parts to
//! temporary keys on the server of the copy. One script then renames the temporary keys to the keys
//! of the copy.

use std::time::SystemTime;

use redis::cmd;
use tower_chat_core::{
    ConversationKey, PersistenceMode, RunId,
    store::{
        Fork, Parent, Revision, StoreError,
        author::{Forking, ToolRecord, milliseconds},
    },
};

use crate::{
    answer::{Answer, corrupt},
    branches,
    conversation::visible,
    directory,
    failure::foreign,
    invocations, list, message, read,
    script::{COPY_END, COPY_PART},
    settings::{Settings, random},
    tool_row,
};

const ACTION: &str = "copy a conversation";

/// The time to live of the temporary keys, in milliseconds, for a process that ends before it
/// renames or deletes them.
const TEMPORARY_TTL_MS: u64 = 10 * 60 * 1000;

/// The maximum number of bytes of a part.
const PART_BYTES: usize = 1024 * 1024;
/// The maximum number of messages or rows in a part.
const PART_ITEMS: usize = 5_000;

/// The maximum number of attempts to read the original. An attempt fails if another process writes
/// the original meanwhile.
const ATTEMPTS: usize = 64;

/// Copies the visible turns that end before a message, or all visible turns. Returns
/// [`Fork::ABSENT`] if there is nothing to copy.
pub(crate) async fn fork(
    settings: &Settings,
    from: &ConversationKey,
    before: Option<u64>,
    to: &ConversationKey,
) -> Result<Fork, StoreError> {
    if read::head(settings, to).await?.revision != Revision::ABSENT {
        return Err(StoreError::Exists { key: to.clone() });
    }
    let Some(original) = original(settings, from, before).await? else { return Ok(Fork::ABSENT) };
    let copy = Copy {
        settings,
        to,
        name: random(),
        revision: Revision {
            incarnation: RunId::new().random_half().max(1),
            sequence: original.pruned.saturating_add(original.messages.len() as u64),
        },
    };
    let made = copy.make(&original).await;
    if made.is_err() {
        copy.delete_temporary().await;
    }
    made.map(|revision| Fork::new(revision, original.parent.position))
}

struct Original {
    /// The sequence number of the last pruned message (deleted with an old run).
    pruned: u64,
    messages: Vec<Vec<u8>>,
    tools: Vec<ToolRecord>,
    directory: directory::Entry,
    /// The number of the copied runs, and the id of the last copied run.
    runs: (u64, Vec<u8>),
    parent: Parent,
}

/// Reads the visible part of a conversation; `None` if there is nothing to copy.
async fn original(
    settings: &Settings,
    from: &ConversationKey,
    before: Option<u64>,
) -> Result<Option<Original>, StoreError> {
    for _ in 0..ATTEMPTS {
        let stored = read::stored_messages(settings, from, None, ACTION).await?;
        let head = stored.fields.head(from)?;
        if visible(&head) == 0 && head.service_id.is_none() {
            return Ok(None);
        }
        let Some(directory) = directory::entry(settings, from).await? else { continue };
        let rows = invocations::all_rows(settings, from).await?;
        if rows.writes != stored.writes || rows.life != stored.fields.life() {
            continue;
        }
        // All data are decoded before anything is written, so that damaged data are not copied.
        let mut forking = Forking::new(&head, before);
        for (stored, sequence) in stored.messages.iter().zip(head.pruned.saturating_add(1)..) {
            let message = message::read(stored)
                .map_err(|error| message::undecodable(from, sequence, error))?;
            if let Some(id) = message.id {
                forking.see_message(sequence, id.run);
            }
        }
        let tools = rows.records().map(|(position, record)| {
            record.map_err(|reason| {
                corrupt(&format!("the record of call {}: {reason}", tool_row::member(position)))
            })
        });
        let tools = tools.collect::<Result<Vec<_>, _>>()?;
        tools.iter().for_each(|row| forking.see_record(row));
        let end = forking.end();
        let tools = tools.into_iter().filter(|row| row.call.sequence <= end.position);
        let tools = tools.map(ToolRecord::in_copy).collect();
        let (count, last) = directory.visible_runs(head.open_run.is_some());
        let runs = match end.runs_after {
            0 => (count, last.to_vec()),
            after => {
                let last = end.last_run.map(|run| run.to_bytes().to_vec());
                (count.saturating_sub(after), last.unwrap_or_default())
            }
        };
        let mut messages = stored.messages;
        let count = end.position.saturating_sub(head.pruned);
        messages.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        return Ok(Some(Original {
            // If the copy has no messages, its first message will get the sequence number 1.
            pruned: if messages.is_empty() { 0 } else { head.pruned },
            messages,
            tools,
            directory,
            runs,
            parent: Parent::new(from.clone(), end.position),
        }));
    }
    Err(StoreError::backend(
        ACTION,
        true,
        "other writers changed it during each attempt to read it",
    ))
}

struct Copy<'a> {
    settings: &'a Settings,
    to: &'a ConversationKey,
    /// A random text in the names of the temporary keys, which is also the
    /// [life](crate::conversation::Fields::life) of the copy.
    name: String,
    revision: Revision,
}

impl Copy<'_> {
    async fn make(&self, original: &Original) -> Result<Revision, StoreError> {
        self.store_temporary(original).await?;
        self.rename_to_copy(original).await
    }

    /// Deletes the temporary keys. An error is ignored, because the keys expire later.
    async fn delete_temporary(&self) {
        let names = self.settings.names.conversation(self.to).copy(&self.name);
        drop(self.settings.connections.command(cmd("UNLINK").arg(&names)).await);
    }

    /// Stores all messages and rows of the original in temporary keys.
    async fn store_temporary(&self, original: &Original) -> Result<(), StoreError> {
        let messages = (original.pruned.saturating_add(1)..)
            .zip(&original.messages)
            .map(|(sequence, stored)| (stored.len(), Item::Message { sequence, stored }));
        let tools = original.tools.iter().map(|record| {
            let row = tool_row::write(record);
            (row.len(), Item::Row { record, row })
        });
        let (mut bytes, mut part) = (0, Vec::new());
        for (length, item) in messages.chain(tools) {
            if !part.is_empty() && (bytes + length > PART_BYTES || part.len() >= PART_ITEMS) {
                self.put(&part).await?;
                (bytes, part) = (0, Vec::new());
            }
            bytes += length;
            part.push(item);
        }
        if part.is_empty() { Ok(()) } else { self.put(&part).await }
    }

    async fn put(&self, part: &[Item<'_>]) -> Result<(), StoreError> {
        let names = self.settings.names.conversation(self.to);
        let is_message = |item: &&Item<'_>| matches!(item, Item::Message { .. });
        let messages = part.iter().filter(is_message).count();
        let mut call = COPY_PART
            .on(names.copy(&self.name))
            .with(TEMPORARY_TTL_MS)
            .with(messages)
            .with(part.len() - messages);
        for item in part {
            match item {
                Item::Message { sequence, stored } => {
                    call.push(*sequence);
                    call.push(stored.as_slice());
                }
                Item::Row { record, row } => {
                    call.push(tool_row::member(record.call));
                    call.push(record.call.sequence);
                    call.push(row.as_slice());
                }
            }
        }
        self.settings.connections.change(ACTION, true, &call).await.map(drop)
    }

    /// Renames the temporary keys to the keys of the copy, unless a conversation with these keys
    /// exists.
    async fn rename_to_copy(&self, original: &Original) -> Result<Revision, StoreError> {
        let names = self.settings.names.conversation(self.to);
        let [head, messages, tools, calls, pending, directory, _] = names.all();
        let [temporary_messages, temporary_tools, temporary_calls, temporary_pending] =
            names.copy(&self.name);
        let keys = [
            head,
            messages,
            tools,
            calls,
            pending,
            temporary_messages,
            temporary_tools,
            temporary_calls,
            temporary_pending,
            directory,
        ];
        let entry = &original.directory;
        let description = serde_json::to_vec(&entry.description)
            .map_err(|error| StoreError::backend(ACTION, false, error))?;
        let (runs, last_run) = &original.runs;
        let mode = entry.last_mode.map(PersistenceMode::as_str).unwrap_or_default();
        for _ in 0..list::ATTEMPTS {
            let listing = list::add_to_list(self.settings, self.to).await?;
            let (parent, token) = (&original.parent.key, &listing.token);
            let is_new = branches::add(self.settings, parent, self.to, token).await?;
            let call = COPY_END
                .on(keys.clone())
                .with(self.revision.incarnation)
                .with(self.revision.sequence)
                .with(original.tools.len())
                .with(self.settings.lifetime())
                .with(listing.deadline)
                .with(&listing.token)
                // The script recognises a finished copy by this name.
                .with(&self.name)
                .with(self.to.scope())
                .with(self.to.id())
                .with(original.pruned)
                .with(milliseconds::of(SystemTime::now()))
                .with(mode)
                .with(*runs)
                .with(last_run.as_slice())
                .with(entry.description_version)
                .with(description.as_slice())
                .with(directory::write_parent(&original.parent));
            let answer = self.settings.connections.change(ACTION, true, &call).await?;
            match Answer::new(answer)?.text()?.as_str() {
                "made" => return Ok(self.revision),
                "exists" => {
                    if is_new {
                        branches::remove(self.settings, parent, self.to, token).await;
                    }
                    return Err(StoreError::Exists { key: self.to.clone() });
                }
                "late" => {}
                "incomplete" => {
                    let reason = "the staged copy expired before it was complete";
                    return Err(StoreError::backend(ACTION, true, reason));
                }
                other => return Err(foreign(other)),
            }
        }
        Err(list::late(ACTION))
    }
}

/// A message or a row that is written to the temporary keys.
enum Item<'a> {
    Message { sequence: u64, stored: &'a Vec<u8> },
    Row { record: &'a ToolRecord, row: Vec<u8> },
}
