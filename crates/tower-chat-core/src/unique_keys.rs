//! JSON text in which no object has a key twice.

use std::{collections::HashSet, fmt};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor,
};

/// Checks that a text is JSON and that no object in it, at any level, has the same key twice.
///
/// Parsers disagree on which of two equal keys they use. If one parser checks a text, and a program
/// acts on the values that another parser reads, an attacker can send a text in which the two
/// parsers read different values. Call this function for every text from outside, such as a request
/// body or the arguments of a tool call, before you parse the text. Keys are compared after their
/// escapes are decoded: `"to"` and `"t\u006f"` are equal.
///
/// The time is linear in the length of the text.
///
/// ```
/// use tower_chat_core::check_unique_keys;
/// assert!(check_unique_keys(r#"{"to": "bob", "cc": [{"to": "eve"}]}"#).is_ok());
/// let error = check_unique_keys(r#"{"pay": [{"to": "bob", "to": "mallory"}]}"#).unwrap_err();
/// assert!(error.to_string().starts_with("the object has the key \"to\" twice"));
/// ```
///
/// # Errors
///
/// Returns an error if an object has a key twice, or if [`serde_json::Value`] cannot be parsed from
/// the text. The error names the repeated key or the syntax error, with its line and column.
pub fn check_unique_keys(json: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<Checked>(json).map(|Checked| ())
}

/// A JSON value that was checked and then dropped.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Checked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Checked, A::Error> {
        let mut keys = HashSet::new();
        while fields.next_key_seed(NewKey { keys: &mut keys })?.is_some() {
            fields.next_value::<Checked>()?;
        }
        Ok(Checked)
    }
}

/// A key that differs from all earlier keys of the same object.
struct NewKey<'k> {
    keys: &'k mut HashSet<String>,
}

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let key = String::deserialize(deserializer)?;
        match self.keys.replace(key) {
            None => Ok(()),
            Some(key) => {
                let what = format_args!("the object has the key {key:?} twice");
                Err(D::Error::custom(what))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_of_one_object_are_refused_at_every_level() {
        for json in [
            r#"{"to": 1, "to": 1}"#,
            r#"{"to": 1, "cc": 2, "to": 3}"#,
            r#"{"a": {"to": 1, "to": 2}}"#,
            r#"[[{"x": [{"to": 1, "b": {}, "to": 2}]}]]"#,
            r#"{"to": 1, "t\u006f": 2}"#,
            r#"{"\ud83d\ude80to": 1, "🚀to": 2}"#,
            r#"{"a": 1, "b": {"to": {}, "to": {}}, "c": 2}"#,
            r#"{"": 1, "": 2}"#,
        ] {
            let error = check_unique_keys(json).map(|()| json).unwrap_err().to_string();
            assert!(error.contains("the object has the key"), "{json}: {error}");
        }
    }

    #[test]
    fn texts_without_duplicate_keys_are_accepted_if_and_only_if_they_are_valid_json() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for json in [
            r#"{"to": {"to": {"to": 1}}, "list": [{"to": 1}, {"to": 2}], "To": null}"#,
            r#"{"é": 1, "e\u0301": 2, "a ": 1.5, "a": -7}"#,
            r#""{\"to\": 1, \"to\": 2}""#,
            "184467440737095516160",
            "true",
            "",
            "{",
            r#"{"to": 1,}"#,
            r#"{"a": 1} {"a": 1}"#,
            r#"{"a": 1e999}"#,
            r#"{"a": "\ud800"}"#,
            &deep(100),
            &deep(1000),
        ] {
            let parsed = serde_json::from_str::<serde_json::Value>(json).is_ok();
            assert_eq!(check_unique_keys(json).is_ok(), parsed, "{json}");
        }
    }
}
