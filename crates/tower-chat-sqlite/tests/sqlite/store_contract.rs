//! Tests the store against the store contract.

use tower_chat_sqlite::SqliteStore;

tower_chat_testkit::store_contract!(
    let folder = tempfile::tempdir().unwrap();
    SqliteStore::open(folder.path().join("chat.db")).await.unwrap();
    residual_data: {
        let path = folder.path().to_owned();
        move |store: &SqliteStore| {
            let (store, path) = (store.clone(), path.clone());
            async move {
                store.checkpoint().await.unwrap();
                let files = std::fs::read_dir(path).unwrap();
                files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
            }
        }
    }
);
