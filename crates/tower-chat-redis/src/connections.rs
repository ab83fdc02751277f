//! The connections to the server, and the requests that are sent through them.

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::{Either, select};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection,
};
#[cfg(feature = "cluster")]
use redis::{
    cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo},
    cmd,
};
use tokio::sync::Mutex;
use tower_chat_core::{
    store::{StoreError, author::Retry},
    telemetry::GaugeGuard,
};

use crate::{
    RedisOptions, WriteConcern,
    failure::{Failure, Meaning},
    script::Call,
    telemetry::TELEMETRY,
    waiting::Group,
};

/// The connections of a store.
pub(crate) struct Connections {
    target: Target,
    pool: Vec<Mutex<Connection>>,
    /// The connections of writes that wait for replicas or disks.
    groups: Vec<Group>,
    next: AtomicUsize,
    response_timeout: Duration,
    /// Repeats requests while the server is unreachable.
    retry: Retry,
    write_concern: WriteConcern,
}

/// The server or the cluster to connect to.
pub(crate) enum Target {
    Server(Box<Client>),
    #[cfg(feature = "cluster")]
    Cluster {
        client: Box<redis::cluster::ClusterClient>,
        /// Clients of one or more servers, any of which can be used for a subscription: in a
        /// cluster each server forwards the messages of all channels.
        #[cfg(feature = "delivery")]
        servers: Vec<Client>,
    },
}

/// A server that stores conversations.
pub(crate) enum Server {
    Only,
    /// The host and the port of a server of a cluster.
    #[cfg(feature = "cluster")]
    Address(String),
}

/// A slot of the pool. The connection of a slot is opened when it is first needed.
#[derive(Default)]
pub(crate) struct Connection {
    link: Option<Link>,
    /// The guard that counts the open connection in a gauge.
    counted: Option<GaugeGuard>,
    /// The number of the connection in this slot, which increases with each new connection.
    number: u64,
}

/// A connection. Clones share one connection.
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

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a reply may take in addition to the response timeout.
const TRANSFER_TIME: Duration = Duration::from_secs(5);

impl Connections {
    pub(crate) fn new(target: Target, options: &RedisOptions) -> Self {
        let size = match target {
            Target::Server(_) => options.connections,
            // The cluster client has its own connections, one to each server.
            #[cfg(feature = "cluster")]
            Target::Cluster { .. } => 1,
        };
        Self {
            target,
            pool: (0..size).map(|_| Mutex::default()).collect(),
            groups: (0..size).map(|_| Group::new()).collect(),
            next: AtomicUsize::new(0),
            response_timeout: options.response_timeout,
            retry: Retry::new(options.retry_timeout).with_telemetry(TELEMETRY),
            write_concern: options.write_concern,
        }
    }

    /// Returns whether writes wait for replicas or disks before they are acknowledged.
    pub(crate) fn waits(&self) -> bool {
        self.write_concern != WriteConcern::Server
    }

    /// Calls a script, and does not wait for replicas or disks.
    pub(crate) async fn read(
        &self,
        action: &'static str,
        call: &Call,
    ) -> Result<Value, StoreError> {
        self.persist(action, true, |index| self.call(index, call, false)).await
    }

    /// Executes a command without waiting for a confirmation by replicas or disks.
    pub(crate) async fn ask(
        &self,
        action: &'static str,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        self.persist(action, true, |index| self.once(index, command, false)).await
    }

    /// Returns the servers that store conversations: the only server, or all primaries of a
    /// cluster.
    pub(crate) async fn primaries(&self) -> Result<Vec<Server>, StoreError> {
        match &self.target {
            Target::Server(_) => Ok(vec![Server::Only]),
            #[cfg(feature = "cluster")]
            Target::Cluster { .. } => {
                let action = "find the servers of a cluster";
                let every = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let answer = self
                    .persist(action, true, |index| self.routed(index, cmd("PING"), every.clone()));
                let Value::Map(answers) = answer.await? else {
                    return Err(StoreError::backend(
                        action,
                        false,
                        "the cluster did not return the list of its servers",
                    ));
                };
                let names = answers.into_iter().map(|(name, _)| crate::answer::text(name));
                names.map(|name| name.map(Server::Address)).collect()
            }
        }
    }

    /// Executes a read-only command on the given server.
    pub(crate) async fn ask_server(
        &self,
        action: &'static str,
        server: &Server,
        command: &Cmd,
    ) -> Result<Value, StoreError> {
        match server {
            Server::Only => self.ask(action, command).await,
            #[cfg(feature = "cluster")]
            Server::Address(address) => {
                let Some((host, port)) = address.rsplit_once(':') else {
                    return Err(StoreError::backend(action, false, "a server has no port"));
                };
                let port =
                    port.parse().map_err(|error| StoreError::backend(action, false, error))?;
                let host = host.to_owned();
                let one = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
                self.persist(action, true, |index| self.routed(index, command.clone(), one.clone()))
                    .await
            }
        }
    }

    /// Executes a command on those servers of a cluster that `to` selects.
    #[cfg(feature = "cluster")]
    async fn routed(&self, index: usize, command: Cmd, to: RoutingInfo) -> Result<Value, Failure> {
        let Some(connection) = self.pool.get(index) else { return Err(Failure::no_answer()) };
        let (link, number) = connection.lock().await.link(self).await?;
        let answer = self.in_time(async move {
            match link {
                Link::Server(mut connection) => command.query_async(&mut connection).await,
                Link::Cluster(mut connection) => connection.route_command(command, to).await,
            }
        });
        let answer = answer.await;
        if let Err(failure) = &answer
            && failure.ends_connection()
        {
            connection.lock().await.drop_link(number);
        }
        answer
    }

    /// Calls a script that changes data, and waits for replicas and disks as the write concern
    /// requires. `is_repeatable` means that the call can be sent again, because a second execution
    /// has no effect.
    pub(crate) async fn change(
        &self,
        action: &'static str,
        is_repeatable: bool,
        call: &Call,
    ) -> Result<Value, StoreError> {
        self.persist(action, is_repeatable, |index| self.call(index, call, self.waits())).await
    }

    /// Executes an attempt, and repeats the attempt while the server is unreachable, until the
    /// retry timeout. All attempts use the same slot of the pool. The retries end when two attempts
    /// have reached a replica, which refuses writes.
    async fn persist<Attempt>(
        &self,
        action: &'static str,
        is_repeatable: bool,
        mut attempt: impl FnMut(usize) -> Attempt,
    ) -> Result<Value, StoreError>
    where
        Attempt: Future<Output = Result<Value, Failure>>,
    {
        let index = self.next_index();
        let mut met_replica = false;
        let may_repeat = |failure: &Failure| {
            let is_replica = failure.meaning == Meaning::ReadOnly;
            let meets_it_again = is_replica && met_replica;
            met_replica |= is_replica;
            !meets_it_again && failure.may_repeat(is_repeatable)
        };
        let outcome = self.retry.run(|| attempt(index), may_repeat).await;
        outcome.map_err(|failure| failure.store_error(action, is_repeatable))
    }

    /// Calls a script by its hash, or by its code if the server has not cached the script.
    async fn call(&self, index: usize, call: &Call, waits: bool) -> Result<Value, Failure> {
        match self.once(index, call.command(), waits).await {
            Err(failure) if failure.meaning == Meaning::UnknownScript => {
                self.once(index, &call.with_code(), waits).await
            }
            outcome => outcome,
        }
    }

    /// Executes a command without retries.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Failure> {
        self.once(self.next_index(), command, false).await
    }

    /// Returns the index of the slot for the next request. The slots are used in turn.
    fn next_index(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.pool.len().max(1)
    }

    async fn once(&self, index: usize, command: &Cmd, waits: bool) -> Result<Value, Failure> {
        if waits { self.together(index, command).await } else { self.alone(index, command).await }
    }

    async fn alone(&self, index: usize, command: &Cmd) -> Result<Value, Failure> {
        let Some(connection) = self.pool.get(index) else { return Err(Failure::no_answer()) };
        // The lock makes concurrent callers wait while this caller opens the connection.
        let (mut link, number) = connection.lock().await.link(self).await?;
        let answer = self.in_time(link.ask(command)).await;
        if let Err(failure) = &answer
            && failure.ends_connection()
        {
            connection.lock().await.drop_link(number);
        }
        answer
    }

    /// Submits a write to a connection, and waits for the outcome. The task that locks the
    /// connection sends all submitted writes together, including those of other tasks.
    async fn together(&self, index: usize, command: &Cmd) -> Result<Value, Failure> {
        let Some(group) = self.groups.get(index) else { return Err(Failure::no_answer()) };
        let outcome = group.submit(command);
        let outcome = match select(outcome, pin!(group.line.lock())).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((mut line, outcome)) => {
                let (mut commands, replies) = line.take();
                commands.add_command(self.write_concern.wait(self.response_timeout));
                replies.send(self.all(&mut line.connection, &commands).await);
                drop(line);
                outcome.await
            }
        };
        outcome.unwrap_or_else(|_| Err(Failure::no_answer()))
    }

    /// Sends writes and the command that waits for replicas or disks. Returns the outcome of each
    /// write.
    async fn all(
        &self,
        connection: &mut Connection,
        commands: &Pipeline,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let (mut link, number) = connection.link(self).await?;
        let answers = self.in_time(link.ask_all(commands)).await;
        let outcomes = answers.map(|answers| self.write_concern.check(answers));
        let is_lost = match &outcomes {
            Ok(outcomes) => outcomes
                .iter()
                .filter_map(|outcome| outcome.as_ref().err())
                .any(Failure::ends_connection),
            Err(failure) => failure.ends_connection(),
        };
        if is_lost {
            connection.drop_link(number);
        }
        outcomes
    }

    /// Waits for a reply, with a longer timeout than that of the client library, because that
    /// timeout may have no effect.
    async fn in_time<T>(&self, asking: impl Future<Output = RedisResult<T>>) -> Result<T, Failure> {
        let limit = self.response_timeout.saturating_add(2 * TRANSFER_TIME);
        match tokio::time::timeout(limit, asking).await {
            Ok(answer) => answer.map_err(Failure::of_command),
            Err(_) => Err(Failure::no_answer()),
        }
    }

    /// Subscribes to a channel on a new connection. Dropping the returned sink ends the
    /// subscription.
    #[cfg(feature = "delivery")]
    pub(crate) async fn subscribe(
        &self,
        channel: &str,
    ) -> RedisResult<(redis::aio::PubSubSink, redis::aio::PubSubStream)> {
        let servers = match &self.target {
            Target::Server(client) => std::slice::from_ref(&**client),
            #[cfg(feature = "cluster")]
            Target::Cluster { servers, .. } => servers,
        };
        let mut outcome =
            Err((redis::ErrorKind::ClusterConnectionNotFound, "no server is known").into());
        for client in servers {
            outcome = client.get_async_pubsub().await;
            if outcome.is_ok() {
                break;
            }
        }
        let (mut sink, stream) = outcome?.split();
        sink.subscribe(channel).await?;
        Ok((sink, stream))
    }

    async fn connect(&self) -> RedisResult<Link> {
        match &self.target {
            Target::Server(client) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT_TIMEOUT))
                    .set_response_timeout(Some(
                        self.response_timeout.saturating_add(TRANSFER_TIME),
                    ));
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                connection.await.map(Link::Server)
            }
            #[cfg(feature = "cluster")]
            Target::Cluster { client, .. } => {
                client.get_async_connection().await.map(Link::Cluster)
            }
        }
    }
}

impl Connection {
    /// Returns the connection of the slot, and opens a connection if there is none.
    async fn link(&mut self, connections: &Connections) -> Result<(Link, u64), Failure> {
        if let Some(link) = &self.link {
            return Ok((link.clone(), self.number));
        }
        let link = connections.connect().await.map_err(Failure::of_connecting)?;
        self.link = Some(link.clone());
        self.counted = TELEMETRY.connected();
        self.number += 1;
        Ok((link, self.number))
    }

    /// Drops the connection of the slot if it still has this number.
    fn drop_link(&mut self, number: u64) {
        if self.number == number {
            self.link = None;
            self.counted = None;
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The target is not printed, because its address may contain a password.
        f.debug_struct("Connections").field("connections", &self.pool.len()).finish_non_exhaustive()
    }
}
