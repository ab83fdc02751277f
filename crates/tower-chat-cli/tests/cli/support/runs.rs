//! Fills stores with runs that a real stack with a scripted model executes.

use tower_chat::{
    ChatPipeline, ChatRequest, ConversationKey, HistoryStore, Message, PersistenceMode, ToolCall,
    ToolDefinition, Tools, tool::ToolOutput, tool_fn, tower::ServiceExt,
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{ScriptedModel, Step};

use super::Store;

pub(crate) const PERSISTENCE: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

fn asks(id: &str) -> Step {
    Step::message(Message::tool_calls([ToolCall::new(id, "look", "{}")]))
}

/// Stores conversations in the scope `play` with two runs, of which the first calls a tool.
pub(crate) fn fill_runs(store: &Store, conversations: usize, mode: PersistenceMode) {
    for number in 0..conversations {
        let id = format!("conversation {number}");
        let steps = [asks("c1"), Step::text("There."), Step::text("You are welcome.")];
        let outcomes = run_all(store, &id, mode, steps, &["Where is it?", "Thank you."]);
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}

/// Stores conversations in the scope `play` with a visible run, and an open run with two calls that
/// a failure of the model has interrupted.
pub(crate) fn fill_open_runs(store: &Store, conversations: usize) {
    for number in 0..conversations {
        let id = format!("conversation {number}");
        let failure = Step::error("the model is overloaded");
        let steps = [Step::text("Hello."), asks("c1"), asks("c2"), failure];
        let outcomes = run_all(store, &id, PersistenceMode::Journaled, steps, &["Hi.", "Look."]);
        assert!(matches!(&outcomes[..], [Ok(()), Err(_)]), "{outcomes:?}");
    }
}

/// Sends requests one after the other to a stack whose model answers with these steps.
fn run_all(
    store: &Store,
    id: &str,
    mode: PersistenceMode,
    steps: impl IntoIterator<Item = Step>,
    requests: &[&str],
) -> Vec<Result<(), String>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let opened = SqliteStore::open(store.path()).await.unwrap();
        let look = ToolDefinition::new("look", "looks", serde_json::json!({"type": "object"}));
        let look = tool_fn(look, |_| async { Ok(ToolOutput::from("found")) });
        let agent = ChatPipeline::builder(ScriptedModel::new(steps))
            .tools(Tools::new().with(look))
            .history(opened.clone())
            .persistence(mode)
            .build()
            .unwrap();
        let mut outcomes = Vec::new();
        for request in requests {
            let key = ConversationKey::new("play", id);
            let request = ChatRequest::user(*request).in_conversation(key);
            let outcome = async { agent.clone().oneshot(request).await?.collect().await };
            outcomes.push(outcome.await.map(drop).map_err(|error| error.to_string()));
        }
        opened.close().await.unwrap();
        outcomes
    })
}
