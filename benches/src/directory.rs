//! `directory`: how much longer an append takes because it also stores the usage of the service
//! call. The store adds the usage to the directory, its list of conversations.
//!
//! The append is one of a run with tools: the result of the last call, the next call, and a row for
//! each of the two calls. Floor: the same append without usage, to another conversation of the same
//! store. The two appends alternate, because the load of the machine changes. The field `history`
//! is the number of other conversations in the store.
//!
//! Bound for a durable append (`full`): 1.1. The ratio of PostgreSQL may be below 1, because its
//! store has an older and slower statement for an append without usage.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tower_chat::{
    BoxError, ConversationKey, HistoryStore, PersistenceMode,
    message::MessageId,
    request::Usage,
    run::RunId,
    store::{
        ModelUsage, Revision, RunActivity, SequencePosition, UsageSum,
        author::{RecordedResult, ToolRecord, Write},
    },
    tool::ToolStatus,
};
use tower_chat_redis::RedisStore;
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::server::RedisServer;

use crate::{
    Effort, files, postgres,
    report::{Line, Samples, us_since},
    workload::{self, CALLS, TOOL},
};

/// The number of other conversations in the store.
const OTHERS: [usize; 2] = [0, 2000];

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure_sqlite(effort))?;
    runtime.block_on(measure_postgres(effort))?;
    runtime.block_on(measure_redis(effort))
}

async fn measure_sqlite(effort: Effort) -> Result<(), BoxError> {
    for (name, durability) in files::DURABILITIES {
        let folder = tempfile::tempdir_in(files::build_folder()?)?;
        let options = SqliteStore::options().with_durability(durability);
        let store = Arc::new(options.open(folder.path().join("directory.db")).await?);
        measure_store(store, "sqlite", name, effort).await?;
    }
    Ok(())
}

async fn measure_postgres(effort: Effort) -> Result<(), BoxError> {
    let Some(server) = postgres::server::start()? else { return Ok(()) };
    for (name, setting) in postgres::DURABILITIES {
        let address = postgres::server::address(&server, setting);
        let store = Arc::new(postgres::server::store(&address, name).await?);
        measure_store(store, "postgres", name, effort).await?;
    }
    Ok(())
}

/// Measures Redis twice: `full` syncs an append-only file at each write, and `off` writes no file.
async fn measure_redis(effort: Effort) -> Result<(), BoxError> {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    for (name, settings) in [("full", &durable[..]), ("off", &[])] {
        let server = match RedisServer::start_with(settings) {
            Ok(server) => server,
            Err(missing) => return crate::skipped(missing),
        };
        let store = Arc::new(RedisStore::connect(&server.address(0)).await?);
        measure_store(store, "redis", name, effort).await?;
    }
    Ok(())
}

async fn measure_store(
    store: Arc<dyn HistoryStore>,
    name: &'static str,
    durability: &'static str,
    effort: Effort,
) -> Result<(), BoxError> {
    let mut filled = 0;
    for others in OTHERS.map(|others| effort.repetitions(others)) {
        for number in filled..others {
            Conversation::new(&format!("other {number}")).append(&store, true).await?;
        }
        filled = others;
        let mut with = Conversation::new(&format!("with, beside {others}"));
        let mut without = Conversation::new(&format!("without, beside {others}"));
        for turn in 0..effort.repetitions(4000) {
            match turn % 2 {
                0 => {
                    with.append(&store, true).await?;
                    without.append(&store, false).await?;
                }
                _ => {
                    without.append(&store, false).await?;
                    with.append(&store, true).await?;
                }
            }
        }
        let (us, floor) = (with.times.median(), without.times.median());
        let line = Line::new("directory", "per_service_call", name, others, us, floor);
        Line { durability: Some(durability), ..line }.print()?;
    }
    Ok(store.close().await?)
}

struct Conversation {
    key: ConversationKey,
    run: RunId,
    /// The number of service calls of the current run.
    calls: u32,
    revision: Revision,
    times: Samples,
}

impl Conversation {
    fn new(id: &str) -> Self {
        let (run, revision) = (RunId::new(), Revision::ABSENT);
        let key = ConversationKey::new("benches", id);
        Self { key, run, calls: 0, revision, times: Samples::default() }
    }

    async fn append(
        &mut self,
        store: &Arc<dyn HistoryStore>,
        tells_usage: bool,
    ) -> Result<(), BoxError> {
        if self.calls as usize == CALLS {
            (self.run, self.calls) = (RunId::new(), 0);
        }
        let messages = [workload::result_message(0), workload::call_message(1)]
            .map(|message| Arc::new(workload::added(message)));
        let id = MessageId { run: self.run, index: 2 * self.calls };
        let write =
            Write::new(self.key.clone(), id, self.revision, messages).with_tools(self.records());
        let start = Instant::now();
        let write = match tells_usage {
            true => write.with_activity(activity()),
            false => write.without_activity(),
        };
        let slot = store.reserve().await?;
        self.revision = store.append(slot, vec![write]).await?;
        self.times.add(us_since(start));
        self.calls += 1;
        Ok(())
    }

    /// Returns the rows of an append: the call of the previous append is finished, and a new call
    /// is pending.
    fn records(&self) -> Vec<ToolRecord> {
        let of = |sequence, round| {
            let call = SequencePosition { sequence, index: 0 };
            ToolRecord::pending(call, round, format!("call_{round:08}"), TOOL)
        };
        let last = self.revision.sequence;
        let mut records = vec![of(last + 2, self.calls + 1)];
        if last > 0 {
            let mut answered = of(last, self.calls);
            answered.status = ToolStatus::Ok;
            let result = SequencePosition { sequence: last + 1, index: 0 };
            answered.result = RecordedResult::InMessage(result);
            answered.started_at = Some(SystemTime::now());
            answered.finished_at = answered.started_at;
            records.insert(0, answered);
        }
        records
    }
}

fn activity() -> RunActivity {
    let sum = UsageSum::of_calls(1, 1).with_tokens(Usage::new(1200, 80)).with_cost_nanos(460_000);
    RunActivity::new(SystemTime::now())
        .with_mode(PersistenceMode::PerServiceCall)
        .with_usage([ModelUsage::new(Some("gpt-5-mini-2025-08-07".into()), sum)])
}
