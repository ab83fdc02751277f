//! The servers, and how each server is crashed.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;
use tower_chat::BoxError;
use tower_chat_postgres::PostgresStore;
use tower_chat_redis::RedisStore;
use tower_chat_testkit::{
    Rng,
    server::{Missing, PostgresServer, RedisServer},
};

use super::{
    Plant, StoreKind,
    cut::{Lost, copy, cut_appended, cut_postgres, repair_appended},
    strace::{Strace, children_of},
};
use crate::{Failure, shared_store::SharedStore};

/// A running server, and the strace process that records its writes before a power loss.
#[derive(Debug)]
pub(super) struct Server {
    kind: Kind,
    strace: Option<Strace>,
}

#[derive(Debug)]
enum Kind {
    Redis(Box<RedisServer>),
    Postgres {
        server: PostgresServer,
        /// The data of the server at the last checkpoint.
        at_checkpoint: TempDir,
    },
}

impl Server {
    pub(super) fn start(kind: StoreKind, plant: Option<Plant>) -> Result<Self, Failure> {
        let kind = match kind {
            StoreKind::RedisAlways => start_redis(plant, "always")?,
            StoreKind::RedisEverysec => start_redis(plant, "everysec")?,
            StoreKind::Postgres => start_postgres(plant)?,
        };
        Ok(Self { kind, strace: None })
    }

    pub(super) async fn open(&self, retry_timeout: Duration) -> Result<SharedStore, BoxError> {
        Ok(match &self.kind {
            Kind::Redis(server) => {
                let options = RedisStore::options().with_retry_timeout(retry_timeout);
                SharedStore::new(options.connect(&server.address(0)).await?)
            }
            Kind::Postgres { server, .. } => {
                let options = PostgresStore::options().with_retry_timeout(retry_timeout);
                SharedStore::new(options.connect(&server.address("postgres")).await?)
            }
        })
    }

    /// Starts the recording of syncs. No client may be connected.
    pub(super) fn record(&mut self) -> Result<(), Failure> {
        if let Kind::Postgres { server, at_checkpoint } = &self.kind {
            // A normal stop makes a checkpoint. All data are then synced.
            server.stop();
            server.start_again();
            let copied = at_checkpoint.path().join("data");
            match fs::remove_dir_all(&copied) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(cannot(error));
                }
                _ => copy(&server.folder().join("data"), &copied).map_err(cannot)?,
            }
        }
        let first = self.first_process()?;
        let mut processes = vec![first];
        if matches!(self.kind, Kind::Postgres { .. }) {
            processes.extend(children_of(first));
        }
        self.strace = Some(Strace::attach(&processes, &self.appended_files()?)?);
        Ok(())
    }

    /// Kills all processes of the server, simulates a power loss if `is_cut` is set, and restarts
    /// it.
    pub(super) fn crash(&mut self, is_cut: bool, rng: &mut Rng) -> Result<Lost, Failure> {
        let first = self.first_process()?;
        let appended = self.appended_files()?;
        match &mut self.kind {
            Kind::Redis(server) => server.crash(),
            Kind::Postgres { .. } => kill_all(first)?,
        }
        let extents = self.strace.take().map(Strace::finish).transpose()?;
        let mut lost = 0;
        if let Some(extents) = extents.filter(|_| is_cut) {
            lost = match &self.kind {
                Kind::Redis(_) => cut_appended(&extents, &appended, rng)
                    .and_then(|lost| repair_appended(&appended).map(|()| lost)),
                Kind::Postgres { server, at_checkpoint } => {
                    let (data, copied) =
                        (server.folder().join("data"), at_checkpoint.path().join("data"));
                    cut_postgres(&extents, &data, &copied, rng)
                }
            }
            .map_err(cannot)?;
        }
        match &mut self.kind {
            Kind::Redis(server) => server.start_again(),
            Kind::Postgres { server, .. } => server.start_again(),
        }
        Ok(lost)
    }

    fn first_process(&self) -> Result<u32, Failure> {
        let file = match &self.kind {
            Kind::Redis(server) => server.folder().join("pid"),
            Kind::Postgres { server, .. } => server.folder().join("data/postmaster.pid"),
        };
        let text = fs::read_to_string(&file).map_err(cannot)?;
        let number = text.lines().next().and_then(|line| line.trim().parse().ok());
        number.ok_or_else(|| Failure::cannot_run(format!("{} has no process id", file.display())))
    }

    /// Returns the append-only files of Redis. PostgreSQL has none.
    fn appended_files(&self) -> Result<Vec<PathBuf>, Failure> {
        let Kind::Redis(server) = &self.kind else { return Ok(Vec::new()) };
        let folder = server.folder().join("appendonlydir");
        let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
        let files: Result<Vec<_>, _> =
            entries.map(|entry| entry.map(|entry| entry.path())).collect();
        let mut files = files.map_err(cannot)?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "aof"));
        Ok(files)
    }
}

fn start_redis(plant: Option<Plant>, sync: &str) -> Result<Kind, Failure> {
    let server = match plant {
        None => RedisServer::start_with(&["--appendfsync", sync]),
        Some(Plant::NoSyncs) => RedisServer::start_with(&["--appendfsync", "no"]),
        Some(Plant::NoWrites) => RedisServer::start_with(&["--appendonly", "no"]),
    };
    Ok(Kind::Redis(Box::new(server.map_err(missing)?)))
}

fn start_postgres(plant: Option<Plant>) -> Result<Kind, Failure> {
    let server = match plant {
        Some(Plant::NoSyncs) => PostgresServer::start(),
        None | Some(Plant::NoWrites) => {
            PostgresServer::setup().durable_under(std::env::temp_dir()).start()
        }
    };
    let server = server.map_err(missing)?;
    if plant == Some(Plant::NoWrites) {
        let file = server.folder().join("data/postgresql.conf");
        let settings = fs::read_to_string(&file).map_err(cannot)?;
        // Delays the WAL writer, so that the crash happens before it writes the log.
        let more =
            "synchronous_commit = off\nwal_writer_delay = 10s\nwal_writer_flush_after = 1GB\n";
        fs::write(&file, settings + more).map_err(cannot)?;
    }
    let at_checkpoint = tempfile::Builder::new().prefix("checkpoint-").tempdir().map_err(cannot)?;
    Ok(Kind::Postgres { server, at_checkpoint })
}

/// Kills a process and its children with one command. A child that starts in the meantime ends
/// after its parent, and strace waits for it.
fn kill_all(first: u32) -> Result<(), Failure> {
    let children = children_of(first);
    let mut kill = Command::new("kill");
    kill.arg("-KILL").arg(first.to_string()).args(children.iter().map(u32::to_string));
    kill.stderr(std::process::Stdio::null());
    // If a process has already ended, `kill` reports an error but kills the others.
    kill.status().map_err(cannot)?;
    Ok(())
}

fn missing(source: Missing) -> Failure {
    Failure::CannotRun { what: "start a server".to_owned(), source: Some(source.into()) }
}

fn cannot(source: std::io::Error) -> Failure {
    Failure::CannotRun { what: "crash a server".to_owned(), source: Some(source.into()) }
}
