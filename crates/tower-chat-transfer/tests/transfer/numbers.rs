//! Tests of files that state larger numbers than their contents permit.

use std::io::Cursor;

use sha2::{Digest, Sha256};
use tower_chat::{
    MemoryStore,
    store::{Directory, UsageGrouping, UsageQuery, UsageSum},
    transfer::{FileError, Selection, TransferError, import},
};

use crate::{
    conversations::{export_alice, fill, key},
    open_runs::open_run,
    stores::Kind,
};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces a text in a file, and corrects the digests in the file.
pub(crate) fn changed(file: &str, from: &str, to: &str) -> Vec<u8> {
    assert!(file.contains(from), "{from} is not in {file}");
    let file = file.replacen(from, to, 1);
    let (mut all, mut section) = (String::new(), String::new());
    for line in file.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut written = line.to_owned();
        if value.get("conversation").is_some() {
            section.clear();
        }
        for (name, text) in [("end", &section), ("complete", &all)] {
            if let Some(end) = value.get_mut(name) {
                end["sha256"] = sha256(text.as_bytes()).into();
                let end = end.to_string();
                // The fields may be in another order than in the exported line.
                written = format!("{{\"{name}\":{end}}}");
            }
        }
        written.push('\n');
        section.push_str(&written);
        all.push_str(&written);
    }
    all.into_bytes()
}

async fn file() -> String {
    let store = Kind::Memory.open().await;
    fill(&*store, &key("coats")).await;
    open_run(&*store, "hats").await;
    String::from_utf8(export_alice(&*store).await).unwrap()
}

async fn import_to_memory(file: &[u8]) -> (MemoryStore, Result<(), TransferError>) {
    let store = MemoryStore::new();
    let all = Selection::everything();
    let imported = import(&store, Cursor::new(file), &all, &mut |_| Ok(())).await;
    (store, imported.map(drop))
}

#[tokio::test]
async fn numbers_in_a_file_that_exceed_its_contents_are_refused() {
    let file = file().await;
    let (_, whole) = import_to_memory(&changed(&file, "{", "{")).await;
    whole.unwrap();
    let number = |name: &str| {
        let (_, after) = file.split_once(name).unwrap_or_else(|| panic!("{name} in {file}"));
        let digits: String =
            after.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
        format!("{name}{digits}")
    };
    for (name, value) in [
        ("\"runs\":", "18446744073709551615"),
        ("\"runs\":", "1000"),
        ("\"last_message\":", "18446744073709551615"),
        ("\"created_at\":", "9223372036854775807"),
        ("\"last_active_at\":", "-9223372036854775808"),
        ("\"began_at\":", "9223372036854775807"),
        ("\"last_written_at\":", "9223372036854775807"),
        ("\"opened_at\":", "9223372036854775807"),
        ("\"attempt\":", "4294967295"),
        ("{\"tool\":{\"message\":", "4294967295"),
        ("{\"tool\":{\"message\":", "18446744073709551615"),
        ("{\"in_message\":{\"message\":", "4294967295"),
        ("\"number\":", "18446744073709551615"),
        ("\"covers_to\":", "18446744073709551615"),
        ("\"covers_to\":", "8"),
        ("\"covers_to\":", "6"),
        ("\"covers_to\":", "0"),
        ("\"at\":", "9223372036854775807"),
    ] {
        let file = changed(&file, &number(name), &format!("{name}{value}"));
        let (store, imported) = import_to_memory(&file).await;
        let refused = matches!(&imported, Err(TransferError::File(FileError::Damaged { .. })));
        assert!(refused, "{name}{value}: {imported:?}");
        assert_eq!(store.list("alice", None, 10).await.unwrap(), [], "{name}{value}");
    }
}

#[tokio::test]
async fn usage_that_is_too_large_for_a_store_is_imported_as_the_largest_value() {
    let file = file().await;
    let name = "\"input_tokens\":";
    let (_, after) = file.split_once(name).unwrap();
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    let largest = format!("{name}{}", u64::MAX);
    let (store, imported) =
        import_to_memory(&changed(&file, &format!("{name}{digits}"), &largest)).await;
    imported.unwrap();
    let total = UsageQuery::in_all_scopes(UsageGrouping::Model);
    let used = store.usage(&total).await.unwrap();
    let largest = used.iter().map(|used| used.sum.tokens.input_tokens).max();
    assert_eq!(largest, Some(UsageSum::LARGEST));
}
