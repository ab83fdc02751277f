//! Accumulates the deltas of a streamed message.
//!
//! A delta is a piece of a message. Each chunk of the stream contains one delta.

use std::collections::HashMap;

use tower_chat_core::{ChatUpdate, Message, Native, Part, RawJson, ToolCallDelta};

use super::{
    DELTA_WIRE, answer,
    call::{FUNCTION, KINDS, Kind},
};
use crate::{
    AnswerError,
    object::{Object, as_text, raw, take},
    stream::Accumulator,
};

/// The fields in which compatible services send readable reasoning. If a delta has a text in both
/// fields, the update contains the text of the first field.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// The fields of messages in OpenAI's reference and in recorded answers of compatible services.
const MESSAGE_FIELDS: [&str; 15] = [
    "role",
    "content",
    "refusal",
    "annotations",
    "audio",
    "function_call",
    "tool_calls",
    "name",
    "citations",
    "extra_content",
    "provider_metadata",
    "padding",
    "prefix",
    "signature",
    "images",
];

/// The beginnings of the names of fields with reasoning or its signature.
const REASONING_PREFIXES: [&str; 3] = ["reasoning", "thinking", "thought"];

/// Accumulates the deltas of one message into the JSON object that a whole answer contains.
#[derive(Debug, Default)]
pub(super) struct MessageAccumulator {
    text: Option<String>,
    other_fields: Accumulator,
    calls: Calls,
    /// Whether a delta was received.
    has_begun: bool,
}

#[derive(Debug, Default)]
struct Call {
    /// The index that the service sends for the call.
    index: Option<RawJson>,
    id: Option<String>,
    name: Option<String>,
    /// The type of the call. `None` until a delta with the type is received.
    kind: Option<Kind>,
    arguments: String,
    brackets: Brackets,
    /// Whether the service sent `null` instead of arguments.
    has_null_arguments: bool,
    /// The arguments, if the service sent an object instead of a string.
    object_arguments: Option<RawJson>,
    /// The fields of the object `function` or `custom` besides the name and the arguments.
    function_fields: Accumulator,
    other_fields: Accumulator,
}

impl MessageAccumulator {
    /// Returns the accumulated text.
    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Returns whether any delta of the message was received.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Adds a delta, and returns the updates for readers of the stream.
    pub(super) fn push(&mut self, mut delta: Object) -> Result<Vec<ChatUpdate>, AnswerError> {
        self.has_begun = true;
        let mut updates = Vec::new();
        if let Some(text) = delta.get("content").and_then(as_text) {
            delta.remove("content");
            self.text.get_or_insert_default().push_str(&text);
            if !text.is_empty() {
                updates.push(ChatUpdate::TextDelta(text));
            }
        }
        let reasoning = REASONING.into_iter().filter_map(|field| as_text(delta.get(field)?));
        if let Some(text) = reasoning.into_iter().find(|text| !text.is_empty()) {
            updates.push(ChatUpdate::ReasoningDelta(text));
        }
        if let Some(calls) = take(&mut delta, "tool_calls") {
            let calls: Vec<Object> = calls.parse().map_err(|_| {
                AnswerError::malformed("its tool calls are not a list of objects", calls.get())
            })?;
            for call in calls {
                updates.push(ChatUpdate::ToolCallDelta(self.calls.push(call)?));
            }
        }
        self.other_fields.push(delta);
        Ok(updates)
    }

    /// Returns the whole message. `is_cut_off` is whether the answer reached a token limit. Fields
    /// that describe the deltas of the stream are stored in a native part of the wire
    /// [`DELTA_WIRE`](super::DELTA_WIRE), which no request contains.
    pub(super) fn into_message(self, is_cut_off: bool) -> Result<Message, AnswerError> {
        let fields = self.other_fields.into_object();
        let (stream_fields, mut fields): (Object, Object) =
            fields.into_iter().partition(|(name, value)| describes_stream(name, value));
        match (self.text, fields.get("content")) {
            (Some(text), None) => drop(fields.insert("content".to_owned(), raw(&text))),
            (None, None) => drop(fields.insert("content".to_owned(), raw(&()))),
            (Some(text), Some(parts)) if !text.is_empty() && parts.get() != "null" => {
                let mut list: Vec<RawJson> = parts.parse().unwrap_or_default();
                let part = [("type", "text"), ("text", &text)];
                list.push(raw(&std::collections::BTreeMap::from(part)));
                fields.insert("content".to_owned(), raw(&list));
            }
            (Some(text), Some(parts)) if parts.get() == "null" => {
                fields.insert("content".to_owned(), raw(&text));
            }
            (_, Some(_)) => {}
        }
        let calls = self.calls.into_fields(is_cut_off);
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), raw(&calls));
        }
        let mut message = answer::message(fields)?;
        if !stream_fields.is_empty() {
            message.parts.push(Part::Native(Native::new(DELTA_WIRE, raw(&stream_fields))));
        }
        Ok(message)
    }
}

/// Returns whether a field describes the deltas of a stream, and not the message, such as
/// `channel`, which Groq sends for gpt-oss. Fields of messages have a known name, or are objects or
/// lists.
fn describes_stream(name: &str, value: &RawJson) -> bool {
    let is_scalar = !value.get().starts_with(['{', '[', 'n']);
    let is_known = MESSAGE_FIELDS.contains(&name)
        || REASONING_PREFIXES.iter().any(|beginning| name.starts_with(beginning));
    is_scalar && !is_known
}

/// The accumulated calls. The call to which a delta belongs is found in constant time.
#[derive(Debug, Default)]
struct Calls {
    calls: Vec<Call>,
    /// For each index: the position in `calls` of the newest call with this index.
    by_index: HashMap<String, usize>,
    /// For each pair of an index and an id: the position in `calls` of the first call with both.
    /// For deltas without an index, each call with an id is also stored with an empty index.
    by_id: HashMap<(String, String), usize>,
}

impl Calls {
    fn push(&mut self, mut piece: Object) -> Result<ToolCallDelta, AnswerError> {
        let index = take(&mut piece, "index");
        let id = take_nonempty(&mut piece, "id");
        let (kind, mut function) = take_function(&mut piece)?;
        let name = take_nonempty(&mut function, "name");
        let field = kind.unwrap_or(FUNCTION).arguments;
        let has_null_arguments = function.get(field).is_some_and(|it| it.get() == "null");
        let arguments = take(&mut function, field);
        let text = arguments.as_ref().and_then(as_text);

        let piece_of_call = Piece {
            index: index.as_ref(),
            id: id.as_deref(),
            name: name.as_deref(),
            has_arguments: arguments.is_some() && text.as_deref() != Some(""),
        };
        let position = self.position(&piece_of_call);
        let position = position.unwrap_or_else(|| self.begin_call(index));
        let Some(call) = self.calls.get_mut(position) else {
            return Err(AnswerError::malformed("a delta belongs to no tool call", ""));
        };
        let mut delta = ToolCallDelta::new(position, "");
        delta.id.clone_from(&id);
        delta.name.clone_from(&name);
        if call.id.is_none()
            && let Some(id) = id
        {
            let index = call.index.as_ref().map_or("", RawJson::get).to_owned();
            self.by_id.entry((index, id.clone())).or_insert(position);
            if call.index.is_some() {
                self.by_id.entry((String::new(), id.clone())).or_insert(position);
            }
            call.id = Some(id);
        }
        call.name = call.name.take().or(name);
        call.kind = call.kind.or(kind);
        call.has_null_arguments |= has_null_arguments;
        match (text, arguments) {
            (Some(text), _) => {
                call.arguments.push_str(&text);
                if call.kind.is_none_or(|kind| kind == FUNCTION) {
                    call.brackets.push(&text);
                }
                delta.arguments = text;
            }
            (None, Some(object)) => {
                delta.arguments = object.get().to_owned();
                call.object_arguments = Some(object);
            }
            (None, None) => {}
        }
        call.function_fields.push(function);
        call.other_fields.push(piece);
        Ok(delta)
    }

    fn begin_call(&mut self, index: Option<RawJson>) -> usize {
        let position = self.calls.len();
        if let Some(index) = &index {
            self.by_index.insert(index.get().to_owned(), position);
        }
        self.calls.push(Call { index, ..Call::default() });
        position
    }

    /// Returns the position of the call that a delta continues, or `None` if the delta begins a new
    /// call.
    ///
    /// A delta without an index continues the call with its id. If the delta has neither an index
    /// nor an id, it begins a new call if it has a name, and otherwise continues the newest call.
    ///
    /// A delta with an index continues the newest call with this index. There are two exceptions,
    /// because some services use the same index for every call:
    ///
    /// - A delta with a name and another id than this call continues the call with the delta's id.
    /// - If [`Call::is_other_call`] returns `true`, the delta begins a new call.
    fn position(&self, piece: &Piece<'_>) -> Option<usize> {
        let Piece { index, id, name, .. } = *piece;
        let position_of_id = |index: &str| {
            let key = (index.to_owned(), id?.to_owned());
            self.by_id.get(&key).copied()
        };
        let Some(index) = index else {
            return match (id, name) {
                (Some(_), _) => position_of_id(""),
                (None, Some(_)) => None,
                (None, None) => self.calls.len().checked_sub(1),
            };
        };
        let position = self.by_index.get(index.get()).copied()?;
        let call = self.calls.get(position)?;
        let is_other = id.is_some() && name.is_some() && call.id.is_some();
        if is_other && call.id.as_deref() != id {
            return position_of_id(index.get());
        }
        (!call.is_other_call(piece)).then_some(position)
    }

    fn into_fields(self, is_cut_off: bool) -> Vec<Object> {
        self.calls.into_iter().map(|call| call.into_fields(is_cut_off)).collect()
    }
}

/// Counts the open brackets of a JSON text that arrives in pieces, and reads each piece only once.
#[derive(Debug, Default)]
struct Brackets {
    /// Whether a bracket has been opened.
    has_opened: bool,
    /// The number of open brackets.
    open: usize,
    is_in_text: bool,
    is_escaped: bool,
}

impl Brackets {
    fn push(&mut self, piece: &str) {
        for byte in piece.bytes() {
            let was_escaped = std::mem::take(&mut self.is_escaped);
            match byte {
                b'\\' if self.is_in_text => self.is_escaped = !was_escaped,
                b'"' if !was_escaped => self.is_in_text = !self.is_in_text,
                b'{' | b'[' if !self.is_in_text => {
                    (self.has_opened, self.open) = (true, self.open + 1)
                }
                b'}' | b']' if !self.is_in_text => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn are_closed(&self) -> bool {
        self.has_opened && self.open == 0 && !self.is_in_text
    }
}

/// The fields of a delta that determine to which call the delta belongs.
struct Piece<'a> {
    index: Option<&'a RawJson>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    /// Whether the delta has arguments that are not an empty string.
    has_arguments: bool,
}

impl Call {
    /// Returns whether a delta with the index of this call begins a new call. If both have an id,
    /// the ids are equal.
    ///
    /// - A delta without a name continues this call.
    /// - A delta with the name of this call usually continues this call, because some services
    ///   repeat the name in every delta. It begins a new call only if it has no id, and has
    ///   arguments although the arguments of this call are complete.
    /// - A delta with another name begins a new call, unless it has the id of this call, and the
    ///   arguments of this call are not complete.
    fn is_other_call(&self, piece: &Piece<'_>) -> bool {
        let (Some(name), Some(own)) = (piece.name, self.name.as_deref()) else { return false };
        let is_whole = self.object_arguments.is_some() || self.brackets.are_closed();
        match piece.id {
            None => name != own || piece.has_arguments && is_whole,
            Some(_) => name != own && (is_whole || self.id.is_none()),
        }
    }

    /// Returns whether the service sent `null` instead of the arguments of a function.
    fn is_function_without_arguments(&self) -> bool {
        let is_function = self.kind.is_none_or(|kind| kind == FUNCTION);
        is_function && self.arguments.is_empty() && self.has_null_arguments
    }

    fn into_fields(self, is_cut_off: bool) -> Object {
        let kind = self.kind.unwrap_or(FUNCTION);
        let has_null = self.is_function_without_arguments();
        let mut function = self.function_fields.into_object();
        function.insert("name".to_owned(), raw(&self.name.unwrap_or_default()));
        let arguments = match self.object_arguments {
            Some(object) if self.arguments.is_empty() => object,
            // OpenAI's clients send a call with `null` instead of arguments back with an empty
            // object.
            None if has_null && !is_cut_off => raw("{}"),
            _ => raw(&self.arguments),
        };
        function.insert(kind.arguments.to_owned(), arguments);
        let mut fields = self.other_fields.into_object();
        fields.entry("type".to_owned()).or_insert_with(|| raw(kind.name));
        fields.insert(kind.name.to_owned(), raw(&function));
        if let Some(id) = self.id {
            fields.insert("id".to_owned(), raw(&id));
        }
        fields
    }
}

/// Removes the object with the name and the arguments of a call, and returns its type and the
/// object.
fn take_function(piece: &mut Object) -> Result<(Option<Kind>, Object), AnswerError> {
    let found = KINDS.into_iter().find_map(|kind| Some((kind, take(piece, kind.name)?)));
    let Some((kind, function)) = found else { return Ok((None, Object::new())) };
    let function = function.parse().map_err(|_| {
        AnswerError::malformed("the function of a tool call is not an object", function.get())
    })?;
    Ok((Some(kind), function))
}

/// Removes the field if it is a string, and returns the string unless it is empty.
fn take_nonempty(object: &mut Object, name: &str) -> Option<String> {
    let text = as_text(object.get(name)?)?;
    object.remove(name);
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_json_object_is_detected_wherever_its_text_is_split() {
        for (text, expected) in [
            ("", false),
            ("{", false),
            ("{}", true),
            (r#"{"a":[1,{"b":"}]"}]}"#, true),
            (r#"{"a":"\\"}"#, true),
            (r#"{"a":"\"}"#, false),
            (r#"{"a":"\\\"}"}"#, true),
            (r#"{"a":[1]"#, false),
        ] {
            for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let mut brackets = Brackets::default();
                brackets.push(&text[..cut]);
                brackets.push(&text[cut..]);
                assert_eq!(brackets.are_closed(), expected, "{text} {cut}");
            }
        }
    }
}
