//! An example of a custom store: one file for each conversation, one line of JSON for each write.
//!
//! ```text
//! cargo run -p tower-chat-examples --bin file_store [FOLDER]
//! ```
//!
//! The store is a minimal one: all conversations are in memory, every write syncs its file on the
//! calling thread, and only one process may open the folder at a time. Its behaviour is
//! nevertheless correct: the test at the end of this file runs the complete contract of stores.
//!
//! `conversation.rs` has the effect of a write on a conversation, `file.rs` writes the files,
//! `line.rs` has the format of a line, and `store.rs` implements the store.

mod conversation;
mod file;
mod line;
mod store;

use tower::service_fn;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, Message,
    PersistenceMode, store::HistoryStore,
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

/// A model client that reports the number of messages in the request.
async fn echo(request: ChatRequest) -> Result<ChatResponse, BoxError> {
    let answer =
        Message::assistant(format!("So far I have read {} messages.", request.messages.len()));
    Ok(ChatResponse::whole([answer], Finish::default()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is a failing test")]
mod tests {
    use std::{fs, io::Write as _};

    use tower_chat::{
        MessageId, RunId,
        store::{Revision, author::Write},
    };

    use super::*;

    // This macro generates the tests of the complete contract. Its argument creates and reopens the
    // store.
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
        }
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
    async fn a_line_that_was_torn_by_a_crash_is_no_write_and_the_next_one_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let at = append(&store, Revision::ABSENT, "first").await;
        append(&store, at, "second").await;
        drop(store);
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in first..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let store = FileStore::open(folder.path()).unwrap();
            assert_eq!(texts(&store).await, ["first"], "cut at {length}");
            append(&store, at, "again").await;
            drop(store);
            let store = FileStore::open(folder.path()).unwrap();
            assert_eq!(texts(&store).await, ["first", "again"]);
        }
        fs::write(&path, &whole).unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        assert_eq!(texts(&store).await, ["first", "second"]);
    }

    #[tokio::test]
    async fn a_file_that_is_damaged_elsewhere_is_not_read_as_if_it_were_shorter() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        append(&store, Revision::ABSENT, "first").await;
        drop(store);
        let path = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"no\": \"line\"}\n").unwrap();
        assert!(FileStore::open(folder.path()).is_err());
    }
}
