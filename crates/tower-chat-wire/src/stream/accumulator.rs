//! The pieces of an object, added up.

use std::collections::BTreeMap;

use tower_chat_core::RawJson;

use crate::fields::{as_text, raw};

/// A JSON object whose values are the text they came in.
pub type Object = BTreeMap<String, RawJson>;

/// The pieces of a JSON object so far.
///
/// Texts that go on, and lists, are kept as what has come of them and are written once, at the end,
/// so that the work and the memory are in proportion to the bytes of the pieces.
///
/// - A text that is known to go on (text, arguments, reasoning) goes on.
/// - Any other text is repeated by services, not continued: the last one counts.
/// - Lists go on, and objects are merged in the same way. In `reasoning_details` the fragments of one
///   block become one: see [`Accumulator::push`].
/// - Anything else replaces what was there; `null` says nothing.
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
    /// The name of the field that the object stands in; empty of the outermost.
    within: String,
    /// How many objects this one is in.
    depth: usize,
}

/// Objects in more objects than this are not merged: the last one counts. What services send is
/// nested in [11 levels](super::Limits) at most.
const MAX_DEPTH: usize = 120;

#[derive(Debug)]
enum Value {
    Text(String),
    /// The items of a list, with commas between them.
    Items(String),
    Details(Details),
    Object(Accumulator),
    Last(RawJson),
}

const DETAILS: &str = "reasoning_details";

/// Whether a text goes on in the next piece, by the names of its field and of the object around it.
fn continues(within: &str, name: &str) -> bool {
    match within {
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
    /// Adds the fields of a later piece.
    ///
    /// OpenRouter streams one block of reasoning in fragments of `reasoning_details` with the same
    /// `type` and `index`: its `text` or `summary` goes on, and the last fragment may have the
    /// `signature` of all of it. Such fragments become one block, since a signature is only valid for
    /// the whole text (<https://openrouter.ai/docs/use-cases/reasoning-tokens>). A fragment that goes
    /// on with a block that is signed already, or has another id, begins another block.
    ///
    /// Objects in objects are merged by recursion, down to 120 levels; of deeper ones the last counts.
    pub fn push(&mut self, piece: Object) {
        for (name, value) in piece {
            self.push_field(name, value);
        }
    }

    /// The fields, with what has come of each.
    pub fn into_object(self) -> Object {
        self.fields.into_iter().map(|(name, value)| (name, value.into_json())).collect()
    }

    fn push_field(&mut self, name: String, json: RawJson) {
        let kind = json.get().as_bytes().first().copied();
        let Some(value) = self.fields.get_mut(&name) else {
            // A `null` is kept until something comes.
            let value = Value::new(&self.within, &name, json, self.depth);
            self.fields.insert(name, value);
            return;
        };
        match (value, kind) {
            (_, Some(b'n')) => {}
            (Value::Text(text), Some(b'"')) => text.push_str(&as_text(&json).unwrap_or_default()),
            (Value::Details(details), Some(b'[')) => details.extend(&json),
            (Value::Items(items), Some(b'[')) => push_items(items, &json),
            (Value::Object(fields), Some(b'{')) => fields.push(json.parse().unwrap_or_default()),
            // An empty text takes nothing back.
            (Value::Last(_), Some(b'"')) if json.get() == r#""""# => {}
            (value, _) => *value = Value::new(&self.within, &name, json, self.depth),
        }
    }
}

impl Value {
    fn new(within: &str, name: &str, json: RawJson, depth: usize) -> Self {
        match json.get().as_bytes().first() {
            Some(b'"') if continues(within, name) => Self::Text(as_text(&json).unwrap_or_default()),
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
                let (fields, within) = (BTreeMap::new(), name.to_owned());
                let mut fields = Accumulator { fields, within, depth: depth + 1 };
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

/// Adds the items of a list, as text.
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
    /// The position of the newest block of a type and an index.
    newest: BTreeMap<(String, Option<String>), usize>,
}

#[derive(Debug)]
enum Detail {
    /// A block that goes on.
    Open { text: Option<String>, field: &'static str, rest: Object },
    /// Anything else, as it came.
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
        // Without an index only neighbours belong together.
        let newest = newest.filter(|at| key.1.is_some() || at + 1 == self.blocks.len());
        let open = newest.and_then(|at| self.blocks.get_mut(at));
        if let Some(Detail::Open { text, rest, .. }) = open
            && goes_on(rest, &fields, field)
        {
            go_on(text, rest, fields, field);
            return;
        }
        let (mut text, mut rest) = (None, Object::new());
        go_on(&mut text, &mut rest, fields, field);
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

/// Whether a fragment goes on with a block.
fn goes_on(block: &Object, fragment: &Object, field: &str) -> bool {
    let field_text = |object: &Object, name: &str| {
        object.get(name).filter(|value| !matches!(value.get(), "null" | "\"\"")).cloned()
    };
    let (before, now) = (field_text(block, "id"), field_text(fragment, "id"));
    let is_other = before.is_some() && now.is_some() && before != now;
    let is_closed =
        field_text(block, "signature").is_some() && field_text(fragment, field).is_some();
    !is_other && !is_closed
}

fn go_on(text: &mut Option<String>, rest: &mut Object, fragment: Object, field: &str) {
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
