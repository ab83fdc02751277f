//! Accumulates calls whose arguments Vertex AI streams in pieces.

use serde_json::{Map, Value};
use tower_chat_core::RawJson;

use crate::object::{Object, overlay, raw, take, text, to_value};

/// A call whose arguments arrive in pieces. Each piece has values of the arguments and their JSON
/// paths.
///
/// Vertex AI sends calls in this form if the request sets `streamFunctionCallArguments`. The first
/// piece contains the name of the function. The values are in `partialArgs`. The final piece has no
/// `willContinue`
/// (<https://googleapis.github.io/js-genai/release_docs/interfaces/types.FunctionCall.html>).
#[derive(Debug, Default)]
pub(super) struct StreamedCall {
    /// The fields of the part besides the call, such as the thought signature.
    part: Object,
    /// The fields of the call besides its arguments.
    call: Object,
    arguments: Value,
    /// Whether the final piece has not been received yet.
    is_open: bool,
}

/// The name of the field of a part that contains the call.
const CALL: &str = "functionCall";

impl StreamedCall {
    /// Returns whether this is the first piece of a call that is streamed in pieces.
    pub(super) fn begins_with(call: &Object) -> bool {
        call.contains_key("partialArgs") || will_continue(call)
    }

    /// Returns whether the next piece of the stream belongs to this call.
    pub(super) fn is_continued_by(&self, call: &Object) -> bool {
        let name = text(call, "name").filter(|name| !name.is_empty());
        self.is_open && name.is_none_or(|name| text(&self.call, "name") == Some(name))
    }

    /// Returns whether the final piece has not been received yet.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Adds a piece: the fields of the call, and the other fields of its part.
    pub(super) fn push(&mut self, part: Object, mut call: Object) {
        self.is_open = will_continue(&call);
        call.remove("willContinue");
        if let Some(whole) = take(&mut call, "args") {
            self.arguments = to_value(&whole);
        }
        let pieces = take(&mut call, "partialArgs").and_then(|pieces| pieces.parse().ok());
        for piece in pieces.into_iter().flat_map(|pieces: Vec<Object>| pieces) {
            let path = text(&piece, "jsonPath").unwrap_or_default();
            if let Some(value) = value(&piece) {
                set_at_path(&mut self.arguments, &parse_path(&path), value);
            }
        }
        overlay(&mut self.call, call);
        overlay(&mut self.part, part);
    }

    /// Returns the text of the arguments. If the final piece has not been received, removes the
    /// closing brackets and quotation marks at the end, so that the text is visibly incomplete.
    pub(super) fn arguments(&self) -> String {
        let arguments = match &self.arguments {
            Value::Null => Value::Object(Map::new()),
            arguments => arguments.clone(),
        };
        let whole = arguments.to_string();
        match self.is_open {
            true => whole.trim_end_matches(['}', ']', '"']).to_owned(),
            false => whole,
        }
    }

    /// Returns the part with the whole call.
    pub(super) fn into_json(self) -> RawJson {
        let Self { mut part, mut call, arguments, .. } = self;
        let arguments = if arguments.is_null() { Value::Object(Map::new()) } else { arguments };
        call.insert("args".to_owned(), raw(&arguments));
        part.insert(CALL.to_owned(), raw(&call));
        raw(&part)
    }
}

fn will_continue(call: &Object) -> bool {
    call.get("willContinue").is_some_and(|it| it.get() == "true")
}

/// Returns the value of an entry of `partialArgs`. Returns `None` if the entry has no value.
fn value(piece: &Object) -> Option<Value> {
    let of = |name: &str| piece.get(name).map(to_value);
    of("stringValue")
        .or_else(|| of("numberValue"))
        .or_else(|| of("boolValue"))
        .or_else(|| piece.contains_key("nullValue").then_some(Value::Null))
}

/// A step of a path in a JSON value.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

/// Parses a JSON path such as `$.routes[0]['first stop']`, in the normalized form or in the
/// shorthand form of RFC 9535.
fn parse_path(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        let step = match rest.strip_prefix('[') {
            Some(inner) => match inner.chars().next() {
                Some(quote @ ('\'' | '"')) => {
                    parse_quoted_step(inner.get(1..).unwrap_or_default(), quote)
                }
                _ => inner.split_once(']').map(|(index, after)| {
                    let step = index.trim().parse().map(Step::Item);
                    (step.unwrap_or_else(|_| Step::Field(index.to_owned())), after)
                }),
            },
            None => {
                let name = rest.strip_prefix('.').unwrap_or(rest);
                let end = name.find(['.', '[']).unwrap_or(name.len());
                name.split_at_checked(end)
                    .filter(|(name, _)| !name.is_empty())
                    .map(|(name, after)| (Step::Field(name.to_owned()), after))
            }
        };
        let Some((step, after)) = step else { break };
        steps.push(step);
        rest = after;
    }
    steps
}

/// Parses a quoted field name. Returns the step and the text after the closing bracket.
fn parse_quoted_step(text: &str, quote: char) -> Option<(Step, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            name.extend(characters.next().map(|(_, escaped)| escaped));
        } else if character == quote {
            let after = text.get(at + quote.len_utf8()..)?;
            return Some((Step::Field(name), after.strip_prefix(']')?));
        } else {
            name.push(character);
        }
    }
    None
}

/// The maximum length of a list, because a very large index would allocate a very large list.
const MAX_ITEMS: usize = 100_000;

/// Sets the value at a path. If both the old and the new value are strings, appends the new string.
fn set_at_path(target: &mut Value, path: &[Step], value: Value) {
    let Some((step, rest)) = path.split_first() else {
        match (target, value) {
            (Value::String(text), Value::String(more)) => text.push_str(&more),
            (target, value) => *target = value,
        }
        return;
    };
    match step {
        Step::Field(name) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            if let Value::Object(fields) = target {
                set_at_path(fields.entry(name.as_str()).or_insert(Value::Null), rest, value);
            }
        }
        Step::Item(index) if *index < MAX_ITEMS => {
            if !target.is_array() {
                *target = Value::Array(Vec::new());
            }
            if let Value::Array(items) = target {
                if items.len() <= *index {
                    items.resize(index + 1, Value::Null);
                }
                if let Some(item) = items.get_mut(*index) {
                    set_at_path(item, rest, value);
                }
            }
        }
        Step::Item(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_path_is_parsed_in_dot_form_and_in_bracket_form() {
        let field = |name: &str| Step::Field(name.to_owned());
        for (path, expected) in [
            ("$.city", vec![field("city")]),
            ("$.a.b[2].c", vec![field("a"), field("b"), Step::Item(2), field("c")]),
            (r"$['first stop'][0]", vec![field("first stop"), Step::Item(0)]),
            (r#"$["it\'s"].x"#, vec![field("it's"), field("x")]),
            ("$", vec![]),
            ("$..", vec![]),
        ] {
            assert_eq!(parse_path(path), expected, "{path}");
        }
    }
}
