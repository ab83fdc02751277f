//! Checks the files after a power cut against the notes of the workload. The notes list the
//! operations that had begun and those that were acknowledged.

use std::{collections::BTreeMap, fs, path::Path};

use rusqlite::Connection;
use tower::{Service, ServiceExt};
use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, PersistenceMode,
    recovery::{self, RunEnd},
    store::{Directory, Journal, Maintenance},
};
use tower_chat_core::format;
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::{Rng, Step};

use super::{
    disk::DiskImage,
    expected::{Bounds, History, State},
    notes::{Key, described},
    verify,
    workload::{FILE, SCOPE, stack},
};

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The number of changes that had begun before the cut and are missing.
    pub(super) lost_changes: usize,
    pub(super) open_runs: usize,
    pub(super) backups: usize,
}

pub(super) fn write_files(image: &DiskImage, folder: &Path, rng: &mut Rng) -> std::io::Result<()> {
    for (name, content) in &image.files {
        fs::write(folder.join(name), content)?;
    }
    // The WAL index (`-shm`) is shared memory. After a power loss, its file may be absent, or
    // contain zeros or random bytes.
    let index = folder.join(format!("{FILE}-shm"));
    match rng.below(3) {
        0 => Ok(()),
        1 => fs::write(index, vec![0; 32_768]),
        _ => fs::write(index, (0..32_768).map(|_| rng.next() as u8).collect::<Vec<u8>>()),
    }
}

/// Checks the store and its backups. The error names the broken rule.
pub(super) async fn check(
    folder: &Path,
    history: &History,
    bounds: Bounds,
    rng: &mut Rng,
) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let path = folder.join(FILE);
    let was_there = path.exists();
    let (found, lost) = check_file(&path, history, bounds).await?;
    outcome.lost_changes = lost;
    outcome.open_runs = found.values().filter(|state| state.open.is_some()).count();
    if was_there || !found.is_empty() {
        check_further_use(&path, &found, rng).await?;
    }
    let mut names: Vec<&str> = history.backups.iter().map(|(name, ..)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        outcome.backups += usize::from(check_backup(folder, name, history, bounds).await?);
    }
    Ok(outcome)
}

/// Checks a backup and returns whether its file exists. The file must exist if a backup with this
/// name was acknowledged. An existing file must be complete.
async fn check_backup(
    folder: &Path,
    name: &str,
    history: &History,
    bounds: Bounds,
) -> Result<bool, String> {
    let begun: Vec<_> = history
        .backups
        .iter()
        .filter(|(of, began, _)| of == name && *began < bounds.until)
        .collect();
    let done = begun.iter().filter(|(_, _, done)| *done < bounds.until).map(|(_, began, _)| *began);
    let (last_done, path) = (done.max(), folder.join(name));
    if !path.exists() {
        return match last_done {
            Some(_) => Err(format!("{name} was acknowledged and does not exist")),
            None => Ok(false),
        };
    }
    // A backup gets its final name only when it is complete. An existing file must therefore be
    // complete even if the backup was not acknowledged.
    let began = last_done.or_else(|| begun.iter().map(|(_, began, _)| *began).min());
    let Some(began) = began else {
        return Err(format!("{name} exists, but no backup of this name had begun"));
    };
    let of_copy = Bounds { until: bounds.until, at_least: began };
    let checked = check_file(&path, history, of_copy).await;
    checked.map(|_| true).map_err(|what| format!("{name}: {what}"))
}

/// Opens a file, verifies it, and compares it with the notes.
async fn check_file(
    path: &Path,
    history: &History,
    bounds: Bounds,
) -> Result<(BTreeMap<Key, State>, usize), String> {
    let options = SqliteStore::options().with_durability(Durability::Normal).with_readers(1);
    let store = options.open(path).await.map_err(error_text("it does not open"))?;
    let integrity = integrity(path).map_err(error_text("integrity_check fails"))?;
    if integrity != ["ok"] {
        return Err(format!("integrity_check: {integrity:?}"));
    }
    let stray = store.stray_rows().await.map_err(error_text("stray rows cannot be counted"))?;
    if stray.messages + stray.tools > 0 {
        return Err(format!("{stray:?} belong to no conversation"));
    }
    let mut found = BTreeMap::new();
    for key in history.keys() {
        let state = observe(&store, &ConversationKey::new(&*key.0, &*key.1)).await?;
        if state.exists {
            found.insert(key.clone(), state);
        }
    }
    let listed =
        store.list(SCOPE, None, 100_000).await.map_err(error_text("it cannot be listed"))?;
    for key in &listed {
        let key = super::notes::key(key);
        if !found.contains_key(&key) {
            return Err(format!("conversation {key:?} is listed, and was never written"));
        }
    }
    let lost = history.admits(&found, bounds)?;
    store.close().await.map_err(error_text("it cannot be closed"))?;
    Ok((found, lost))
}

fn integrity(path: &Path) -> rusqlite::Result<Vec<String>> {
    let connection = Connection::open(path)?;
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

async fn observe(store: &SqliteStore, key: &ConversationKey) -> Result<State, String> {
    let failed = |what: &str| {
        let what = format!("conversation {key}: {what}");
        move |error: tower_chat::store::StoreError| error_text(&what)(error)
    };
    let loaded = store.load(key).await.map_err(failed("it cannot be loaded"))?;
    let Some(rows) = store.rows(key).await.map_err(failed("its rows cannot be read"))? else {
        return Ok(State::default());
    };
    if let Some(problem) = verify::problem(&rows) {
        return Err(format!("conversation {key}: {problem}"));
    }
    let open = store.open_run(key).await.map_err(failed("its open run cannot be read"))?;
    let mut state = State {
        exists: true,
        pruned: rows.head.pruned,
        open: rows.head.open_run.as_ref().map(|open| open.visible),
        ..State::default()
    };
    let staged = open.iter().flat_map(|open| &open.messages);
    let messages = loaded.messages.iter().chain(staged);
    state.messages =
        messages.map(|message| (format!("{:?}", message.id), format::encode(message))).collect();
    let records = rows.tools.into_iter().filter_map(|(_, record)| record.ok());
    for record in records.chain(open.into_iter().flat_map(|open| open.tools)) {
        let position = (record.call.sequence, record.call.index);
        state.record.insert(position, described(&record));
    }
    Ok(state)
}

/// Checks that open runs can be recovered, and that conversations accept further runs.
async fn check_further_use(
    path: &Path,
    found: &BTreeMap<Key, State>,
    rng: &mut Rng,
) -> Result<(), String> {
    let options = SqliteStore::options().with_durability(Durability::Normal).with_readers(1);
    let store = options.open(path).await.map_err(error_text("it does not open again"))?;
    for (key, state) in found {
        if let Some(visible) = state.open {
            let key = ConversationKey::new(&*key.0, &*key.1);
            check_recovery(&store, &key, state, visible, rng).await?;
        }
    }
    let keys: Vec<&Key> = found.keys().collect();
    let mut written = vec![ConversationKey::new(SCOPE, "written after the cut")];
    written.extend(rng.one_of(&keys).map(|key| ConversationKey::new(&*key.0, &*key.1)));
    for key in written {
        let before = observe(&store, &key).await?;
        let modes =
            [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];
        let mode = rng.one_of(&modes).copied().unwrap_or_default();
        let text = format!("all is well in {key} again");
        let mut client = stack(vec![Step::text(text.clone())], store.clone(), mode)
            .map_err(|error| error.to_string())?;
        let request =
            ChatRequest::user(format!("is all well in {key}?")).in_conversation(key.clone());
        let answered = async { client.ready().await?.call(request).await?.collect().await };
        answered.await.map_err(|error| error_text("a run after the cut fails")(&*error))?;
        let after = observe(&store, &key).await?;
        let (old, new) = after.messages.split_at_checked(before.messages.len()).unwrap_or_default();
        if old != before.messages || new.len() != 2 || !new.iter().any(|it| it.1.contains(&text)) {
            return Err(format!("a run after the cut changed {before:?} to {after:?}"));
        }
    }
    store.close().await.map_err(error_text("it cannot be closed"))
}

/// Discards or commits an open run (an incomplete journaled run), and checks that this affects all
/// of its messages.
async fn check_recovery(
    store: &SqliteStore,
    key: &ConversationKey,
    state: &State,
    visible: u64,
    rng: &mut Rng,
) -> Result<(), String> {
    let end = if rng.one_in(3) { RunEnd::Discard } else { RunEnd::Commit };
    let closed = recovery::close(store, key, end).await;
    if !closed.map_err(error_text("an open run cannot be ended"))? {
        return Err(format!("the open run of {key} was not found"));
    }
    let after = observe(store, key).await?;
    let seen = usize::try_from(visible.saturating_sub(state.pruned)).unwrap_or(0);
    let expected = match end {
        RunEnd::Discard => state.messages.get(..seen).unwrap_or_default(),
        RunEnd::Commit => &state.messages,
        _ => return Err("an unknown end of a run".to_owned()),
    };
    let is_exact = !matches!(end, RunEnd::Discard) || after.messages.len() == seen;
    if after.open.is_some() || !after.messages.starts_with(expected) || !is_exact {
        return Err(format!("{end:?} changed {state:?} to {after:?}"));
    }
    Ok(())
}

fn error_text<E: std::error::Error>(what: &str) -> impl Fn(E) -> String {
    let what = what.to_owned();
    move |error| {
        let mut text = format!("{what}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        text
    }
}
