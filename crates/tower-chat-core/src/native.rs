//! JSON of a provider, stored byte for byte.

use std::{ops::Range, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// An item in a provider's own format. The item is sent unchanged, and only on the wire (the JSON
/// format) from which it was received. If the service that made the item is known, the item is sent
/// only to that service.
///
/// Reasoning ids, encrypted reasoning, thought signatures and redacted thinking are native items.
///
/// ```
/// use tower_chat_core::{Native, RawJson};
/// let item: RawJson = r#"{"type":"reasoning", "id":"rs_1"}"#.parse()?;
/// let native = Native::new("openai-responses", item);
/// assert_eq!(native.item.get(), r#"{"type":"reasoning", "id":"rs_1"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// Two items are equal if their wires and their JSON are equal. The issuer (the service that made
/// the item) is not compared: the issuer decides which service receives an item, but is not part of
/// the item's content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Native {
    /// The wire format of the item, such as `anthropic` or `openai-responses`.
    pub wire: Arc<str>,
    /// The service that made the item, such as `deepseek`; several services may use one wire.
    /// `None` if the service is unknown, as for items that an older release stored. An item of an
    /// unknown service is sent to every service that uses its wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Arc<str>>,
    /// The item as the provider sent it.
    pub item: RawJson,
}

impl Native {
    /// Creates an item of this wire, from an unknown service.
    pub fn new(wire: impl Into<Arc<str>>, item: RawJson) -> Self {
        Self { wire: wire.into(), issuer: None, item }
    }

    /// Sets the service that made the item.
    ///
    /// ```
    /// use tower_chat_core::Native;
    /// let native = Native::new("openai-chat", "{}".parse()?).issued_by("deepseek");
    /// let stored = serde_json::to_string(&native)?;
    /// assert_eq!(stored, r#"{"wire":"openai-chat","issuer":"deepseek","item":{}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn issued_by(self, issuer: impl Into<Arc<str>>) -> Self {
        Self { issuer: Some(issuer.into()), ..self }
    }

    /// Returns whether the item is a summary by the service, which the service receives in place of
    /// the messages before the item: an item `compaction` of the Responses API, or a block
    /// `compaction` of Anthropic. Returns `false` for a block without `content`, because its
    /// compaction has failed.
    #[doc(hidden)]
    pub fn is_summary(&self) -> bool {
        let content = match &*self.wire {
            "anthropic" => "content",
            "openai-responses" => "encrypted_content",
            _ => return false,
        };
        // Searching the text is faster than parsing every native item of every request.
        if !self.item.get().contains("\"compaction\"") {
            return false;
        }
        let Ok(item) = self.item.parse::<serde_json::Map<_, _>>() else { return false };
        let text = |name| item.get(name).and_then(serde_json::Value::as_str);
        text("type") == Some("compaction") && text(content).is_some_and(|text| !text.is_empty())
    }
}

impl PartialEq for Native {
    fn eq(&self, other: &Self) -> bool {
        (&self.wire, &self.item) == (&other.wire, &other.item)
    }
}

impl Eq for Native {}

/// One JSON value, stored as its original text, including the form of numbers, the order of keys
/// and the white space.
///
/// Two kinds of text are replaced, because a service would refuse a request that contains them.
/// Half of a surrogate pair, such as a single `\ud800`, becomes `\ufffd`. A number outside of the
/// range of a double, such as `1e999`, becomes the double with the same sign and the largest
/// magnitude.
///
/// Two values are equal if their texts are equal byte for byte.
#[derive(Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    fn of_raw(raw: Box<RawValue>) -> Self {
        let unreadable = unreadable(raw.get());
        if unreadable.is_empty() {
            return Self(raw.into());
        }
        let mut text = raw.get().to_owned();
        // The last range is replaced first, so that the positions of the earlier ranges do not
        // change.
        for (range, readable) in unreadable.into_iter().rev() {
            text.replace_range(range, readable);
        }
        Self(RawValue::from_string(text).unwrap_or(raw).into())
    }

    /// Returns the text of the value.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Parses the value.
    ///
    /// # Errors
    ///
    /// Returns an error if the value does not have the shape of `T`.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// Serializes a value.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no JSON form, such as a map whose keys are not strings.
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

/// Returns the ranges of the text that a JSON parser may refuse, in order, each with its
/// replacement.
fn unreadable(json: &str) -> Vec<(Range<usize>, &'static str)> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut is_in_text = false;
    while let Some(rest) = json.get(at..) {
        let wanted = |it: char| it == '"' || if is_in_text { it == '\\' } else { is_of_number(it) };
        let Some(next) = rest.find(wanted) else { break };
        at += next;
        match json.as_bytes().get(at) {
            Some(b'"') => {
                is_in_text = !is_in_text;
                at += 1;
            }
            Some(b'\\') => {
                let length = match (unit(json, at), unit(json, at + ESCAPE)) {
                    (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 2 * ESCAPE,
                    (Some(0xd800..=0xdfff), _) => {
                        found.push((at..at + ESCAPE, "\\ufffd"));
                        ESCAPE
                    }
                    // A backslash escapes any other character after it.
                    _ => 2,
                };
                at += length;
            }
            _ => {
                let rest = json.get(at..).unwrap_or_default();
                let number = rest.split(|it| !is_of_number(it)).next().unwrap_or_default();
                let range = at..at + number.len();
                at = range.end;
                if number.parse().is_ok_and(f64::is_infinite) {
                    found.push((
                        range,
                        if number.starts_with('-') { MIN_FINITE } else { MAX_FINITE },
                    ));
                }
            }
        }
    }
    found
}

/// Returns whether a character may occur in a number. The `e` of `true` and `false` is such a
/// character too, but does not parse as a number.
fn is_of_number(character: char) -> bool {
    matches!(character, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
}

const MAX_FINITE: &str = "1.7976931348623157e308";
const MIN_FINITE: &str = "-1.7976931348623157e308";

/// The length of an escape `\uXXXX`.
const ESCAPE: usize = 6;

/// Returns the code unit of the escape at a position, if there is an escape.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at.checked_add(ESCAPE)?)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}
