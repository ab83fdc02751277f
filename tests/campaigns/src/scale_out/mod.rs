//! Writes to stores on several servers, while the servers change. The scenarios: a connection
//! pooler, two servers, failovers to replicas, and slots (Redis's partitions of the keys) that are
//! moved.
//!
//! Each writer has its own conversation. A write expects the revision that the previous write
//! returned. A revision consists of the number of the last message and the incarnation, a random
//! number of the conversation. Acknowledged writes must be stored once and in order.
//!
//! With asynchronous replication, the replica may lack the last writes of a conversation after a
//! failover. The writer of the conversation must then receive a conflict, and the campaign counts
//! the loss.

mod cluster_failover;
mod log;
mod pgbouncer;
mod rates;
mod replica_promoted;
mod slot_moved;
mod stale;
mod two_servers;
mod writers;

use std::time::Duration;

use clap::{Args, ValueEnum};
use tower_chat_core::ConversationKey;
use tower_chat_testkit::server::{Missing, PostgresServer, RedisCluster};

use self::{
    log::{Totals, check},
    writers::{Writers, append, text, until_answered},
};
use crate::{Failure, Figures};

/// Stores on several servers during writes
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The events of the servers; by default all scenarios, one after the other
    #[arg(long, value_enum)]
    pub scenario: Option<Scenario>,
    /// The number of writers, each with its own conversation
    #[arg(long, default_value_t = 6)]
    pub writers: usize,
    /// The seconds for which the writers write before and after each event
    #[arg(long, default_value_t = 0.3)]
    pub seconds: f64,
    /// The number of slots of a Redis cluster that are moved, and moved back
    #[arg(long, default_value_t = 40)]
    pub slots: usize,
    /// The number of runs of each scenario
    #[arg(long, default_value_t = 1)]
    pub cases: u64,
    /// The seed of the writes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A planted fault, which must be found
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
}

impl Default for Arguments {
    fn default() -> Self {
        Self { scenario: None, writers: 6, seconds: 0.3, slots: 40, cases: 1, seed: 1, plant: None }
    }
}

/// The events of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// PostgreSQL behind PgBouncer in the pool mode `transaction`. The PostgreSQL server crashes.
    Pgbouncer,
    /// Two PostgreSQL servers. The scope of a conversation selects the server, and one scope is
    /// moved to the other server.
    TwoServers,
    /// A PostgreSQL server is killed, and its replica is promoted.
    ReplicaPromoted,
    /// Slots of one server of a Redis cluster are moved to another, and back.
    SlotMoved,
    /// Failovers to replicas of a Redis cluster: on request, after a kill, and while the primary
    /// hangs.
    ClusterFailover,
    /// No event: the rates of one server of each kind are measured.
    Rates,
}

/// A planted fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// A write that was never sent is acknowledged.
    LostAppend,
    /// A writer with a conflict continues at the revision in the conflict, without loading the
    /// conversation.
    IgnoreRevision,
    /// Prepared statements remain enabled behind the pooler.
    PreparedStatements,
    /// After the failover, the conversations do not receive new incarnations.
    NoRenewal,
    /// The failed primary restarts as a primary.
    Unfenced,
}

#[derive(Debug, Clone, Copy)]
struct Search {
    seed: u64,
    case: u64,
    writers: usize,
    /// How long the writers write before and after each event.
    phase: Duration,
    slots: usize,
    plant: Option<Plant>,
}

impl Search {
    fn found(&self, what: String) -> Failure {
        Failure::Found { seed: self.seed, case: self.case, what }
    }
}

/// Runs the scenarios.
///
/// # Errors
///
/// [`Failure::Found`] for a broken rule, [`Failure::CannotRun`] if a server is missing.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    let phase = Duration::try_from_secs_f64(arguments.seconds).map_err(Failure::cannot_run)?;
    let scenarios = match &arguments.scenario {
        Some(scenario) => std::slice::from_ref(scenario),
        None => Scenario::value_variants(),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.map_err(Failure::cannot_run)?;
    let mut figures = Figures::default();
    for scenario in scenarios {
        for case in 0..arguments.cases {
            let Arguments { writers, slots, seed, plant, .. } = arguments;
            let search = Search { seed, case, writers, phase, slots, plant };
            runtime.block_on(scenario.run(search, &mut figures))?;
        }
    }
    Ok(figures)
}

impl Scenario {
    async fn run(self, search: Search, figures: &mut Figures) -> Result<(), Failure> {
        match self {
            Self::Pgbouncer => pgbouncer::run(search, figures).await,
            Self::TwoServers => two_servers::run(search, figures).await,
            Self::ReplicaPromoted => replica_promoted::run(search, figures).await,
            Self::SlotMoved => slot_moved::run(search, figures).await,
            Self::Rates => rates::run(search, figures).await,
            Self::ClusterFailover => cluster_failover::run(search, figures).await,
        }
    }
}

fn is_in_first_slots(cluster: &RedisCluster, key: &ConversationKey, slots: usize) -> bool {
    let question = format!("CLUSTER KEYSLOT {{{}/{}}}", key.scope(), key.id());
    cluster.ask(0, &question).parse::<usize>().is_ok_and(|slot| slot < slots)
}

fn started<Server>(server: Result<Server, Missing>) -> Result<Server, Failure> {
    server.map_err(Failure::cannot_run)
}

fn failed(what: &str, error: impl std::error::Error) -> Failure {
    Failure::cannot_run(format!("{what}: {}", text(&error)))
}

async fn connect(server: &PostgresServer) -> Result<tokio_postgres::Client, Failure> {
    let connected =
        tokio_postgres::connect(&server.address("postgres"), tokio_postgres::NoTls).await;
    let (client, connection) = connected.map_err(|error| failed("connect to a server", error))?;
    tokio::spawn(async move {
        // The task ends when the client is dropped or the server is stopped.
        drop(connection.await);
    });
    Ok(client)
}
