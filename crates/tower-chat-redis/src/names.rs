//! The names of the keys in Redis.

use sha2::{Digest, Sha256};
use tower_chat_core::ConversationKey;
#[cfg(feature = "delivery")]
use tower_chat_core::RunId;

/// The maximum length in bytes of a scope or an id that the names of keys contain unchanged.
const MAX_UNCHANGED_BYTES: usize = 128;

/// The number of bytes at the beginning of a longer scope or id that the names of keys contain
/// before its SHA-256.
const BEGINNING: usize = 64;

/// The names of all keys of a store. A name consists of the prefix, the hash tag in braces, which
/// selects the server of a cluster, and the kind of the key.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

/// The scope in the name of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListName {
    Scope(String),
    /// A long scope, in its shortened form.
    Shortened(String),
}

/// The names of the keys of one conversation, which are all on one server of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ConversationNames {
    base: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn conversation(&self, key: &ConversationKey) -> ConversationNames {
        let (scope, id) = (key_part(key.scope()), key_part(key.id()));
        ConversationNames { base: format!("{}:{{{scope}/{id}}}", self.prefix) }
    }

    /// Returns the name of a run in the index of an update log.
    #[cfg(feature = "delivery")]
    pub(crate) fn logged_run(key: &ConversationKey, run: RunId) -> String {
        format!("{}{run}", Self::logged_runs(key.scope(), Some(key.id())))
    }

    /// Returns the common beginning of the names of all runs of a scope, or of one conversation of
    /// the scope.
    #[cfg(feature = "delivery")]
    pub(crate) fn logged_runs(scope: &str, id: Option<&str>) -> String {
        let id = id.map(|id| key_part(id) + "/").unwrap_or_default();
        format!("{}/{id}", key_part(scope))
    }

    /// Returns the keys of the record and of the updates of a run. `logged` is its name in the
    /// index.
    #[cfg(feature = "delivery")]
    pub(crate) fn run_log(&self, logged: &str) -> [String; 2] {
        let (conversation, run) = logged.rsplit_once('/').unwrap_or((logged, ""));
        ["log", "updates"]
            .map(|part| format!("{}:{{{conversation}}}:run-{part}:{run}", self.prefix))
    }

    /// Returns the keys of an update log's index: the runs by time, and the runs by name.
    #[cfg(feature = "delivery")]
    pub(crate) fn logged_runs_index(&self) -> [String; 2] {
        ["times", "names"].map(|part| format!("{}:{{runs}}:{part}", self.prefix))
    }

    /// Returns the name of the channel on which the ids of changed runs are published.
    #[cfg(feature = "delivery")]
    pub(crate) fn run_channel(&self) -> String {
        format!("{}:runs", self.prefix)
    }

    /// Returns the name of the key that records whether the store contains sealed (encrypted) data.
    pub(crate) fn seal_mark(&self) -> String {
        format!("{}:sealed", self.prefix)
    }

    /// Returns the name of the list of a scope's conversations: a sorted set with their ids. All
    /// scores are equal, so that the ids are in byte order.
    pub(crate) fn list(&self, scope: &str) -> String {
        format!("{}:{{{}/*}}:list", self.prefix, key_part(scope))
    }

    /// Returns the name of the hash with the branches of a conversation. The key is on the server of
    /// the list of the conversation's scope.
    pub(crate) fn branches(&self, parent: &ConversationKey) -> String {
        format!(
            "{}:{{{}/*}}:branches:{}",
            self.prefix,
            key_part(parent.scope()),
            key_part(parent.id())
        )
    }

    /// Returns a pattern that matches the names of all lists, and possibly other names.
    pub(crate) fn lists(&self) -> String {
        let mut pattern = String::new();
        for character in self.prefix.chars() {
            if "\\*?[]^-".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        format!("{pattern}:{{*/\\*}}:list")
    }

    /// Returns the scope of a list; `None` if the name is not that of a list.
    pub(crate) fn read_list(&self, name: &str) -> Option<ListName> {
        let part = name.strip_prefix(&self.prefix)?.strip_prefix(":{")?.strip_suffix("/*}:list")?;
        if part.contains('~') {
            return Some(ListName::Shortened(part.to_owned()));
        }
        unescaped(part).filter(|scope| key_part(scope) == part).map(ListName::Scope)
    }

    /// Returns the name of a conversation's head, for a scope in its shortened form.
    pub(crate) fn head_of_shortened(&self, scope: &str, id: &str) -> String {
        ConversationNames { base: format!("{}:{{{scope}/{}}}", self.prefix, key_part(id)) }.head()
    }

    /// Returns whether `shortened` is the shortened form of a scope.
    pub(crate) fn is_shortened(scope: &str, shortened: &str) -> bool {
        key_part(scope) == shortened
    }

    /// Returns the key with the tokens of processes that will create a conversation, on the server
    /// of the scope's list.
    pub(crate) fn creation_tokens(&self, key: &ConversationKey) -> String {
        format!("{}:{{{}/*}}:made:{}", self.prefix, key_part(key.scope()), key_part(key.id()))
    }
}

impl ConversationNames {
    pub(crate) fn head(&self) -> String {
        self.part("head")
    }

    pub(crate) fn messages(&self) -> String {
        self.part("messages")
    }

    /// Returns the name of the hash with the rows of the record of tool calls.
    pub(crate) fn tools(&self) -> String {
        self.part("tools")
    }

    /// Returns the name of the sorted set of calls, with the sequence numbers of their messages as
    /// scores.
    pub(crate) fn calls(&self) -> String {
        self.part("calls")
    }

    /// Returns the name of the sorted set of calls that wait for approval, with the same scores.
    pub(crate) fn pending(&self) -> String {
        self.part("pending")
    }

    /// Returns the name of the directory entry.
    pub(crate) fn directory(&self) -> String {
        self.part("directory")
    }

    /// Returns the name of the hash with the summaries.
    pub(crate) fn summaries(&self) -> String {
        self.part("summaries")
    }

    /// Returns the names of all keys of a conversation.
    pub(crate) fn all(&self) -> [String; 7] {
        [
            self.head(),
            self.messages(),
            self.tools(),
            self.calls(),
            self.pending(),
            self.directory(),
            self.summaries(),
        ]
    }

    /// Returns the names of the temporary keys of a copy, which has no temporary head, directory
    /// entry or summaries.
    pub(crate) fn copy(&self, copy: &str) -> [String; 4] {
        ["messages", "tools", "calls", "pending"]
            .map(|part| self.part(&format!("copy:{copy}:{part}")))
    }

    fn part(&self, part: &str) -> String {
        format!("{}:{part}", self.base)
    }
}

/// Returns the form of a scope or an id in the names of keys. Bytes other than letters, digits,
/// `-`, `_` and `.` become `%` and two hexadecimal digits. A text longer than
/// [`MAX_UNCHANGED_BYTES`] is replaced with its beginning and its SHA-256.
fn key_part(text: &str) -> String {
    let bytes = text.as_bytes();
    match bytes.get(..BEGINNING) {
        Some(beginning) if bytes.len() > MAX_UNCHANGED_BYTES => {
            let digest: String =
                Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}~{digest}", escaped(beginning))
        }
        Some(_) | None => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn unescaped(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns the part that determines the slot, by the specification of Redis Cluster: the text
    /// between the first `{` and the next `}`, if it is not empty.
    fn tag(name: &str) -> &str {
        let (_, rest) = name.split_once('{').unwrap();
        let (tag, _) = rest.split_once('}').unwrap();
        assert!(!tag.is_empty(), "an empty tag is none");
        tag
    }

    fn halves() -> Vec<String> {
        let long = "x".repeat(10 * 1024);
        let mut halves =
            ["", "a", "A", "{", "}", "{}", "}{", "a/b", "/", "%", "%2F", "*", "~", "\0"]
                .map(str::to_owned)
                .to_vec();
        halves.extend(["a:b", "\u{e9}", "'", "\n"].map(str::to_owned));
        halves.extend([format!("{long}1"), format!("{long}2"), "y".repeat(MAX_UNCHANGED_BYTES)]);
        halves
    }

    #[test]
    fn all_keys_of_a_conversation_have_one_hash_tag_that_no_other_conversation_has() {
        let names = Names::new("tower-chat");
        let mut tags = HashSet::new();
        for scope in halves() {
            for id in halves() {
                let names = names.conversation(&ConversationKey::new(&*scope, &*id));
                let (all, copy) = (names.all(), names.copy("1"));
                let first = tag(&all[0]).to_owned();
                assert!(all.iter().chain(&copy).all(|name| tag(name) == first), "{first}");
                assert!(tags.insert(first), "{scope:?} {id:?}");
            }
        }
    }

    #[test]
    fn a_list_its_creation_tokens_and_branches_have_one_hash_tag_that_no_conversation_has() {
        let names = Names::new("tower-chat");
        let mut tags = HashSet::new();
        for scope in halves() {
            let list = names.list(&scope);
            for id in halves() {
                let key = ConversationKey::new(&*scope, &*id);
                assert_eq!(tag(&names.creation_tokens(&key)), tag(&list));
                assert_eq!(tag(&names.branches(&key)), tag(&list));
                assert_eq!(names.read_list(&names.branches(&key)), None);
                assert_ne!(tag(&names.conversation(&key).head()), tag(&list));
            }
            assert!(tags.insert(tag(&list).to_owned()), "{scope:?}");
        }
    }

    #[test]
    fn the_scope_or_its_shortened_form_is_read_from_the_name_of_a_list() {
        let names = Names::new("a:{b}:c*");
        for scope in halves() {
            let found = names.read_list(&names.list(&scope)).unwrap();
            if scope.len() > MAX_UNCHANGED_BYTES {
                let ListName::Shortened(part) = found else { panic!("{scope}") };
                let key = ConversationKey::new(&*scope, "an id");
                assert!(Names::is_shortened(&scope, &part));
                let head = names.head_of_shortened(&part, "an id");
                assert_eq!(head, names.conversation(&key).head());
            } else {
                assert_eq!(found, ListName::Scope(scope));
            }
        }
        let head = names.conversation(&ConversationKey::new("a", "*")).head();
        for name in [&*head, "a:{b}:c:{x/*}:list", "a:{b}:c*:{x y/*}:list", "a:{b}:c*:{%2/*}:list"]
        {
            assert_eq!(names.read_list(name), None, "{name}");
        }
        assert_eq!(names.lists(), "a:{b}:c\\*:{*/\\*}:list");
    }

    #[test]
    fn the_names_of_keys_contain_the_scope_and_the_percent_encoded_id() {
        let names = Names::new("chat").conversation(&ConversationKey::new("alice", "a b"));
        assert_eq!(names.head(), "chat:{alice/a%20b}:head");
    }
}
