//! An example of a custom store: one file for each conversation.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin file_store [FOLDER]
//! ```
//!
//! The store is a minimal one:
//!
//! - All conversations are in memory.
//! - Each write replaces and syncs the file of its conversation on the calling thread.
//! - Only one process at a time may open the folder.
//! - It cannot store incomplete runs. It therefore supports the modes `PerRun` and
//!   `PerServiceCall`, but not `Journaled`.
//!
//! The tests at the end of this file check that the store fulfils the contract of stores.

mod store;

use tower::service_fn;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    Message, PersistenceMode,
};

use self::store::FileStore;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "conversations".to_owned());
    let store = FileStore::open(&folder)?;
    let key = ConversationKey::new("alice", "diary");
    println!("remembered {} messages", store.load(&key).await?.messages.len());
    let pipeline = ChatPipeline::builder(service_fn(echo))
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()?;
    println!("{}", pipeline.ask(key, "Good morning.").await?.text());
    store.close().await?;
    Ok(())
}

async fn echo(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let answer =
        Message::assistant(format!("So far I have read {} messages.", request.messages().len()));
    Ok(ChatResponse::whole([answer], Finish::default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is a failing test")]
mod tests {
    use std::fs;

    use tower_chat::{
        message::MessageId,
        run::RunId,
        store::{Revision, author::Write},
    };

    use super::*;

    // This macro generates the tests of the contract. Its first argument creates the store.
    tower_chat_testkit::store_contract!(
        let folder = tempfile::tempdir().unwrap();
        FileStore::open(folder.path()).unwrap();
        residual_data: {
            let path = folder.path().to_owned();
            move |_: &FileStore| {
                let files = fs::read_dir(&path).unwrap();
                let bytes = files.flat_map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
                async move { bytes }
            }
        };
        heavy: "each write replaces the file of its conversation";
        directory: "the store has no directory";
        maintenance: "the store cannot copy or prune";
        journal: "the store has no open runs";
        tool_calls: "the store answers no queries over conversations";
        summaries: "the store has no summaries"
    );

    async fn append(store: &FileStore, at: Revision, text: &str) -> Revision {
        let id = MessageId { run: RunId::new(), index: 0 };
        let key = ConversationKey::new("alice", "diary");
        let write = Write::new(key, id, at, [Message::user(text).into()]);
        store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap()
    }

    async fn texts(store: &FileStore) -> Vec<String> {
        let history = store.load(&ConversationKey::new("alice", "diary")).await.unwrap();
        history.messages.iter().map(|message| message.text()).collect()
    }

    #[tokio::test]
    async fn a_file_without_its_final_name_was_left_by_a_crash_and_is_no_write() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let at = append(&store, Revision::ABSENT, "first").await;
        drop(store);
        fs::write(folder.path().join("0.new"), b"{\"scope\":\"al").unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        append(&store, at, "second").await;
        drop(store);
        let store = FileStore::open(folder.path()).unwrap();
        assert_eq!(texts(&store).await, ["first", "second"]);
    }

    #[tokio::test]
    async fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        append(&store, Revision::ABSENT, "first").await;
        drop(store);
        let path = folder.path().join("0.json");
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(FileStore::open(folder.path()).is_err(), "cut at {length}");
        }
    }
}
