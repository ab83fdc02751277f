//! Accumulates a JSON object that arrives in pieces.

use std::collections::BTreeMap;

use tower_chat_core::RawJson;

use crate::fields::{as_text, raw};

/// A JSON object whose values are JSON text.
pub type Object = BTreeMap<String, RawJson>;

/// Accumulates a JSON object that arrives in pieces, each of which is an object with some of the
/// fields.
///
/// Time and memory are linear in the bytes of the pieces, because strings and lists are serialized
/// only once, at the end.
///
/// - A string is appended to the previous string of the same field, if services send this field in
///   pieces (text, arguments, reasoning).
/// - A string of any other field replaces the previous string, because services repeat these
///   strings. An empty string does not replace the previous string.
/// - The items of a list are appended to the previous list, and the fields of an object are merged
///   according to these rules. In the list `reasoning_details`, fragments of the same block are
///   joined: see [`Accumulator::push`].
/// - Any other value replaces the previous value. `null` does not replace a previous value.
///
/// ```
/// use tower_chat_wire::stream::Accumulator;
/// let mut message = Accumulator::default();
/// for piece in [r#"{"content":"It ","channel":"final"}"#, r#"{"content":"is.","channel":"final"}"#] {
///     message.push(serde_json::from_str(piece)?);
/// }
/// let fields = message.into_object();
/// assert_eq!(fields["content"].get(), r#""It is.""#);
/// assert_eq!(fields["channel"].get(), r#""final""#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Accumulator {
    fields: BTreeMap<String, Value>,
    /// The name of the field that contains this object. Empty for the outermost object.
    parent_field: String,
    /// The number of accumulated objects that contain this object.
    depth: usize,
}

/// The maximum nesting depth at which objects are merged.
const MAX_DEPTH: usize = 120;

#[derive(Debug)]
enum Value {
    Text(String),
    /// The items of a list, separated by commas.
    Items(String),
    Details(Details),
    Object(Accumulator),
    Last(RawJson),
}

const DETAILS: &str = "reasoning_details";

/// Returns whether services send the strings of the field `name` in pieces. `parent_field` is the
/// name of the field that contains the object, and empty for the outermost object.
fn arrives_in_pieces(parent_field: &str, name: &str) -> bool {
    match parent_field {
        "" => matches!(
            name,
            "content"
                | "refusal"
                | "reasoning"
                | "reasoning_content"
                | "reasoning_text"
                | "thinking"
        ),
        "audio" => matches!(name, "data" | "transcript"),
        "function" | "function_call" => name == "arguments",
        "custom" => name == "input",
        _ => false,
    }
}

impl Accumulator {
    /// Adds the fields of the next piece.
    ///
    /// OpenRouter streams a block of reasoning as several fragments in `reasoning_details`, which
    /// have the same `type` and `index`. The `text` or `summary` of each fragment is appended to
    /// the block. The last fragment may have a `signature`, which is valid only for the text of the
    /// whole block (<https://openrouter.ai/docs/use-cases/reasoning-tokens>). A fragment begins a
    /// new block if its id differs from the id of the current block, or if it has text and the
    /// current block already has a signature.
    ///
    /// Nested objects are merged recursively up to 120 levels. A more deeply nested object replaces
    /// the previous object.
    pub fn push(&mut self, piece: Object) {
        for (name, value) in piece {
            self.push_field(name, value);
        }
    }

    /// Returns the accumulated fields.
    pub fn into_object(self) -> Object {
        self.fields.into_iter().map(|(name, value)| (name, value.into_json())).collect()
    }

    fn push_field(&mut self, name: String, json: RawJson) {
        let kind = json.get().as_bytes().first().copied();
        let Some(value) = self.fields.get_mut(&name) else {
            // A first `null` is stored, and replaced by any later value.
            let value = Value::new(&self.parent_field, &name, json, self.depth);
            self.fields.insert(name, value);
            return;
        };
        match (value, kind) {
            (_, Some(b'n')) => {}
            (Value::Text(text), Some(b'"')) => text.push_str(&as_text(&json).unwrap_or_default()),
            (Value::Details(details), Some(b'[')) => details.extend(&json),
            (Value::Items(items), Some(b'[')) => push_items(items, &json),
            (Value::Object(fields), Some(b'{')) => fields.push(json.parse().unwrap_or_default()),
            // An empty string does not replace the previous string.
            (Value::Last(_), Some(b'"')) if json.get() == r#""""# => {}
            (value, _) => *value = Value::new(&self.parent_field, &name, json, self.depth),
        }
    }
}

impl Value {
    fn new(parent_field: &str, name: &str, json: RawJson, depth: usize) -> Self {
        match json.get().as_bytes().first() {
            Some(b'"') if arrives_in_pieces(parent_field, name) => {
                Self::Text(as_text(&json).unwrap_or_default())
            }
            Some(b'[') if name == DETAILS => {
                let mut details = Details::default();
                details.extend(&json);
                Self::Details(details)
            }
            Some(b'[') => {
                let mut items = String::new();
                push_items(&mut items, &json);
                Self::Items(items)
            }
            Some(b'{') if depth < MAX_DEPTH => {
                let (fields, parent_field) = (BTreeMap::new(), name.to_owned());
                let mut fields = Accumulator { fields, parent_field, depth: depth + 1 };
                fields.push(json.parse().unwrap_or_default());
                Self::Object(fields)
            }
            _ => Self::Last(json),
        }
    }

    fn into_json(self) -> RawJson {
        match self {
            Self::Text(text) => raw(&text),
            Self::Items(items) => format!("[{items}]").parse().unwrap_or_else(|_| raw(&items)),
            Self::Details(details) => raw(&details.into_items()),
            Self::Object(fields) => raw(&fields.into_object()),
            Self::Last(json) => json,
        }
    }
}

/// Appends the JSON text of the items of a list.
fn push_items(items: &mut String, list: &RawJson) {
    let inner = list.get().strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = inner.unwrap_or_default().trim();
    if !inner.is_empty() {
        if !items.is_empty() {
            items.push(',');
        }
        items.push_str(inner);
    }
}

/// The blocks of `reasoning_details`.
#[derive(Debug, Default)]
struct Details {
    blocks: Vec<Detail>,
    /// For each pair of a type and an index: the position in `blocks` of the newest block.
    newest: BTreeMap<(String, Option<String>), usize>,
}

#[derive(Debug)]
enum Detail {
    /// A block of reasoning, to which fragments may be appended.
    Open { text: Option<String>, field: &'static str, rest: Object },
    /// Any other block, unchanged.
    Whole(RawJson),
}

impl Details {
    fn extend(&mut self, list: &RawJson) {
        for item in list.parse::<Vec<RawJson>>().unwrap_or_default() {
            self.push(item);
        }
    }

    fn push(&mut self, item: RawJson) {
        let fields: Object = item.parse().unwrap_or_default();
        let kind = fields.get("type").and_then(as_text).unwrap_or_default();
        let field = match kind.as_str() {
            "reasoning.text" => "text",
            "reasoning.summary" => "summary",
            _ => {
                self.blocks.push(Detail::Whole(item));
                return;
            }
        };
        let index = fields.get("index").map(|index| index.get().to_owned());
        let key = (kind, index);
        let newest = self.newest.get(&key).copied();
        // Fragments without an index are joined only if they are consecutive.
        let newest = newest.filter(|at| key.1.is_some() || at + 1 == self.blocks.len());
        let open = newest.and_then(|at| self.blocks.get_mut(at));
        if let Some(Detail::Open { text, rest, .. }) = open
            && continues_block(rest, &fields, field)
        {
            append_fragment(text, rest, fields, field);
            return;
        }
        let (mut text, mut rest) = (None, Object::new());
        append_fragment(&mut text, &mut rest, fields, field);
        self.newest.insert(key, self.blocks.len());
        self.blocks.push(Detail::Open { text, field, rest });
    }

    fn into_items(self) -> Vec<RawJson> {
        let items = self.blocks.into_iter().map(|block| match block {
            Detail::Whole(item) => item,
            Detail::Open { text, field, mut rest } => {
                if let Some(text) = text {
                    rest.insert(field.to_owned(), raw(&text));
                }
                raw(&rest)
            }
        });
        items.collect()
    }
}

/// Returns whether a fragment belongs to a block.
fn continues_block(block: &Object, fragment: &Object, field: &str) -> bool {
    let field_text = |object: &Object, name: &str| {
        object.get(name).filter(|value| !matches!(value.get(), "null" | "\"\"")).cloned()
    };
    let (before, now) = (field_text(block, "id"), field_text(fragment, "id"));
    let is_other = before.is_some() && now.is_some() && before != now;
    let is_closed =
        field_text(block, "signature").is_some() && field_text(fragment, field).is_some();
    !is_other && !is_closed
}

fn append_fragment(text: &mut Option<String>, rest: &mut Object, fragment: Object, field: &str) {
    for (name, value) in fragment {
        if name == field
            && let Some(more) = as_text(&value)
        {
            text.get_or_insert_default().push_str(&more);
        } else if value.get() != "null" || !rest.contains_key(&name) {
            rest.insert(name, value);
        }
    }
}
