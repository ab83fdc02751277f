//! Conversations in one process, and in two processes.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use tower_chat::{HistoryStore, MemoryStore};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::recordings::Recordings;

use crate::continuation::{
    conversation::{MODES, Recorded, Service, Turn},
    providers::PROVIDERS,
};

const FOLDER: &str = "TOWER_CHAT_CONTINUATION_FOLDER";

/// Returns all conversations, in the same order in every process.
pub(crate) fn recorded() -> Vec<Recorded> {
    let cassettes = Recordings::all().cassettes().unwrap();
    let mut numbers = 0..;
    let mut recorded = Vec::new();
    for provider in &PROVIDERS {
        for cassette in &cassettes {
            recorded.extend(Recorded::of(cassette, provider, &mut numbers));
        }
        recorded.extend(Recorded::scripted(provider, &mut numbers));
    }
    recorded
}

pub(crate) async fn services() -> BTreeMap<&'static str, Service> {
    let mut services = BTreeMap::new();
    for provider in &PROVIDERS {
        services.insert(provider.name, Service::start(provider).await);
    }
    services
}

fn database(folder: &Path) -> std::path::PathBuf {
    folder.join("chat.db")
}

fn first_turns(folder: &Path) -> std::path::PathBuf {
    folder.join("first_turns.json")
}

fn second_turns(folder: &Path) -> std::path::PathBuf {
    folder.join("second_turns.json")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_continues_in_another_process_exactly_as_in_the_same_process() {
    let recorded = recorded();
    let services = services().await;
    let folder = tempfile::tempdir().unwrap();
    let undisturbed = SqliteStore::open(folder.path().join("undisturbed.db")).await.unwrap();
    let disturbed = SqliteStore::open(database(folder.path())).await.unwrap();
    let mut expected = BTreeMap::new();
    let mut offsets = BTreeMap::new();
    for conversation in &recorded {
        let source = &conversation.source;
        let service = &services[conversation.provider.name];
        service.server.play(&conversation.answers, 0);
        let stack = conversation.stack(service, undisturbed.clone());
        let first = conversation.turn(&stack, service, 0).await;
        let second = conversation.turn(&stack, service, 1).await;
        assert_continued(source, &second);

        service.server.play(&conversation.answers, 0);
        let stack = conversation.stack(service, MemoryStore::new());
        assert_eq!(conversation.turn(&stack, service, 0).await, first, "{source}, in memory");
        assert_eq!(conversation.turn(&stack, service, 1).await, second, "{source}, in memory");

        service.server.play(&conversation.answers, 0);
        let stack = conversation.stack(service, disturbed.clone());
        assert_eq!(conversation.turn(&stack, service, 0).await, first, "{source}, before the end");
        offsets.insert(source.clone(), first.sent.len());
        expected.insert(source.clone(), (first, second));
    }
    disturbed.close().await.unwrap();
    fs::write(first_turns(folder.path()), serde_json::to_string(&offsets).unwrap()).unwrap();

    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "continuation::processes::child_has_the_second_turns",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let turns = fs::read_to_string(second_turns(folder.path())).unwrap();
    let turns: BTreeMap<String, Turn> = serde_json::from_str(&turns).unwrap();
    assert_eq!(turns.len(), recorded.len());
    for (source, turn) in &turns {
        assert_same(source, turn, &expected[source].1);
    }
    report(&recorded, &expected);
}

fn assert_continued(source: &str, second: &Turn) {
    let body = &second.sent[0].body;
    assert!(body.contains("question 0") && body.contains("question 1"), "{source}: {body}");
}

fn assert_same(source: &str, turn: &Turn, expected: &Turn) {
    assert_eq!(turn.sent.len(), expected.sent.len(), "{source}");
    for (index, (sent, wanted)) in turn.sent.iter().zip(&expected.sent).enumerate() {
        assert_eq!(sent.line, wanted.line, "{source}, request {index}");
        assert_eq!(sent.body, wanted.body, "{source}, request {index}");
    }
    assert_eq!(turn.outcome, expected.outcome, "{source}");
}

/// Prints the number of compared conversations. Asserts that every provider has conversations in
/// every mode, with whole and with streamed answers.
fn report(recorded: &[Recorded], expected: &BTreeMap<String, (Turn, Turn)>) {
    for provider in &PROVIDERS {
        let those: Vec<_> =
            recorded.iter().filter(|it| it.provider.name == provider.name).collect();
        let turns: Vec<_> = those.iter().map(|it| &expected[&it.source]).collect();
        let requests: usize = turns.iter().map(|(_, second)| second.sent.len()).sum();
        let answered = turns.iter().filter(|(one, two)| one.succeeded && two.succeeded).count();
        let with_tools = turns.iter().filter(|(first, _)| first.sent.len() > 1).count();
        let scripted = those.iter().filter(|it| it.is_scripted).count() / MODES.len();
        let in_cassettes = those.len() / MODES.len() - scripted;
        println!(
            "{:17} {in_cassettes:3} recorded and {scripted} scripted conversations in {} modes, \
             {answered} answered to the end, {with_tools} with tools in the first turn; \
             {requests} requests of the second turn are the same bytes",
            provider.name,
            MODES.len(),
        );
        assert!(requests >= turns.len(), "{}", provider.name);
        for mode in MODES {
            for is_streamed in [false, true] {
                let is_there = those.iter().any(|it| {
                    let (first, second) = &expected[&it.source];
                    it.mode == mode
                        && it.is_streamed == is_streamed
                        && first.sent.len() > 1
                        && first.succeeded
                        && second.succeeded
                });
                assert!(is_there, "{}, {mode:?}, streamed: {is_streamed}", provider.name);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the child of another test"]
async fn child_has_the_second_turns() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let offsets = fs::read_to_string(first_turns(folder)).unwrap();
    let offsets: BTreeMap<String, usize> = serde_json::from_str(&offsets).unwrap();
    let store = SqliteStore::open(database(folder)).await.unwrap();
    let services = services().await;
    let mut turns = BTreeMap::new();
    for conversation in recorded() {
        let service = &services[conversation.provider.name];
        service.server.play(&conversation.answers, offsets[&conversation.source]);
        let stack = conversation.stack(service, store.clone());
        let turn = conversation.turn(&stack, service, 1).await;
        turns.insert(conversation.source, turn);
    }
    fs::write(second_turns(folder), serde_json::to_string(&turns).unwrap()).unwrap();
}
