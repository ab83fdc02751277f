//! A fuzz target for files of `tower-chat export`.

use std::io::Cursor;

use futures_util::FutureExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tower_chat::{
    MemoryStore,
    transfer::{Event, ExportFile, Selection, export, import},
};
use tower_chat_testkit::Rng;

use super::{Entry, filled::fill};

pub(crate) fn target() -> Entry {
    Entry::new("export-files", "the lines of an export: transfer::import", || {
        let run = |bytes: &[u8], rng: &mut Rng| {
            if rng.one_in(8) { accepts(bytes) } else { accepts(&with_right_sums(bytes)) }
        };
        (vec![exported(&filled())], Box::new(run))
    })
}

/// Returns whether a file can be imported. Panics if the imported content cannot be exported and
/// imported again.
fn accepts(bytes: &[u8]) -> bool {
    let store = MemoryStore::new();
    if !imports(&store, bytes) {
        return false;
    }
    let again = exported(&store);
    assert!(imports(&MemoryStore::new(), &again), "{}", String::from_utf8_lossy(&again));
    true
}

fn imports(store: &MemoryStore, bytes: &[u8]) -> bool {
    let everything = Selection::everything();
    let mut progress = |_: &Event| Ok(());
    let imported = import(store, Cursor::new(bytes), &everything, &mut progress).now_or_never();
    imported.expect("a store in memory does not wait").is_ok()
}

fn exported(store: &MemoryStore) -> Vec<u8> {
    let (mut file, everything) = (Vec::new(), Selection::everything());
    let mut progress = |_: &Event| Ok(());
    let written =
        export(store, &everything, ExportFile::new(&mut file), &mut progress).now_or_never();
    written.expect("a store in memory does not wait").expect("what is stored can be exported");
    file
}

fn filled() -> MemoryStore {
    let store = MemoryStore::new();
    fill(&store).now_or_never().expect("a store in memory does not wait");
    store
}

/// Recomputes the checksums and counts in the lines. Otherwise, the import would refuse each
/// damaged file because of its checksum.
fn with_right_sums(bytes: &[u8]) -> Vec<u8> {
    let (mut written, mut section) = (Vec::new(), Vec::new());
    let (mut conversations, mut counts) = (0, [0; 3]);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let name = match serde_json::from_slice(line) {
            Ok(Value::Object(fields)) if fields.len() == 1 => fields.keys().next().cloned(),
            _ => None,
        };
        let mut whole = None;
        match name.as_deref() {
            Some("conversation") => (section, counts) = (Vec::new(), [0; 3]),
            Some("message") => counts[0] += 1,
            Some("tool") => counts[1] += 1,
            Some("run") => counts[2] += 1,
            Some("end") => {
                let [messages, tool_calls, runs] = counts;
                conversations += 1;
                whole = Some(json!({"end": {"messages": messages, "tool_calls": tool_calls,
                    "runs": runs, "sha256": hexadecimal(&section)}}));
            }
            Some("complete") => {
                whole = Some(json!({"complete": {"conversations": conversations,
                    "sha256": hexadecimal(&written)}}));
            }
            Some(_) | None => {}
        }
        let line = whole.map_or_else(|| line.to_vec(), |line| format!("{line}\n").into_bytes());
        section.extend_from_slice(&line);
        written.extend(line);
    }
    written
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
