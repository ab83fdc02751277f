//! Divides a file of JSON or JSON Lines into conversations, each of which is a list of messages.

use tower_chat_core::RawJson;

use crate::{
    ImportedConversation,
    error::{ContentError, WrongValue},
    node::{Node, Object},
};

/// A conversation in a file: a list of messages in any of the JSON formats.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) list: RawJson,
    /// The JSON object in which the list is the value of a field, if any.
    pub(crate) object: Option<Object>,
    /// The number of the document, from 1: its line or its position in the file, if there are
    /// several.
    line: Option<usize>,
    /// The line number of each message, from 1, in JSON Lines of messages.
    lines: Vec<usize>,
}

impl Document {
    /// Parses the list. An error names a field by its path within the message.
    pub(crate) fn items(&self) -> Result<Vec<Node>, ContentError> {
        let items: Vec<RawJson> =
            self.list.parse().map_err(|source| ContentError::at("the list of messages", source))?;
        Ok(items.into_iter().map(Node::root).collect())
    }

    /// Returns the position of a message for error messages. `index` is its index in the list.
    pub(crate) fn position(&self, index: usize) -> String {
        match (self.lines.get(index), self.line) {
            (Some(line), _) => format!("line {line}"),
            (None, Some(line)) => format!("line {line}, message {}", index.saturating_add(1)),
            (None, None) => format!("message {}", index.saturating_add(1)),
        }
    }

    /// Creates a conversation without messages, with the id and the title of the document. The
    /// default id is `stem` (the name of the file without its extension), followed by `-` and the
    /// number of the document, if it has one.
    pub(crate) fn conversation(&self, stem: &str) -> Result<ImportedConversation, ContentError> {
        let of_line = || self.line.map_or_else(|| stem.to_owned(), |line| format!("{stem}-{line}"));
        let Some(object) = &self.object else { return Ok(ImportedConversation::new(of_line())) };
        let located = |source: WrongValue| match self.line {
            Some(line) => ContentError::at(format!("line {line}"), source),
            None => ContentError::at("the conversation", source),
        };
        let id = object.get("id").map(|id| id.as_shown()).transpose().map_err(located)?;
        let mut conversation = ImportedConversation::new(id.unwrap_or_else(of_line));
        conversation.title = object.text("title").map_err(located)?;
        Ok(conversation)
    }
}

/// Returns the conversations in a file: a JSON list of messages, a conversation object, a JSON list
/// of conversation objects, or JSON Lines of messages or of conversation objects. `names` are the
/// possible names of the field of a conversation object that contains the messages.
pub(crate) fn documents(text: &str, names: &[&str]) -> Result<Vec<Document>, ContentError> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(ContentError::at("the file", "it is empty"));
    }
    match text.parse::<RawJson>() {
        Ok(json) => of_value(json, names),
        Err(error) => {
            let first = text.lines().next().unwrap_or_default();
            match first.len() < text.len() && first.parse::<RawJson>().is_ok() {
                true => of_lines(text, names),
                false => Err(ContentError::at("the JSON", error)),
            }
        }
    }
}

fn of_value(json: RawJson, names: &[&str]) -> Result<Vec<Document>, ContentError> {
    let node = Node::root(json);
    if node.is_object() {
        let document = of_object(&node, names, None);
        return Ok(vec![document.unwrap_or_else(|| of_messages(&[node], Vec::new()))]);
    }
    let items = node.list().map_err(|error| ContentError::at("the file", error))?;
    let inside: Option<Vec<Document>> =
        (1..).zip(&items).map(|(number, item)| of_object(item, names, Some(number))).collect();
    Ok(match inside {
        Some(documents) if !documents.is_empty() => documents,
        _ => vec![Document { list: node.json, object: None, line: None, lines: Vec::new() }],
    })
}

fn of_lines(text: &str, names: &[&str]) -> Result<Vec<Document>, ContentError> {
    let (mut messages, mut lines, mut documents) = (Vec::new(), Vec::new(), Vec::new());
    for (number, line) in (1..).zip(text.split('\n')) {
        if line.trim().is_empty() {
            continue;
        }
        let json: RawJson = line
            .trim()
            .parse()
            .map_err(|error| ContentError::at(format!("line {number}"), error))?;
        let node = Node::root(json);
        match of_object(&node, names, Some(number)) {
            Some(document) => documents.push(document),
            None => {
                messages.push(node);
                lines.push(number);
            }
        }
    }
    match (documents.is_empty(), lines.first()) {
        (true, _) => Ok(vec![of_messages(&messages, lines)]),
        (false, None) => Ok(documents),
        (false, Some(line)) => {
            let reason = format!(
                "it is a message, but other lines are conversations, which have a field {}",
                names.join(" or ")
            );
            Err(ContentError::at(format!("line {line}"), reason))
        }
    }
}

fn of_messages(messages: &[Node], lines: Vec<usize>) -> Document {
    let texts: Vec<&str> = messages.iter().map(|node| node.json.get()).collect();
    let list = format!("[{}]", texts.join(","));
    // The texts in the list are valid JSON.
    let list = list.parse().unwrap_or_else(|_| empty_list());
    Document { list, object: None, line: None, lines }
}

fn empty_list() -> RawJson {
    RawJson::from_value(&[(); 0]).unwrap_or_else(|_| unreachable!("an empty list has a JSON form"))
}

fn of_object(node: &Node, names: &[&str], line: Option<usize>) -> Option<Document> {
    // An object with a role is a message, even if it has a field with one of these names, such as
    // `contents` in messages of Agent Framework.
    let object = node.is_object().then(|| node.object().ok())??;
    if object.has("role") {
        return None;
    }
    let list = names.iter().find_map(|name| object.get(name)).filter(Node::is_list)?;
    Some(Document { list: list.json, object: Some(object), line, lines: Vec::new() })
}
