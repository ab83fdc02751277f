//! Tests of questions in a conversation, which are sent with `ChatPipeline::ask`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::{pin::pin, sync::Arc, time::Duration};

use tower_chat::{
    error::{Classified, is_retryable},
    prelude::*,
};
use tower_chat_testkit::{ScriptedModel, Step};

fn key() -> ConversationKey {
    ConversationKey::new("alice", "wardrobe")
}

fn agent(model: ScriptedModel, store: &MemoryStore) -> ChatPipeline {
    ChatPipeline::builder(model)
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()
        .unwrap()
}

async fn stored(store: &MemoryStore) -> Vec<Arc<Message>> {
    store.load(&key()).await.unwrap().messages.iter().cloned().collect()
}

#[tokio::test]
async fn questions_of_one_conversation_are_runs_that_follow_each_other() {
    let (model, store) =
        (ScriptedModel::new([Step::text("A coat."), Step::text("Wool.")]), MemoryStore::new());
    let agent = agent(model.clone(), &store);

    let first = agent.ask(key(), "What should I wear?").await.unwrap();
    let second = agent.ask(key(), String::from("Of what?")).await.unwrap();

    assert_eq!((first.text(), second.text()), ("A coat.".to_owned(), "Wool.".to_owned()));
    assert_eq!(model.requests()[1].messages().len(), 3);
    let stored = stored(&store).await;
    assert_eq!(stored.len(), 4);
    assert_ne!(stored[0].id.unwrap().run, stored[2].id.unwrap().run);
}

#[tokio::test]
async fn a_streamed_answer_arrives_in_deltas_and_is_stored() {
    let (model, store) = (ScriptedModel::new([Step::text("A coat.")]), MemoryStore::new());
    let mut response = agent(model.clone(), &store).ask_streamed(key(), "And now?").await.unwrap();
    assert!(model.requests()[0].options.stream);

    let (mut text, mut finished) = (String::new(), false);
    while let Some(update) = response.next().await {
        match update.unwrap() {
            ChatUpdate::TextDelta(delta) => text.push_str(&delta),
            ChatUpdate::Finish(_) => finished = true,
            _ => {}
        }
    }
    assert_eq!((text.as_str(), finished), ("A coat.", true));
    assert_eq!(stored(&store).await.len(), 2);
}

#[tokio::test]
async fn the_error_of_the_client_is_returned_with_its_verdict() {
    let steps = [Classified::retryable("overloaded"), Classified::permanent("no such model")];
    let agent = agent(ScriptedModel::new(steps.map(Step::error)), &MemoryStore::new());
    let overloaded = agent.ask(key(), "And now?").await.unwrap_err();
    let unknown = agent.ask_streamed(key(), "And now?").await.unwrap_err();
    assert_eq!((is_retryable(&*overloaded), is_retryable(&*unknown)), (Some(true), Some(false)));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_ends_the_run_and_releases_the_conversation() {
    let steps = [Step::hang(), Step::text("A coat.")];
    let (model, store) = (ScriptedModel::new(steps), MemoryStore::new());
    let agent = agent(model.clone(), &store);

    let asked = tokio::time::timeout(Duration::from_secs(1), agent.ask(key(), "And now?")).await;
    assert!(asked.is_err());
    assert_eq!(model.requests().len(), 1);

    assert_eq!(agent.ask(key(), "Hello?").await.unwrap().text(), "A coat.");
    let texts: Vec<String> = stored(&store).await.iter().map(|message| message.text()).collect();
    assert!(texts.ends_with(&["Hello?".to_owned(), "A coat.".to_owned()]), "{texts:?}");
}

#[tokio::test]
async fn one_pipeline_answers_questions_of_many_tasks() {
    let model = ScriptedModel::new([Step::text("same"), Step::text("same")]);
    let agent = agent(model, &MemoryStore::new());
    let ask = |id: &'static str| {
        let agent = agent.clone();
        tokio::spawn(async move { agent.ask(ConversationKey::new("alice", id), "hi").await })
    };
    let (first, second) = tokio::join!(ask("first"), ask("second"));
    assert_eq!(first.unwrap().unwrap().text(), second.unwrap().unwrap().text());

    let response = pin!(agent.ask(key(), "hi"));
    assert!(response.await.is_err(), "the script is at its end");
}
