//! Queries of the record of tool calls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures_util::future::try_join_all;
use tower_chat_core::{
    ConversationKey, Message,
    store::{
        InvocationQuery, Invocations, SequencePosition, StoreError, ToolTotals,
        UnreadableInvocation,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::{
    answer::{Answer, corrupt, damaged, number},
    failure::foreign,
    list::Listed,
    message,
    read::{self, PAGE_BYTES},
    script::{Call, INVOCATIONS},
    settings::Settings,
    tool_row,
};

const ACTION: &str = "read the record of tool calls";

/// The number of conversations of a scope that are queried concurrently.
const CONCURRENT_READS: usize = 32;

/// Returns the conversation that a query names; `None` if the query names no conversation.
pub(crate) fn conversation(query: &InvocationQuery) -> Option<ConversationKey> {
    let id = query.conversation.as_deref()?;
    Some(ConversationKey::new(&*query.scope, id))
}

/// Returns the calls that match a query, with one request or more for each conversation.
pub(crate) async fn invocations(
    settings: &Settings,
    query: &InvocationQuery,
) -> Result<Invocations, StoreError> {
    let mut invocations = Invocations::default();
    let limit = query.limit.unwrap_or(usize::MAX);
    if let Some(key) = conversation(query) {
        let rows = rows(settings, query, &key, limit, true).await?;
        rows.resolve(&key, limit, &mut invocations);
        return Ok(invocations);
    }
    let mut listed = Listed::new(settings, &query.scope, None);
    while let Some(keys) = listed.next(CONCURRENT_READS).await? {
        let found =
            |invocations: &Invocations| invocations.found.len() + invocations.unreadable.len();
        let left = limit - found(&invocations);
        let asked = keys.iter().map(|key| rows(settings, query, key, left, true));
        for (rows, key) in try_join_all(asked).await?.into_iter().zip(&keys) {
            let left = limit - found(&invocations);
            rows.resolve(key, left, &mut invocations);
        }
        if found(&invocations) >= limit {
            break;
        }
    }
    Ok(invocations)
}

/// Counts the calls that match a query, per tool.
pub(crate) async fn tool_totals(
    settings: &Settings,
    query: &InvocationQuery,
) -> Result<Vec<ToolTotals>, StoreError> {
    let mut totals = BTreeMap::new();
    if let Some(key) = conversation(query) {
        rows(settings, query, &key, usize::MAX, false).await?.count(&mut totals)?;
        return Ok(totals.into_values().collect());
    }
    let mut listed = Listed::new(settings, &query.scope, None);
    while let Some(keys) = listed.next(CONCURRENT_READS).await? {
        let asked = keys.iter().map(|key| rows(settings, query, key, usize::MAX, false));
        for rows in try_join_all(asked).await? {
            rows.count(&mut totals)?;
        }
    }
    Ok(totals.into_values().collect())
}

/// The rows of one conversation, in order, with the messages to which they refer.
#[derive(Default)]
pub(crate) struct Rows {
    rows: Vec<(SequencePosition, Vec<u8>)>,
    messages: HashMap<u64, Vec<u8>>,
    /// The [life](crate::conversation::Fields::life) of the conversation when the rows were read.
    pub(crate) life: String,
    pub(crate) writes: Option<String>,
}

/// Reads all rows of a conversation, without the messages to which they refer.
pub(crate) async fn all_rows(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Rows, StoreError> {
    rows(settings, &InvocationQuery::of(key), key, usize::MAX, false).await
}

/// Reads the rows of one conversation that match a query.
async fn rows(
    settings: &Settings,
    query: &InvocationQuery,
    key: &ConversationKey,
    limit: usize,
    with_messages: bool,
) -> Result<Rows, StoreError> {
    for _ in 0..read::ATTEMPTS {
        if let Some(rows) = pages(settings, query, key, limit, with_messages).await? {
            return Ok(rows);
        }
    }
    Err(read::keeps_changing(ACTION))
}

/// Reads the rows in pages. Returns `None` if the life of the conversation changes between two
/// pages.
async fn pages(
    settings: &Settings,
    query: &InvocationQuery,
    key: &ConversationKey,
    limit: usize,
    with_messages: bool,
) -> Result<Option<Rows>, StoreError> {
    let mut found = Rows::default();
    let mut from = "1".to_owned();
    loop {
        let left = limit - found.rows.len().min(limit);
        let call = page(settings, query, key, &found.life, &from, left, with_messages);
        let mut answer = Answer::new(settings.connections.read(ACTION, &call).await?)?;
        match answer.text()?.as_str() {
            "page" => {}
            "gone" => return Ok(None),
            "damaged" => return Err(damaged(key)),
            other => return Err(foreign(other)),
        }
        found.life = answer.optional_text()?.unwrap_or_default();
        from = answer.text()?;
        for (member, row) in answer.pairs()? {
            let position = tool_row::position(&member).map_err(|reason| corrupt(&reason))?;
            found.rows.push((position, row.unwrap_or_default()));
        }
        for (sequence, stored) in answer.pairs()? {
            found.messages.insert(number(&sequence)?, stored.unwrap_or_default());
        }
        found.writes = answer.optional_text()?;
        if from.is_empty() || found.rows.len() >= limit {
            return Ok(Some(found));
        }
    }
}

fn page(
    settings: &Settings,
    query: &InvocationQuery,
    key: &ConversationKey,
    life: &str,
    from: &str,
    limit: usize,
    with_messages: bool,
) -> Call {
    let names = settings.names.conversation(key);
    let keys = [names.head(), names.messages(), names.tools(), names.calls()];
    let sequences = match &query.sequences {
        None => "*".to_owned(),
        Some(sequences) => {
            let mut sequences = sequences.clone();
            sequences.sort_unstable();
            sequences.dedup();
            sequences.iter().map(|sequence| format!("{sequence},")).collect()
        }
    };
    let tool = query.tool.as_ref().map(|tool| format!("={tool}"));
    let status = query.status.map(|status| format!("={}", status.as_str()));
    let started = |bound: Option<std::time::SystemTime>| {
        bound.map(|time| milliseconds::bound(time).to_string()).unwrap_or_default()
    };
    INVOCATIONS
        .on(keys)
        .with(life)
        .with(from)
        .with(sequences)
        .with(tool.unwrap_or_default())
        .with(status.unwrap_or_default())
        .with(started(query.started.as_ref().map(|range| range.start)))
        .with(started(query.started.as_ref().map(|range| range.end)))
        .with(limit)
        .with(PAGE_BYTES)
        .with(if with_messages { "1" } else { "" })
}

impl Rows {
    /// Returns an iterator over the records, or the reasons why they are unreadable, in order.
    pub(crate) fn records(
        &self,
    ) -> impl Iterator<Item = (SequencePosition, Result<ToolRecord, String>)> + '_ {
        self.rows.iter().map(|(position, row)| (*position, tool_row::read(*position, row)))
    }

    fn resolve(&self, key: &ConversationKey, limit: usize, invocations: &mut Invocations) {
        let messages: HashMap<u64, Result<Arc<Message>, String>> = self
            .messages
            .iter()
            .map(|(sequence, stored)| {
                let message = message::read(stored).map(Arc::new);
                (*sequence, message.map_err(|error| format!("message {sequence}: {error}")))
            })
            .collect();
        let find = |sequence| messages.get(&sequence)?.as_ref().ok().cloned();
        for (position, record) in self.records().take(limit) {
            let found = record.and_then(|record| {
                check(&messages, &record)?;
                record.resolve(find).map_err(|error| error.to_string())
            });
            match found {
                Ok(invocation) => invocations.found.push((key.clone(), invocation)),
                Err(reason) => {
                    let SequencePosition { sequence, index } = position;
                    let row = UnreadableInvocation::new(key.clone(), sequence, index, reason);
                    invocations.unreadable.push(row);
                }
            }
        }
    }

    fn count(&self, totals: &mut BTreeMap<String, ToolTotals>) -> Result<(), StoreError> {
        for (position, record) in self.records() {
            let record = record.map_err(|reason| {
                corrupt(&format!("the record of call {}: {reason}", tool_row::member(position)))
            })?;
            let tool =
                totals.entry(record.name.clone()).or_insert_with(|| ToolTotals::new(&record.name));
            tool.count(record.status, record.started_at, record.finished_at);
        }
        Ok(())
    }
}

/// Returns an error if a message that a row refers to cannot be decoded.
fn check(
    messages: &HashMap<u64, Result<Arc<Message>, String>>,
    record: &ToolRecord,
) -> Result<(), String> {
    let in_message = match record.result {
        RecordedResult::InMessage(SequencePosition { sequence, .. }) => Some(sequence),
        RecordedResult::None | RecordedResult::Apart(_) => None,
    };
    for sequence in [Some(record.call.sequence), in_message].into_iter().flatten() {
        if let Some(Err(reason)) = messages.get(&sequence) {
            return Err(reason.clone());
        }
    }
    Ok(())
}
