//! Tools with typed arguments.

use std::{fmt, marker::PhantomData, time::Duration};

use async_trait::async_trait;
use futures_core::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use tokio::time::sleep;
use tower_chat_core::{BoxError, ToolDefinition};
use tower_chat_schema::TypeSchema;

use super::{IntoToolOutput, Tool, ToolContext, ToolError, ToolOutput};

/// A tool that consists of an async closure with typed arguments. The schema that the model
/// receives is generated from the type, and the arguments of calls are deserialized into the type.
///
/// If the arguments of a call do not match the type, the closure is not called, and the model
/// receives an error result that names the field. The doc comments of the type's fields are the
/// descriptions in the schema. The schema is [portable](tower_chat_schema): every provider accepts
/// it.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use tower_chat::{Tool, tool::{Json, TypedTool}};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Place {
///     /// The city's name, in English.
///     city: String,
/// }
///
/// #[derive(Serialize)]
/// struct Weather {
///     celsius: i8,
/// }
///
/// let weather = TypedTool::new("weather", "The weather in a city.", |place: Place, _| async move {
///     Ok(Json(Weather { celsius: if place.city == "Paris" { 21 } else { 9 } }))
/// });
/// let city = &weather.definition().parameters["properties"]["city"];
/// assert_eq!(city["description"], "The city's name, in English.");
/// ```
pub struct TypedTool<A, F> {
    definition: ToolDefinition,
    arguments: TypeSchema,
    function: F,
    retries: u32,
    first_delay: Duration,
    of_type: PhantomData<fn(A)>,
}

impl<A, F, R, O> TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: IntoToolOutput,
{
    /// Creates a tool that runs without approval. The model receives the description.
    ///
    /// The error type of the closure is [`BoxError`]. The closure can therefore end with `Ok(...)`
    /// without a type annotation, and use `?` on every error type. For a function with another
    /// error type, use [`of_fn`](TypedTool::of_fn).
    pub fn new(name: impl Into<String>, description: impl Into<String>, function: F) -> Self {
        let arguments = TypeSchema::of::<A>();
        let definition = ToolDefinition::new(name, description, arguments.portable().clone());
        let (retries, first_delay) = (0, Duration::ZERO);
        Self { definition, arguments, function, retries, first_delay, of_type: PhantomData }
    }

    /// Makes every call wait for approval.
    #[must_use]
    pub fn needs_approval(self) -> Self {
        self.define(ToolDefinition::needs_approval)
    }

    /// Declares that a call that may or may not have run can run again, because the tool only reads
    /// data, or recognises a repeated call by the [idempotency key](ToolContext::idempotency_key).
    #[must_use]
    pub fn safe_to_retry(self) -> Self {
        self.define(ToolDefinition::safe_to_retry)
    }

    /// Declares that the tool can run with arguments that its `persist` hook has replaced.
    #[must_use]
    pub fn accepts_stored_arguments(self) -> Self {
        self.define(ToolDefinition::accepts_stored_arguments)
    }

    /// Requests that the provider enforces the schema for the arguments of each call, if the
    /// provider supports this.
    ///
    /// The setting has no effect if the type contains a map, because providers refuse a strict
    /// schema with unnamed keys.
    #[must_use]
    pub fn strict(self) -> Self {
        if self.arguments.is_closed() { self.define(ToolDefinition::strict) } else { self }
    }

    /// Retries a failed call up to `count` times, and declares the tool [safe to
    /// retry](Self::safe_to_retry). The first retry starts after `delay`, and the delay doubles
    /// before each further retry. A call that fails with a [`ToolError`] is not retried.
    #[must_use]
    pub fn with_retries(mut self, count: u32, delay: Duration) -> Self {
        (self.retries, self.first_delay) = (count, delay);
        self.safe_to_retry()
    }

    fn define(mut self, change: impl FnOnce(ToolDefinition) -> ToolDefinition) -> Self {
        self.definition = change(self.definition);
        self
    }

    async fn run(&self, context: &ToolContext) -> Result<ToolOutput, BoxError> {
        match self.arguments.parse(context.arguments_or_empty()) {
            Ok(arguments) => (self.function)(arguments, context.clone()).await?.into_tool_output(),
            Err(error) => {
                let text = format!("The arguments do not fit the tool: {error}.");
                Ok(ToolOutput::rejected_arguments(text))
            }
        }
    }
}

impl<A> TypedTool<A, ()> {
    /// Creates a tool like [`new`](TypedTool::new), from a function with any error type that
    /// converts into a [`BoxError`], such as `anyhow::Error`, [`ToolError`] or your own type.
    ///
    /// ```
    /// use tower_chat::{Tool, ToolContext, ToolError, tool::TypedTool};
    ///
    /// async fn charge(cents: u64, context: ToolContext) -> Result<String, ToolError> {
    ///     match cents {
    ///         0 => Err(ToolError::for_model("an amount of 0 cannot be charged")),
    ///         cents => Ok(format!("{cents} cents for {}", context.call_id())),
    ///     }
    /// }
    /// let tool = TypedTool::of_fn("charge", "Charges a card.", charge).needs_approval();
    /// assert!(tool.definition().needs_approval);
    /// ```
    pub fn of_fn<F, R, O, E>(
        name: impl Into<String>,
        description: impl Into<String>,
        function: F,
    ) -> TypedTool<
        A,
        impl Fn(A, ToolContext) -> BoxFuture<'static, Result<O, BoxError>> + Send + Sync + 'static,
    >
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        O: IntoToolOutput + 'static,
        E: Into<BoxError>,
    {
        TypedTool::new(name, description, move |arguments, context| {
            let returned = function(arguments, context);
            Box::pin(async move { returned.await.map_err(Into::into) }) as BoxFuture<'static, _>
        })
    }
}

#[async_trait]
impl<A, F, R, O> Tool for TypedTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, BoxError>> + Send + 'static,
    O: IntoToolOutput,
{
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    async fn call(&self, context: ToolContext) -> Result<ToolOutput, BoxError> {
        let mut delay = self.first_delay;
        for _ in 0..self.retries {
            match self.run(&context).await {
                Err(error) if ToolError::effect_of(&*error).is_none() => sleep(delay).await,
                outcome => return outcome,
            }
            delay = delay.saturating_mul(2);
        }
        self.run(&context).await
    }
}

impl<A, F> fmt::Debug for TypedTool<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedTool").field("definition", &self.definition).finish_non_exhaustive()
    }
}
