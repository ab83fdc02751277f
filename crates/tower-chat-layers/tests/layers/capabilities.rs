//! Tests pipelines over a store that has no optional capabilities, such as staged messages.

use tower::{Layer, ServiceExt};
use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore, PersistenceError,
    PersistenceMode, PersistencePolicy,
    error::BuildError,
    layer::PerRunPersistence,
    policy::{ConcurrentRuns, Summarize},
    store::{self, Capability},
};
use tower_chat_testkit::{ScriptedModel, Step};

#[derive(Clone)]
struct Bare(MemoryStore);

impl store::author::StoreWrapper for Bare {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

#[test]
fn build_fails_if_the_store_lacks_a_capability_that_the_pipeline_needs() {
    let builder =
        || ChatPipeline::builder(ScriptedModel::new([])).history(Bare(MemoryStore::new()));
    let built = builder().persistence(PersistenceMode::Journaled).build();
    let expected = Capability::Journal;
    assert!(
        matches!(built, Err(BuildError::MissingCapability { capability, .. }) if capability == expected)
    );
    let branching = PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Branch);
    let built = builder().policy(branching).build();
    let expected = Capability::Maintenance;
    assert!(
        matches!(built, Err(BuildError::MissingCapability { capability, .. }) if capability == expected)
    );
}

#[tokio::test]
async fn summaries_need_a_store_that_stores_them() {
    let policy = || {
        let writer = ScriptedModel::new([]);
        PersistencePolicy::default().with_summarize(Summarize::above(100, writer))
    };
    let store = Bare(MemoryStore::new());
    let builder = ChatPipeline::builder(ScriptedModel::new([])).history(store.clone());
    let expected = Capability::Summaries;
    assert!(matches!(
        builder.policy(policy()).build(),
        Err(BuildError::MissingCapability { capability, .. }) if capability == expected
    ));
    let model = ScriptedModel::new([]);
    let run = PerRunPersistence::new(store.clone()).policy(policy()).layer(model.clone());
    let error = run.oneshot(ChatRequest::user("hi").in_conversation(key())).await.unwrap_err();
    assert!(is_missing(error.downcast_ref::<PersistenceError>().unwrap(), expected));
    let error = Summarize::above(100, model).now(&store, &key()).await.unwrap_err();
    assert!(is_missing(&error, expected));
}

fn is_missing(error: &PersistenceError, expected: Capability) -> bool {
    matches!(error, PersistenceError::MissingCapability { capability, .. } if *capability == expected)
}

#[tokio::test]
async fn a_request_in_journaled_mode_fails_before_the_model_is_called() {
    let model = ScriptedModel::new([Step::text("hello")]);
    let store = Bare(MemoryStore::new());
    let pipeline = ChatPipeline::builder(model.clone()).history(store.clone()).build().unwrap();
    let request = || ChatRequest::user("hi").in_conversation(key());
    let journaled = request().with_extension(PersistenceMode::Journaled);
    let error = pipeline.clone().oneshot(journaled).await.unwrap_err();
    let error = error.downcast_ref::<PersistenceError>().unwrap();
    assert!(matches!(
        error,
        PersistenceError::MissingCapability { capability: Capability::Journal, .. }
    ));
    assert_eq!(model.requests().len(), 0);

    pipeline.oneshot(request()).await.unwrap().collect().await.unwrap();
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 2);
}
