//! Converts tool names to names that a service accepts.

use std::collections::BTreeMap;

use super::service_rules::{NameRule, is_word};

/// The tool names that were sent in another form, with the original names.
///
/// ```
/// use tower_chat_wire::rules::NameMap;
/// assert_eq!(NameMap::default().original("weather"), None);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap {
    /// The original name for each name that was sent instead.
    originals: BTreeMap<String, String>,
}

impl NameMap {
    /// Returns the original name of a tool from the name that was sent. Returns `None` if the name
    /// was sent unchanged.
    pub fn original(&self, sent: &str) -> Option<&str> {
        self.originals.get(sent).map(String::as_str)
    }

    /// Returns whether all names were sent unchanged.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// Returns the number of names that were sent in another form.
    pub(super) fn len(&self) -> usize {
        self.originals.len()
    }

    /// Returns the name that was sent for a tool. Returns `None` if the tool's own name was sent.
    pub(super) fn sent_as(&self, name: &str) -> Option<&str> {
        let sent = self.originals.iter().find(|(_, original)| *original == name);
        sent.map(|(sent, _)| &**sent)
    }

    /// Returns the name to send for a tool, or `None` if the service accepts the tool's own name.
    pub(super) fn map_name(&mut self, name: &str, rule: &NameRule) -> Option<String> {
        if rule.accepts(name) {
            return None;
        }
        let sent = mapped(name, rule);
        self.originals.insert(sent.clone(), name.to_owned());
        Some(sent)
    }
}

/// The number of hexadecimal digits of the digest in a mapped name.
const DIGEST: usize = 10;

/// Returns a name that the service accepts: the beginning of the original name, and a digest of the
/// whole original name. It depends only on the original name and the rule, so that each request of
/// a conversation contains the same name.
fn mapped(name: &str, rule: &NameRule) -> String {
    let longest = rule.max_length.min(64).saturating_sub(DIGEST + 1);
    let characters = name.chars().map(|it| if is_word(it) { it } else { '_' });
    let mut sent: String = characters.take(longest).collect();
    let begins_well = |first: char| first.is_ascii_alphabetic() || first == '_';
    if !sent.chars().next().is_some_and(begins_well) {
        sent.insert_str(0, "tool_");
        sent.truncate(longest);
    }
    format!("{}_{:010x}", sent.trim_end_matches('_'), digest(name) & 0xff_ffff_ffff)
}

/// Returns the name to send for the author of a message, if any of its characters are accepted.
pub(super) fn author_name(author: &str, rule: &NameRule) -> Option<String> {
    let characters = author.chars().map(|it| if is_word(it) { it } else { '_' });
    let sent: String = characters.take(rule.max_length).collect();
    sent.contains(|it: char| it.is_ascii_alphanumeric()).then_some(sent)
}

/// Hashes a text with FNV-1a and the mixing function of SplitMix64.
pub(super) fn digest(text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: NameRule = NameRule { also: "", begins_with_letter: true, max_length: 64 };

    #[test]
    fn a_valid_tool_name_is_unchanged_and_an_invalid_name_becomes_valid() {
        let mut names = NameMap::default();
        for name in ["weather", "get_weather-2", "_", &"a".repeat(64)] {
            assert_eq!(names.map_name(name, &RULE), None, "{name}");
        }
        assert!(names.is_empty());
        let long = "x".repeat(240);
        let odd =
            ["", "get weather", "wetter.köln", "1st", "-a", "日本", "___ ", &long, "functions.f:0"];
        for name in odd {
            let sent = names.map_name(name, &RULE).expect("another name");
            assert!(RULE.accepts(&sent), "{name:?} is sent as {sent:?}");
            assert_eq!(names.original(&sent), Some(name));
            assert_eq!(names.map_name(name, &RULE).as_deref(), Some(&*sent));
        }
        assert_eq!(names.originals.len(), odd.len());
    }

    #[test]
    fn invalid_names_that_would_become_equal_get_distinct_names() {
        let mut names = NameMap::default();
        let sent =
            |names: &mut NameMap, name: &str| names.map_name(name, &RULE).expect("another name");
        assert_ne!(sent(&mut names, "get weather"), sent(&mut names, "get.weather"));
        let (one, other) = (format!("{}1", "x".repeat(64)), format!("{}2", "x".repeat(64)));
        assert_ne!(sent(&mut names, &one), sent(&mut names, &other));
    }
}
