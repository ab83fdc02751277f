//! A provider's own JSON, kept byte for byte.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A provider's own item, replayed verbatim to the wire it came from and ignored by every other.
///
/// Reasoning ids, encrypted reasoning, thought signatures and redacted thinking live here.
///
/// ```
/// use tower_chat_core::{Native, RawJson};
/// let item: RawJson = r#"{"type":"reasoning", "id":"rs_1"}"#.parse()?;
/// let native = Native::new("openai-responses", item);
/// assert_eq!(native.item.get(), r#"{"type":"reasoning", "id":"rs_1"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Native {
    /// The wire format the item belongs to, such as `anthropic` or `openai-responses`.
    pub wire: Arc<str>,
    /// The item as the provider sent it.
    pub item: RawJson,
}

impl Native {
    /// An item of the named wire.
    pub fn new(wire: impl Into<Arc<str>>, item: RawJson) -> Self {
        Self { wire: wire.into(), item }
    }
}

/// One JSON value kept as the text it arrived in: number forms, key order and white space included.
///
/// Half a surrogate pair, such as `\ud800` alone, is the only exception: it is no character, so a service
/// that is sent it back refuses the whole request. It is replaced with U+FFFD, as `\ufffd`.
///
/// Equality is equality of bytes.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    fn of_raw(raw: Box<RawValue>) -> Self {
        let whole = without_half_surrogates(raw.get()).map(RawValue::from_string);
        Self(whole.and_then(Result::ok).unwrap_or(raw).into())
    }

    /// The value's text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Parses the value.
    ///
    /// # Errors
    ///
    /// If the value does not have the shape of `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// The JSON form of a value.
    ///
    /// # Errors
    ///
    /// If the value has no JSON form, such as a map whose keys are not strings.
    pub fn from_value(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(|raw| Self(raw.into()))
    }
}

impl std::str::FromStr for RawJson {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text.to_owned()).map(Self::of_raw)
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::of_raw)
    }
}

/// The JSON with U+FFFD in place of every unpaired surrogate escape, such as a lone `\ud800`; `None` if it has
/// no such escape.
fn without_half_surrogates(json: &str) -> Option<String> {
    let mut replaced: Option<String> = None;
    let mut from = 0;
    while let Some(found) = json.get(from..).and_then(|rest| rest.find('\\')) {
        let at = from + found;
        from = at
            + match (unit(json, at), unit(json, at + ESCAPE)) {
                (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
                (Some(0xd800..=0xdfff), _) => {
                    let text = replaced.get_or_insert_with(|| json.to_owned());
                    text.replace_range(at..at + ESCAPE, "\\ufffd");
                    ESCAPE
                }
                // Whatever stands behind another backslash is escaped by it.
                _ => 2,
            };
    }
    replaced
}

/// The length of `\uXXXX`.
const ESCAPE: usize = 6;

/// The code unit that is escaped at a position, if one is.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at.checked_add(ESCAPE)?)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}
