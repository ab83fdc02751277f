//! Prints a table of configurations. It shows which messages each configuration stores in three
//! kinds of runs.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin matrix
//! ```

use serde_json::json;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, MemoryStore, Message,
    PersistenceMode, Role, ToolCall, ToolDefinition, Tools,
    layer::{PerServiceCallPersistence, ToolLoopLayer},
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

/// A kind of run: the script of the model, and whether the tool ends the loop.
struct Story {
    name: &'static str,
    script: fn() -> Vec<Step>,
    terminates: bool,
}

const STORIES: [Story; 3] = [
    Story {
        name: "a run with one tool round",
        script: || vec![call(), Step::text("Done.")],
        terminates: false,
    },
    Story {
        name: "its second service call fails",
        script: || vec![call(), Step::error("the model is overloaded")],
        terminates: false,
    },
    Story { name: "its tool ends the loop", script: || vec![call()], terminates: true },
];

fn call() -> Step {
    Step::message(Message::tool_calls([ToolCall::new("call_1", "work", "{}")]))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    for story in STORIES {
        println!("{}", story.name);
        for as_is in [false, true] {
            for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
                let stored = play(&story, as_is, mode).await?;
                println!("  use_client_as_is {as_is:5}  {:16}  {stored}", format!("{mode:?}"));
            }
        }
    }
    Ok(())
}

async fn play(story: &Story, as_is: bool, mode: PersistenceMode) -> Result<String, BoxError> {
    let store = MemoryStore::new();
    let model = ScriptedModel::new((story.script)());
    let tools = tools(story.terminates);
    let mut client = if as_is {
        let own_stack = ServiceBuilder::new()
            .layer(ToolLoopLayer::new(tools))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model);
        ChatPipeline::builder(own_stack)
            .use_client_as_is(true)
            .history(store.clone())
            .persistence(mode)
            .build()?
    } else {
        ChatPipeline::builder(model)
            .tools(tools)
            .history(store.clone())
            .persistence(mode)
            .build()?
    };
    let key = ConversationKey::new("alice", "matrix");
    let request = ChatRequest::user("Please work.").in_conversation(key.clone());
    let _outcome = client.ready().await?.call(request).await; // one of the runs ends with an error
    let stored = store.load(&key).await?.messages;
    let sketch: Vec<&str> = stored.iter().map(|message| name_of(message)).collect();
    Ok(if sketch.is_empty() { "nothing".to_owned() } else { sketch.join(", ") })
}

fn tools(terminates: bool) -> Tools {
    let definition = ToolDefinition::new("work", "Works.", json!({"type": "object"}));
    Tools::new().with(tool_fn(definition, move |_| async move {
        let output = ToolOutput::from("worked");
        Ok(if terminates { output.terminate() } else { output })
    }))
}

fn name_of(message: &Message) -> &'static str {
    match message.role {
        Role::User => "user",
        Role::Tool => "tool result",
        Role::Assistant if message.calls().next().is_some() => "tool call",
        Role::Assistant => "answer",
        _ => "other",
    }
}
