//! One recorded conversation, read from a line of JSON.

use std::{collections::HashMap, sync::Arc};

use serde::Deserialize;
use serde_json::Value;
use tower_chat::{ConversationKey, Message, RawJson, Role};
use tower_chat_wire::{WireError, openai_chat};

use super::{SCOPE, pairing::pair};

/// A conversation that took place, and can be played.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    id: Arc<str>,
    messages: Arc<[RecordedMessage]>,
}

/// One message of a recording. Results stand right behind the message they answer, in the order
/// of its calls; tool messages that answer none of them come after.
#[derive(Debug, Clone)]
pub(super) struct RecordedMessage {
    /// As it was recorded.
    pub(super) json: Arc<Value>,
    pub(super) message: Arc<Message>,
    /// For a result in the round of its call: where that is.
    pub(super) answers: Option<RecordedPosition>,
}

/// The position of a call: its message's position in the recording, and its own among the calls there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RecordedPosition {
    pub(super) message: usize,
    pub(super) call: usize,
}

/// A line is not a recorded conversation.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is not a recorded conversation")]
pub(crate) struct RecordingError {
    /// The line's number, from 1.
    pub(crate) line: usize,
    /// What is wrong with it.
    pub(crate) source: RecordingFault,
}

/// What is wrong with a recorded conversation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingFault {
    /// It is not a JSON object with an `id` and a list of `messages`.
    #[error("it is not a JSON object with an id and a list of messages")]
    Json(#[source] serde_json::Error),
    /// Its id is neither a text nor a number.
    #[error("its id is {found}, neither a text nor a number")]
    Id {
        /// What it is.
        found: String,
    },
    /// A conversation of the same id came before.
    #[error("its id {id:?} is also that of line {first}")]
    DuplicateId {
        /// The id.
        id: String,
        /// The line that has it first.
        first: usize,
    },
    /// One of its messages cannot be read.
    #[error("its message {index} cannot be read")]
    Message {
        /// The message's position, from 0.
        index: usize,
        /// What is wrong with it.
        source: WireError,
    },
    /// One of its messages is JSON that cannot be compared.
    #[error("its message {index} is no JSON that can be compared")]
    Value {
        /// The message's position, from 0.
        index: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[derive(Deserialize)]
struct Line {
    id: RawJson,
    messages: Vec<RawJson>,
}

impl Recording {
    /// Reads the recordings of a JSON-lines text, one conversation a line; empty lines are passed
    /// over, and so are fields besides `id` and `messages`. An id that is a number is taken as the
    /// text of it.
    ///
    /// # Errors
    ///
    /// [`RecordingError`], naming the first line that is wrong. Two conversations of one id are.
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
    ///
    /// # Errors
    ///
    /// [`RecordingFault`].
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

    /// The conversation's id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The key under which the conversation is played.
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

    /// For a result in the round of its call, the call's position among those of its message.
    pub(super) fn call(&self) -> Option<usize> {
        self.answers.map(|answers| answers.call)
    }

    /// The id by which a result names its call.
    pub(super) fn names(&self) -> Option<&str> {
        let result = self.message.results().next()?;
        result.call_id.as_deref().filter(|id| !id.is_empty())
    }
}

/// Pairs the results of each round with its calls, and puts them in the order of the calls.
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
