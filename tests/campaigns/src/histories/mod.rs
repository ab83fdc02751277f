//! Records histories of concurrent clients, and searches for an order of their operations that
//! explains every answer.
//!
//! Clients in two processes append, fork, prune, summarize, delete and read a few conversations of
//! one store, and begin, resume and end journaled runs. Each client has its own clock, which is
//! stepped forward and back. If a lease has expired by this clock, the client may take over the run
//! of another client. Some acknowledgements are late or lost, and the client continues without
//! them, or sends the same write again.
//!
//! Every operation is recorded with its begin and its end. The history (`event.rs`) is linearizable
//! if an order of its operations explains every answer:
//!
//! - Each operation takes effect between its begin and its end.
//! - A sequential store (`specification.rs`) that executes the operations in this order returns the
//!   same answers.
//!
//! # The checker
//!
//! `todc-utils` searches for the order. It implements the algorithm of Wing and Gong with Lowe's
//! cache of visited states, as Porcupine and Knossos do. Its authors have tested it against
//! histories of etcd that Jepsen has recorded. It depends on no other crate. The alternatives:
//!
//! - Elle and Knossos are written in Clojure, and the registry of Clojure's packages cannot be
//!   reached from the test machine. Elle infers dependencies between transactions of reads, writes
//!   and appends, but most guarantees of a store concern conflicts, leases, discards and prunes.
//! - Porcupine is written in Go. The Rust port `porcupine-rs` depends on a benchmark harness.
//! - `stateright` visits a state again on every path to the state. If the operations of many
//!   clients overlap, the search takes exponential time. `stateright` also depends on a web server.
//!
//! The checker answers yes or no. If no order explains a history, `check.rs` finds the shortest
//! prefix that no order explains. The seed determines the operations of the clients, but not how
//! they interleave. A finding is therefore saved as a file, and `--check FILE` checks it again.

mod check;
mod client;
mod conversation;
mod event;
mod operations;
mod plant;
mod process;
mod recorder;
mod specification;
mod stores;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use event::{Event, Heading};
use operations::Counts;
pub use plant::Plant;
pub use process::{ClientArguments, serve};
use process::{Clients, OtherProcess};
pub use stores::StoreKind;

use crate::{Failure, Figures};

/// Records histories of concurrent clients in two processes, and checks that they are linearizable
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// The number of histories that are recorded for each store
    #[arg(long, default_value_t = 40)]
    pub cases: u64,
    /// The seed of the operations
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The number of the first history
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// The kinds of stores to test
    #[arg(long = "store", value_enum, default_values_t = [StoreKind::Sqlite])]
    pub stores: Vec<StoreKind>,
    /// The number of clients in each of the two processes
    #[arg(long, default_value_t = 3)]
    pub clients: u64,
    /// The number of operations of each client
    #[arg(long, default_value_t = 8)]
    pub operations: usize,
    /// A planted fault, which the campaign must find
    #[arg(long, value_enum)]
    pub plant: Option<Plant>,
    /// The folder for histories without an order; by default a folder for temporary files
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Checks this saved history instead of recording histories
    #[arg(long)]
    pub check: Option<PathBuf>,
    /// The program whose `histories-client` is the second process; by default this program
    #[arg(long, hide = true)]
    pub program: Option<PathBuf>,
}

/// Runs the campaign.
///
/// # Errors
///
/// [`Failure::Found`] if a history has no order, [`Failure::CannotRun`] if a server is missing or
/// the second process ends.
pub fn run(arguments: Arguments) -> Result<Figures, Failure> {
    if let Some(file) = &arguments.check {
        return check_file(file);
    }
    let mut figures = Figures::default();
    for store in &arguments.stores {
        let began = Instant::now();
        let totals = record(&arguments, *store)?;
        totals.show(&mut figures, store.name(), began.elapsed());
    }
    Ok(figures)
}

#[derive(Debug, Default)]
struct Totals {
    histories: u64,
    counts: Counts,
    checking: Duration,
    longest_check: Duration,
}

/// Records and checks the histories of one store.
fn record(arguments: &Arguments, store: StoreKind) -> Result<Totals, Failure> {
    let backend = store.start()?;
    let settings = ClientArguments {
        store,
        address: backend.address.clone(),
        seed: arguments.seed,
        clients: arguments.clients,
        operations: arguments.operations,
        plant: arguments.plant,
    };
    let here = Clients::open(&settings, 0)?;
    let mut there = OtherProcess::start(arguments.program.as_deref(), &settings)?;
    let mut totals = Totals::default();
    for case in (arguments.first..).take(usize::try_from(arguments.cases).unwrap_or(usize::MAX)) {
        there.order("play", case)?;
        let mut events = here.play(case)?;
        events.extend(there.events()?);
        events.extend(here.read(case)?);
        there.order("read", case)?;
        events.extend(there.events()?);
        events.sort_by_key(Event::order);
        totals.histories += 1;
        totals.counts.add(&events);
        let began = Instant::now();
        let checked = check::check(&events);
        let took = began.elapsed();
        totals.checking += took;
        totals.longest_check = totals.longest_check.max(took);
        if let Err(unexplained) = checked {
            let heading = Heading { store: store.name().to_owned(), seed: arguments.seed, case };
            let file = save(arguments.folder.as_deref(), &heading, &events)?;
            let what = format!("{unexplained}; the history is in {}", file.display());
            return Err(Failure::Found { seed: arguments.seed, case, what });
        }
    }
    Ok(totals)
}

impl Totals {
    fn show(&self, figures: &mut Figures, store: &str, took: Duration) {
        let Counts { operations, unknown, failed, .. } = self.counts;
        let Counts { conflicts, takeovers, discards, forks, prunes, .. } = self.counts;
        let Counts { forks_before_message, summaries, undone_summaries, .. } = self.counts;
        for (name, count) in [
            ("histories", self.histories),
            ("operations", operations),
            ("operations with unknown outcome", unknown),
            ("operations that failed", failed),
            ("conflicts", conflicts),
            ("takeovers", takeovers),
            ("discards", discards),
            ("forks", forks),
            ("forks before a message", forks_before_message),
            ("prunes", prunes),
            ("summaries", summaries),
            ("undone summaries", undone_summaries),
        ] {
            figures.add(format!("{store}: {name}"), count);
        }
        for (name, time) in
            [("longest check", self.longest_check), ("checking", self.checking), ("time", took)]
        {
            figures.add(format!("{store}: {name}"), format!("{:.3} s", time.as_secs_f64()));
        }
    }
}

fn save(folder: Option<&Path>, heading: &Heading, events: &[Event]) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::cannot_run(format!("save a history: {error}"));
    let folder =
        folder.map_or_else(|| std::env::temp_dir().join("tower-chat-histories"), Into::into);
    fs::create_dir_all(&folder).map_err(failed)?;
    let Heading { store, seed, case } = heading;
    let file = folder.join(format!("{store}-{seed}-{case}.jsonl"));
    let mut lines = vec![serde_json::to_string(heading)];
    lines.extend(events.iter().map(serde_json::to_string));
    let lines: Result<Vec<String>, _> = lines.into_iter().collect();
    let lines = lines.map_err(|error| Failure::cannot_run(format!("save a history: {error}")))?;
    fs::write(&file, lines.join("\n") + "\n").map_err(failed)?;
    Ok(file)
}

fn check_file(file: &Path) -> Result<Figures, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::cannot_run(format!("read the history {}: {error}", file.display()))
    };
    let text = fs::read_to_string(file).map_err(|error| unreadable(&error))?;
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    let heading: Heading = serde_json::from_str(heading).map_err(|error| unreadable(&error))?;
    let events: Result<Vec<Event>, _> = lines.map(serde_json::from_str).collect();
    let events = events.map_err(|error| unreadable(&error))?;
    match check::check(&events) {
        Ok(()) => {
            let mut figures = Figures::default();
            figures.add("events", events.len());
            Ok(figures)
        }
        Err(unexplained) => {
            let Heading { seed, case, .. } = heading;
            Err(Failure::Found { seed, case, what: unexplained.to_string() })
        }
    }
}
