//! Tests that the files contain no plaintext content.

use std::{fs, path::Path};

use tower_chat_core::{
    ConversationKey, Message,
    store::{HistoryStore, InvocationQuery, Journal, Maintenance, Revision, ToolCallQueries},
};
use tower_chat_encrypted::EncryptedStore;
use tower_chat_sqlite::SqliteStore;

use crate::common::{append, key, keys, messages, rows, staged, write};

/// Returns the names of the files in a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let holds = |bytes: Vec<u8>| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    files
        .filter(|file| holds(fs::read(file.path()).unwrap()))
        .map(|file| file.file_name().into_string().unwrap())
        .collect()
}

async fn fill(store: &dyn HistoryStore) {
    let at = append(store, write(&key(), Revision::ABSENT, messages()).with_tools(rows())).await;
    append(store, write(&key(), at, [Message::user("secret stage")]).staged(staged("secret cut")))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_and_its_log_contain_no_text_argument_or_result_in_plaintext() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let store = EncryptedStore::new(sqlite.clone(), keys());
    fill(&store).await;
    let logged = files_with(folder.path(), "tower-chat-3:first:");
    assert!(logged.contains(&"chat.db-wal".to_owned()), "{logged:?}");
    assert_eq!(files_with(folder.path(), "secret"), Vec::<String>::new());
    store.close().await.unwrap();
    assert_eq!(files_with(folder.path(), "tower-chat-3:first:"), ["chat.db"]);
    assert_eq!(files_with(folder.path(), "secret"), Vec::<String>::new());

    let plain = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(plain.path().join("chat.db")).await.unwrap();
    fill(&sqlite).await;
    assert!(!files_with(plain.path(), "secret").is_empty(), "the search finds plaintext");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_store_returns_the_same_data_as_a_plain_store() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    let plain = tower_chat_core::MemoryStore::new();
    let store = EncryptedStore::new(sqlite, keys());
    for store in [&store as &dyn HistoryStore, &plain] {
        let first = write(&key(), Revision::ABSENT, messages()).with_tools(rows());
        append(store, first).await;
    }
    let parts = async |store: &dyn HistoryStore, key: &ConversationKey| {
        let history = store.load(key).await.unwrap();
        let messages: Vec<_> =
            history.messages.iter().map(|it| (it.parts.clone(), it.metadata.clone())).collect();
        let mut found = store.invocations(&InvocationQuery::of(key)).await.unwrap().found;
        let record: Vec<_> =
            found.drain(..).map(|(_, it)| (it.arguments, it.result, it.error)).collect();
        (messages, record, store.head(key).await.unwrap().pending_approvals)
    };
    let expected = parts(&plain, &key()).await;
    assert_eq!(parts(&store, &key()).await, expected);
    let copy = ConversationKey::new("alice", "copy");
    store.fork_at(&key(), None, &copy).await.unwrap();
    let (messages, record, _) = expected;
    // A call of a copy does not wait for approval.
    assert_eq!(parts(&store, &copy).await, (messages, record, Vec::new()));

    let at = store.head(&key()).await.unwrap().revision;
    let stage = write(&key(), at, [Message::user("secret stage")]).staged(staged("secret cut"));
    append(&store, stage).await;
    let content = store.open_run(&key()).await.unwrap().unwrap();
    assert_eq!(content.messages[0].text(), "secret stage");
    assert_eq!(content.open.partial_text.as_deref(), Some("secret cut"));
    assert_eq!(store.open_runs("alice", None, 10).await.unwrap(), [key()]);
    assert_eq!(store.head(&key()).await.unwrap().open_run, Some(content.open));
    assert_eq!(store.load(&key()).await.unwrap().well_formed_messages(), 1);
}
