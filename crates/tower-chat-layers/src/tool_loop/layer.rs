//! The tool loop layer and its settings.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use tower_layer::Layer;

use super::{error::ZeroRounds, service::ToolLoop, settings::Settings};
use crate::{next_step::UnknownTools, tool::ToolSource};

/// Runs the tools that a model requests, and calls the model again with their results, until the
/// model answers without a request for a tool.
///
/// The documentation of the [module](super) describes the position of the loop in a stack, and what
/// fails in other positions.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use tower_chat::{
///     BoxError, ChatRequest, ChatResponse, Finish, Message, Role, ToolCall, ToolDefinition,
///     Tools, layer::ToolLoopLayer, tool_fn,
/// };
///
/// // A model that requests the time from a tool, and repeats the result.
/// let model = service_fn(|request: ChatRequest| async move {
///     let answer = match request.messages().last() {
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
/// let mut client = ServiceBuilder::new().layer(ToolLoopLayer::new(tools)).service(model);
/// let response = client.ready().await?.call(ChatRequest::user("What time is it?")).await?;
/// assert_eq!(response.collect().await?.text(), "It is noon.");
/// # Ok::<(), BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Clone)]
pub struct ToolLoopLayer {
    settings: Arc<Settings>,
}

impl ToolLoopLayer {
    /// Creates a loop that runs these tools. `tools` is a [`Tools`](crate::tool::Tools), a
    /// [`SharedTools`](crate::tool::SharedTools), or another tool source.
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

    pub(crate) fn source(&self) -> Arc<dyn ToolSource> {
        self.settings.source.clone()
    }

    /// Sets the maximum number of rounds of a run, 40 by default. A round consists of the calls of
    /// one answer and their results. After the last round, the loop calls the model once more
    /// without declared tools. If the model nevertheless requests tools, the loop returns these
    /// calls to the caller and does not run them.
    ///
    /// A run that continues after an interruption continues the count, unless
    /// [`PerServiceCallPersistence`](crate::PerServiceCallPersistence) is below the loop without
    /// [`PerRunPersistence`](crate::PerRunPersistence) above it. In that stack each request starts
    /// a new count. The same applies to [`max_calls`](Self::max_calls).
    ///
    /// # Errors
    ///
    /// Returns [`ZeroRounds`] if the number is 0.
    pub fn max_rounds(self, rounds: usize) -> Result<Self, ZeroRounds> {
        let rounds = NonZeroUsize::new(rounds).ok_or(ZeroRounds)?;
        Ok(self.with(|settings| settings.max_rounds = Some(rounds)))
    }

    /// Removes the limit of rounds.
    #[must_use]
    pub fn unlimited_rounds(self) -> Self {
        self.with(|settings| settings.max_rounds = None)
    }

    /// Sets the maximum number of tool calls that run in one run, without a limit by default. A call
    /// over the budget is not run and gets an error result that reports this.
    #[must_use]
    pub fn max_calls(self, calls: Option<usize>) -> Self {
        self.with(|settings| settings.max_calls = calls)
    }

    /// Sets the maximum number of calls in one answer of the model, 1,000 by default. The largest
    /// answer in the recordings of this project has 8 calls. An answer with more calls fails the
    /// run with [`TooManyCalls`](super::ToolLoopError::TooManyCalls): none of its tools runs, and
    /// no message of the answer is stored.
    #[must_use]
    pub fn max_calls_per_answer(self, calls: Option<usize>) -> Self {
        self.with(|settings| settings.max_calls_per_answer = calls)
    }

    /// Sets whether the calls of one answer run concurrently, in the run's own task. Results are in
    /// the order of the calls. By default, the calls run sequentially.
    #[must_use]
    pub fn concurrent(self, concurrent: bool) -> Self {
        self.with(|settings| settings.concurrent = concurrent)
    }

    /// Sets the handling of calls of unknown tools.
    #[must_use]
    pub fn unknown_tools(self, unknown_tools: UnknownTools) -> Self {
        self.with(|settings| settings.unknown_tools = unknown_tools)
    }

    /// Sets the maximum number of consecutive rounds with a failing tool, 3 by default. One more
    /// such round fails the run with
    /// [`ConsecutiveFailures`](super::ToolLoopError::ConsecutiveFailures). A round without a
    /// failure resets the count. Arguments that a tool
    /// [rejects](crate::ToolOutput::rejected_arguments) count as a failure, because a model can
    /// repeat rejected arguments without end. Unknown tools, calls that a person rejects, and calls
    /// over the budget do not count.
    #[must_use]
    pub fn max_failing_rounds(self, rounds: usize) -> Self {
        self.with(|settings| settings.max_failing_rounds = Some(rounds))
    }

    /// Removes the limit of consecutive failing rounds.
    #[must_use]
    pub fn unlimited_failing_rounds(self) -> Self {
        self.with(|settings| settings.max_failing_rounds = None)
    }

    /// Sets whether the model receives the text of a tool's error, with its causes. By default, the
    /// model does not receive this text, because errors may contain data that the model must not
    /// receive.
    #[must_use]
    pub fn include_error_details(self, include: bool) -> Self {
        self.with(|settings| settings.include_error_details = include)
    }

    /// Sets whether the loop assumes that a `PerServiceCallPersistence` is below it, although the
    /// loop cannot find one.
    ///
    /// In per-service-call and journaled mode the loop refuses a stack without
    /// `PerServiceCallPersistence` before any tool runs and before the model is called. The loop
    /// finds this layer by polling for readiness. The loop cannot find the layer if a layer between
    /// the two, such as tower's `Buffer`, answers the poll itself. Preferably, put the other layer
    /// below `PerServiceCallPersistence`. With this setting, the loop only detects after the first
    /// service call that `PerServiceCallPersistence` is missing.
    #[must_use]
    pub fn assume_persister_below(self, assume: bool) -> Self {
        self.with(|settings| settings.assumes_persister_below = assume)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<S> Layer<S> for ToolLoopLayer {
    type Service = ToolLoop<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ToolLoop::new(inner, self.settings.clone())
    }
}

impl fmt::Debug for ToolLoopLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolLoopLayer")
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
