//! What the pieces of a streamed message have added up to.

use tower_chat_core::{ChatUpdate, Message, RawJson, ToolCallDelta};

use crate::{
    OpenAiError, answer,
    merge::{Object, as_text, merge, raw, take, take_text},
};

/// The fields in which compatible services put readable reasoning; of both the first counts.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// The message so far, as the JSON object that a whole answer would have had.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    text: Option<String>,
    rest: Object,
    calls: Vec<DraftCall>,
    any: bool,
}

#[derive(Debug, Default)]
struct DraftCall {
    index: Option<RawJson>,
    id: Option<String>,
    name: Option<String>,
    arguments: String,
    /// Arguments that are an object instead of a text.
    object: Option<RawJson>,
    function: Object,
    rest: Object,
}

impl Draft {
    /// The text so far.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Whether any piece of a message has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.any
    }

    /// Takes a piece, and gives what it adds for somebody who looks on.
    pub(crate) fn push(&mut self, mut delta: Object) -> Result<Vec<ChatUpdate>, OpenAiError> {
        self.any = true;
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
                OpenAiError::malformed("its tool calls are no list of objects", calls.get())
            })?;
            for call in calls {
                updates.push(ChatUpdate::ToolCallDelta(self.push_call(call)?));
            }
        }
        merge(&mut self.rest, delta);
        Ok(updates)
    }

    /// The whole message.
    pub(crate) fn into_message(self) -> Result<Message, OpenAiError> {
        let mut fields = self.rest;
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
        if !self.calls.is_empty() {
            let calls: Vec<Object> = self.calls.into_iter().map(DraftCall::into_fields).collect();
            fields.insert("tool_calls".to_owned(), raw(&calls));
        }
        answer::message(fields)
    }

    fn push_call(&mut self, mut piece: Object) -> Result<ToolCallDelta, OpenAiError> {
        let index = take(&mut piece, "index");
        let id = take_text(&mut piece, "id");
        let mut function: Object = match take(&mut piece, "function") {
            Some(function) => function.parse().map_err(|_| {
                OpenAiError::malformed("the function of a tool call is no object", function.get())
            })?,
            None => Object::new(),
        };
        let name = take_text(&mut function, "name");
        let arguments = take(&mut function, "arguments");
        let text = arguments.as_ref().and_then(as_text);

        let place = self.place(index.as_ref(), id.as_deref(), name.as_deref());
        let place = place.unwrap_or_else(|| {
            self.calls.push(DraftCall { index, ..DraftCall::default() });
            self.calls.len() - 1
        });
        let Some(call) = self.calls.get_mut(place) else {
            return Err(OpenAiError::malformed("a tool call has no place", ""));
        };
        let mut delta = ToolCallDelta::new(place, "");
        delta.id.clone_from(&id);
        delta.name.clone_from(&name);
        call.id = call.id.take().or(id);
        call.name = call.name.take().or(name);
        match (text, arguments) {
            (Some(text), _) => {
                call.arguments.push_str(&text);
                delta.arguments = text;
            }
            (None, Some(object)) => {
                delta.arguments = object.get().to_owned();
                call.object = Some(object);
            }
            (None, None) => {}
        }
        merge(&mut call.function, function);
        merge(&mut call.rest, piece);
        Ok(delta)
    }

    /// The call that a piece goes on with; `None` if it begins one.
    ///
    /// The index says it, where there is one; some services give every call the same index, and
    /// then another id with a name begins another call. Without an index an id that is new, or a
    /// name without an id, begins one.
    fn place(
        &self,
        index: Option<&RawJson>,
        id: Option<&str>,
        name: Option<&str>,
    ) -> Option<usize> {
        let same_id = |call: &DraftCall| id.is_some() && call.id.as_deref() == id;
        if let Some(index) = index {
            let place = self.calls.iter().rposition(|call| call.index.as_ref() == Some(index))?;
            let call = self.calls.get(place)?;
            let begins = id.is_some() && name.is_some() && call.id.is_some() && !same_id(call);
            if begins {
                return self
                    .calls
                    .iter()
                    .position(|call| call.index.as_ref() == Some(index) && same_id(call));
            }
            return Some(place);
        }
        match (id, name) {
            (Some(_), _) => self.calls.iter().position(same_id),
            (None, Some(_)) => None,
            (None, None) => self.calls.len().checked_sub(1),
        }
    }
}

impl DraftCall {
    fn into_fields(self) -> Object {
        let mut function = self.function;
        function.insert("name".to_owned(), raw(&self.name.unwrap_or_default()));
        let arguments = match self.object {
            Some(object) if self.arguments.is_empty() => object,
            _ => raw(&self.arguments),
        };
        function.insert("arguments".to_owned(), arguments);
        let mut fields = self.rest;
        fields.entry("type".to_owned()).or_insert_with(|| raw("function"));
        fields.insert("function".to_owned(), raw(&function));
        if let Some(id) = self.id {
            fields.insert("id".to_owned(), raw(&id));
        }
        fields
    }
}
