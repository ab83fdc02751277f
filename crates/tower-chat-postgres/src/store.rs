//! The store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_postgres::Config;
use tower_chat_core::{
    Classified, ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Pruned, Revision, Rewrite, RunSummary, StoreError, StoreHandle, Summaries, ToolCallQueries,
        ToolTotals, UsageQuery, UsageTotals,
        author::{LoadFrom, OpenRunContent, SealedChange, Slot, TaskQueue, Ticket, Write},
    },
};

use crate::{
    OpenError, PostgresOptions, append,
    connections::{Connections, Query},
    directory, directory_usage,
    failure::Failure,
    fork, history_summary, invocations, list, maintenance, prune, read,
    schema::{self, Found, Layout},
    statements::Statements,
    stored_key::StoredKey,
    telemetry::{SYSTEM, TELEMETRY},
    tls,
};

/// Stores conversations in a PostgreSQL database.
///
/// Clones share one store. Tasks on the runtime on which the store was opened execute the submitted
/// writes, even after the last clone was dropped. To wait for the writes,
/// [`close`](HistoryStore::close) the store.
///
/// The async methods of the store must be called on the runtime on which it was opened.
#[derive(Debug, Clone)]
pub struct PostgresStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    handle: StoreHandle,
    connections: Arc<Connections>,
    tasks: TaskQueue,
}

impl PostgresStore {
    /// Opens the store at an address with the default options, and creates its tables if they are
    /// missing. See [`PostgresOptions::connect`].
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened.
    pub async fn connect(address: &str) -> Result<Self, OpenError> {
        PostgresOptions::new().connect(address).await
    }

    #[cfg(feature = "delivery")]
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.0.connections
    }

    /// Returns the default options for opening a store.
    pub fn options() -> PostgresOptions {
        PostgresOptions::new()
    }

    pub(crate) async fn connect_with(
        address: &str,
        options: PostgresOptions,
    ) -> Result<Self, OpenError> {
        let (mut connections, layout) = connections(address, &options)?;
        connections.names_scope = prepare(&connections, &layout, options.migration).await?;
        Ok(Self(Arc::new(Shared {
            handle: StoreHandle::new().with_system(SYSTEM),
            connections: Arc::new(connections),
            tasks: TaskQueue::new(options.max_queued).with_telemetry(TELEMETRY),
        })))
    }
}

#[async_trait]
impl HistoryStore for PostgresStore {
    fn handle(&self) -> &StoreHandle {
        &self.0.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let head = read::head(&self.0.connections, key).await?;
        self.0.connections.seal_mark.see(&head);
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let history = read::history(&self.0.connections, key).await?;
        self.0.connections.seal_mark.see(&history.head);
        Ok(history)
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let history = read::history_from(&self.0.connections, key, from).await?;
        self.0.connections.seal_mark.see(&history.head);
        Ok(history)
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.invocations(&which.query(key)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.0.tasks.reserve().await
    }

    fn try_reserve(&self) -> Option<Slot> {
        self.0.tasks.try_reserve()
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let connections = self.0.connections.clone();
        self.0.tasks.append(slot, writes, move |write| {
            let connections = connections.clone();
            async move {
                connections.admit(SealedChange::of_write(&write)).await?;
                append::append(&connections, &write).await
            }
        })
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let stored = StoredKey::new(key);
        let connections = self.0.connections.clone();
        let delete = async move { delete(&connections, &stored).await };
        self.0.tasks.change(vec![key.clone()], delete).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.0.tasks.settle(None).await;
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.tasks.close().await;
        Ok(())
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Summaries for PostgresStore {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        history_summary::list(&self.0.connections, key).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        history_summary::find(&self.0.connections, key, id).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let (connections, summarized) = (self.0.connections.clone(), key.clone());
        let summary = summary.clone();
        let add = async move {
            connections.admit(SealedChange::other(summary.is_sealed)).await?;
            history_summary::add(&connections, &summarized, &summary, rewrites).await
        };
        self.0.tasks.change_without_slot(vec![key.clone()], add).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let (connections, summarized) = (self.0.connections.clone(), key.clone());
        let remove = async move { history_summary::remove(&connections, &summarized, id).await };
        self.0.tasks.change_without_slot(vec![key.clone()], remove).await
    }
}

#[async_trait]
impl Journal for PostgresStore {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        read::open_run(&self.0.connections, key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.0.tasks.settle(None).await;
        list::open_runs(&self.0.connections, scope, after, limit).await
    }
}

#[async_trait]
impl Maintenance for PostgresStore {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let connections = self.0.connections.clone();
        let (from, to) = (from.clone(), to.clone());
        let keys = vec![from.clone(), to.clone()];
        let fork = async move {
            connections.admit(SealedChange::other(false)).await?;
            fork::fork(&connections, &from, before, &to).await
        };
        self.0.tasks.change(keys, fork).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.0.handle.at_rest(key)?;
        let (connections, pruned) = (self.0.connections.clone(), key.clone());
        let prune = async move {
            connections.admit(SealedChange::other(keep.is_sealed())).await?;
            prune::prune(&connections, &pruned, keep).await
        };
        self.0.tasks.change(vec![key.clone()], prune).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.tasks.settle(None).await;
        list::scopes(&self.0.connections, after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        maintenance::rows(&self.0.connections, key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let (connections, keys) = (self.0.connections.clone(), vec![rewrite.key.clone()]);
        let rewrite = async move {
            connections.admit(SealedChange::other(rewrite.is_sealed)).await?;
            maintenance::rewrite(&connections, &rewrite).await
        };
        self.0.tasks.change(keys, rewrite).await
    }
}

#[async_trait]
impl Directory for PostgresStore {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.0.tasks.settle(None).await;
        list::conversations(&self.0.connections, scope, after, limit).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        directory::summary(&self.0.connections, key).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.0.tasks.settle(None).await;
        directory::conversations(&self.0.connections, query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        self.0.tasks.settle(None).await;
        directory_usage::usage(&self.0.connections, query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        directory_usage::runs(&self.0.connections, key, after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        directory::messages_before(&self.0.connections, key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let (connections, described) = (self.0.connections.clone(), key.clone());
        let description = description.clone();
        let set = async move {
            connections.admit(SealedChange::other(description.is_sealed())).await?;
            directory::set_description(&connections, &described, &description, expected_version)
                .await
        };
        self.0.tasks.change(vec![key.clone()], set).await
    }
}

#[async_trait]
impl ToolCallQueries for PostgresStore {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        if query.matches_nothing() {
            return Ok(Invocations::default());
        }
        self.0.tasks.settle(invocations::conversation(query).as_ref()).await;
        invocations::invocations(&self.0.connections, query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        if query.sequences.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        self.0.tasks.settle(invocations::conversation(query).as_ref()).await;
        invocations::tool_totals(&self.0.connections, query).await
    }
}

/// Deletes a conversation, and returns whether it existed. A request that may have been executed is
/// not sent again: the second execution would report that the conversation did not exist.
async fn delete(connections: &Connections, key: &StoredKey) -> Result<bool, StoreError> {
    let sql = &connections.statements.delete;
    let query = Query { sql, values: &[&key.scope, &key.conversation] };
    let action = "delete a conversation";
    let row = connections.change(action, false, query).await?;
    row.try_get(0).map_err(|error| StoreError::backend(action, false, error))
}

/// Creates the connection pool without opening a connection, and the layout of the tables.
pub(crate) fn connections(
    address: &str,
    options: &PostgresOptions,
) -> Result<(Connections, Layout), OpenError> {
    let config = config(address, options)?;
    let tls = tls::connect(&config, options.root_certificates.as_deref())?;
    let layout = Layout {
        schema: options.schema.clone(),
        partitions: options.partitions,
        row_level_security: options.row_level_security,
    };
    let connections = Connections::new(config, tls, Statements::new(&layout), options)
        .map_err(|error| OpenError::Connect { source: Classified::permanent(error) })?;
    Ok((connections, layout))
}

fn config(address: &str, options: &PostgresOptions) -> Result<Config, OpenError> {
    let parsed: Result<Config, _> = address.parse();
    let mut config =
        parsed.map_err(|error| OpenError::Address { source: Classified::permanent(error) })?;
    if config.get_application_name().is_none() {
        config.application_name("tower-chat");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    // With READ COMMITTED, a statement sees all changes that were committed before it began.
    let settings = format!(
        "{} -c statement_timeout={} -c default_transaction_isolation=read\\ committed",
        config.get_options().unwrap_or_default(),
        options.statement_timeout.as_millis(),
    );
    config.options(settings.trim_start());
    Ok(config)
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks the encoding of the database, and creates or migrates the tables. Returns whether they
/// have policies.
async fn prepare(
    connections: &Connections,
    layout: &Layout,
    is_migrated: bool,
) -> Result<bool, OpenError> {
    let client = connections.get().await;
    let mut client = client.map_err(Failure::open_error)?;
    let schema = || layout.schema.clone();
    let failed = |failure: Failure| {
        let source = failure.before_statement().classified();
        OpenError::Migrate { schema: schema(), source }
    };
    let row = connections.in_time(client.query_typed_one("SHOW server_encoding", &[])).await;
    let encoding: String = row.map_err(failed)?.get(0);
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { encoding });
    }
    match schema::migrate(connections, &mut client, layout, is_migrated).await.map_err(failed)? {
        Found::Current => {
            connections.in_time(schema::has_policies(&client, layout)).await.map_err(failed)
        }
        Found::Older { version: 0 } => Err(OpenError::NoTables { schema: schema() }),
        Found::Older { version } => {
            Err(OpenError::Older { schema: schema(), version, supported: schema::VERSION })
        }
        Found::Newer { version } => {
            Err(OpenError::Newer { schema: schema(), version, supported: schema::VERSION })
        }
    }
}
