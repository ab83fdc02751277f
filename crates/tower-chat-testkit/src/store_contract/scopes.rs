//! The rules for lists of scopes. A scope is the tenant or user of a conversation. A staged write
//! is stored, but readers do not see it until its run is committed.

use tower_chat_core::{
    ConversationKey,
    store::{Capability, HistoryStore, Maintenance, Revision},
};

use super::{
    Store,
    fixture::{StagedRun, commit, discard, lacks, staging, stored, write},
};

async fn begin(store: &Store, scope: &str, id: &str) {
    let key = ConversationKey::new(scope, id);
    stored(store, write(&key, Revision::ABSENT, &[scope])).await;
}

async fn scopes(store: &Store, after: Option<&str>, limit: usize) -> Vec<String> {
    let found = store.scopes(after, limit).await.expect("the scopes are read");
    assert!(found.len() <= limit, "{} scopes, not {limit}", found.len());
    let first = found.first().map(String::as_str);
    assert!(after.is_none() || first.is_none_or(|first| Some(first) > after), "{first:?}");
    found
}

/// Each scope is listed once, in byte order. A page may begin after any text. The pages together
/// contain the same scopes as the whole list.
pub async fn scopes_are_listed_in_byte_order(store: Store) {
    assert_eq!(scopes(&store, None, 10).await, Vec::<String>::new());
    let long = "x".repeat(10 * 1024);
    let mut names: Vec<String> =
        ["", "10", "9", "B", "a", "a\0", "a\0b", "aa", "a%", "a/*", "\u{e9}", "\u{1F600}", "z"]
            .map(str::to_owned)
            .to_vec();
    names.extend([format!("{long}1"), format!("{long}2"), format!("{long}10"), long.clone()]);
    for name in names.iter().rev() {
        for id in ["", "one", "two"] {
            begin(&store, name, id).await;
        }
    }
    names.sort_unstable();
    assert_eq!(scopes(&store, None, usize::MAX).await, names);
    assert_eq!(scopes(&store, None, 0).await, Vec::<String>::new());
    for limit in 1..=names.len() + 1 {
        let mut paged: Vec<String> = Vec::new();
        loop {
            let page = scopes(&store, paged.last().map(String::as_str), limit).await;
            assert!(page.len() == limit || paged.len() + page.len() == names.len(), "a full page");
            paged.extend(page.iter().cloned());
            if page.len() < limit {
                break;
            }
        }
        assert_eq!(paged, names, "{limit} at a time");
    }
    for after in ["AAA", "a\0a", "x", &format!("{long}0"), &format!("{long}11"), "\u{10FFFF}"] {
        let expected: Vec<_> = names.iter().filter(|name| name.as_str() > after).collect();
        let found = scopes(&store, Some(after), names.len()).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "no scope has this name");
    }
}

/// A scope is listed from the first write to it on, until its last conversation is deleted. The
/// first write may be staged.
pub async fn a_scope_is_there_while_it_has_a_conversation(store: Store) {
    if lacks(&store, &[Capability::Journal]) {
        return;
    }
    begin(&store, "b", "only").await;
    let staged = ConversationKey::new("a", "staged");
    let mut journal = StagedRun::new(&staged, Revision::ABSENT);
    stored(&store, journal.text(staging(0), "nobody sees it yet")).await;
    assert_eq!(
        scopes(&store, None, 10).await,
        ["a", "b"],
        "one of the conversations has only staged messages"
    );
    stored(&store, journal.write(commit(0), [])).await;
    assert_eq!(scopes(&store, None, 10).await, ["a", "b"]);
    assert!(store.delete(&staged).await.expect("the conversation is deleted"));
    assert_eq!(scopes(&store, None, 10).await, ["b"]);

    for id in ["first", "second"] {
        begin(&store, "c", id).await;
    }
    assert!(
        store
            .delete(&ConversationKey::new("c", "first"))
            .await
            .expect("the conversation is deleted")
    );
    assert_eq!(scopes(&store, Some("b"), 10).await, ["c"], "the other conversation remains");
    assert!(
        store
            .delete(&ConversationKey::new("c", "second"))
            .await
            .expect("the conversation is deleted")
    );
    assert_eq!(scopes(&store, None, 1).await, ["b"]);
    assert_eq!(scopes(&store, Some("b"), 10).await, Vec::<String>::new());

    // Names that differ only in case, and a name that is a prefix of another one, are different
    // scopes.
    let mut journal = StagedRun::new(&ConversationKey::new("B", "discarded"), Revision::ABSENT);
    stored(&store, journal.text(staging(0), "it is discarded")).await;
    assert_eq!(scopes(&store, None, 10).await, ["B", "b"]);
    stored(&store, journal.write(discard(0, 0), [])).await;
    begin(&store, "bb", "only").await;
    let found = scopes(&store, Some("B"), 10).await;
    assert_eq!(found, ["b", "bb"]);
}

/// A list of scopes includes the scopes of all writes that were submitted before the list was
/// requested.
pub async fn a_list_of_scopes_sees_what_was_submitted_before_it(store: Store) {
    for number in 0..20 {
        let key = ConversationKey::new(format!("scope {number:02}"), "submitted");
        let slot = store.reserve().await.expect("a slot is reserved");
        let ticket = store.append(slot, vec![write(&key, Revision::ABSENT, &["at once"])]);
        let found = scopes(&store, None, 100).await;
        assert_eq!(found.last().map(String::as_str), Some(key.scope()));
        ticket.await.expect("the write is stored");
    }
    store.close().await.expect("the store is closed");
    assert_eq!(
        scopes(&store, None, 100).await.len(),
        20,
        "the scopes of a closed store can be read"
    );
}
