//! JSON values whose fields are read one by one. An error names the field.
//!
//! A value is stored as JSON text, which is parsed only when the value is read. The arguments of a
//! call therefore keep the form of their numbers and the order of their keys, and deeply nested
//! values that are not read cannot overflow the stack.

use std::collections::BTreeMap;

use tower_chat_core::RawJson;

use crate::error::WrongValue;

/// A JSON value, and its path for error messages.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) json: RawJson,
    path: String,
}

/// A JSON object, and its path for error messages.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    fields: BTreeMap<String, RawJson>,
    path: String,
}

impl Node {
    /// Creates a value at which the paths in errors begin.
    pub(crate) fn root(json: RawJson) -> Self {
        Self { json, path: String::new() }
    }

    pub(crate) fn object(&self) -> Result<Object, WrongValue> {
        let fields = self.json.parse().map_err(|_| self.wrong("an object"))?;
        Ok(Object { fields, path: self.path.clone() })
    }

    pub(crate) fn list(&self) -> Result<Vec<Self>, WrongValue> {
        let items: Vec<RawJson> = self.json.parse().map_err(|_| self.wrong("a list"))?;
        let items = items.into_iter().enumerate();
        Ok(items
            .map(|(index, json)| Self { json, path: format!("{}[{index}]", self.path) })
            .collect())
    }

    pub(crate) fn text(&self) -> Result<String, WrongValue> {
        self.json.parse().map_err(|_| self.wrong("a text"))
    }

    pub(crate) fn is_text(&self) -> bool {
        self.json.get().starts_with('"')
    }

    pub(crate) fn is_list(&self) -> bool {
        self.json.get().starts_with('[')
    }

    pub(crate) fn is_object(&self) -> bool {
        self.json.get().starts_with('{')
    }

    /// Returns the content of a string, or the JSON of any other value, as models receive results.
    pub(crate) fn as_shown(&self) -> Result<String, WrongValue> {
        if self.is_text() { self.text() } else { Ok(self.json.get().to_owned()) }
    }

    pub(crate) fn wrong(&self, expected: &'static str) -> WrongValue {
        let field = match self.path.trim_start_matches('.') {
            "" => "the value".to_owned(),
            path => path.to_owned(),
        };
        WrongValue { field, expected, found: Some(kind(self.json.get())) }
    }
}

impl Object {
    /// Returns the value of a field, or `None` if the field is missing or `null`.
    pub(crate) fn get(&self, name: &str) -> Option<Node> {
        let json = self.fields.get(name).filter(|json| json.get() != "null")?;
        Some(Node { json: json.clone(), path: format!("{}.{name}", self.path) })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    pub(crate) fn need(&self, name: &str, expected: &'static str) -> Result<Node, WrongValue> {
        self.get(name).ok_or_else(|| {
            let field = format!("{}.{name}", self.path).trim_start_matches('.').to_owned();
            WrongValue { field, expected, found: None }
        })
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, WrongValue> {
        self.get(name).map(|node| node.text()).transpose()
    }

    pub(crate) fn need_text(&self, name: &str) -> Result<String, WrongValue> {
        self.need(name, "a text")?.text()
    }

    /// Returns the items of a list, or no items if the field is missing or `null`.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<Node>, WrongValue> {
        self.get(name).map_or_else(|| Ok(Vec::new()), |node| node.list())
    }

    pub(crate) fn need_list(&self, name: &str) -> Result<Vec<Node>, WrongValue> {
        self.need(name, "a list")?.list()
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, WrongValue> {
        let Some(node) = self.get(name) else { return Ok(false) };
        node.json.parse().map_err(|_| node.wrong("true or false"))
    }
}

/// Returns the kind of a value for errors, which may be logged and must not contain content.
fn kind(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "a text that may not be valid Unicode",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}
