//! The update log.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use redis::{Cmd, Value, cmd};
use tower_chat_core::{
    BoxError, SharedError,
    store::{StoreError, author::milliseconds},
};
use tower_chat_delivery::{
    Erase, PositionedUpdate, RunKey, StoredUpdate, UpdateLogError, UpdateLogOptions,
    UpdatePosition,
    author::{FoundRun, Notifications, RunRecord, RunWrite, ServerLog, Wakeups},
};

use crate::{
    OpenError, RedisOptions, RedisStore,
    answer::{self, Answer},
    names::Names,
    script::{Call, ERASE_RUN, FIND_RUN, INDEX_RUN, WRITE_RUN},
    settings::Settings,
};

/// The largest time to live of a run in milliseconds: a hundred years.
const MAX_TIME_TO_LIVE: i64 = 100 * 366 * 24 * 60 * 60 * 1000;
/// When a run begins, the log checks at most this many runs of the index for expiry.
const MAX_SWEPT: usize = 100;
/// The number of runs that an erasure checks concurrently.
const CONCURRENT: usize = 32;

/// An update log in Redis or Valkey, for processes on several machines.
///
/// The updates of a run are stored in a stream, which expires with the record of the run. The time
/// to live of conversations does not apply to runs. The log stores updates in plaintext, even if
/// the store of the histories encrypts its messages. `EncryptedUpdateLog` of `tower-chat-encrypted`
/// wraps this log and encrypts the updates.
///
/// Clones share one log. Messages on a channel wake waiting readers; see the documentation of the
/// crate. If several processes begin runs at the same time, each process may exceed the maximum
/// number of runs by one. Leases and expiry times use the clock of the process. The server deletes
/// the keys of a run by its own clock.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_chat_delivery::{DetachedRunsLayer, UpdateLogOptions};
/// use tower_chat_redis::{RedisStore, RedisUpdateLog};
/// let store = RedisStore::connect("redis://localhost/").await?;
/// let log = RedisUpdateLog::from_store(&store, UpdateLogOptions::default());
/// let runs = DetachedRunsLayer::new(log);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedisUpdateLog {
    server: Arc<Server>,
    wakeups: Arc<Wakeups>,
    options: Arc<UpdateLogOptions>,
}

#[derive(Debug)]
struct Server(Arc<Settings>);

impl RedisUpdateLog {
    /// Opens the log at an address with the default options.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the log cannot be opened.
    pub async fn connect(address: &str) -> Result<Self, OpenError> {
        Self::connect_with(address, RedisOptions::new(), UpdateLogOptions::default()).await
    }

    /// Opens the log at an address. The log uses only those options in `server` that concern
    /// connections, the prefix and the durability.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the log cannot be opened.
    pub async fn connect_with(
        address: &str,
        server: RedisOptions,
        options: UpdateLogOptions,
    ) -> Result<Self, OpenError> {
        Ok(Self::from_store(&server.connect(address).await?, options))
    }

    /// Opens the log on the server or in the cluster of a store. The log uses the connections of
    /// the store.
    pub fn from_store(store: &RedisStore, options: UpdateLogOptions) -> Self {
        let server = Arc::new(Server(store.settings().clone()));
        let wakeups = Arc::new(Wakeups::new(server.clone()));
        Self { server, wakeups, options: Arc::new(options) }
    }

    /// Checks a run of the index, and erases the run if `is_erased` returns true for its record. If
    /// the run has no record, removes its entry from the index, unless the time of the entry is
    /// later than `last`: another process may be beginning that run. Returns whether the run was
    /// erased.
    async fn check(
        &self,
        name: &str,
        last: i64,
        is_erased: impl Fn(&RunRecord) -> bool,
    ) -> Result<bool, UpdateLogError> {
        loop {
            let find = FIND_RUN.on(self.server.0.names.run_log(name)).with("0-0").with(0);
            let found = self.server.read(&find).await?.optional_text().map_err(failed)?;
            let Some(found) = found else {
                self.server.index(name, last, "REM").await?;
                return Ok(false);
            };
            let record: RunRecord = serde_json::from_str(&found)
                .map_err(|error| UpdateLogError::backend("decode a record", false, error))?;
            if !is_erased(&record) {
                let time = record.last_at().min(milliseconds::of(self.options.now()));
                self.server.index(name, time, "GT").await?;
                return Ok(false);
            }
            let erase = ERASE_RUN.on(self.server.0.names.run_log(name)).with(found);
            let run = name.rsplit('/').next().unwrap_or_default();
            let erase = erase.with(self.server.0.names.run_channel()).with(run);
            if self.server.change(&erase, true).await? == "deleted" {
                self.server.index(name, last, "REM").await?;
                return Ok(true);
            }
        }
    }

    /// Checks several runs with [`check`](Self::check). Returns the number of erased runs.
    async fn check_all(
        &self,
        names: Vec<String>,
        last: i64,
        is_erased: impl Fn(&RunRecord) -> bool + Copy,
    ) -> Result<u64, UpdateLogError> {
        let checks =
            names.into_iter().map(|name| async move { self.check(&name, last, is_erased).await });
        let checks = stream::iter(checks).buffer_unordered(CONCURRENT);
        checks.try_fold(0, async |erased, is_erased| Ok(erased + u64::from(is_erased))).await
    }
}

#[async_trait]
impl ServerLog for RedisUpdateLog {
    fn options(&self) -> &UpdateLogOptions {
        &self.options
    }

    fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    async fn find(
        &self,
        run: &RunKey,
        after: UpdatePosition,
        limit: usize,
    ) -> Result<Option<FoundRun>, UpdateLogError> {
        let find = FIND_RUN.on(self.server.0.names.run_log(&name_of(run)));
        let find = find.with(after.to_string()).with(limit.min(i32::MAX as usize));
        let mut answer = self.server.read(&find).await?;
        let Some(record) = answer.optional_text().map_err(failed)? else { return Ok(None) };
        let updates = answer.pairs().map_err(failed)?.into_iter().map(|(position, data)| {
            let position: UpdatePosition = position
                .parse()
                .map_err(|error| UpdateLogError::backend("decode a position", false, error))?;
            let data = String::from_utf8(data.unwrap_or_default());
            let data = data.map_err(|error| UpdateLogError::Undecodable {
                run: run.clone(),
                position,
                source: SharedError::new(error),
            })?;
            Ok(PositionedUpdate { position, update: StoredUpdate::new(data) })
        });
        Ok(Some(FoundRun { record, updates: updates.collect::<Result<_, UpdateLogError>>()? }))
    }

    async fn write(&self, run: &RunKey, write: RunWrite<'_>) -> Result<bool, UpdateLogError> {
        let name = name_of(run);
        let now = milliseconds::of(self.options.now());
        if write.found.is_none() {
            // An erasure does not find a run without an entry in the index. Therefore the entry is
            // added before the record.
            self.server.index(&name, now, "NX").await?;
        }
        let expired_at = milliseconds::of(self.options.expired_at());
        let time_to_live = write.last_at.saturating_sub(expired_at).clamp(1, MAX_TIME_TO_LIVE);
        let mut call = WRITE_RUN
            .on(self.server.0.names.run_log(&name))
            .with(write.found.unwrap_or_default())
            .with(write.record)
            .with(time_to_live)
            .with(self.server.0.names.run_channel())
            .with(run.run.to_string());
        for (position, data) in write.positioned() {
            call.push(position.to_string());
            call.push(data);
        }
        if self.server.change(&call, write.is_repeatable).await? != "stored" {
            return Ok(false);
        }
        if write.found.is_none() {
            // Another process may have removed the entry before the record was stored.
            self.server.index(&name, now, "GT").await?;
        }
        Ok(true)
    }

    async fn sweep(&self, run: &RunKey) -> Result<u64, UpdateLogError> {
        let [times, _] = self.server.0.names.logged_runs_index();
        let time = self.options.expired_at();
        let last = milliseconds::of(time);
        let mut old = range("ZRANGEBYSCORE", &times, "-inf", last);
        let mut old = self.server.names(old.arg("LIMIT").arg(0).arg(MAX_SWEPT)).await?;
        old.push(name_of(run));
        self.check_all(old, last, |record| record.ended_by(time)).await?;
        let count = self.server.ask(cmd("ZCARD").arg(&times)).await?;
        if let Value::Int(count) = count { Ok(count.unsigned_abs()) } else { Ok(0) }
    }

    async fn erase_runs(&self, what: Erase<'_>) -> Result<u64, UpdateLogError> {
        let [times, names] = self.server.0.names.logged_runs_index();
        let now = milliseconds::of(self.options.now());
        let beginning = match what {
            Erase::Conversation(key) => Names::logged_runs(key.scope(), Some(key.id())),
            Erase::Scope(scope) => Names::logged_runs(scope, None),
            Erase::EndedBy(time) => {
                let old = range("ZRANGEBYSCORE", &times, "-inf", milliseconds::of(time));
                let old = self.server.names(&old).await?;
                return self.check_all(old, now, |record| record.ended_by(time)).await;
            }
            other => {
                let cause = format!("unknown: {other:?}");
                return Err(UpdateLogError::backend("erase runs", false, cause));
            }
        };
        // The range of all names that start with `beginning`: 0x7f is greater than every byte of a
        // name.
        let (first, last) = (format!("[{beginning}"), format!("({beginning}\u{7f}"));
        let runs = self.server.names(&range("ZRANGEBYLEX", &names, &first, last)).await?;
        self.check_all(runs, now, |_| true).await
    }
}

impl Server {
    async fn read(&self, call: &Call) -> Result<Answer, UpdateLogError> {
        let answer = self.0.connections.read("read a run", call).await;
        answer.and_then(Answer::new).map_err(failed)
    }

    /// Calls a script that changes data, and returns the first word of its reply.
    async fn change(&self, call: &Call, is_repeatable: bool) -> Result<String, UpdateLogError> {
        let answer = self.0.connections.change("write a run", is_repeatable, call).await;
        answer.and_then(Answer::new).and_then(|mut answer| answer.text()).map_err(failed)
    }

    async fn ask(&self, command: &Cmd) -> Result<Value, UpdateLogError> {
        self.0.connections.ask("read the index of runs", command).await.map_err(failed)
    }

    async fn names(&self, command: &Cmd) -> Result<Vec<String>, UpdateLogError> {
        let names = answer::list(self.ask(command).await?).map_err(failed)?;
        names.into_iter().map(answer::text).collect::<Result<_, _>>().map_err(failed)
    }

    /// Adds, changes or removes the entry of a run in the index, as the script's argument `option`
    /// selects. The time of an entry is never later than the end of the run or of its lease.
    async fn index(&self, name: &str, time: i64, option: &str) -> Result<(), UpdateLogError> {
        let call = INDEX_RUN.on(self.0.names.logged_runs_index());
        self.change(&call.with(name).with(time).with(option), true).await.map(drop)
    }
}

#[async_trait]
impl Notifications for Server {
    async fn subscribe(&self) -> Result<BoxStream<'static, String>, BoxError> {
        let subscription = self.0.connections.subscribe(&self.0.names.run_channel()).await?;
        // The stream owns the sink, because dropping the sink would end the subscription.
        let texts = stream::unfold(subscription, |(sink, mut messages)| async {
            let message = messages.next().await?;
            Some((message.get_payload().unwrap_or_default(), (sink, messages)))
        });
        Ok(texts.boxed())
    }

    async fn notify(&self, text: &str) -> Result<(), BoxError> {
        let mut publish = cmd("PUBLISH");
        publish.arg(self.0.names.run_channel()).arg(text);
        Ok(self.0.connections.ask("publish a message", &publish).await.map(drop)?)
    }
}

/// Returns the name of a run in the index.
fn name_of(run: &RunKey) -> String {
    Names::logged_run(&run.conversation, run.run)
}

fn range(command: &str, key: &str, first: &str, last: impl redis::ToRedisArgs) -> Cmd {
    let mut range = cmd(command);
    range.arg(key).arg(first).arg(last);
    range
}

fn failed(error: StoreError) -> UpdateLogError {
    UpdateLogError::backend("send a request to the server", error.is_retryable(), error)
}
