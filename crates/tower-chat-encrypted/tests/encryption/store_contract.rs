//! The contract of stores, with encryption, over one inner store.

use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_sqlite::SqliteStore;

fn keys() -> MasterKeys {
    MasterKeys::new("key: 1", SecretKey::random().unwrap()).unwrap()
}

tower_chat_testkit::store_contract!(
    let folder = tempfile::tempdir().unwrap();
    EncryptedStore::new(
        SqliteStore::open(folder.path().join("chat.db")).await.unwrap(),
        keys(),
    );
    residual_data: {
        let path = folder.path().to_owned();
        move |store: &EncryptedStore<SqliteStore>| {
            let (store, path) = (store.inner().clone(), path.clone());
            async move {
                store.checkpoint().await.unwrap();
                let files = std::fs::read_dir(path).unwrap();
                files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
            }
        }
    };
    one_runtime: "the wrapper starts no task"
);
