//! The workload: an agent that calls one tool in each round, with a model that answers immediately.

use std::{
    collections::VecDeque,
    future::{Ready, ready},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant, SystemTime},
};

use serde_json::json;
use tower::ServiceExt;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    Message, PersistenceMode, Role, ToolCall, ToolDefinition, ToolResult, Tools,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
    tool_fn,
};
use tower_service::Service;

pub(crate) use crate::texts::TOOL;
use crate::texts::{ARGUMENTS, FINAL_TEXT, INPUT, RESULT_TEXT, STORED_INPUT};

/// The service calls of a run with tools: 20 rounds and the final answer.
pub(crate) const CALLS: usize = 21;

const ROUNDS_OF_STORED_TURN: usize = 4;

/// The model. It returns one prepared message for each service call, and records the times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Arc<Message>>,
    /// The times at which each call began and was answered.
    calls: Vec<(Instant, Instant)>,
    between: Option<Between>,
}

/// A function that the model calls during each service call. Cases use it to measure their floor
/// alternately with the run.
struct Between(Box<Hook>);

type Hook = dyn FnMut(&ChatRequest) -> Result<(), BoxError> + Send;

impl std::fmt::Debug for Between {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Between")
    }
}

impl Model {
    pub(crate) fn prepare(&self, rounds: usize) {
        let mut script = self.script();
        script.answers = (0..rounds).map(|round| call_message(round).into()).collect();
        script.answers.push_back(Message::assistant(FINAL_TEXT).into());
        script.calls.clear();
        script.calls.reserve(rounds + 1);
    }

    pub(crate) fn do_between(
        &self,
        between: impl FnMut(&ChatRequest) -> Result<(), BoxError> + Send + 'static,
    ) {
        self.script().between = Some(Between(Box::new(between)));
    }

    /// Returns the times at which each call of the last run began and was answered.
    pub(crate) fn calls(&self) -> Vec<(Instant, Instant)> {
        self.script().calls.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<ChatRequest> for Model {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = Ready<Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let began = Instant::now();
        let mut script = self.script();
        let answer = script.answers.pop_front();
        let between = script.between.as_mut().map_or(Ok(()), |Between(between)| between(&request));
        let response = between.map(|()| ChatResponse::whole(answer, Finish::stop()));
        script.calls.push((began, Instant::now()));
        ready(response)
    }
}

pub(crate) fn tools() -> Tools {
    let parameters = json!({"type": "object", "properties": {"order": {"type": "string"}}});
    let definition = ToolDefinition::new(TOOL, "Looks orders up.", parameters);
    Tools::new().with(tool_fn(definition, |_| async { Ok(RESULT_TEXT) }))
}

/// Creates the pipeline of an application with one tool.
pub(crate) fn pipeline(
    model: &Model,
    history: Option<(Arc<dyn HistoryStore>, PersistenceMode)>,
) -> Result<ChatPipeline, BoxError> {
    let builder = ChatPipeline::builder(model.clone()).tools(tools());
    Ok(match history {
        Some((store, mode)) => builder.history(store).persistence(mode).build()?,
        None => builder.build()?,
    })
}

/// Executes one request. Fails unless the run ends with the final answer after this number of
/// service calls.
pub(crate) async fn run(
    pipeline: &mut ChatPipeline,
    model: &Model,
    request: ChatRequest,
    calls: usize,
) -> Result<(), BoxError> {
    let answer = pipeline.ready().await?.call(request).await?.collect().await?;
    let last = answer.messages.last().map(|message| message.text());
    if last.as_deref() != Some(FINAL_TEXT) || model.script().calls.len() != calls {
        return Err("the run ended without its final answer".into());
    }
    Ok(())
}

pub(crate) fn input() -> ChatRequest {
    ChatRequest::user(INPUT)
}

/// Returns stored turns with this total number of messages. A turn is a question, four rounds and
/// the answer.
pub(crate) fn stored_messages(count: usize) -> Vec<Arc<Message>> {
    let turn = || {
        let rounds = (0..ROUNDS_OF_STORED_TURN)
            .flat_map(|round| [call_message(round), result_message(round)]);
        std::iter::once(Message::user(STORED_INPUT))
            .chain(rounds)
            .chain([Message::assistant(FINAL_TEXT)])
    };
    std::iter::repeat_with(turn).flatten().take(count).map(Arc::new).collect()
}

/// Adds the fields that a run stores with a message.
pub(crate) fn added(mut message: Message) -> Message {
    // A constant time, whose stored form has as many digits as the current time.
    message.added_at = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000));
    if message.role == Role::Assistant {
        message.finish_reason = Finish::stop().reason;
    }
    message
}

/// Returns the messages that one run stores.
pub(crate) fn messages_of_run() -> Vec<Arc<Message>> {
    let rounds = (0..CALLS - 1).flat_map(|round| [call_message(round), result_message(round)]);
    let mut input = Message::user(INPUT);
    // The real digest of an input has the same length.
    input.metadata.insert("run_input".to_owned(), json!(format!("1:1:{}", "0".repeat(64))));
    std::iter::once(input)
        .chain(rounds)
        .chain([Message::assistant(FINAL_TEXT)])
        .map(|message| Arc::new(added(message)))
        .collect()
}

pub(crate) fn first_write(key: &ConversationKey, messages: Vec<Arc<Message>>) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, Revision::ABSENT, messages)
}

pub(crate) fn call_message(round: usize) -> Message {
    Message::tool_calls([ToolCall::new(format!("call_{round:08}"), TOOL, ARGUMENTS)])
}

pub(crate) fn result_message(round: usize) -> Message {
    let mut result = ToolResult::new(format!("call_{round:08}"), RESULT_TEXT);
    result.name = Some(TOOL.to_owned());
    Message::tool_results([result])
}

#[cfg(test)]
mod tests {
    use tower_chat::{MemoryStore, store::format};

    use super::*;

    #[test]
    fn a_round_has_785_bytes_of_json() {
        let round = [call_message(0), result_message(0)];
        assert_eq!(round.iter().map(|message| format::encode(message).len()).sum::<usize>(), 785);
    }

    #[test]
    fn stored_turns_end_with_an_answer() {
        let stored = stored_messages(20);
        assert_eq!(stored.len(), 20);
        assert_eq!(stored.last().map(|message| message.text()), Some(FINAL_TEXT.to_owned()));
    }

    #[tokio::test]
    async fn the_messages_of_a_run_are_as_long_as_those_that_a_run_stores() -> Result<(), BoxError>
    {
        let (model, store) = (Model::default(), Arc::new(MemoryStore::new()));
        let key = ConversationKey::new("benches", "run");
        let mode = PersistenceMode::PerServiceCall;
        let mut pipeline = pipeline(&model, Some((store.clone(), mode)))?;
        model.prepare(CALLS - 1);
        run(&mut pipeline, &model, input().in_conversation(key.clone()), CALLS).await?;
        let stored = store.load(&key).await?.messages;
        let lengths = |messages: &[Arc<Message>]| -> Vec<usize> {
            messages.iter().map(|message| format::encode(message).len()).collect()
        };
        let stored: Vec<_> = stored.iter().cloned().collect();
        assert_eq!(lengths(&messages_of_run()), lengths(&stored));
        Ok(())
    }
}
