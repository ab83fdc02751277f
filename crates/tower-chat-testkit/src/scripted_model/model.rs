//! [`ScriptedModel`], a model client with scripted answers.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_service::Service;

use super::{
    ScriptError, Step,
    step::Reply,
    updates::{of_answer, stream},
};
use crate::Gate;

/// A model client that answers each call with the next [`Step`] of a script, and records every
/// request.
///
/// Clones share the script and the recorded requests. A call fails with [`ScriptError::Exhausted`]
/// if the script has no more steps.
///
/// As in a real model client, a call also fails if `poll_ready` was not awaited on this clone, or
/// if the request contains [`HistoryOwner::Local`](tower_chat_core::HistoryOwner::Local), which a
/// layer should have replaced with the history. These two failures use no step.
///
/// The options of the request determine whether an answer is whole or a stream. A step can override
/// this choice. An interrupted answer is always a stream. A stream contains the deltas of each
/// message, followed by the message, and ends with the finish.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_testkit::{ScriptedModel, Step};
/// use tower_service::Service;
/// let mut model = ScriptedModel::new([Step::text("hello")]);
/// std::future::poll_fn(|cx| model.poll_ready(cx)).await?;
/// let answer = model.call(ChatRequest::user("hi")).await?.collect().await?;
/// assert_eq!(answer.text(), "hello");
/// assert_eq!(model.requests()[0].messages().len(), 1);
/// # Ok::<(), tower_chat_core::BoxError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct ScriptedModel {
    shared: Arc<Shared>,
    ready: bool,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<Script>,
    arrivals: Gate,
}

#[derive(Debug)]
struct Script {
    steps: VecDeque<Step>,
    requests: Vec<ChatRequest>,
}

impl ScriptedModel {
    /// Creates a model client that uses one step for each call.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let script = Script { steps: steps.into_iter().collect(), requests: Vec::new() };
        let shared = Shared { script: Mutex::new(script), arrivals: Gate::closed() };
        Self { shared: Arc::new(shared), ready: false }
    }

    /// Adds a step at the end of the script.
    pub fn push(&self, step: Step) {
        self.script().steps.push_back(step);
    }

    /// Returns all requests, the oldest first. Requests of calls that failed are included.
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.script().requests.clone()
    }

    /// Returns the number of unused steps.
    pub fn remaining(&self) -> usize {
        self.script().steps.len()
    }

    /// Waits until the model client was called `count` times in total.
    pub async fn called(&self, count: usize) {
        self.shared.arrivals.reached(count).await;
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the request, and removes the next step from the script if the call is allowed.
    fn take_step(&self, request: &ChatRequest, was_ready: bool) -> Result<Step, BoxError> {
        let mut script = self.script();
        script.requests.push(request.clone());
        let call = script.requests.len();
        if !was_ready {
            return Err(ScriptError::NotReady { call }.into());
        }
        request.service_id()?;
        Ok(script.steps.pop_front().ok_or(ScriptError::Exhausted { call })?)
    }
}

impl Clone for ScriptedModel {
    /// Returns a model client with the same script. As tower requires, the clone is not ready.
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), ready: false }
    }
}

impl Service<ChatRequest> for ScriptedModel {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let was_ready = std::mem::take(&mut self.ready);
        let step = self.take_step(&request, was_ready);
        self.shared.arrivals.arrive();
        Box::pin(async move { respond(step?.resolve(&request), request.options.stream).await })
    }
}

async fn respond(step: Step, is_streamed: bool) -> Result<ChatResponse, BoxError> {
    let Step { reply, streamed, gate, interruption } = step;
    if let Some(gate) = gate {
        gate.pass().await;
    }
    match reply {
        Reply::Answer(messages, finish) => {
            if interruption.is_none() && !streamed.unwrap_or(is_streamed) {
                return Ok(ChatResponse::whole(messages, *finish));
            }
            Ok(ChatResponse::stream(stream(of_answer(messages, *finish), interruption)))
        }
        Reply::Updates(updates) => Ok(ChatResponse::stream(stream(updates, interruption))),
        Reply::Error(error) => Err(error),
        Reply::Hang | Reply::Respond(_) => std::future::pending().await,
    }
}
