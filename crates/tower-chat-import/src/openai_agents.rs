//! Reads the sessions of the OpenAI Agents SDK for Python. Each row of the database contains one
//! item of OpenAI Responses.

use std::{path::Path, time::SystemTime};

use tower_chat_core::{Message, RawJson};
use tower_chat_wire::{WireError, openai_responses};

use crate::{
    Format, ImportedConversation, ReadError, content, error::ContentError, node::Node,
    sqlite::Snapshot,
};

const FORMAT: Format = Format::OpenAiAgents;

/// A row of the table `agent_messages`.
struct Item {
    row: i64,
    json: String,
    added_at: Option<String>,
}

/// Reads every session of a file, ordered by the first row of each session.
pub(crate) fn read(path: &Path) -> Result<Vec<ImportedConversation>, ReadError> {
    let file = Snapshot::open(FORMAT, path, &["agent_messages"])?;
    let sessions: Vec<String> = file.rows(
        "SELECT session_id FROM agent_messages GROUP BY session_id ORDER BY min(id)",
        &[],
        |row| row.get(0),
    )?;
    let read = |session: String| {
        let items = file.rows(
            "SELECT id, message_data, CAST(created_at AS TEXT) FROM agent_messages \
             WHERE session_id = ?1 ORDER BY id",
            &[&session],
            |row| Ok(Item { row: row.get(0)?, json: row.get(1)?, added_at: row.get(2)? }),
        )?;
        conversation(session, &items).map_err(|error| error.in_file(path, FORMAT))
    };
    sessions.into_iter().map(read).collect()
}

fn conversation(session: String, items: &[Item]) -> Result<ImportedConversation, ContentError> {
    let mut conversation = ImportedConversation::new(session);
    let (mut parts, mut times) = (Vec::new(), Vec::new());
    for item in items {
        // Each item is first parsed alone, because an error must name its row, and `add_times`
        // needs the number of its parts.
        let alone = item.parse();
        let alone = alone.map_err(|error| ContentError::at(item.position(), within(error)))?;
        parts.push(alone.iter().map(|message| message.parts.len()).sum());
        times.push(item.time()?);
    }
    conversation.created_at = times.first().copied().flatten();
    let texts: Vec<&str> = items.iter().map(|item| item.json.as_str()).collect();
    let list = format!("[{}]", texts.join(","));
    let parsed = openai_responses::parse_input(&list);
    conversation.messages = parsed.map_err(|error| ContentError::at("the session", error))?;
    add_times(&mut conversation.messages, &parts, &times);
    Ok(conversation)
}

impl Item {
    fn position(&self) -> String {
        format!("row {} of agent_messages", self.row)
    }

    fn parse(&self) -> Result<Vec<Message>, WireError> {
        openai_responses::parse_input(&format!("[{}]", self.json))
    }

    fn time(&self) -> Result<Option<SystemTime>, ContentError> {
        let Some(text) = &self.added_at else { return Ok(None) };
        let json =
            RawJson::from_value(text).map_err(|error| ContentError::at(self.position(), error))?;
        let time = content::time(&Node::root(json));
        time.map(Some).map_err(|error| ContentError::at(self.position(), error))
    }
}

/// Removes the position from the error, because the index of a single item is always 0.
fn within(error: WireError) -> WireError {
    match error {
        WireError::InMessage { source, .. } => *source,
        other => other,
    }
}

/// Sets the time of each message, which consists of the parts of one or more items, to the time of
/// its first item. `parts` contains the number of parts of each item, and `times` its time.
fn add_times(messages: &mut [Message], parts: &[usize], times: &[Option<SystemTime>]) {
    let mut items = parts.iter().zip(times);
    for message in messages {
        let mut left = message.parts.len();
        let Some((count, time)) = items.next() else { return };
        message.added_at = *time;
        left = left.saturating_sub(*count);
        while left > 0 {
            let Some((count, _)) = items.next() else { return };
            left = left.saturating_sub(*count);
        }
    }
}
