//! Corruption: one bit is flipped in a copy of a store, its log or an export.
//!
//! A bit is flipped in every page of a SQLite file, in every frame of its log, and in every line of
//! an export. The campaign then reads, verifies, exports and writes all content.
//!
//! Nothing may panic or hang, and no message may be read with changed content: the rows of a store
//! and the lines of an export have checksums, and the values of an `EncryptedStore` are
//! authenticated.
//!
//! Other effects of a flip are counted: missing messages, and changes of the rows about tool calls
//! or of the list of conversations. The campaign also counts how many of these effects `verify`
//! reports.

mod contents;
mod counts;
pub(crate) mod fill;

use std::{
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tower::{Service, ServiceExt};
use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, MemoryStore, PersistenceMode,
    store::{Directory, Maintenance},
};
use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::{Rng, Step};
use tower_chat_transfer::{ExportFile, Selection, export, import};

use self::{
    contents::{Damage, StoreContents, read_contents},
    counts::{Counts, Outcome},
    fill::{Shared, fill, keys},
};
use crate::{
    Failure, Figures,
    power_cuts::{problem, stack},
};

/// Flips bits of SQLite files, their logs and exports, and compares the content with the stored
/// content
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of bits that are flipped, one at a time, in each page, frame and line
    #[arg(long, default_value_t = 1)]
    pub cases: u64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which the campaign must find
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
}

/// A fault that the campaign has to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// Messages without checksums, as older releases stored them
    Unchecked,
}

/// The size of a page of the SQLite file, in bytes. A frame of the log is a page with a header.
const PAGE: usize = 4096;
const FRAME: usize = PAGE + 24;
const LOG_HEADER: usize = 32;

/// The time after which an operation counts as hanging.
const TIME_LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Encrypted,
}

/// Flips bits of stores and exports.
///
/// # Errors
///
/// [`Failure::Found`] with the first broken rule, [`Failure::CannotRun`] if no store can be
/// created.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let began = Instant::now();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| cannot("start tokio", error))?;
    let mut figures = Figures::default();
    runtime.block_on(search(&arguments, &mut figures))?;
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

async fn search(arguments: &Arguments, figures: &mut Figures) -> Result<(), Failure> {
    for kind in [Kind::Plain, Kind::Encrypted] {
        let filled = FilledStore::new(arguments, kind).await?;
        filled.flip_pages(arguments, figures).await?;
        if kind == Kind::Plain {
            filled.flip_log(arguments, figures).await?;
            filled.flip_lines(arguments, figures).await?;
        }
    }
    Ok(())
}

struct FilledStore {
    kind: Kind,
    file: Vec<u8>,
    /// The file and its log, copied while the store was open.
    open: (Vec<u8>, Vec<u8>),
    export: Vec<u8>,
    before: StoreContents,
}

impl FilledStore {
    async fn new(arguments: &Arguments, kind: Kind) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| cannot("make a folder", error))?;
        let path = folder.path().join("chat.db");
        let sqlite =
            SqliteStore::open(&path).await.map_err(|error| cannot("make a store", error))?;
        let store = wrap(sqlite.clone(), kind)?;
        let mut rng = Rng::of(arguments.seed, 0);
        fill(&store, &mut rng).await.map_err(|error| Failure::CannotRun {
            what: "fill a store".to_owned(),
            source: Some(error),
        })?;
        let before = read_contents(&store, &keys()).await;
        if !before.is_readable() {
            return Err(Failure::cannot_run(format!(
                "the filled store cannot be read: {before:?}"
            )));
        }
        let mut file = Vec::new();
        let all = Selection::everything();
        let exported = export(&store, &all, ExportFile::new(&mut file), &mut |_| Ok(())).await;
        exported.map_err(|error| cannot("export a store", error))?;
        let read = |name: &str| {
            fs::read(folder.path().join(name)).map_err(|error| cannot("read a store", error))
        };
        let open = (read("chat.db")?, read("chat.db-wal")?);
        HistoryStore::close(&sqlite).await.map_err(|error| cannot("close a store", error))?;
        if arguments.plant == Some(Plant::Unchecked) {
            let remove = "UPDATE messages SET checksum = NULL";
            let removed = Connection::open(&path).and_then(|it| it.execute(remove, []).map(drop));
            removed.map_err(|error| cannot("remove checksums", error))?;
        }
        Ok(Self { kind, file: read("chat.db")?, open, export: file, before })
    }

    async fn flip_pages(
        &self,
        arguments: &Arguments,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let mut counts = Counts::default();
        let mut rng = Rng::of(arguments.seed, 1);
        for page in 0..self.file.len() / PAGE {
            for _ in 0..arguments.cases {
                let bit = (page * PAGE) * 8 + rng.below(PAGE * 8);
                let case = counts.flips;
                let files = [("chat.db", flipped(&self.file, bit))];
                let outcome = guarded(arguments, case, self.try_files(&files)).await?;
                counts.add(outcome, format!("bit {bit} of the file"));
            }
        }
        let name = match self.kind {
            Kind::Plain => "pages",
            Kind::Encrypted => "pages with encrypted messages",
        };
        figures.add(format!("{name}: pages of the file"), self.file.len() / PAGE);
        counts.figures(name, arguments, figures)
    }

    /// Flips bits of the log. SQLite treats a damaged frame as the end of the log. The writes after
    /// this frame are then missing.
    async fn flip_log(&self, arguments: &Arguments, figures: &mut Figures) -> Result<(), Failure> {
        let (mut flips, mut refused, mut lost) = (0_u64, 0_u64, 0_u64);
        let mut rng = Rng::of(arguments.seed, 2);
        let (file, log) = &self.open;
        let frames = log.len().saturating_sub(LOG_HEADER) / FRAME;
        let headers = [(0, LOG_HEADER)];
        let ranges =
            headers.into_iter().chain((0..frames).map(|frame| (LOG_HEADER + frame * FRAME, FRAME)));
        for (first, length) in ranges {
            for _ in 0..arguments.cases {
                let bit = first * 8 + rng.below(length * 8);
                let files = [("chat.db", file.clone()), ("chat.db-wal", flipped(log, bit))];
                let now = guarded(arguments, flips, self.read_files(&files)).await?;
                let found =
                    |what: String| Failure::Found { seed: arguments.seed, case: flips, what };
                if let Some(now) = now {
                    if !now.is_prefix_of(&self.before) {
                        return Err(found(format!("bit {bit} of the log: {now:?}")));
                    }
                    lost += u64::from(now.damage(&self.before) != Damage::None);
                } else {
                    refused += 1;
                }
                flips += 1;
            }
        }
        figures.add("log: frames", frames);
        figures.add("log: flips", flips);
        figures.add("log: flips that are refused when the store is opened", refused);
        figures.add("log: flips after which the last writes were missing, without an error", lost);
        Ok(())
    }

    async fn flip_lines(
        &self,
        arguments: &Arguments,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        let (mut flips, mut refused) = (0_u64, 0_u64);
        let mut rng = Rng::of(arguments.seed, 3);
        let mut first = 0;
        for line in self.export.split_inclusive(|byte| *byte == b'\n') {
            for _ in 0..arguments.cases {
                let bit = first * 8 + rng.below(line.len() * 8);
                let imported = import_flipped(flipped(&self.export, bit));
                match guarded(arguments, flips, imported).await? {
                    None => refused += 1,
                    Some(now)
                        if now.is_prefix_of(&self.before) && self.before.is_prefix_of(&now) => {}
                    Some(now) => {
                        let what = format!("bit {bit} of an export is imported: {now:?}");
                        return Err(Failure::Found { seed: arguments.seed, case: flips, what });
                    }
                }
                flips += 1;
            }
            first += line.len();
        }
        figures.add("export: flips", flips);
        figures.add("export: flips that were refused", refused);
        Ok(())
    }

    async fn try_files(&self, files: &[(&str, Vec<u8>)]) -> Result<Outcome, String> {
        let (_folder, path) = write_files(files)?;
        let Some(sqlite) = open(&path).await? else { return Ok(Outcome::Refused) };
        let store = wrap(sqlite.clone(), self.kind).map_err(|error| error.to_string())?;
        let now = read_contents(&store, &keys()).await;
        let damage = now.damage(&self.before);
        let verify_reports = verify_reports(&sqlite, &path).await;
        let all = Selection::everything();
        let _ = export(&store, &all, ExportFile::new(Vec::new()), &mut |_| Ok(())).await;
        for key in keys() {
            let steps = vec![Step::text(format!("an answer in {key}"))];
            let client = stack(steps, store.clone(), PersistenceMode::PerRun);
            let mut client = client.map_err(|error| error.to_string())?;
            let request = ChatRequest::user(format!("a question in {key}")).in_conversation(key);
            let run = async { client.ready().await?.call(request).await?.collect().await };
            if let Err(error) = run.await {
                let text = format!("{error:?}");
                if text.contains("Panicked") {
                    return Err(format!("a panic in a write: {text}"));
                }
            }
        }
        let _ = HistoryStore::close(&sqlite).await;
        Ok(Outcome::Read { damage, verify_reports })
    }

    async fn read_files(&self, files: &[(&str, Vec<u8>)]) -> Result<Option<StoreContents>, String> {
        let (_folder, path) = write_files(files)?;
        let Some(sqlite) = open(&path).await? else { return Ok(None) };
        let now = read_contents(&sqlite, &keys()).await;
        let _ = HistoryStore::close(&sqlite).await;
        Ok(Some(now))
    }
}

/// Returns whether `tower-chat verify` would report a problem.
async fn verify_reports(store: &SqliteStore, path: &Path) -> bool {
    let integrity = Connection::open(path).and_then(|connection| {
        connection.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    });
    let mut reports = integrity.is_ok_and(|first| first == "ok").then_some(()).is_none();
    reports |= store.stray_rows().await.map_or(true, |it| it.messages + it.tools > 0);
    let listed: Vec<ConversationKey> = store.list("alice", None, 1000).await.unwrap_or_else(|_| {
        reports = true;
        Vec::new()
    });
    for key in listed {
        let rows = store.rows(&key).await;
        reports |= rows.map_or(true, |rows| rows.is_some_and(|rows| problem(&rows).is_some()));
    }
    reports
}

async fn import_flipped(file: Vec<u8>) -> Result<Option<StoreContents>, String> {
    let store = MemoryStore::new();
    let all = Selection::everything();
    match import(&store, Cursor::new(file), &all, &mut |_| Ok(())).await {
        Ok(_) => Ok(Some(read_contents(&store, &keys()).await)),
        Err(_) => Ok(None),
    }
}

fn wrap(sqlite: SqliteStore, kind: Kind) -> Result<Shared, Failure> {
    Ok(Shared(match kind {
        Kind::Plain => Arc::new(sqlite),
        Kind::Encrypted => {
            let keys = MasterKeys::new("2026", SecretKey::from_bytes([0x5e; 32]));
            Arc::new(EncryptedStore::new(
                sqlite,
                keys.map_err(|error| cannot("make a key", error))?,
            ))
        }
    }))
}

fn write_files(files: &[(&str, Vec<u8>)]) -> Result<(tempfile::TempDir, PathBuf), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    for (name, content) in files {
        fs::write(folder.path().join(name), content).map_err(|error| error.to_string())?;
    }
    let path = folder.path().join("chat.db");
    Ok((folder, path))
}

async fn open(path: &Path) -> Result<Option<SqliteStore>, String> {
    let options = SqliteStore::options().with_durability(Durability::Normal).with_create(false);
    Ok(options.open(path).await.ok())
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(byte) = bytes.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
    bytes
}

async fn guarded<T>(
    arguments: &Arguments,
    case: u64,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, Failure> {
    let found = |what: String| Failure::Found { seed: arguments.seed, case, what };
    let caught = std::panic::AssertUnwindSafe(tokio::time::timeout(TIME_LIMIT, work));
    match futures_util::FutureExt::catch_unwind(caught).await {
        Ok(Ok(Ok(done))) => Ok(done),
        Ok(Ok(Err(what))) => Err(found(what)),
        Ok(Err(_)) => Err(found(format!("a hang: no end after {TIME_LIMIT:?}"))),
        Err(panic) => Err(found(format!("a panic: {:?}", panic.downcast_ref::<String>()))),
    }
}

fn cannot(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::CannotRun { what: what.to_owned(), source: Some(Box::new(error)) }
}
