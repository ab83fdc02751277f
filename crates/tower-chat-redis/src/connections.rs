//! The connections to the server: how they are made, and how something is asked over them.

use std::{
    fmt,
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection,
    cmd,
};
use tokio::{sync::Mutex, time::Instant};
use tower_chat_core::store::StoreError;

use crate::{
    Durability, RedisOptions,
    failure::{Failure, Meaning},
    script::Call,
};

/// The connections of a store.
pub(crate) struct Connections {
    target: Target,
    places: Vec<Mutex<Place>>,
    next: AtomicUsize,
    response_timeout: Duration,
    /// How long to go on after the server could not be reached.
    patience: Duration,
    durability: Durability,
}

/// What is connected to.
pub(crate) enum Target {
    Server(Box<Client>),
    #[cfg(feature = "cluster")]
    Cluster(Box<redis::cluster::ClusterClient>),
}

/// Where a connection is, once it was needed.
#[derive(Default)]
struct Place {
    link: Option<Link>,
    /// Tells the connection from those that were here before.
    number: u64,
}

/// A connection; clones share it.
#[derive(Clone)]
enum Link {
    Server(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(redis::cluster_async::ClusterConnection),
}

impl Link {
    async fn ask(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Server(connection) => command.query_async(connection).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    async fn ask_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Self::Server(connection) => commands.query_async(connection).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => commands.query_async(connection).await,
        }
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer than replicas are waited for an answer may be under way.
const WAY: Duration = Duration::from_secs(5);

impl Connections {
    pub(crate) fn new(target: Target, options: &RedisOptions) -> Self {
        let places = match target {
            Target::Server(_) => options.connections,
            // It has connections of its own, one to each server.
            #[cfg(feature = "cluster")]
            Target::Cluster(_) => 1,
        };
        Self {
            target,
            places: (0..places).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            response_timeout: options.response_timeout,
            patience: options.patience,
            durability: options.durability,
        }
    }

    /// Whether a write is acknowledged later than the server's own settings say.
    pub(crate) fn waits(&self) -> bool {
        self.durability != Durability::Server
    }

    /// The answer to a question.
    pub(crate) async fn read(
        &self,
        action: &'static str,
        call: &Call,
    ) -> Result<Value, StoreError> {
        self.persist(action, true, |place| self.call(place, call, false)).await
    }

    /// The answer to a question that needs no script.
    pub(crate) async fn ask(
        &self,
        action: &'static str,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        self.persist(action, true, |place| self.once(place, command, false)).await
    }

    /// Makes one change, in one round trip. `is_repeatable`: doing it twice does it once.
    pub(crate) async fn change(
        &self,
        action: &'static str,
        is_repeatable: bool,
        call: &Call,
    ) -> Result<Value, StoreError> {
        self.persist(action, is_repeatable, |place| self.call(place, call, self.waits())).await
    }

    /// Tries again, with growing pauses, while the server cannot be reached. That is at one place,
    /// so that a connection that is given up is followed by a new one. Where that leads to a replica
    /// too, so will the next.
    async fn persist<Attempt>(
        &self,
        action: &'static str,
        is_repeatable: bool,
        mut attempt: impl FnMut(usize) -> Attempt,
    ) -> Result<Value, StoreError>
    where
        Attempt: Future<Output = Result<Value, Failure>>,
    {
        let place = self.next_place();
        let mut first_failure = None;
        let mut pause = FIRST_PAUSE;
        let mut met_replica = false;
        loop {
            let failure = match attempt(place).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let since = first_failure.get_or_insert_with(Instant::now).elapsed();
            let is_replica = failure.meaning == Meaning::ReadOnly;
            let is_over = since + pause > self.patience || (is_replica && met_replica);
            if is_over || !failure.may_repeat(is_repeatable) {
                return Err(failure.store_error(action, is_repeatable));
            }
            met_replica |= is_replica;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Uses a script once, with its code where the server does not know it.
    async fn call(&self, place: usize, call: &Call, waits: bool) -> Result<Value, Failure> {
        match self.once(place, call.command(), waits).await {
            Err(failure) if failure.meaning == Meaning::Unknown => {
                self.once(place, &call.with_code(), waits).await
            }
            outcome => outcome,
        }
    }

    /// Asks once.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Failure> {
        self.once(self.next_place(), command, false).await
    }

    /// The places are used in turn.
    fn next_place(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.places.len().max(1)
    }

    async fn once(&self, place: usize, command: &Cmd, waits: bool) -> Result<Value, Failure> {
        let (mut link, number) = self.link(place).await?;
        let asking = async {
            if !waits {
                return link.ask(command).await.map_err(Failure::of_command);
            }
            let mut both = redis::pipe();
            both.add_command(command.clone()).add_command(self.wait());
            both.ignore_errors();
            let answers = link.ask_all(&both).await.map_err(Failure::of_command)?;
            self.check(answers)
        };
        // The connection has a limit of its own, which a lost clock does not reach.
        let limit = self.response_timeout.saturating_add(2 * WAY);
        let answer = tokio::time::timeout(limit, asking).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::no_answer()));
        if let Err(failure) = &answer
            && failure.ends_connection()
        {
            self.drop_link(place, number).await;
        }
        answer
    }

    /// What waits until the writes before it on the same connection are where they should be.
    fn wait(&self) -> Cmd {
        let milliseconds = u64::try_from(self.response_timeout.as_millis()).unwrap_or(u64::MAX);
        match self.durability {
            Durability::Server => cmd("PING"),
            Durability::Replicas(replicas) => {
                let mut wait = cmd("WAIT");
                wait.arg(replicas).arg(milliseconds);
                wait
            }
            Durability::Synced { replicas } => {
                let mut wait = cmd("WAITAOF");
                wait.arg(1).arg(replicas).arg(milliseconds);
                wait
            }
        }
    }

    /// The answer to a change, if the answer to what was waited for says that it is safe.
    fn check(&self, answers: Vec<Value>) -> Result<Value, Failure> {
        let mut answers = answers.into_iter().map(Value::extract_error);
        let [Some(answer), Some(waited)] = [answers.next(), answers.next()] else {
            return Err(Failure::no_answer());
        };
        let answer = answer.map_err(Failure::of_command)?;
        let waited = waited.map_err(|error| {
            let mut failure = Failure::of_command(error);
            failure.meaning = Meaning::NotSafe;
            failure
        })?;
        let number = |value: &Value| if let Value::Int(number) = value { *number } else { 0 };
        let (disks, replicas) = match &waited {
            Value::Array(both) => (both.first().map_or(0, number), both.get(1).map_or(0, number)),
            other => (0, number(other)),
        };
        let is_safe = match self.durability {
            Durability::Server => true,
            Durability::Replicas(wanted) => replicas >= wanted.into(),
            Durability::Synced { replicas: wanted } => disks >= 1 && replicas >= wanted.into(),
        };
        if is_safe { Ok(answer) } else { Err(Failure::not_safe(disks, replicas)) }
    }

    /// The connection at a place, which is made if there is none. Those who need it at the same
    /// time wait for the same one.
    async fn link(&self, place: usize) -> Result<(Link, u64), Failure> {
        let Some(place) = self.places.get(place) else { return Err(Failure::no_answer()) };
        let mut place = place.lock().await;
        if let Some(link) = &place.link {
            return Ok((link.clone(), place.number));
        }
        let link = self.connect().await.map_err(Failure::of_connecting)?;
        place.link = Some(link.clone());
        place.number += 1;
        Ok((link, place.number))
    }

    async fn connect(&self) -> RedisResult<Link> {
        match &self.target {
            Target::Server(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_TIMEOUT))
                    .set_response_timeout(Some(self.response_timeout.saturating_add(WAY)));
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                connection.await.map(Link::Server)
            }
            #[cfg(feature = "cluster")]
            Target::Cluster(client) => client.get_async_connection().await.map(Link::Cluster),
        }
    }

    /// Makes no more use of a connection.
    async fn drop_link(&self, place: usize, number: u64) {
        let Some(place) = self.places.get(place) else { return };
        let mut place = place.lock().await;
        if place.number == number {
            place.link = None;
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address holds a password.
        f.debug_struct("Connections").field("places", &self.places.len()).finish_non_exhaustive()
    }
}
