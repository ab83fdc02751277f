//! The expected content after transfers: the content after the same transfers without a kill.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower_chat::{
    BoxError, ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::Rng;
use tower_chat_transfer::{ExportFile, Receipt, Selection, export};

use super::{Operation, cannot, copy_file, file, receipt, source, target};
use crate::{
    Failure,
    corruption::fill::{Shared, fill},
};

/// A filled store with its export, and files of older versions with their exports.
pub(super) struct Expected {
    runtime: Runtime,
    folder: TempDir,
    /// A complete export.
    all: Vec<u8>,
    /// An export without the deleted scope.
    kept: Vec<u8>,
    /// The number of all conversations, and the number of conversations in the deleted scope.
    conversations: (u64, u64),
    /// Files of older versions, each with its export after the migration.
    older: Vec<(PathBuf, Vec<u8>)>,
}

impl Expected {
    pub(super) fn make(seed: u64) -> Result<Self, Failure> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| cannot("start tokio", error))?;
        let folder = tempfile::tempdir().map_err(|error| cannot("make a folder", error))?;
        let made = runtime.block_on(async {
            let path = source(folder.path());
            fill_source(&path, seed).await?;
            let all = exported(&path, &Selection::everything()).await?;
            let kept = exported(&path, &Selection::scope("bob")).await?;
            let mut older = Vec::new();
            for file in older_files()? {
                let path = target(folder.path());
                fs::copy(&file, &path)?;
                older.push((file, exported(&path, &Selection::everything()).await?));
                fs::remove_file(&path)?;
            }
            Ok::<_, BoxError>((all, kept, older))
        });
        let (all, kept, older) = made.map_err(|error| cannot("fill a store", error))?;
        let conversations = (conversations(&all), conversations(&all) - conversations(&kept));
        fs::write(file(folder.path()), &all).map_err(|error| cannot("write an export", error))?;
        Ok(Self { runtime, folder, all, kept, conversations, older })
    }

    pub(super) fn prepare(
        &self,
        operation: Operation,
        case: u64,
        folder: &Path,
    ) -> Result<(), Failure> {
        let from = self.folder.path();
        match operation {
            Operation::Export | Operation::Copy | Operation::Delete => {
                copy_file(&source(from), &source(folder))
            }
            Operation::Import => copy_file(&file(from), &file(folder)),
            Operation::Migrate => {
                let (older, _) = self.older(case)?;
                copy_file(older, &target(folder))
            }
        }
    }

    pub(super) fn check(
        &self,
        operation: Operation,
        case: u64,
        folder: &Path,
    ) -> Result<Option<String>, Failure> {
        let read = |path: &Path| {
            let everything = Selection::everything();
            let exported = exported(path, &everything);
            self.runtime.block_on(exported).map_err(|error| cannot("read what is left", error))
        };
        let (all, deleted) = self.conversations;
        let (found, expected, counted) = match operation {
            Operation::Export => {
                let file = fs::read(file(folder));
                let file = file.map_err(|error| cannot("read the file", error))?;
                (file, &self.all, Some(all))
            }
            Operation::Import | Operation::Copy => (read(&target(folder))?, &self.all, Some(all)),
            Operation::Delete => (read(&source(folder))?, &self.kept, Some(deleted)),
            Operation::Migrate => (read(&target(folder))?, &self.older(case)?.1, None),
        };
        let (found, expected) = match operation {
            // An export that was killed and resumed must write the same file as a single process.
            Operation::Export => (lines(&found), lines(expected)),
            // A migration adds the current time to conversations without a time.
            Operation::Migrate => (without(&found, &TIMES), without(expected, &TIMES)),
            _ => (without(&found, &ATTEMPTS), without(expected, &ATTEMPTS)),
        };
        if let Some(difference) = difference(&found, &expected) {
            return Ok(Some(difference));
        }
        let Some(counted) = counted else { return Ok(None) };
        let text = fs::read_to_string(receipt(folder));
        let text = text.map_err(|error| cannot("read the receipt", error))?;
        Ok(wrong_receipt(&text, counted))
    }

    fn older(&self, case: u64) -> Result<&(PathBuf, Vec<u8>), Failure> {
        let index = usize::try_from(case).unwrap_or_default() % self.older.len().max(1);
        self.older.get(index).ok_or_else(|| Failure::cannot_run("there are no older files"))
    }
}

fn older_files() -> std::io::Result<Vec<PathBuf>> {
    let folder =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/tower-chat-sqlite/tests/fixtures");
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "db"));
    files.sort();
    Ok(files)
}

async fn fill_source(path: &Path, seed: u64) -> Result<(), BoxError> {
    let store = SqliteStore::open(path).await?;
    fill(&Shared(Arc::new(store.clone())), &mut Rng::of(seed, 0)).await?;
    for name in ["one", "two"] {
        let key = ConversationKey::new("bob", name);
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key, id, Revision::ABSENT, [Message::user(name).into()]);
        store.append(store.reserve().await?, vec![write]).await?;
    }
    Ok(store.close().await?)
}

async fn exported(path: &Path, selection: &Selection) -> Result<Vec<u8>, BoxError> {
    let store = SqliteStore::open(path).await?;
    let mut file = Vec::new();
    export(&store, selection, ExportFile::new(&mut file), &mut |_| Ok(())).await?;
    store.close().await?;
    Ok(file)
}

fn conversations(export: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(export);
    text.lines().filter(|line| line.starts_with("{\"end\":")).count() as u64
}

fn lines(export: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(export).lines().map(str::to_owned).collect()
}

/// The fields that may differ after a transfer. When a transfer resumes an open run (an incomplete
/// journaled run), the number of the run's attempts changes, and with it the digests of the export.
const ATTEMPTS: [&str; 2] = ["\"sha256\":", "\"attempt\":"];

const TIMES: [&str; 5] = [
    "\"sha256\":",
    "\"created_at\":",
    "\"last_active_at\":",
    "\"began_at\":",
    "\"last_written_at\":",
];

fn without(export: &[u8], fields: &[&str]) -> Vec<String> {
    let mut lines = lines(export);
    for line in &mut lines {
        for name in fields {
            if let Some((before, after)) = line.split_once(name) {
                let end = after.find([',', '}']).unwrap_or(after.len());
                *line = format!("{before}{name}{}", after.get(end..).unwrap_or_default());
            }
        }
    }
    lines
}

fn difference(found: &[String], expected: &[String]) -> Option<String> {
    let mut lines = found.iter().zip(expected).enumerate();
    match lines.find(|(_, (found, expected))| found != expected) {
        Some((index, (found, expected))) => {
            Some(format!("line {} is {found:.200}, and should be {expected:.200}", index + 1))
        }
        None if found.len() == expected.len() => None,
        None => Some(format!("there are {} lines, and should be {}", found.len(), expected.len())),
    }
}

/// Returns the defect of a receipt, the file with the progress of a transfer. `conversations` is
/// the number of transferred conversations.
fn wrong_receipt(text: &str, conversations: u64) -> Option<String> {
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let Ok(lines) = lines else { return Some("a line of the receipt cannot be read".to_owned()) };
    let done: BTreeSet<(&str, &str)> = lines
        .iter()
        .filter_map(|line| {
            let done = line.get("done")?;
            Some((done.get("scope")?.as_str()?, done.get("id")?.as_str()?))
        })
        .collect();
    if done.len() as u64 != conversations {
        return Some(format!("the receipt has {} of {conversations} conversations", done.len()));
    }
    let total = lines.last().and_then(|line| line.get("receipt")).cloned();
    let Some(total) = total.and_then(|total| serde_json::from_value::<Receipt>(total).ok()) else {
        return Some("the receipt does not end with a sum".to_owned());
    };
    let sums = total.scopes.values().flat_map(|kinds| kinds.values());
    let counted: u64 = sums.map(|counts| counts.conversations).sum();
    let is_refused = !total.refused.is_empty();
    (counted != conversations || is_refused).then(|| {
        format!(
            "the receipt counts {counted} of {conversations} conversations, {} refused",
            total.refused.len()
        )
    })
}
