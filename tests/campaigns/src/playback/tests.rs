//! Tests that the player notices every change that a stack or a store makes to a conversation.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat::{
    ConversationKey, HistoryStore, MemoryStore, Message, Part, PersistenceError, PersistenceMode,
    Role,
    error::NotStored,
    message::Messages,
    store::{self, History, StoreError},
};
use tower_chat_testkit::FaultyStore;

use super::{Difference, PlayError, Player, Recording};

const MODES: [PersistenceMode; 2] = [PersistenceMode::PerRun, PersistenceMode::PerServiceCall];

/// A store that changes messages when they are loaded.
struct AlteringStore<F> {
    inner: MemoryStore,
    alter: F,
}

#[async_trait]
impl<F: Fn(&mut Vec<Message>) + Send + Sync + 'static> store::author::StoreWrapper
    for AlteringStore<F>
{
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.inner
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let history = self.inner.load(key).await?;
        let mut messages: Vec<Message> =
            history.messages.iter().map(|message| (**message).clone()).collect();
        (self.alter)(&mut messages);
        Ok(History::new(history.head, messages.into_iter().collect::<Messages>()))
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }
}

fn recording() -> Recording {
    let call = |id: &str, name: &str, arguments: &str| {
        serde_json::json!({"id": id, "type": "function",
            "function": {"name": name, "arguments": arguments}})
    };
    let json = serde_json::json!({"id": "x", "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Ann", "content": "go"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [
            call("c1", "look", "{\"a\": 1}"), call("c2", "weigh", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "tool", "tool_call_id": "c2", "content": "too heavy", "x_error": true},
        {"role": "assistant", "content": "There."},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": "You are welcome."},
    ]});
    Recording::read(&json.to_string()).unwrap()
}

fn call_of(message: &mut Message, at: usize) -> &mut tower_chat::ToolCall {
    let mut calls = message.parts.iter_mut().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    });
    calls.nth(at).unwrap()
}

fn result_of(message: &mut Message, at: usize) -> &mut tower_chat::ToolResult {
    let mut results = message.parts.iter_mut().filter_map(|part| match part {
        Part::ToolResult(result) => Some(result),
        _ => None,
    });
    results.nth(at).unwrap()
}

/// Plays a conversation over an [`AlteringStore`]. Returns the differences that the model client
/// finds in the last request.
async fn found(
    mode: PersistenceMode,
    streamed: bool,
    alter: impl Fn(&mut Vec<Message>) + Send + Sync + 'static,
) -> Vec<(usize, String)> {
    // The second run is the first one that loads messages: five of them.
    let alter = move |messages: &mut Vec<Message>| {
        if messages.len() == 5 {
            alter(messages);
        }
    };
    let store = AlteringStore { inner: MemoryStore::new(), alter };
    let player = Player::new(store).mode(mode).streamed(streamed);
    player.play(&recording()).await.unwrap();
    let divergences = player.take_divergences();
    assert_eq!(player.counters().divergences, divergences.len() as u64);
    divergences
        .into_iter()
        .map(|divergence| {
            assert_eq!((&*divergence.conversation, divergence.service_call), ("x", Some(2)));
            let what = match divergence.difference {
                Difference::Missing { .. } => "missing".to_owned(),
                Difference::Extra { .. } => "extra".to_owned(),
                Difference::Field { field, .. } => field,
                other => panic!("{other}"),
            };
            (divergence.message, what)
        })
        .collect()
}

#[tokio::test]
async fn the_verification_reports_every_altered_message_with_its_position_and_field() {
    type Alteration = fn(&mut Vec<Message>);
    let alterations: [(Alteration, &[(usize, &str)]); 14] = [
        (|_| {}, &[]),
        (|all| all[0] = Message::system("Be  brief."), &[(0, "content")]),
        (|all| all[0].role = Role::Developer, &[(0, "role")]),
        (|all| all[1].author = None, &[(1, "name")]),
        (
            |all| call_of(&mut all[2], 0).arguments = "{\"a\":1}".into(),
            &[(2, "tool_calls[0].function.arguments")],
        ),
        (|all| call_of(&mut all[2], 1).name = "wait".into(), &[(2, "tool_calls[1].function.name")]),
        (
            |all| {
                call_of(&mut all[2], 1).id = Some("c3".into());
                result_of(&mut all[3], 1).call_id = Some("c3".into());
            },
            &[(2, "tool_calls[1].id")],
        ),
        (|all| result_of(&mut all[3], 0).content = vec![Part::text("")], &[(3, "content")]),
        (|all| result_of(&mut all[3], 1).is_error = false, &[(4, "x_error")]),
        (|all| result_of(&mut all[3], 1).name = Some("weigh".into()), &[(4, "name")]),
        (
            |all| all.swap(0, 1),
            &[(0, "content"), (0, "name"), (0, "role"), (1, "content"), (1, "name"), (1, "role")],
        ),
        (|all| drop(all.remove(1)), &[(1, "missing")]),
        (|all| drop(all.pop()), &[(5, "missing")]),
        (|all| all.insert(1, Message::system("Be kind.")), &[(1, "extra")]),
    ];
    for (position, (alter, expected)) in alterations.into_iter().enumerate() {
        for mode in MODES {
            for streamed in [false, true] {
                let found = found(mode, streamed, alter).await;
                let found: Vec<(usize, &str)> =
                    found.iter().map(|(at, what)| (*at, what.as_str())).collect();
                assert_eq!(found, expected, "alteration {position}, {mode:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_play_without_verification_reports_no_divergence() {
    let alter = |messages: &mut Vec<Message>| messages.retain(|m| m.role != Role::System);
    let player = Player::new(AlteringStore { inner: MemoryStore::new(), alter }).verified(false);
    player.play(&recording()).await.unwrap();
    assert_eq!((player.counters().divergences, player.counters().service_calls), (0, 3));
}

#[tokio::test]
async fn the_last_answer_is_verified_although_no_request_contains_it() {
    let alter = |messages: &mut Vec<Message>| {
        if messages.len() == 7 {
            messages[6] = Message::assistant("You are not.");
        }
    };
    let player = Player::new(AlteringStore { inner: MemoryStore::new(), alter });
    player.play(&recording()).await.unwrap();
    let found = player.take_divergences();
    assert_eq!((found.len(), found[0].service_call, found[0].message), (1, None, 7));
}

#[tokio::test]
async fn a_store_error_fails_the_conversation_and_the_play_can_be_resumed() {
    for mode in MODES {
        let store = Arc::new(FaultyStore::new(MemoryStore::new()));
        let player = Player::new(store.clone()).mode(mode);
        store.fail_next_append(StoreError::backend("write", true, "the disk is full"));
        let error = player.play(&recording()).await.unwrap_err();
        let PlayError::Run { run: 0, source, .. } = error else { panic!("{error}") };
        let persistence = source.downcast_ref::<PersistenceError>().unwrap();
        assert!(matches!(persistence, PersistenceError::NotStored(failed)
            if matches!(**failed, NotStored { source: StoreError::Backend { .. }, .. })));

        let player = Player::new(store).mode(mode).resumed(true);
        player.play(&recording()).await.unwrap();
        assert_eq!(player.take_divergences(), []);
    }
}

#[tokio::test]
async fn a_second_play_of_a_stored_conversation_is_refused() {
    let player = Player::new(MemoryStore::new());
    assert!(!player.is_stored(&recording()).await.unwrap());
    player.play(&recording()).await.unwrap();
    assert!(player.is_stored(&recording()).await.unwrap());
    let again = player.play(&recording()).await;
    assert!(matches!(again, Err(PlayError::AlreadyStored { conversation }) if conversation == "x"));
}

#[tokio::test]
async fn the_pipeline_receives_only_the_input_of_each_run() {
    let store = Arc::new(MemoryStore::new());
    let player = Player::new(store.clone()).mode(PersistenceMode::PerServiceCall);
    player.play(&recording()).await.unwrap();
    let history = store.load(&recording().key()).await.unwrap();
    let runs: Vec<_> = history.messages.iter().map(|message| message.id.unwrap()).collect();
    assert!(runs[..5].iter().all(|id| id.run == runs[0].run));
    assert!(runs[5..].iter().all(|id| id.run == runs[5].run && id.run != runs[0].run));
    assert_eq!(runs[5].index, 0);
}

#[test]
fn every_line_that_is_not_empty_is_read_as_a_recording() {
    let lines = "{\"id\": \"greeting\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n\n\
        {\"id\": 7, \"messages\": []}";
    let recordings = Recording::read_lines(lines).unwrap();
    let read: Vec<_> = recordings.iter().map(|read| (read.id(), read.messages().len())).collect();
    assert_eq!(read, [("greeting", 1), ("7", 0)]);
}

#[test]
fn a_line_that_is_nested_too_deeply_is_an_error_with_the_line_number() {
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for line in [
        format!(r#"{{"id":"deep","messages":[{{"role":"user","content":{deep}}}]}}"#),
        format!(r#"{{"id":"deep","messages":[{deep}]}}"#),
        format!(r#"{{"id":{deep},"messages":[]}}"#),
        deep.clone(),
    ] {
        let text = format!("{{\"id\":1,\"messages\":[]}}\n{line}\n");
        let error = Recording::read_lines(&text).unwrap_err();
        assert_eq!(error.line, 2, "{error}");
    }
}
