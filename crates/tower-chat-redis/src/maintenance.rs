//! Reads a conversation row by row and rewrites rows in place, for checks and repairs.
//!
//! Rows are found by the names of the existing fields, because messages may be missing and numbers
//! may be damaged.

use std::{collections::BTreeMap, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message, RunId,
    format::{self, FormatError},
    store::{
        ConversationRows, Revision, Rewrite, SequencePosition, StoreError, UsageSum,
        author::ToolRecord,
    },
};

use crate::{
    answer::{Answer, Pairs, damaged, number},
    conversation::{Fields, newer, visible},
    directory,
    failure::foreign,
    message,
    read::{ATTEMPTS, PAGE_BYTES, keeps_changing},
    script::{REWRITE, ROW_VALUES, ROWS},
    settings::{Settings, random},
    tool_row,
};

const READ: &str = "read the rows of a conversation";
const CHANGE: &str = "rewrite a conversation";

/// The maximum number of values that one request reads.
const PAGE: usize = 1000;

/// Returns the visible rows of a conversation, from one snapshot.
pub(crate) async fn rows(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<ConversationRows>, StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(found) = read_fields(settings, key).await? else { return Ok(None) };
        let names = settings.names.conversation(key);
        let numbers: Vec<String> = found.messages.iter().map(u64::to_string).collect();
        let Some(messages) = values(settings, key, &found, names.messages(), &numbers).await?
        else {
            continue;
        };
        let members: Vec<String> = found.calls.iter().map(|(member, _)| member.clone()).collect();
        let Some(tools) = values(settings, key, &found, names.tools(), &members).await? else {
            continue;
        };
        let messages = found.messages.iter().zip(&messages);
        let messages = messages.map(|(number, stored)| (*number, read_message(stored.as_deref())));
        let tools = found.calls.iter().zip(&tools);
        let tools = tools.map(|((member, of), stored)| read_tool(member, *of, stored.as_deref()));
        let head = found.fields.head(key)?;
        return Ok(Some(ConversationRows::new(head, messages.collect(), tools.collect())));
    }
    Err(keeps_changing(READ))
}

/// The fields of a conversation's head, and the numbers of its messages and calls.
struct Found {
    fields: Fields,
    writes: String,
    /// The sequence numbers of the visible messages, in order.
    messages: Vec<u64>,
    /// The calls in the record, with the sequence numbers of their messages, in order.
    calls: Vec<(String, u64)>,
}

async fn read_fields(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<Found>, StoreError> {
    let names = settings.names.conversation(key);
    let call = ROWS.on([names.head(), names.messages(), names.calls()]);
    let mut answer = Answer::new(settings.connections.read(READ, &call).await?)?;
    match answer.text()?.as_str() {
        "rows" => {}
        other => return Err(foreign(other)),
    }
    let fields = Fields::new(answer.pairs()?);
    if fields.is_empty() {
        return Ok(None);
    }
    let head = fields.head(key)?;
    let seen = head.pruned.saturating_add(1)..=visible(&head);
    let named = answer.bytes()?.into_iter().flatten();
    // A field whose name is not a number is skipped, because no reader reads it.
    let mut messages: Vec<u64> = named
        .filter_map(|name| std::str::from_utf8(&name).ok()?.parse().ok())
        .filter(|number| seen.contains(number))
        .collect();
    messages.sort_unstable();
    let calls = ordered(answer.pairs()?)?;
    let writes = answer.optional_text()?.unwrap_or_default();
    Ok(Some(Found { fields, writes, messages, calls }))
}

/// Returns the calls with the sequence numbers of their messages, ordered by message and call.
fn ordered(scored: Pairs) -> Result<Vec<(String, u64)>, StoreError> {
    let mut calls = Vec::with_capacity(scored.len());
    for (member, score) in scored {
        let score = String::from_utf8(score.unwrap_or_default()).unwrap_or_default();
        // The damage is reported when the row is read.
        calls.push((member, number(&score).unwrap_or_default()));
    }
    Ok(calls)
}

/// Reads the named fields of a hash. Returns `None` if the conversation was written meanwhile.
async fn values(
    settings: &Settings,
    key: &ConversationKey,
    found: &Found,
    hash: String,
    names: &[String],
) -> Result<Option<Vec<Option<Vec<u8>>>>, StoreError> {
    let mut values = Vec::with_capacity(names.len());
    while let Some(rest) = names.get(values.len()..).filter(|rest| !rest.is_empty()) {
        let head = settings.names.conversation(key).head();
        let call = ROW_VALUES.on([head, hash.clone()]);
        let mut call = call.with(found.fields.life()).with(&found.writes).with(PAGE_BYTES);
        rest.iter().take(PAGE).for_each(|name| call.push(name));
        let mut answer = Answer::new(settings.connections.read(READ, &call).await?)?;
        match answer.text()?.as_str() {
            "page" => values.extend(answer.bytes()?),
            "changed" => return Ok(None),
            other => return Err(foreign(other)),
        }
    }
    Ok(Some(values))
}

fn read_message(stored: Option<&[u8]>) -> Result<Arc<Message>, FormatError> {
    match stored {
        Some(stored) => message::read(stored).map(Arc::new),
        None => Err(FormatError::malformed("it is missing")),
    }
}

fn read_tool(
    member: &str,
    of_message: u64,
    stored: Option<&[u8]>,
) -> (SequencePosition, Result<ToolRecord, String>) {
    match (tool_row::position(member), stored) {
        (Ok(call), Some(stored)) => (call, tool_row::read(call, stored)),
        (Ok(call), None) => (call, Err("it is missing".to_owned())),
        (Err(reason), _) => {
            (SequencePosition { sequence: of_message, index: u32::MAX }, Err(reason))
        }
    }
}

/// Converts a count to the text that the scripts store.
fn stored(count: u64) -> String {
    count.min(UsageSum::LARGEST).to_string()
}

/// Executes a rewrite, which changes the [life](crate::conversation::Fields::life) of the
/// conversation. By the new life, the script recognises a repeated request, and concurrent readers
/// begin again.
pub(crate) async fn rewrite(
    settings: &Settings,
    rewrite: &Rewrite,
) -> Result<Revision, StoreError> {
    let Rewrite { key, expected, .. } = rewrite;
    let revision = expected.rewritten();
    if rewrite.counts.is_some() {
        // A conversation of an older release does not have the directory entry yet.
        directory::ensure_entry(settings, key).await?;
    }
    let counted = rewrite.counts.as_ref();
    let tool_calls = counted.map_or(&[][..], |counts| &counts.tool_calls);
    // Only the last content of a message is used, as for the rows of a call.
    let contents: BTreeMap<u64, &Message> =
        rewrite.messages.iter().map(|(sequence, message)| (*sequence, message)).collect();
    let rows = tool_row::last_of_each(&rewrite.tools);
    let mut call = REWRITE
        .on(settings.names.conversation(key).all())
        .with(expected.incarnation)
        .with(expected.sequence)
        .with(revision.incarnation)
        .with(random())
        .with(contents.len())
        .with(rows.len())
        .with(counted.map_or_else(String::new, |counts| stored(counts.runs)))
        .with(tool_calls.len());
    for (run, calls) in tool_calls {
        call.push(&run.to_bytes()[..]);
        call.push(stored(*calls));
    }
    for (sequence, message) in contents {
        call.push(sequence);
        call.push(format::encode(message));
    }
    tool_row::push(&mut call, &rows);
    rewrite.removed_tools.iter().for_each(|call_at| call.push(tool_row::member(*call_at)));
    let mut answer = Answer::new(settings.connections.change(CHANGE, true, &call).await?)?;
    match answer.text()?.as_str() {
        "rewritten" => Ok(revision),
        "conflict" => {
            let found = Revision {
                incarnation: number(&answer.text()?)?,
                sequence: number(&answer.text()?)?,
            };
            let run = <[u8; 16]>::try_from(answer.raw()?).ok().map(RunId::from_bytes);
            Err(rewrite.conflict(found, run))
        }
        "missing" => Err(rewrite.missing(number(&answer.text()?)?)),
        "newer" => Err(newer(key, &answer.text()?)),
        "damaged" => Err(damaged(key)),
        other => Err(foreign(other)),
    }
}
