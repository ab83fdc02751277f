//! Reads of one conversation.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ConversationKey, Message, Messages,
    pairing::PendingBatches,
    store::{
        Head, History, MessagePage, StoreError,
        author::{LAST_SEQUENCE, LoadFrom, OpenRunContent},
    },
};

use crate::{
    answer::{Answer, corrupt, damaged},
    conversation::{Fields, visible},
    failure::foreign,
    message,
    script::{HEAD, MESSAGES, OPEN_RUN},
    settings::Settings,
    telemetry::TELEMETRY,
    tool_row,
};

/// The number of bytes of messages after which a script ends a page, because a script blocks the
/// server.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;

const BACKWARDS: &str = "read messages from the end backwards";

/// The maximum number of attempts to read a conversation. An attempt fails if the life of the
/// conversation changes meanwhile, because it is pruned, rewritten or deleted.
pub(crate) const ATTEMPTS: usize = 16;

/// Reads the head of a conversation.
pub(crate) async fn head(settings: &Settings, key: &ConversationKey) -> Result<Head, StoreError> {
    let names = settings.names.conversation(key);
    let call = HEAD.on([names.head(), names.messages(), names.pending()]);
    let answer = settings.connections.read("read the head of a conversation", &call).await?;
    let mut answer = Answer::new(answer)?;
    match answer.text()?.as_str() {
        "head" => {}
        "damaged" => return Err(damaged(key)),
        other => return Err(foreign(other)),
    }
    let head = Fields::new(answer.pairs()?).head(key)?;
    let waiting = answer.pairs()?;
    if waiting.is_empty() {
        return Ok(head);
    }
    let mut asking = HashMap::new();
    for (sequence, stored) in answer.pairs()? {
        let sequence = crate::answer::number(&sequence)?;
        let stored = stored.ok_or_else(|| missing(key, sequence))?;
        asking.insert(sequence, read(key, sequence, &stored)?);
    }
    let mut batches = PendingBatches::default();
    for (member, _) in waiting {
        let position = tool_row::position(&member).map_err(|reason| corrupt(&reason))?;
        let Some(message) = asking.get(&position.sequence) else { continue };
        if let Some(request) = message.approval_request(position.index) {
            batches.push(message, request.clone());
        }
    }
    Ok(head.with_pending_approvals(batches.finish()))
}

/// Returns a conversation with its visible messages, or with those that `from` selects if the
/// conversation has this value, from one snapshot.
pub(crate) async fn history(
    settings: &Settings,
    key: &ConversationKey,
    from: Option<&LoadFrom>,
) -> Result<History, StoreError> {
    let stored = stored_messages(settings, key, from, "load a conversation").await?;
    let head = stored.fields.head(key)?;
    let part = stored.part;
    let (leading, rest) = stored.messages.split_at(part.leading_count(head.pruned));
    let leading: Messages = read_all(key, head.pruned, leading).collect::<Result<_, _>>()?;
    let history = History::collect(head, read_all(key, part.after, rest))?;
    let bytes = stored.messages.iter().map(Vec::len).sum();
    TELEMETRY.loaded(key, stored.messages.len(), bytes);
    Ok(history.with_skipped(part.after, leading))
}

/// The messages that a load reads: up to the sequence number `leading`, and after the sequence
/// number `after`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    leading: u64,
    after: u64,
}

impl Part {
    /// Returns the number of leading messages that were not pruned.
    fn leading_count(self, pruned: u64) -> usize {
        usize::try_from(self.leading.saturating_sub(pruned)).unwrap_or(usize::MAX)
    }

    /// Returns the first and the last sequence number that remain to be read after `count`
    /// messages.
    fn remaining(self, count: usize, pruned: u64, visible: u64) -> Option<(u64, u64)> {
        let leading = self.leading_count(pruned);
        let (before, read, last) = match count.checked_sub(leading) {
            None => (pruned, count, self.leading),
            Some(read) => (self.after, read, visible),
        };
        let from = before.saturating_add(read as u64).saturating_add(1);
        (from <= last).then_some((from, last))
    }
}

/// The visible messages of a conversation, in stored form.
pub(crate) struct StoredMessages {
    pub(crate) fields: Fields,
    pub(crate) messages: Vec<Vec<u8>>,
    part: Part,
    /// The conversation's number of writes.
    pub(crate) writes: Option<String>,
}

/// Reads the messages in pages. Writers can only append messages as long as the
/// [life](crate::conversation::Fields::life) of the conversation does not change. If it changes
/// between two pages, this function begins again.
pub(crate) async fn stored_messages(
    settings: &Settings,
    key: &ConversationKey,
    from: Option<&LoadFrom>,
    action: &'static str,
) -> Result<StoredMessages, StoreError> {
    // Scripts cannot represent larger numbers exactly.
    let from = from.filter(|from| from.leading <= from.after && from.after <= LAST_SEQUENCE);
    'reading: for _ in 0..ATTEMPTS {
        let Page::Of { fields, mut messages, writes, is_part } =
            page(settings, key, action, Range::All(from)).await?
        else {
            continue;
        };
        let head = fields.head(key)?;
        let all = Part { leading: head.pruned, after: head.pruned };
        let part = from.filter(|_| is_part);
        let part = part.map_or(all, |from| Part { leading: from.leading, after: from.after });
        let visible = visible(&head);
        while let Some((from, last)) = part.remaining(messages.len(), head.pruned, visible) {
            match page(settings, key, action, Range::Of(fields.life(), from, last)).await? {
                Page::Gone => continue 'reading,
                Page::Of { messages: more, .. } if more.is_empty() => {
                    return Err(missing(key, from));
                }
                Page::Of { messages: more, .. } => messages.extend(more),
            }
        }
        return Ok(StoredMessages { fields, messages, part, writes });
    }
    Err(keeps_changing(action))
}

/// Reads up to `limit` messages before a sequence number, in pages as [`stored_messages`] does.
pub(crate) async fn messages_before(
    settings: &Settings,
    key: &ConversationKey,
    before: Option<u64>,
    limit: usize,
) -> Result<MessagePage, StoreError> {
    // No message has a larger number, and scripts cannot represent larger numbers exactly.
    let behind_all = LAST_SEQUENCE.saturating_add(1);
    let asked =
        Range::Before(before.unwrap_or(behind_all).min(behind_all), behind_all.min(limit as u64));
    'reading: for _ in 0..ATTEMPTS {
        let Page::Of { fields, mut messages, .. } = page(settings, key, BACKWARDS, asked).await?
        else {
            continue;
        };
        let head = fields.head(key)?;
        let (first, end) = MessagePage::range(head.pruned, visible(&head), before, limit);
        while first.saturating_add(messages.len() as u64) < end {
            let from = first.saturating_add(messages.len() as u64);
            let rest = Range::Of(fields.life(), from, end.saturating_sub(1));
            match page(settings, key, BACKWARDS, rest).await? {
                Page::Gone => continue 'reading,
                Page::Of { messages: more, .. } if more.is_empty() => {
                    return Err(missing(key, from));
                }
                Page::Of { messages: more, .. } => messages.extend(more),
            }
        }
        let numbered = messages.iter().zip(first..end);
        let messages = numbered.map(|(stored, at)| Ok((at, read(key, at, stored)?)));
        let earlier = (first > head.pruned.saturating_add(1)).then_some(first);
        return Ok(MessagePage::new(messages.collect::<Result<_, StoreError>>()?, earlier));
    }
    Err(keeps_changing(BACKWARDS))
}

/// Returns the error for a conversation that other writers changed during each attempt to read it.
pub(crate) fn keeps_changing(action: &'static str) -> StoreError {
    StoreError::backend(action, true, "other writers changed it during each attempt")
}

/// The range of messages to read.
#[derive(Clone, Copy)]
enum Range<'a> {
    /// All visible messages, or, if the conversation has this value, those that the value selects.
    All(Option<&'a LoadFrom>),
    /// The last messages before a sequence number, and their maximum number.
    Before(u64, u64),
    /// The messages from one sequence number to another, if the conversation has the given life.
    Of(&'a str, u64, u64),
}

enum Page {
    Of {
        fields: Fields,
        messages: Vec<Vec<u8>>,
        writes: Option<String>,
        /// Whether the script has skipped the messages that the value omits.
        is_part: bool,
    },
    Gone,
}

async fn page(
    settings: &Settings,
    key: &ConversationKey,
    action: &'static str,
    range: Range<'_>,
) -> Result<Page, StoreError> {
    let names = settings.names.conversation(key);
    let (life, from, last) = match range {
        Range::All(_) | Range::Before(..) => ("", 1, 0),
        Range::Of(life, from, last) => (life, from, last),
    };
    let (before, limit) = match range {
        Range::Before(before, limit) => (before.to_string(), limit.to_string()),
        Range::All(_) | Range::Of(..) => (String::new(), String::new()),
    };
    let part = match range {
        Range::All(from) => from,
        Range::Before(..) | Range::Of(..) => None,
    };
    let call = MESSAGES
        .on([names.head(), names.messages()])
        .with(life)
        .with(from)
        .with(last)
        .with(PAGE_BYTES)
        .with(before)
        .with(limit)
        .with(part.map(LoadFrom::to_json).unwrap_or_default())
        .with(part.map_or(0, |from| from.leading))
        .with(part.map_or(0, |from| from.after));
    let mut answer = Answer::new(settings.connections.read(action, &call).await?)?;
    match answer.text()?.as_str() {
        "page" => Ok(Page::Of {
            fields: Fields::new(answer.pairs()?),
            messages: answer.bytes()?.into_iter().flatten().collect(),
            writes: answer.optional_text()?,
            is_part: answer.text()? == "part",
        }),
        "gone" => Ok(Page::Gone),
        "damaged" => Err(damaged(key)),
        other => Err(foreign(other)),
    }
}

/// Returns an open run (one that is not committed yet) with its staged messages and rows, from one
/// snapshot; `None` if no run is open.
pub(crate) async fn open_run(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<OpenRunContent>, StoreError> {
    let names = settings.names.conversation(key);
    let call = OPEN_RUN.on([names.head(), names.messages(), names.tools(), names.calls()]);
    let mut answer = Answer::new(settings.connections.read("load an open run", &call).await?)?;
    match answer.text()?.as_str() {
        "open run" => {}
        "damaged" => return Err(damaged(key)),
        other => return Err(foreign(other)),
    }
    let head = Fields::new(answer.pairs()?).head(key)?;
    let Some(open) = head.open_run.clone() else { return Ok(None) };
    let mut messages = Vec::new();
    for (stored, sequence) in answer.bytes()?.into_iter().zip(open.visible.saturating_add(1)..) {
        let stored = stored.ok_or_else(|| missing(key, sequence))?;
        messages.push(read(key, sequence, &stored)?);
    }
    let mut tools = Vec::new();
    for (member, row) in answer.pairs()? {
        let record = tool_row::position(&member)
            .and_then(|position| tool_row::read(position, &row.ok_or("it is missing")?));
        tools.push(record.map_err(|reason| {
            corrupt(&format!("the record of call {member} in conversation {key}: {reason}"))
        })?);
    }
    Ok(Some(OpenRunContent::new(head, open, messages, tools)))
}

/// Returns an iterator that decodes the messages after the sequence number `after`.
fn read_all<'a>(
    key: &'a ConversationKey,
    after: u64,
    messages: &'a [Vec<u8>],
) -> impl Iterator<Item = Result<Arc<Message>, StoreError>> + 'a {
    let numbered = messages.iter().zip(after.saturating_add(1)..);
    numbered.map(move |(stored, sequence)| read(key, sequence, stored))
}

fn read(key: &ConversationKey, sequence: u64, stored: &[u8]) -> Result<Arc<Message>, StoreError> {
    let message = message::read(stored);
    message.map(Arc::new).map_err(|source| message::undecodable(key, sequence, source))
}

fn missing(key: &ConversationKey, sequence: u64) -> StoreError {
    corrupt(&format!("message {sequence} of conversation {key} is missing"))
}
