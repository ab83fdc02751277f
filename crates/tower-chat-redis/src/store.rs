//! The store.

use std::sync::Arc;

use async_trait::async_trait;
use redis::{Client, cmd};
use tower_chat_core::{
    Classified, ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Parent, Pruned, Revision, Rewrite, RunSummary, StoreError, StoreHandle, Summaries,
        ToolCallQueries, ToolTotals, UsageQuery, UsageTotals,
        author::{
            LoadFrom, OpenRunContent, SealMark, SealedChange, Slot, TaskQueue, Ticket, Write,
        },
    },
};

use crate::{
    OpenError, RedisOptions,
    answer::{self, Answer},
    append, branches,
    connections::{Connections, Target},
    directory,
    failure::{Failure, Meaning, foreign},
    fork, history_summary, invocations, list, maintenance,
    names::Names,
    prune, read,
    script::{DELETE, FREQUENT},
    server_info::ServerInfo,
    settings::Settings,
    telemetry::{SYSTEM, TELEMETRY},
};

/// Stores conversations in Redis or Valkey.
///
/// Clones share one store. Tasks on the runtime on which the store was opened execute the submitted
/// writes, even after the last clone was dropped. To wait for the writes,
/// [`close`](HistoryStore::close) the store.
///
/// The async methods of the store must be called on the runtime on which it was opened.
#[derive(Debug, Clone)]
pub struct RedisStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    handle: StoreHandle,
    settings: Arc<Settings>,
    tasks: TaskQueue,
}

impl RedisStore {
    /// Opens the store at an address with the default options. See [`RedisOptions::connect`].
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened.
    pub async fn connect(address: &str) -> Result<Self, OpenError> {
        RedisOptions::new().connect(address).await
    }

    #[cfg(feature = "delivery")]
    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.0.settings
    }

    /// Returns the default options for opening a store.
    pub fn options() -> RedisOptions {
        RedisOptions::new()
    }

    pub(crate) async fn connect_with(
        address: &str,
        options: RedisOptions,
    ) -> Result<Self, OpenError> {
        #[cfg(feature = "tls")]
        crate::tls::prepare();
        let client = Client::open(address)
            .map_err(|error| OpenError::Address { source: Classified::permanent(error) })?;
        Self::open(Target::Server(Box::new(client)), options, false).await
    }

    #[cfg(feature = "cluster")]
    pub(crate) async fn connect_cluster_with(
        addresses: &[&str],
        options: RedisOptions,
    ) -> Result<Self, OpenError> {
        #[cfg(feature = "tls")]
        crate::tls::prepare();
        // The client library does not know which commands may be repeated.
        let client = redis::cluster::ClusterClient::builder(addresses.iter().copied())
            .retries(0)
            .connection_timeout(crate::connections::CONNECT_TIMEOUT)
            .response_timeout(options.response_timeout)
            .build()
            .map_err(|error| OpenError::Address { source: Classified::permanent(error) })?;
        let target = Target::Cluster {
            client: Box::new(client),
            #[cfg(feature = "delivery")]
            servers: addresses.iter().filter_map(|address| Client::open(*address).ok()).collect(),
        };
        Self::open(target, options, true).await
    }

    async fn open(
        target: Target,
        options: RedisOptions,
        in_cluster: bool,
    ) -> Result<Self, OpenError> {
        let connections = Connections::new(target, &options);
        let answer = connections.command(&cmd("INFO")).await.map_err(refused)?;
        // A cluster returns a reply from each of its servers. All of them are assumed to have the
        // same settings.
        let answer = match answer {
            redis::Value::Map(answers) => answers.into_iter().next().map(|(_, answer)| answer),
            answer => Some(answer),
        };
        let info = answer.and_then(|answer| answer::text(answer).ok());
        ServerInfo::read(&info.unwrap_or_default())?.check(&options, in_cluster)?;
        for script in FREQUENT {
            let mut load = cmd("SCRIPT");
            load.arg("LOAD").arg(script.code);
            connections.command(&load).await.map_err(refused)?;
        }
        Ok(Self(Arc::new(Shared {
            handle: StoreHandle::new().with_system(SYSTEM),
            settings: Arc::new(Settings {
                connections,
                names: Names::new(&options.prefix),
                time_to_live: options.time_to_live,
                seal_mark: SealMark::default(),
            }),
            tasks: TaskQueue::new(options.max_queued).with_telemetry(TELEMETRY),
        })))
    }
}

#[async_trait]
impl HistoryStore for RedisStore {
    fn handle(&self) -> &StoreHandle {
        &self.0.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let head = read::head(&self.0.settings, key).await?;
        self.0.settings.seal_mark.see(&head);
        Ok(head)
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let history = read::history(&self.0.settings, key, None).await?;
        self.0.settings.seal_mark.see(&history.head);
        Ok(history)
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        let history = read::history(&self.0.settings, key, Some(from)).await?;
        self.0.settings.seal_mark.see(&history.head);
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
        let settings = self.0.settings.clone();
        self.0.tasks.append(slot, writes, move |write| {
            let settings = settings.clone();
            async move {
                settings.admit(SealedChange::of_write(&write)).await?;
                append::append(&settings, &write).await
            }
        })
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let owned = key.clone();
        let settings = self.0.settings.clone();
        let delete = async move { delete(&settings, &owned).await };
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
impl Summaries for RedisStore {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        history_summary::list(&self.0.settings, key).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        history_summary::find(&self.0.settings, key, id).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let (settings, summarized) = (self.0.settings.clone(), key.clone());
        let summary = summary.clone();
        let add = async move {
            admit(&settings, &summarized, summary.is_sealed).await?;
            history_summary::add(&settings, &summarized, &summary, rewrites).await
        };
        self.0.tasks.change_without_slot(vec![key.clone()], add).await
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let (settings, summarized) = (self.0.settings.clone(), key.clone());
        let remove = async move { history_summary::remove(&settings, &summarized, id).await };
        self.0.tasks.change_without_slot(vec![key.clone()], remove).await
    }
}

#[async_trait]
impl Journal for RedisStore {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        read::open_run(&self.0.settings, key).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.0.tasks.settle(None).await;
        list::open_runs(&self.0.settings, scope, after, limit).await
    }
}

#[async_trait]
impl Maintenance for RedisStore {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let settings = self.0.settings.clone();
        let (from, to) = (from.clone(), to.clone());
        let keys = vec![from.clone(), to.clone()];
        let fork = async move {
            admit(&settings, &from, false).await?;
            fork::fork(&settings, &from, before, &to).await
        };
        self.0.tasks.change(keys, fork).await
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.0.handle.at_rest(key)?;
        let (settings, pruned) = (self.0.settings.clone(), key.clone());
        let prune = async move {
            admit(&settings, &pruned, keep.is_sealed()).await?;
            prune::prune(&settings, &pruned, keep).await
        };
        self.0.tasks.change(vec![key.clone()], prune).await
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.tasks.settle(None).await;
        directory::scopes_after(&self.0.settings, after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        maintenance::rows(&self.0.settings, key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let (settings, keys) = (self.0.settings.clone(), vec![rewrite.key.clone()]);
        let rewrite = async move {
            admit(&settings, &rewrite.key, rewrite.is_sealed).await?;
            maintenance::rewrite(&settings, &rewrite).await
        };
        self.0.tasks.change(keys, rewrite).await
    }
}

#[async_trait]
impl Directory for RedisStore {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.0.tasks.settle(None).await;
        list::conversations(&self.0.settings, scope, after, limit).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        directory::summary(&self.0.settings, key).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        self.0.tasks.settle(None).await;
        directory::conversations(&self.0.settings, query).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        self.0.tasks.settle(None).await;
        directory::usage(&self.0.settings, query).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        directory::runs(&self.0.settings, key, after, limit).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.0.tasks.settle(Some(key)).await;
        read::messages_before(&self.0.settings, key, before, limit).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let (settings, described) = (self.0.settings.clone(), key.clone());
        let description = description.clone();
        let set = async move {
            admit(&settings, &described, description.is_sealed()).await?;
            directory::set_description(&settings, &described, &description, expected_version).await
        };
        self.0.tasks.change(vec![key.clone()], set).await
    }
}

#[async_trait]
impl ToolCallQueries for RedisStore {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        if query.matches_nothing() {
            return Ok(Invocations::default());
        }
        self.0.tasks.settle(invocations::conversation(query).as_ref()).await;
        invocations::invocations(&self.0.settings, query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        if query.sequences.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        self.0.tasks.settle(invocations::conversation(query).as_ref()).await;
        invocations::tool_totals(&self.0.settings, query).await
    }
}

/// Checks whether a change other than a write is permitted: refuses a change that is not sealed
/// (encrypted) if the store contains sealed data. Also checks the head of the conversation, because
/// an older release may have sealed it without recording that the store contains sealed data.
async fn admit(
    settings: &Settings,
    key: &ConversationKey,
    is_sealed: bool,
) -> Result<(), StoreError> {
    // The change itself will report damaged data.
    if !is_sealed && let Ok(head) = read::head(settings, key).await {
        settings.seal_mark.see(&head);
    }
    settings.admit(SealedChange::other(is_sealed)).await
}

/// Deletes a conversation, and returns whether it existed. A request that may have been executed is
/// not sent again: the second execution would report that the conversation did not exist.
async fn delete(settings: &Settings, key: &ConversationKey) -> Result<bool, StoreError> {
    let call = DELETE.on(settings.names.conversation(key).all());
    let answer = settings.connections.change("delete a conversation", false, &call).await?;
    let mut answer = Answer::new(answer)?;
    match answer.text()?.as_str() {
        "deleted" => {}
        other => return Err(foreign(other)),
    }
    let was_there = answer.text()? == "1";
    let (token, parent) = (answer.text()?, answer.text()?);
    list::remove_from_list(settings, key, &token).await;
    // A parent that cannot be read does not prevent the deletion.
    if let Ok(Parent { key: parent, .. }) = serde_json::from_str(&parent) {
        branches::remove(settings, &parent, key, &token).await;
    }
    Ok(was_there)
}

/// Converts a failure to the error of opening a store.
pub(crate) fn refused(failure: Failure) -> OpenError {
    match failure.meaning {
        Meaning::NotApplied | Meaning::Unknown | Meaning::ResourceExhausted => {
            OpenError::Connect { source: Classified::retryable(failure) }
        }
        Meaning::NotSafe
        | Meaning::ReadOnly
        | Meaning::Foreign
        | Meaning::UnknownScript
        | Meaning::Permanent => OpenError::Refused { source: Classified::permanent(failure) },
    }
}
