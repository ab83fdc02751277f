//! Tests of damaged files.

use std::io::Cursor;

use tower_chat::{
    MemoryStore,
    store::Directory,
    transfer::{FileError, Selection, TransferError, import},
};

use crate::{
    conversations::{export_alice, fill, fill_pruned, import_file, key},
    stores::Kind,
};

async fn file() -> Vec<u8> {
    let store = Kind::Memory.open().await;
    fill(&*store, &key("coats")).await;
    fill_pruned(&*store, &key("pruned")).await;
    export_alice(&*store).await
}

/// Imports a damaged file, and returns the error.
async fn refused(file: &[u8]) -> FileError {
    let store = MemoryStore::new();
    let error =
        match import(&store, Cursor::new(file), &Selection::everything(), &mut |_| Ok(())).await {
            Err(TransferError::File(error)) => error,
            other => panic!("{other:?} of {}", String::from_utf8_lossy(file)),
        };
    assert_eq!(store.list("alice", None, 10).await.unwrap(), []);
    assert_eq!(store.summary(&key("coats")).await.unwrap(), None);
    error
}

fn line_of(error: &FileError) -> u64 {
    match error {
        FileError::NotAnExport | FileError::UnknownVersion { .. } => 1,
        FileError::Damaged { line, .. } | FileError::Incomplete { line } => *line,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_that_is_truncated_at_any_byte_is_refused() {
    let file = file().await;
    for length in 0..file.len() {
        let error = refused(&file[..length]).await;
        let whole_lines = file[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
        match whole_lines {
            0 => assert_eq!(error, FileError::NotAnExport),
            lines => assert_eq!(error, FileError::Incomplete { line: lines }),
        }
    }
}

#[tokio::test]
async fn an_import_detects_a_flipped_bit_in_any_byte_in_its_line_or_a_later_line() {
    let file = file().await;
    for position in 0..file.len() {
        let mut damaged = file.clone();
        damaged[position] ^= 1 << (position % 8);
        let error = refused(&damaged).await;
        let line = 1 + file[..position].iter().filter(|byte| **byte == b'\n').count() as u64;
        // If the last byte is removed, the last line is incomplete.
        let expected = if position + 1 == file.len() { line - 1 } else { line };
        assert!(line_of(&error) >= expected, "{error} at line {line}");
    }
}

#[tokio::test]
async fn a_file_with_a_shortened_swapped_or_missing_line_is_refused() {
    let file = file().await;
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    for position in 0..lines.len() {
        let mut missing = lines.clone();
        let taken = missing.remove(position);
        refused(&missing.concat()).await;
        let half = &taken[..taken.len() / 2];
        let mut cut = lines.clone();
        let half = [half, b"\n"].concat();
        cut[position] = &half;
        let error = refused(&cut.concat()).await;
        assert_eq!(line_of(&error), position as u64 + 1, "{error}");
        let mut twice = lines.clone();
        twice.insert(position, taken);
        refused(&twice.concat()).await;
        for other in position + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(position, other);
            refused(&swapped.concat()).await;
        }
    }
}

#[tokio::test]
async fn the_messages_of_import_errors_contain_advice() {
    let file = String::from_utf8(file().await).unwrap();
    for (damaged, expected) in [
        (
            file.replacen("\"version\":1", "\"version\":2", 1),
            "line 1: the export has version 2, and this release reads version 1: import it with the \
             release that wrote it, or a newer one",
        ),
        (
            "{\"scope\":\"a\"}\n".to_owned(),
            "line 1 is not the first line of an export of tower-chat, which is \
             {\"format\":\"tower-chat\",\"version\":1}: give a file that `export` has written, or name \
             the format of this file",
        ),
        (
            file.replacen("Good day.", "Good ray.", 1),
            "line 19: lines 2 to 18 differ from the exported lines: the file was changed or damaged after \
             it was exported; restore it from a copy, or export again",
        ),
    ] {
        assert_eq!(refused(damaged.as_bytes()).await.to_string(), expected);
    }
}

#[tokio::test]
async fn an_undamaged_file_is_imported_without_refusals() {
    let receipt = import_file(&MemoryStore::new(), &file().await).await;
    assert_eq!(receipt.refused, []);
}
