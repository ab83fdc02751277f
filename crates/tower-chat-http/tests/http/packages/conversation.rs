//! Sends the requests of whole conversations with OpenAI's Python package to an endpoint whose
//! history is stored in SQLite.

use std::path::Path;

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, Finish, HistoryStore, Message, Part, PersistenceMode, ToolCall,
    request::Usage, store::Directory,
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::{Step, skip};

use super::install;
use crate::support::{Served, serve, sketch};

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_openais_python_package_with_tools_is_stored_in_sqlite() {
    let python = match install::python() {
        Ok(python) => python.program,
        Err(reason) => return skip("a conversation of OpenAI's Python package", reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut held = Vec::new();
    for form in ["whole", "streamed", "helper"] {
        let ways = [
            ("new", PersistenceMode::PerServiceCall),
            ("repeat", PersistenceMode::PerServiceCall),
            ("repeat", PersistenceMode::PerRun),
            ("window", PersistenceMode::PerRun),
        ];
        for (history, mode) in ways {
            let conversation = format!("{form}-{history}-{mode:?}");
            let served = serve(script(), store.clone(), mode).await;
            hold(&python, &served, &[&conversation, form, history]).await;
            assert_eq!(served.model.remaining(), 0, "{conversation}");
            let asked = served.model.requests();
            let options = &asked[0].options;
            assert_eq!((options.temperature, &options.extra["seed"]), (Some(0.25), &json!(7)));
            assert!(asked.iter().all(|request| request.options.tools.len() == 2));
            held.push(conversation);
        }
    }
    store.close().await.unwrap();

    // Opens the file a second time, to read only data that is stored in the file.
    let store = SqliteStore::open(&path).await.unwrap();
    for conversation in &held {
        let key = ConversationKey::new("alice", conversation.as_str());
        let history = store.load(&key).await.unwrap();
        assert_eq!(sketch(&history.messages), stored(), "{conversation}");
    }
    let kept = store.list("alice", None, 100).await.unwrap();
    assert_eq!(kept.len(), held.len(), "{kept:?}");
}

/// Returns the scripted answers of the model.
fn script() -> Vec<Step> {
    let weather = |id: &str, city: &str| {
        Part::ToolCall(ToolCall::new(id, "weather", json!({"city": city}).to_string()))
    };
    let mut look = Message::assistant("Let me look.");
    look.parts.push(weather("call_1", "Paris"));
    let mut order = Message::assistant("One moment.");
    order.parts.push(Part::ToolCall(ToolCall::new("call_2", "order_status", r#"{"order": 7}"#)));
    let mut both = Message::tool_calls([]);
    both.parts = vec![weather("call_3", "Rome"), weather("call_4", "Oslo")];
    [
        look,
        Message::assistant("It rains in Paris."),
        order,
        Message::assistant("Order 7 is on its way."),
        both,
        Message::assistant("Rain in both."),
    ]
    .map(|message| Step::answer([message], Finish::stop().with_usage(Usage::new(20, 10))))
    .into()
}

/// Returns the messages that the conversation must contain, in the form of [`sketch`].
fn stored() -> Vec<Value> {
    vec![
        json!(["system", "Be brief."]),
        json!(["user", "How is the weather in Paris?"]),
        json!(["assistant", "Let me look.", {"call_1": "weather"}]),
        json!(["tool", {"call_1": "Rain in Paris."}]),
        json!(["assistant", "It rains in Paris."]),
        json!(["user", "Where is my order 7?"]),
        json!(["assistant", "One moment.", {"call_2": "order_status"}]),
        json!(["tool", {"call_2": "Order 7 is on its way."}]),
        json!(["assistant", "Order 7 is on its way."]),
        json!(["user", "The weather in Rome and Oslo?"]),
        json!(["assistant", {"call_3": "weather", "call_4": "weather"}]),
        json!(["tool", {"call_3": "Rain in Rome."}]),
        json!(["tool", {"call_4": "Rain in Oslo."}]),
        json!(["assistant", "Rain in both."]),
    ]
}

async fn hold(python: &Path, served: &Served, arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/packages/conversation.py");
    let mut command = tokio::process::Command::new(python);
    command.arg(script).arg(served.url("/v1")).args(arguments);
    // These variables could make the package send its requests to another machine.
    for name in ["OPENAI_BASE_URL", "OPENAI_API_KEY", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let output = command.output().await.unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(output.status.success() && printed.contains("done"), "{arguments:?}: {printed}");
}
