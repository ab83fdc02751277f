//! Tests of loading a part of a conversation, in the presence of a writer without the keys.

use std::sync::Arc;

use tower_chat_core::{
    MemoryStore, Message, MessageId, RunId,
    store::{
        History, HistoryStore, Keep, Maintenance, Revision, Rewrite, ServiceIdChange,
        author::{LoadFrom, Write},
    },
};
use tower_chat_encrypted::EncryptedStore;
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{
    FaultyStore,
    store_contract::{self, Store as AnyStore},
};

use crate::common::{append, key, keys, write};

/// A store whose inner store loads only the selected messages.
type Store = EncryptedStore<FaultyStore<MemoryStore>>;

fn empty_store() -> Store {
    EncryptedStore::new(FaultyStore::new(MemoryStore::new()), keys()).without_former_values()
}

fn range(leading: u64, after: u64) -> Arc<LoadFrom> {
    Arc::new(LoadFrom { leading, after, applies_to: "secret policy".to_owned() })
}

fn users(numbers: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = Message> {
    numbers.map(|number| Message::user(number.to_string()))
}

/// Stores eight messages in two writes, with a value for the next run.
async fn eight(store: &Store, from: &Arc<LoadFrom>) -> Revision {
    let at = append(store, write(&key(), Revision::ABSENT, users(1..=3))).await;
    append(store, write(&key(), at, users(4..=8)).with_load_from(Some(from.clone()))).await
}

/// Returns a store of another process with the same content.
fn other_process(store: &Store) -> Store {
    let inner = FaultyStore::new(store.inner().inner().clone());
    EncryptedStore::new(inner, keys()).without_former_values()
}

/// Loads, in another process, the part that the head of a conversation names.
async fn part(store: &Store) -> Result<History, String> {
    let store = other_process(store);
    let head = store.head(&key()).await.map_err(|error| error.to_string())?;
    let from = head.load_from.unwrap_or_else(|| range(0, 0));
    store.load_from(&key(), &from).await.map_err(|error| error.to_string())
}

fn texts<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<String> {
    messages.into_iter().map(|message| message.text()).collect()
}

#[tokio::test]
async fn only_the_selected_messages_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let inner = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let store: AnyStore = Arc::new(EncryptedStore::new(inner, keys()));
    assert!(store_contract::loads_ranges(&store).await);
}

#[tokio::test]
async fn another_process_loads_a_part_of_a_conversation_and_appends_to_it() {
    let store = empty_store();
    let from = range(2, 5);
    eight(&store, &from).await;
    let other = other_process(&store);
    let head = other.head(&key()).await.unwrap();
    assert_eq!(head.load_from, Some(from.clone()));
    let found = other.load_from(&key(), &from).await.unwrap();
    assert_eq!((texts(found.leading.iter()), found.skipped()), (vec!["1".into(), "2".into()], 5));
    assert_eq!(texts(found.messages.iter()), ["6", "7", "8"]);
    // The next value selects fewer messages.
    let later = range(2, 7);
    let next = write(&key(), head.revision, users(9..=9)).with_load_from(Some(later.clone()));
    append(&other, next).await;
    let found = part(&other).await.unwrap();
    assert_eq!((texts(found.leading.iter()), found.skipped()), (vec!["1".into(), "2".into()], 7));
    assert_eq!(texts(found.messages.iter()), ["8", "9"]);
    // The sealed value and its condition are not in plaintext.
    let inside = format!("{:?}", other.inner().head(&key()).await.unwrap());
    assert!(!inside.contains("policy"), "{inside}");
}

/// Each run is executed by its own process, which loads the part that the previous run has stored.
#[tokio::test]
async fn a_long_conversation_is_loaded_in_small_parts() {
    let store = empty_store();
    let mut at = append(&store, write(&key(), Revision::ABSENT, users(1..=2_000))).await;
    let mut last = 2_000;
    let mut process = other_process(&store);
    assert!(process.load(&key()).await.unwrap().is_whole());
    for round in 0..40 {
        let from = range(1, last - 20);
        let next = write(&key(), at, users(last + 1..=last + 4)).with_load_from(Some(from.clone()));
        at = append(&process, next).await;
        last += 4;
        process = other_process(&store);
        process.head(&key()).await.unwrap();
        let found = process.load_from(&key(), &from).await.unwrap();
        assert_eq!(texts(found.leading.iter()), ["1"]);
        let expected: Vec<_> = (found.skipped() + 1..=last).map(|it| it.to_string()).collect();
        assert_eq!(texts(found.messages.iter()), expected);
        assert_eq!(found.skipped(), from.after);
        // The first process does not know every digest, because it has loaded the whole
        // conversation. The inner store may then load a few more messages.
        let inside = process.inner().head(&key()).await.unwrap().load_from.unwrap();
        let more = from.after - inside.after;
        let most = if round == 0 { 16 } else { 0 };
        assert!(more <= most, "{round}: {more}");
    }
    // A process that has read only the head knows no digests of messages.
    let process = other_process(&store);
    process.head(&key()).await.unwrap();
    let from = range(1, last - 20);
    append(&process, write(&key(), at, []).with_load_from(Some(from.clone()))).await;
    let found = process.load_from(&key(), &from).await.unwrap();
    assert!(found.is_whole());
    assert_eq!(found.head.load_from, Some(from));
}

/// The data of the inner store that a writer without the key can change.
#[derive(Clone)]
struct State {
    messages: Vec<Message>,
    head: Option<Arc<str>>,
    from: LoadFrom,
}

async fn state(store: &Store) -> State {
    let history = store.inner().inner().load(&key()).await.unwrap();
    State {
        messages: history.messages.iter().map(|message| (**message).clone()).collect(),
        head: history.head.service_id,
        from: LoadFrom::clone(&history.head.load_from.unwrap()),
    }
}

/// Creates a store that contains this state.
async fn forge(state: State) -> Store {
    let store = empty_store();
    let mut at = Revision::ABSENT;
    for message in state.messages {
        let id = message.id.unwrap();
        let mut write = Write::new(key(), id, at, [Arc::new(message)]);
        if let Some(head) = state.head.clone().filter(|_| at == Revision::ABSENT) {
            write = write.with_service_id(ServiceIdChange::Set(head));
        }
        let write = write.with_load_from(Some(Arc::new(state.from.clone())));
        at = append(store.inner(), write).await;
    }
    store
}

#[tokio::test]
async fn a_load_with_a_changed_load_from_value_returns_all_messages() {
    let store = empty_store();
    eight(&store, &range(2, 5)).await;
    let original = state(&store).await;
    let unchanged = part(&forge(original.clone()).await).await.unwrap();
    assert_eq!((unchanged.skipped(), unchanged.leading.len()), (5, 2));
    let from = original.from.clone();
    let last = from.applies_to.len() - 1;
    let other = if from.applies_to.ends_with('A') { "B" } else { "A" };
    let changed = [
        LoadFrom { after: 6, ..from.clone() },
        LoadFrom { after: 4, ..from.clone() },
        LoadFrom { leading: 1, ..from.clone() },
        LoadFrom { leading: 3, ..from.clone() },
        LoadFrom { applies_to: format!("{}{other}", &from.applies_to[..last]), ..from.clone() },
        LoadFrom { applies_to: "secret policy".to_owned(), ..from.clone() },
    ];
    for from in changed {
        let forged = forge(State { from: from.clone(), ..original.clone() }).await;
        let head = other_process(&forged).head(&key()).await.unwrap();
        assert_eq!(head.load_from, None, "{from:?}");
        let found = part(&forged).await.unwrap();
        assert!(found.is_whole());
        assert_eq!(found.messages.len(), 8);
    }
}

#[tokio::test]
async fn a_load_with_a_load_from_value_of_another_incarnation_returns_all_messages() {
    let store = empty_store();
    eight(&store, &range(2, 5)).await;
    let original = state(&store).await;
    store.delete(&key()).await.unwrap();
    eight(&store, &range(2, 5)).await;
    let later = state(&store).await;
    let found = part(&forge(State { from: original.from, ..later }).await).await.unwrap();
    assert_eq!((found.is_whole(), found.head.load_from), (true, None));
}

/// The second message was rewritten between the two states.
#[tokio::test]
async fn a_part_with_messages_of_two_states_does_not_open() {
    let store = empty_store();
    let at = eight(&store, &range(2, 5)).await;
    let before = state(&store).await;
    let mut rewrite = Rewrite::new(key(), at);
    rewrite.messages = vec![(2, Message::user("rewritten"))];
    store.rewrite(rewrite).await.unwrap();
    let after = State { from: before.from.clone(), ..state(&store).await };
    // The stored value does not apply to the new state.
    let found = part(&store).await.unwrap();
    assert!(found.is_whole());
    assert_eq!(found.message(2).unwrap().text(), "rewritten");
    for choice in 0_usize..1 << 5 {
        // Two parts of leading messages, one of skipped messages, and two of the others.
        let parts = [0..1, 1..2, 2..5, 5..6, 6..8];
        let messages = parts.iter().enumerate().flat_map(|(number, part)| {
            let of = if choice >> number & 1 == 0 { &before } else { &after };
            of.messages[part.clone()].iter().cloned()
        });
        let mixed = State { messages: messages.collect(), ..before.clone() };
        let found = part(&forge(mixed).await).await;
        let is_whole_state = choice == 0b11111 || choice == 0b11110;
        // The skipped messages are not read, and the first message is the same in both states.
        let is_part = choice & 0b11010 == 0;
        assert_eq!(found.is_ok(), is_part || is_whole_state, "{choice:b}: {found:?}");
        if let Ok(found) = found {
            assert_eq!(found.is_whole(), is_whole_state, "{choice:b}");
        }
    }
}

/// Only the last message shows whether its run was committed.
#[tokio::test]
async fn all_messages_are_loaded_if_none_follows_the_skipped_messages() {
    let store = empty_store();
    eight(&store, &range(1, 5)).await;
    let original = state(&store).await;
    for length in [4_usize, 5, 6] {
        let messages = original.messages[..length].to_vec();
        let forged = forge(State { messages, ..original.clone() }).await;
        let found = part(&forged).await.unwrap();
        assert_eq!(found.is_whole(), length < 6, "{length}");
        let whole = other_process(&forged).load(&key()).await.unwrap();
        assert_eq!(whole.messages.len(), length);
    }
}

#[tokio::test]
async fn a_part_of_a_pruned_conversation_opens() {
    for (keep, leading, skipped) in [(6, 0, 5), (7, 1, 5), (2, 0, 6)] {
        let store = empty_store();
        let mut at = Revision::ABSENT;
        for number in 1..=8 {
            let next = write(&key(), at, users(number..=number));
            at = append(&store, next.with_load_from(Some(range(2, 5)))).await;
        }
        store.prune(&key(), Keep::Messages(keep)).await.unwrap();
        let found = part(&store).await.unwrap();
        assert_eq!((found.leading.len(), found.skipped()), (leading, skipped), "{keep}");
        assert_eq!(found.numbered().last().unwrap().0, 8);
    }
}

/// A write that was not stored does not leave digests of its messages.
#[tokio::test]
async fn the_load_from_value_of_a_write_is_valid_although_an_earlier_write_has_failed() {
    let store = empty_store();
    let at = eight(&store, &range(1, 5)).await;
    let other = other_process(&store);
    other.load(&key()).await.unwrap();
    let theirs = Message::user("theirs");
    let at_theirs = append(&store, write(&key(), at, [theirs])).await;
    let refused = write(&key(), at, users(9..=12));
    let slot = other.reserve().await.unwrap();
    other.append(slot, vec![refused]).await.unwrap_err();
    // This process reads only the head, and does not know that another message has the number 9.
    other.head(&key()).await.unwrap();
    let from = range(1, 9);
    let id = MessageId { run: RunId::new(), index: 0 };
    let next = Write::new(key(), id, at_theirs, users(10..=11).map(Arc::new));
    append(&other, next.with_load_from(Some(from.clone()))).await;
    let found = part(&store).await.unwrap();
    assert_eq!((found.skipped(), found.numbered().last().unwrap().0), (9, 11));
    let whole = other_process(&store).load(&key()).await.unwrap();
    assert_eq!(whole.message(9).unwrap().text(), "theirs");
}
