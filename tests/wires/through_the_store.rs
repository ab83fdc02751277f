//! Tests that a store returns recorded messages unchanged, in the same process and in another
//! process. A wire is the JSON format of a provider.

use std::{collections::BTreeMap, fs, path::Path, process::Command, sync::Arc};

use serde_json::Value;
use tower_chat::{
    ConversationKey, HistoryStore, MemoryStore, Message,
    message::{MessageId, Messages},
    replay::{DanglingCalls, Replay},
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::validate::{Wire, validate};

use crate::wires::{
    codec::{conversation, parse, render},
    data::{self, Accepted},
    normalised::{Difference, difference},
};

const FOLDER: &str = "TOWER_CHAT_WIRES_FOLDER";

fn key(accepted: &Accepted) -> ConversationKey {
    ConversationKey::new(accepted.wire.name(), accepted.id.as_str())
}

async fn store_all(store: &impl HistoryStore, bodies: &[Accepted]) {
    for accepted in bodies {
        let messages = parse(accepted.wire, &accepted.body).into_iter().map(Arc::new);
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key(accepted), id, Revision::ABSENT, messages);
        let slot = store.reserve().await.unwrap();
        store.append(slot, vec![write]).await.unwrap();
    }
}

async fn load(store: &impl HistoryStore, accepted: &Accepted) -> Messages {
    store.load(&key(accepted)).await.unwrap().messages
}

fn written(wire: Wire, messages: &Messages) -> Value {
    render(wire, messages.iter().map(|message| &**message))
}

/// Asserts that the stored messages are encoded exactly as the recorded bodies. Returns the number
/// of bodies of each wire.
async fn assert_exact(store: &impl HistoryStore, bodies: &[Accepted]) -> BTreeMap<Wire, usize> {
    let mut counts = BTreeMap::new();
    for accepted in bodies {
        let messages = load(store, accepted).await;
        let expected = conversation(accepted.wire, &accepted.body);
        assert_eq!(written(accepted.wire, &messages), expected, "{}", accepted.id);
        *counts.entry(accepted.wire).or_insert(0) += 1;
    }
    counts
}

fn expected_counts(bodies: &[Accepted]) -> BTreeMap<Wire, usize> {
    let mut counts = BTreeMap::new();
    bodies.iter().for_each(|accepted| *counts.entry(accepted.wire).or_insert(0) += 1);
    counts
}

fn database(folder: &Path) -> std::path::PathBuf {
    folder.join("chat.db")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_accepted_body_is_loaded_exactly_from_the_stores_and_in_another_process() {
    let bodies = data::accepted();
    let memory = MemoryStore::new();
    store_all(&memory, &bodies).await;
    assert_eq!(assert_exact(&memory, &bodies).await, expected_counts(&bodies));

    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(database(folder.path())).await.unwrap();
    store_all(&sqlite, &bodies).await;
    sqlite.close().await.unwrap();
    let reopened = SqliteStore::open(database(folder.path())).await.unwrap();
    assert_eq!(assert_exact(&reopened, &bodies).await, expected_counts(&bodies));
    reopened.close().await.unwrap();

    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "wires::through_the_store::child_finds_every_body",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let counted = fs::read_to_string(folder.path().join("counted")).unwrap();
    assert_eq!(counted, format!("{:?}", expected_counts(&bodies)));
    for (wire, count) in expected_counts(&bodies) {
        println!("{wire:20} {count:3} bodies, exactly, from memory, SQLite and another process");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_finds_every_body() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let bodies = data::accepted();
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let counts = assert_exact(&store, &bodies).await;
    fs::write(folder.join("counted"), format!("{counts:?}")).unwrap();
}

#[tokio::test]
async fn the_replay_of_a_stored_body_equals_the_sent_body_or_differs_as_documented() {
    let bodies = data::accepted();
    let store = MemoryStore::new();
    store_all(&store, &bodies).await;
    let mut counts: BTreeMap<(Wire, Difference), Vec<&str>> = BTreeMap::new();
    for accepted in &bodies {
        let wire = accepted.wire;
        let shown = replay(&load(&store, accepted).await);
        let sent = written(wire, &shown);
        let recorded = conversation(wire, &accepted.body);
        validate(wire, &sent).unwrap_or_else(|invalid| panic!("{}: {invalid}", accepted.id));
        let difference = difference(wire, &recorded, &sent)
            .unwrap_or_else(|| panic!("{}\nrecorded {recorded:#}\nsent {sent:#}", accepted.id));
        counts.entry((wire, difference)).or_default().push(&accepted.id);
    }
    for ((wire, difference), ids) in &counts {
        println!("{wire:20} {:3} bodies: {difference:?}", ids.len());
    }
    assert_eq!(counts.values().map(Vec::len).sum::<usize>(), bodies.len());
}

pub(crate) fn replay(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(messages, 0);
    replay.view()
}

/// Returns the messages of a body as a store returns them.
pub(crate) fn as_stored(wire: Wire, body: &Value) -> Messages {
    let run = RunId::new();
    let with_id = |(index, mut message): (u32, Message)| {
        message.id = Some(MessageId { run, index });
        Arc::new(message)
    };
    (0..).zip(parse(wire, body)).map(with_id).collect()
}
