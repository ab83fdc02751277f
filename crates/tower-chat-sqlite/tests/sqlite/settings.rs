//! Tests of reading the settings of a file without opening it as a store.

use std::fs;

use tower_chat_sqlite::{OpenError, SqliteStore};

use crate::older_files::copy;

#[tokio::test]
async fn file_settings_describes_files_of_every_version_and_changes_nothing() {
    for version in 1..=6 {
        let name = format!("v{version}.db");
        let (_folder, path) = copy(&name);
        let before = fs::read(&path).unwrap();
        let settings = SqliteStore::file_settings(&path).await.unwrap();
        assert_eq!((settings.version, settings.supported_version), (version, 7));
        assert_eq!((settings.journal_mode.as_str(), settings.damage.len()), ("wal", 0));
        assert_eq!(settings.file_bytes, before.len() as u64);
        assert_eq!(fs::read(&path).unwrap(), before, "{name}");
    }
}

#[tokio::test]
async fn file_settings_reports_damage_and_a_missing_file() {
    let (folder, path) = copy("v5.db");
    let mut bytes = fs::read(&path).unwrap();
    // The test overwrites the header of the last page.
    let page = bytes.len() - 4096;
    bytes[page..page + 8].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let settings = SqliteStore::file_settings(&path).await.unwrap();
    assert!(!settings.damage.is_empty(), "{settings:?}");
    let missing = SqliteStore::file_settings(folder.path().join("other.db")).await.unwrap_err();
    assert!(matches!(missing, OpenError::Missing { .. }), "{missing:?}");
}
