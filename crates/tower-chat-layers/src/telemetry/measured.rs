//! The metrics of an operation that has started.

use std::{sync::Arc, time::Instant};

use tower_chat_core::{
    ChatRequest, Finish, Usage,
    telemetry::{
        Histogram, Labels, Outcome, is_recorded,
        metric::{
            CACHED_TOKENS, ERRORS, REASONING_TOKENS, RUN_DURATION, SERVICE_CALL_DURATION,
            TIME_TO_FIRST_CHUNK, TOKENS, TOOL_DURATION, label,
        },
    },
};

use super::run_span::RunSpan;

/// Records the metrics of an operation. Exists only if a metrics recorder is installed.
pub(crate) struct Measured {
    since: Instant,
    operation: Operation,
    has_chunk: bool,
}

enum Operation {
    Run { agent: Option<Arc<str>>, model: Option<String>, span: RunSpan },
    ServiceCall { provider: Option<Arc<str>>, model: Option<String>, answering: Option<String> },
    Tool { name: String },
}

impl Measured {
    pub(super) fn run(
        request: &ChatRequest,
        agent: Option<&Arc<str>>,
        span: &RunSpan,
    ) -> Option<Box<Self>> {
        Self::of(|| Operation::Run {
            agent: agent.cloned(),
            model: request.options.model.clone(),
            span: span.clone(),
        })
    }

    pub(super) fn service_call(
        request: &ChatRequest,
        provider: Option<&Arc<str>>,
    ) -> Option<Box<Self>> {
        Self::of(|| Operation::ServiceCall {
            provider: provider.cloned(),
            model: request.options.model.clone(),
            answering: None,
        })
    }

    pub(crate) fn tool(name: &str) -> Option<Box<Self>> {
        Self::of(|| Operation::Tool { name: name.to_owned() })
    }

    fn of(operation: impl FnOnce() -> Operation) -> Option<Box<Self>> {
        is_recorded().then(|| {
            Box::new(Self { since: Instant::now(), operation: operation(), has_chunk: false })
        })
    }

    /// Records that an update of the streamed answer has arrived.
    pub(super) fn chunk(&mut self) {
        if !std::mem::replace(&mut self.has_chunk, true)
            && let Operation::ServiceCall { .. } = self.operation
        {
            self.record(TIME_TO_FIRST_CHUNK, self.since.elapsed().as_secs_f64(), &[]);
        }
    }

    pub(super) fn finished(&mut self, finish: &Finish) {
        let Operation::ServiceCall { answering, .. } = &mut self.operation else { return };
        *answering = finish.model.clone();
        let Usage { input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, .. } =
            finish.usage;
        for (metric, kind, tokens) in [
            (TOKENS, Some("input"), input_tokens),
            (TOKENS, Some("output"), output_tokens),
            (CACHED_TOKENS, None, cached_input_tokens),
            (REASONING_TOKENS, None, reasoning_tokens),
        ] {
            if tokens > 0 {
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the rounding error of such large numbers does not matter"
                )]
                self.record(metric, tokens as f64, &[(label::TOKEN_TYPE, kind)]);
            }
        }
    }

    pub(super) fn end(&self, outcome: Outcome, error: Option<&'static str>) {
        let (metric, operation) = match self.operation {
            Operation::Run { .. } => (RUN_DURATION, "invoke_agent"),
            Operation::ServiceCall { .. } => (SERVICE_CALL_DURATION, "chat"),
            Operation::Tool { .. } => (TOOL_DURATION, "execute_tool"),
        };
        let labels = [(label::OUTCOME, Some(outcome.as_str())), (label::ERROR, error)];
        self.record(metric, self.since.elapsed().as_secs_f64(), &labels);
        if let Some(error) = error {
            ERRORS.add(1, &[(label::OPERATION, Some(operation)), (label::ERROR, Some(error))]);
        }
    }

    /// Records a value with the labels of the operation and of `more`.
    fn record(&self, metric: Histogram, value: f64, more: Labels<'_>) {
        let own: &[_] = match &self.operation {
            Operation::Run { agent, model, span } => &[
                (label::AGENT, agent.as_deref()),
                (label::REQUEST_MODEL, model.as_deref()),
                (label::MODE, span.mode()),
            ],
            Operation::ServiceCall { provider, model, answering } => &[
                (label::OPERATION, Some("chat")),
                (label::PROVIDER, provider.as_deref()),
                (label::REQUEST_MODEL, model.as_deref()),
                (label::RESPONSE_MODEL, answering.as_deref()),
            ],
            Operation::Tool { name } => &[(label::TOOL, Some(name))],
        };
        metric.record(value, &[own, more].concat());
    }
}
