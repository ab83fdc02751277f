//! The rules for conversation keys.

use tower_chat_core::{
    ConversationKey,
    store::{Directory, Revision},
};

use super::{
    Store,
    fixture::{assert_listed, stored, texts, write},
};

/// Returns scopes and ids that a store with a bug in its keys would treat as equal.
fn similar_names() -> Vec<String> {
    let long = "x".repeat(10 * 1024);
    let mut halves: Vec<String> = [
        "",
        "a",
        "A",
        "a ",
        " a",
        "a/b",
        "b",
        "a/",
        "/b",
        "a:b",
        "a|b",
        "a\0",
        "\0",
        "a\0b",
        "'",
        "''",
        "\"",
        "' OR '1'='1",
        "a'; DROP TABLE messages; --",
        "%",
        "_",
        "a%",
        "\\",
        "\u{e9}",
        "e\u{301}",
        "\u{c9}",
        "\u{fb01}",
        "fi",
        "\u{df}",
        "ss",
        "SS",
        "K",
        "k",
        "\u{212A}",
        "\u{130}",
        "i",
        "\u{131}",
        "\u{ff41}",
        "\u{feff}a",
        "a\u{200b}",
        "\u{1F600}",
        "1",
        "01",
        "1.0",
        "null",
        "\n",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    halves.extend([format!("{long}1"), format!("{long}2"), long]);
    halves
}

/// Two keys are equal only if their scopes and their ids have the same bytes. No operation affects
/// a conversation in another scope.
pub async fn keys_that_look_alike_are_different_conversations(store: Store) {
    let halves = similar_names();
    let mut keys = Vec::new();
    for separator in ["", "/", ":", "|", ".", " ", "\0", "\n", "'", "\u{1F}"] {
        // A store that joins scope and id with this separator would confuse the first key with the
        // second key, and the third key with the fourth key.
        keys.push(ConversationKey::new("x", format!("y{separator}z")));
        keys.push(ConversationKey::new(format!("x{separator}y"), "z"));
        keys.push(ConversationKey::new(format!("v{separator}"), "w"));
        keys.push(ConversationKey::new("v", format!("{separator}w")));
    }
    keys.sort();
    keys.dedup();
    for half in &halves {
        for (scope, id) in [(half.as_str(), "a"), ("a", half), (half, half), (half, "a/b")] {
            let key = ConversationKey::new(scope, id);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    for (number, key) in keys.iter().enumerate() {
        stored(&store, write(key, Revision::ABSENT, &[&number.to_string()])).await;
    }
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(texts(&store, key).await, [number.to_string()], "{key:?}");
    }
    for scope in &halves {
        let of_scope = keys.iter().filter(|key| key.scope() == scope);
        let mut expected: Vec<_> = of_scope.cloned().collect();
        expected.sort_by(|one, other| one.id().as_bytes().cmp(other.id().as_bytes()));
        assert_listed(&store, scope, &expected).await;
    }
    let (gone, kept) = keys.split_at(keys.len() / 2);
    for key in gone {
        assert!(store.delete(key).await.expect("the conversation is deleted"), "{key:?}");
    }
    for key in gone {
        assert_eq!(texts(&store, key).await, Vec::<String>::new(), "{key:?}");
    }
    for (number, key) in kept.iter().enumerate() {
        assert_eq!(texts(&store, key).await, [(gone.len() + number).to_string()], "{key:?}");
    }
}

/// A list of conversations is in byte order, and contains at most `limit` conversations. The list
/// begins after the id `after`, even if no conversation has this id.
pub async fn conversations_are_listed_in_the_byte_order_of_their_ids(store: Store) {
    let mut ids = vec!["", "10", "9", "B", "a", "a\0", "a\0b", "aa", "\u{e9}", "\u{1F600}", "z"];
    for id in ids.iter().rev() {
        let key = ConversationKey::new("mine", *id);
        stored(&store, write(&key, Revision::ABSENT, &["x"])).await;
    }
    let other = ConversationKey::new("min", "zz");
    stored(&store, write(&other, Revision::ABSENT, &["x"])).await;
    ids.sort_unstable();

    let list = async |after: Option<&str>, limit: usize| {
        let keys = store.list("mine", after, limit).await.expect("the list is read");
        assert!(keys.iter().all(|key| key.scope() == "mine"));
        keys.iter().map(|key| key.id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 100).await, ids);
    assert_eq!(list(None, ids.len()).await, ids);
    assert_eq!(list(None, 3).await, ids[..3]);
    assert_eq!(list(None, 0).await, Vec::<String>::new());
    assert_eq!(list(Some(""), 100).await, ids[1..]);
    assert_eq!(list(Some("a"), 2).await, ["a\0", "a\0b"]);
    assert_eq!(list(Some("AAA"), 1).await, ["B"], "an id that does not exist");
    assert_eq!(list(Some("\u{10FFFF}"), 100).await, Vec::<String>::new());
    let mut paged: Vec<String> = Vec::new();
    loop {
        let page = list(paged.last().map(String::as_str), 2).await;
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, ids);
    assert_eq!(store.list("unknown", None, 100).await.expect("the list is read"), []);
}
