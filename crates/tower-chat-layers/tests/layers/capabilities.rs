//! Tests of pipelines over a store without capabilities.

use tower::ServiceExt;
use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore, PersistenceError,
    PersistenceMode, PersistencePolicy,
    error::BuildError,
    policy::ConcurrentRuns,
    store::{self, Capability},
};
use tower_chat_testkit::{ScriptedModel, Step};

/// A store without capabilities.
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
fn a_pipeline_that_needs_a_capability_is_not_built_without_it() {
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

    // The other modes need no capability.
    pipeline.oneshot(request()).await.unwrap().collect().await.unwrap();
    assert_eq!(store.load(&key()).await.unwrap().messages.len(), 2);
}
