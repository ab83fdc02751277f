//! Reads recorded conversations from lines of JSON. A round consists of the calls of one answer and
//! their results.

use std::{collections::HashMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;
use tower_chat::{ConversationKey, Message, Role, message::RawJson};
use tower_chat_wire::{WireError, openai_chat};

use super::{SCOPE, pairing::pair};

/// A recorded conversation that can be played.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    id: Arc<str>,
    messages: Arc<[RecordedMessage]>,
}

/// A message of a recording. Results directly follow the message with their calls, in the order of
/// the calls. After the results are the tool messages that answer no call of this message.
#[derive(Debug, Clone)]
pub(super) struct RecordedMessage {
    /// The message as it was recorded.
    pub(super) json: Arc<Value>,
    pub(super) message: Arc<Message>,
    /// For a result directly after the message with its call: the position of the call.
    pub(super) answers: Option<RecordedPosition>,
}

/// The position of a call: of its message in the recording, and of the call in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordedPosition {
    pub(super) message: usize,
    pub(super) call: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("line {line} is not a recorded conversation")]
pub(crate) struct RecordingError {
    /// The number of the line, from 1.
    pub(crate) line: usize,
    pub(crate) source: RecordingFault,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingFault {
    /// The line is not a JSON object with an `id` and a list of `messages`.
    #[error("it is not a JSON object with an id and a list of messages")]
    Json(#[source] serde_json::Error),
    /// The id is neither a string nor a number.
    #[error("its id is {found}, neither a text nor a number")]
    Id {
        /// The value of the id.
        found: String,
    },
    /// An earlier conversation has the same id.
    #[error("its id {id:?} is also that of line {first}")]
    DuplicateId {
        /// The id.
        id: String,
        /// The first line with the id.
        first: usize,
    },
    /// A message cannot be read.
    #[error("its message {index} cannot be read")]
    Message {
        /// The position of the message, from 0.
        index: usize,
        /// The error of the message.
        source: WireError,
    },
    /// A message is JSON that cannot be compared.
    #[error("its message {index} is no JSON that can be compared")]
    Value {
        /// The position of the message, from 0.
        index: usize,
        /// The error of the message.
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Line {
    id: RawJson,
    messages: Vec<RawJson>,
}

impl Recording {
    /// Reads the recordings of a text with one conversation on each line. Empty lines, and fields
    /// other than `id` and `messages`, are ignored. A numeric id becomes a string.
    ///
    /// # Errors
    ///
    /// [`RecordingError`] for the first faulty line. A repeated id is a fault.
    pub(crate) fn read_lines(text: &str) -> Result<Vec<Self>, RecordingError> {
        let mut first_lines: HashMap<Arc<str>, usize> = HashMap::new();
        let mut recordings = Vec::new();
        for (index, json) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line = index + 1;
            let fault = |source| RecordingError { line, source };
            let recording = Self::read(json).map_err(fault)?;
            if let Some(&first) = first_lines.get(&recording.id) {
                let id = recording.id.to_string();
                return Err(fault(RecordingFault::DuplicateId { id, first }));
            }
            first_lines.insert(recording.id.clone(), line);
            recordings.push(recording);
        }
        Ok(recordings)
    }

    /// Reads one recording from its JSON object.
    pub(crate) fn read(json: &str) -> Result<Self, RecordingFault> {
        let line: Line = serde_json::from_str(json).map_err(RecordingFault::Json)?;
        let id = match line.id.parse::<Value>().map_err(RecordingFault::Json)? {
            Value::String(id) => id,
            Value::Number(_) => line.id.get().to_owned(),
            _ => return Err(RecordingFault::Id { found: line.id.get().to_owned() }),
        };
        let read = |(index, json): (usize, &RawJson)| {
            let message = openai_chat::parse_message(json.get())
                .map_err(|source| RecordingFault::Message { index, source })?;
            let json = json.parse::<Value>();
            let json = json.map_err(|source| RecordingFault::Value { index, source })?;
            Ok(RecordedMessage { json: Arc::new(json), message: Arc::new(message), answers: None })
        };
        let messages = line.messages.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { id: id.into(), messages: in_rounds(messages).into() })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the key under which the conversation is played.
    pub(crate) fn key(&self) -> ConversationKey {
        ConversationKey::new(SCOPE, self.id.clone())
    }

    pub(super) fn messages(&self) -> &[RecordedMessage] {
        &self.messages
    }
}

impl RecordedMessage {
    pub(super) fn role(&self) -> Role {
        self.message.role
    }

    /// Returns [`RecordedPosition::call`] of [`Self::answers`].
    pub(super) fn call(&self) -> Option<usize> {
        self.answers.map(|answers| answers.call)
    }

    /// Returns the call id of a result.
    pub(super) fn names(&self) -> Option<&str> {
        let result = self.message.results().next()?;
        result.call_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// Pairs the results of each round with its calls, and sorts them in the order of the calls.
fn in_rounds(recorded: Vec<RecordedMessage>) -> Vec<RecordedMessage> {
    let mut ordered: Vec<RecordedMessage> = Vec::with_capacity(recorded.len());
    let mut rest = recorded.into_iter().peekable();
    while let Some(asking) = rest.next() {
        let position = ordered.len();
        let calls: Vec<_> = asking.message.calls().cloned().collect();
        ordered.push(asking);
        if calls.is_empty() {
            continue;
        }
        let mut tools: Vec<RecordedMessage> = Vec::new();
        while let Some(tool) = rest.next_if(|next| next.role() == Role::Tool) {
            tools.push(tool);
        }
        let results: Vec<_> =
            tools.iter().filter_map(|tool| tool.message.results().next().cloned()).collect();
        for (tool, call) in tools.iter_mut().zip(pair(&calls, &results)) {
            tool.answers = call.map(|call| RecordedPosition { message: position, call });
        }
        tools.sort_by_key(|tool| tool.answers.map_or(usize::MAX, |answers| answers.call));
        ordered.extend(tools);
    }
    ordered
}
