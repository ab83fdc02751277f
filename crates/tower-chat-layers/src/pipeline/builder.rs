//! Builds a stack with the layers in the correct order, and refuses configurations that cannot work.

use std::{fmt, sync::Arc, time::Duration};

use tower::{
    ServiceExt,
    util::{BoxCloneSyncService, option_layer},
};
use tower_chat_core::{
    BoxError, ChatRequest, ChatResponse,
    store::{Capability, HistoryStore},
};
use tower_layer::Layer;
use tower_service::Service;

use super::{BuildError, ChatPipeline, ModelClient, deadline::Deadline};
use crate::{
    Clock, MissingPersister, PerRunPersistence, PerServiceCallPersistence, PersistenceMode,
    PersistencePolicy, ToolLoopLayer, ToolSource, Tools,
    policy::ConcurrentRuns,
    run::shared,
    telemetry::{TelemetryLayer, TracedStore},
    validate::ValidateTranscriptLayer,
};

/// Builds a [`ChatPipeline`].
///
/// The layers, from the outermost to the innermost: `TelemetryLayer` of runs, deadline,
/// `PerRunPersistence`, `ToolLoopLayer`, `PerServiceCallPersistence`, `TelemetryLayer` of service
/// calls, `ValidateTranscriptLayer`, the client.
///
/// | `use_client_as_is` | mode | behaviour |
/// |---|---|---|
/// | no | per run | The pipeline adds a tool loop. The run is written at its end. |
/// | no | per service call | The pipeline adds a tool loop. The layer below the tool loop writes after each service call. |
/// | yes | per run | The pipeline does not change the client. The run is written at its end. The rounds of the client's own tool loop are stored if the answer contains their messages, like the answer of a [`ToolLoopLayer`], or if a `PerServiceCallPersistence` is below the client's tool loop. Otherwise, the first run logs a warning. |
/// | yes | per service call | The client's own stack must contain a `PerServiceCallPersistence`. Otherwise, the run logs a warning, or fails before the model is called ([`MissingPersister`](crate::MissingPersister)). |
///
/// Without a store the pipeline stores no history.
#[must_use = "a builder does nothing until it is built"]
pub struct ChatPipelineBuilder<S> {
    client: S,
    tools: Option<Arc<dyn ToolSource>>,
    tool_loop: Option<ToolLoopLayer>,
    no_tool_loop: bool,
    client_as_is: bool,
    store: Option<Arc<dyn HistoryStore>>,
    mode: Option<PersistenceMode>,
    policy: Option<PersistencePolicy>,
    deadline: Option<Duration>,
    clock: Clock,
    validator: Option<ValidateTranscriptLayer>,
    instructions: Option<Arc<str>>,
    agent: TelemetryLayer,
    chat: TelemetryLayer,
}

impl<S> ChatPipelineBuilder<S> {
    pub(super) fn new(client: S) -> Self {
        Self {
            client,
            tools: None,
            tool_loop: None,
            no_tool_loop: false,
            client_as_is: false,
            store: None,
            mode: None,
            policy: None,
            deadline: None,
            clock: Clock::default(),
            validator: cfg!(debug_assertions).then(ValidateTranscriptLayer::new),
            instructions: None,
            agent: TelemetryLayer::agent(),
            chat: TelemetryLayer::chat(),
        }
    }

    /// Sets the instructions for every request that does not contain instructions. The instructions
    /// are sent with each service call and are never stored.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tower_chat::prelude::*;
    /// use tower_chat_testkit::{ScriptedModel, Step};
    /// let model = ScriptedModel::new([Step::text("a coat"), Step::text("ein Mantel")]);
    /// let agent = ChatPipeline::builder(model.clone()).instructions("Be brief.").build()?;
    ///
    /// agent.clone().oneshot(ChatRequest::user("What to wear?")).await?;
    /// let mut options = ChatOptions::default();
    /// options.instructions = Some("Answer in German.".to_owned());
    /// agent.oneshot(ChatRequest::user("And tomorrow?").with_options(options)).await?;
    ///
    /// let asked = model.requests();
    /// assert_eq!(asked[0].options.instructions.as_deref(), Some("Be brief."));
    /// assert_eq!(asked[1].options.instructions.as_deref(), Some("Answer in German."));
    /// # Ok::<(), BoxError>(())
    /// # }).unwrap();
    /// ```
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Sets the tools that the model can call. The tool loop uses its default settings.
    pub fn tools(mut self, tools: impl ToolSource) -> Self {
        self.tools = Some(Arc::new(tools));
        self
    }

    /// Sets a tool loop that is already configured. The pipeline uses this tool loop, and ignores
    /// the tools of [`tools`](Self::tools).
    pub fn tool_loop(mut self, tool_loop: ToolLoopLayer) -> Self {
        self.tool_loop = Some(tool_loop);
        self
    }

    /// Removes the tool loop. Tool calls are returned to the caller unchanged.
    pub fn without_tool_loop(mut self) -> Self {
        self.no_tool_loop = true;
        self
    }

    /// Sets the store that stores the history of conversations.
    pub fn history(mut self, store: impl HistoryStore) -> Self {
        self.store = Some(shared(TracedStore::new(store)));
        self
    }

    /// Sets when messages become durable. A request extension of the same type overrides the mode for
    /// one request.
    ///
    /// ```
    /// use tower_chat::prelude::*;
    /// # use tower_chat_testkit::{ScriptedModel, Step};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), BoxError> {
    /// # let model = ScriptedModel::new([Step::text("one"), Step::text("two")]);
    /// let mut agent = ChatPipeline::builder(model)
    ///     .history(MemoryStore::new())
    ///     .persistence(PersistenceMode::PerServiceCall) // for all requests, ...
    ///     .build()?;
    ///
    /// let request = ChatRequest::user("Hello.").in_conversation(ConversationKey::new("alice", "chat"));
    /// agent.ready().await?.call(request.clone()).await?.collect().await?;
    ///
    /// // ... but for this one.
    /// let request = ChatRequest::user("Book it.")
    ///     .in_conversation(ConversationKey::new("alice", "travel"))
    ///     .with_extension(PersistenceMode::Journaled);
    /// agent.ready().await?.call(request).await?.collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn persistence(mut self, mode: PersistenceMode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Sets the policies of persistence. The mode is set by [`persistence`](Self::persistence).
    pub fn policy(mut self, policy: PersistencePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets whether the client contains its own tool loop and its own `PerServiceCallPersistence`.
    /// If it does, the pipeline adds no layer between the client and `PerRunPersistence`.
    pub fn use_client_as_is(mut self, as_is: bool) -> Self {
        self.client_as_is = as_is;
        self
    }

    /// Sets the clock from which the record of tool calls and the freshness of results read the
    /// time. The default is the system's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets whether every request is checked directly before the client receives it. With the
    /// check, a request that every provider would refuse fails before the paid service call. The
    /// check is on by default in builds with debug assertions, and off in other builds. The check
    /// takes about 30 ns for each message of the request, including the messages of the history.
    pub fn validate_transcripts(mut self, validate: bool) -> Self {
        self.validator = validate.then(ValidateTranscriptLayer::new);
        self
    }

    /// Sets the name of the agent in the spans of its runs: see [`telemetry`](crate::telemetry).
    pub fn agent_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.agent = self.agent.with_name(name);
        self
    }

    /// Sets the name of the provider in the spans of service calls. The setting has no effect with
    /// [`use_client_as_is`](Self::use_client_as_is), because the pipeline then creates no spans of
    /// service calls.
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.chat = self.chat.with_name(name);
        self
    }

    /// Sets whether spans contain the text of users, models and tools. By default, they do not.
    pub fn record_content(mut self, record: bool) -> Self {
        self.agent = self.agent.with_content(record);
        self
    }

    /// Limits the time until the end of the whole answer, which includes the stream of a streamed
    /// answer. At the deadline, a separate task drops the run. The messages of the run are stored
    /// as if the caller had disconnected. The deadline also applies while the caller does not read
    /// the response. The time begins at the first poll of the call. An
    /// [`IdleTimeoutLayer`](crate::idle_timeout::IdleTimeoutLayer) over the client detects a
    /// stalled service call earlier.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }
}

impl<S: ModelClient> ChatPipelineBuilder<S> {
    /// Builds the pipeline.
    ///
    /// The client must not already contain a `PerRunPersistence` or `PerServiceCallPersistence`
    /// that the pipeline adds. Otherwise, the first call fails before the model is called, with
    /// [`PersistenceError::LayerTwice`](crate::PersistenceError), or with a
    /// [`ToolLoopError`](crate::ToolLoopError) if a tool loop is between the two layers.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError`] if the configuration contradicts itself.
    pub fn build(self) -> Result<ChatPipeline, BuildError> {
        self.check()?;
        let Self { client, tools, tool_loop, no_tool_loop, client_as_is, .. } = self;
        let configured = tool_loop.or_else(|| tools.map(ToolLoopLayer::new));
        let tool_loop = (!no_tool_loop && !client_as_is)
            .then(|| configured.unwrap_or_else(|| ToolLoopLayer::new(Tools::new())));
        let validator = self.validator.filter(|_| !client_as_is);
        let client = option_layer(validator).layer(ServiceExt::map_err(client, into_box));
        let client = option_layer((!client_as_is).then_some(self.chat)).layer(client);
        let instruct = instruct(self.instructions);
        let finish =
            |service: Boxed| finish(service.map_request(instruct), &self.agent, self.deadline);
        let Some(store) = self.store else {
            return Ok(finish(boxed(option_layer(tool_loop).layer(client))));
        };
        let mut policy = self.policy.unwrap_or_default();
        if client_as_is {
            // The pipeline cannot add the missing layer to the client's stack, so the default is a
            // warning.
            policy.missing_persister.get_or_insert(MissingPersister::Warn);
        }
        let mut above = PerRunPersistence::new(store.clone())
            .mode(self.mode.unwrap_or_default())
            .policy(policy)
            .clock(self.clock)
            .over_own_loop(client_as_is);
        if let Some(tool_loop) = &tool_loop {
            above = above.tools(tool_loop.source());
        }
        if client_as_is {
            return Ok(finish(boxed(above.layer(client))));
        }
        let below = PerServiceCallPersistence::new(store).layer(client);
        let tool_loop = boxed(option_layer(tool_loop).layer(below));
        Ok(finish(boxed(above.layer(tool_loop))))
    }

    fn check(&self) -> Result<(), BuildError> {
        let has_tools = self.tools.is_some() || self.tool_loop.is_some();
        if has_tools && self.client_as_is {
            return Err(BuildError::ToolsForClientAsIs);
        }
        if has_tools && self.no_tool_loop {
            return Err(BuildError::ToolsWithoutLoop);
        }
        if self.store.is_none() && (self.mode.is_some() || self.policy.is_some()) {
            return Err(BuildError::NoStore);
        }
        if let Some(store) = &self.store {
            self.check_capabilities(&**store)?;
        }
        let compacts_at_save =
            self.policy.as_ref().is_some_and(|policy| policy.replay.citations_at_save().is_some());
        let mode = self.mode.unwrap_or_default();
        if compacts_at_save && mode != PersistenceMode::PerRun {
            return Err(BuildError::CitationsAtSave { mode });
        }
        Ok(())
    }
}

impl<S> ChatPipelineBuilder<S> {
    fn check_capabilities(&self, store: &dyn HistoryStore) -> Result<(), BuildError> {
        let policy = self.policy.as_ref();
        let is_journaled = self.mode == Some(PersistenceMode::Journaled);
        let summarizes = policy.is_some_and(|policy| policy.summarize.is_some());
        let branches = policy.is_some_and(|it| it.concurrent_runs == ConcurrentRuns::Branch);
        let (capability, needed_by) = if is_journaled && store.journal().is_none() {
            (Capability::Journal, "PersistenceMode::Journaled")
        } else if summarizes && store.summaries().is_none() {
            (Capability::Summaries, "PersistencePolicy::with_summarize")
        } else if branches && store.maintenance().is_none() {
            (Capability::Maintenance, "ConcurrentRuns::Branch")
        } else {
            return Ok(());
        };
        Err(BuildError::MissingCapability { capability, needed_by })
    }
}

type Boxed = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// Returns a function that adds the instructions to a request without instructions.
fn instruct(instructions: Option<Arc<str>>) -> impl Fn(ChatRequest) -> ChatRequest + Clone {
    move |mut request| {
        if let (Some(instructions), None) = (&instructions, &request.options.instructions) {
            Arc::make_mut(&mut request.options).instructions = Some(instructions.to_string());
        }
        request
    }
}

fn into_box(error: impl Into<BoxError>) -> BoxError {
    error.into()
}

fn boxed<S: ModelClient>(service: S) -> Boxed {
    BoxCloneSyncService::new(ServiceExt::map_err(service, into_box))
}

fn finish<S>(service: S, agent: &TelemetryLayer, deadline: Option<Duration>) -> ChatPipeline
where
    S: ModelClient + Service<ChatRequest, Error = BoxError>,
{
    let service = match deadline {
        Some(after) => BoxCloneSyncService::new(Deadline::new(boxed(service), after)),
        None => boxed(service),
    };
    ChatPipeline(BoxCloneSyncService::new(agent.layer(service)))
}

impl<S> fmt::Debug for ChatPipelineBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatPipelineBuilder")
            .field("client_as_is", &self.client_as_is)
            .field("mode", &self.mode)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
