//! The layer and its settings.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use tower_layer::Layer;

use super::{error::ZeroRounds, service::ToolLoopService, settings::Settings};
use crate::{next_step::UnknownTools, tool::ToolSource};

/// Runs the tools a model asks for, and calls it again with their results, until it answers.
///
/// See the [module](super) for its place in a stack, and for what goes wrong in another.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{
///     BoxError, ChatRequest, ChatResponse, Finish, Message, Role, ToolCall, ToolDefinition,
///     tool::{Tools, tool_fn},
///     tool_loop::ToolLoop,
/// };
///
/// // A model that asks for the time and repeats what it was told.
/// let model = service_fn(|request: ChatRequest| async move {
///     let answer = match request.messages.last() {
///         Some(last) if last.role == Role::Tool => {
///             let result = last.results().next().map(|result| result.text());
///             Message::assistant(format!("It is {}.", result.unwrap_or_default()))
///         }
///         _ => Message::tool_calls([ToolCall::new("c1", "clock", "{}")]),
///     };
///     Ok::<_, BoxError>(ChatResponse::whole([answer], Finish::stop()))
/// });
/// let clock = ToolDefinition::new("clock", "Tells the time.", serde_json::json!({}));
/// let tools = Tools::new().with(tool_fn(clock, |_| async { Ok("noon") }));
///
/// let mut client = ServiceBuilder::new().layer(ToolLoop::new(tools)).service(model);
/// let response = client.ready().await?.call(ChatRequest::user("What time is it?")).await?;
/// assert_eq!(response.collect().await?.text(), "It is noon.");
/// # Ok::<(), BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Clone)]
pub struct ToolLoop {
    settings: Arc<Settings>,
}

impl ToolLoop {
    /// A loop that runs these tools: a [`Tools`](crate::tool::Tools), a
    /// [`SharedTools`](crate::tool::SharedTools), or a source of one's own.
    pub fn new(tools: impl ToolSource) -> Self {
        Self {
            settings: Arc::new(Settings {
                source: Arc::new(tools),
                max_rounds: NonZeroUsize::new(40),
                max_calls: None,
                max_calls_per_answer: Some(1000),
                concurrent: false,
                unknown_tools: UnknownTools::default(),
                max_failing_rounds: Some(3),
                include_error_details: false,
                assumes_persister_below: false,
            }),
        }
    }

    /// Where the loop's tools come from.
    pub(crate) fn source(&self) -> Arc<dyn ToolSource> {
        self.settings.source.clone()
    }

    /// The most rounds of a run, 40 by default. After the last one the model is called once more
    /// without any tools declared; if it asks for tools all the same, its calls are returned
    /// unexecuted.
    ///
    /// A run that is resumed goes on counting, unless
    /// [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) stands below the loop without
    /// [`PerRunPersistence`](crate::PerRunPersistence) above it: then each request counts anew. The
    /// same holds for [`max_calls`](Self::max_calls).
    ///
    /// # Errors
    ///
    /// [`ZeroRounds`], if the number is 0.
    pub fn max_rounds(self, rounds: usize) -> Result<Self, ZeroRounds> {
        let rounds = NonZeroUsize::new(rounds).ok_or(ZeroRounds)?;
        Ok(self.with(|settings| settings.max_rounds = Some(rounds)))
    }

    /// Lets a run have as many rounds as the model wants.
    #[must_use]
    pub fn unlimited_rounds(self) -> Self {
        self.with(|settings| settings.max_rounds = None)
    }

    /// The most tool calls that are run in one run; no limit by default. A call over the budget is
    /// not run and gets an error result that says so.
    #[must_use]
    pub fn max_calls(self, calls: Option<usize>) -> Self {
        self.with(|settings| settings.max_calls = calls)
    }

    /// The most calls that one answer of the model may hold, 1,000 by default; the largest recorded
    /// answer has 8. An answer with more fails the run with
    /// [`TooManyCalls`](super::ToolLoopError::TooManyCalls): none of its tools runs, and nothing of
    /// it is stored.
    #[must_use]
    pub fn max_calls_per_answer(self, calls: Option<usize>) -> Self {
        self.with(|settings| settings.max_calls_per_answer = calls)
    }

    /// Runs the calls of a batch at the same time, on the run's own task. Their results keep the
    /// order of the calls. By default they run one after the other.
    #[must_use]
    pub fn concurrent(self, concurrent: bool) -> Self {
        self.with(|settings| settings.concurrent = concurrent)
    }

    /// What happens when the model calls a tool that nobody knows.
    #[must_use]
    pub fn unknown_tools(self, unknown_tools: UnknownTools) -> Self {
        self.with(|settings| settings.unknown_tools = unknown_tools)
    }

    /// The most rounds in a row in which a tool may fail, 3 by default; one more, and the run
    /// fails with [`ConsecutiveFailures`](super::ToolLoopError::ConsecutiveFailures). A round
    /// without a failure starts the count anew. Arguments that a tool
    /// [rejects](crate::ToolOutput::rejected_arguments) are a failure, since a model can repeat them
    /// without end. Unknown tools, calls that a person rejects, and calls over the budget are no
    /// failures.
    #[must_use]
    pub fn max_failing_rounds(self, rounds: usize) -> Self {
        self.with(|settings| settings.max_failing_rounds = Some(rounds))
    }

    /// Lets tools fail in as many rounds in a row as the model wants to try.
    #[must_use]
    pub fn unlimited_failing_rounds(self) -> Self {
        self.with(|settings| settings.max_failing_rounds = None)
    }

    /// Tells the model what a tool's error says, with its causes. Off by default: errors may hold
    /// what the model must not see.
    #[must_use]
    pub fn include_error_details(self, include: bool) -> Self {
        self.with(|settings| settings.include_error_details = include)
    }

    /// Says that `PerServiceCallPersistence` stands below, although the loop cannot see it.
    ///
    /// In per-service-call and journaled mode the loop refuses a stack without that layer before
    /// any tool runs and before the model is called. It finds the layer by polling for readiness,
    /// which a layer in between may answer on its own: tower's `Buffer` does. Better put such a
    /// layer below `PerServiceCallPersistence`. With this setting a layer that is missing all the
    /// same is noticed after the first service call only.
    #[must_use]
    pub fn assume_persister_below(self, assume: bool) -> Self {
        self.with(|settings| settings.assumes_persister_below = assume)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for ToolLoop {
    type Service = ToolLoopService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ToolLoopService::new(inner, self.settings.clone())
    }
}

impl fmt::Debug for ToolLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolLoop")
            .field("tools", &self.settings.source.tools())
            .field("max_rounds", &self.settings.max_rounds)
            .field("max_calls", &self.settings.max_calls)
            .field("max_calls_per_answer", &self.settings.max_calls_per_answer)
            .field("concurrent", &self.settings.concurrent)
            .field("unknown_tools", &self.settings.unknown_tools)
            .field("max_failing_rounds", &self.settings.max_failing_rounds)
            .field("include_error_details", &self.settings.include_error_details)
            .finish()
    }
}
