//! The model and the tools of a case.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{
    future::BoxFuture,
    stream::{self, StreamExt},
};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, HistoryStore, Message, Part, ToolCall,
    ToolContext, ToolDefinition, Tools, message::Messages, tool::ToolOutput, tool_fn,
    validate::validate_messages,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::openai_chat::{self, Audience};
use tower_service::Service;

use crate::faults::{
    compacted, other_arguments,
    pictures::Pictures,
    script::{RunScript, TOOLS, arguments, run_and_round},
    summarized,
    trace::{Call, Event, label},
    trace_index::TraceIndex,
    world::{Step, World},
};

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) world: World,
    pub(crate) script: Arc<Vec<RunScript>>,
    pub(crate) readers: Readers,
    /// Whether runs make summaries of earlier runs.
    pub(crate) summarizes: bool,
    /// The seed of the answers with summaries by the service, if there are any.
    pub(crate) compacts: Option<u64>,
    pub(crate) pictures: Option<Pictures>,
}

#[derive(Clone)]
pub(crate) struct Readers {
    pub(crate) store: Arc<dyn HistoryStore>,
    /// Whether a run must be visible either completely or not at all.
    pub(crate) all_or_nothing: bool,
}

impl Service<ChatRequest> for Model {
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ChatResponse, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let model = self.clone();
        Box::pin(async move { model.answer(request).await })
    }
}

impl Model {
    async fn answer(self, request: ChatRequest) -> Result<ChatResponse, BoxError> {
        let Self { world, script, readers, summarizes, compacts, pictures } = self;
        let conversation = request.conversation().cloned().ok_or("no conversation")?;
        let run = world.run_of(conversation.run);
        if let Err(invalid) = is_valid(request.messages()) {
            world.add_failure(format!(
                "the model received a request that providers refuse: {invalid}"
            ));
        }
        let serial = world.next_serial();
        let shown = request.messages().iter().map(|message| label(message)).collect();
        world.note(Event::Asked { run, serial, shown });
        let trace = world.trace();
        let index = TraceIndex::of(&trace);
        let sent = other_arguments::check_messages(&world, request.messages(), &index)
            .and_then(|()| match compacts {
                Some(_) => compacted::check_request(&world, &request, &index),
                None => Ok(()),
            })
            .and_then(|()| match pictures {
                Some(pictures) => pictures.check_sent(run, script.len() - 1, request.messages()),
                None => Ok(()),
            });
        sent.unwrap_or_else(|failure| world.add_failure(failure));
        readers.look(&world, &conversation).await;
        if summarizes || compacts.is_some() {
            let history =
                readers.store.load(&conversation.key).await.expect("no fault is injected");
            let sent = summarized::check_sent(&request, conversation.run, &history);
            sent.unwrap_or_else(|failure| world.add_failure(failure));
        }
        for _ in 0..world.delay() {
            yield_now().await;
        }
        let Some((about, round)) = run_and_round(&request) else {
            world.add_failure("the request to the model does not contain the input");
            return Err("the request has no input".into());
        };
        if about != run {
            world
                .add_failure(format!("the request of run {run} contains the input of run {about}"));
        }
        let tools = script[about].rounds.get(round).cloned().unwrap_or_default();
        let mut message = Message::assistant(format!("a{serial}"));
        let has_item = compacts.is_some_and(|seed| compacted::has_item(seed, serial));
        if has_item {
            message.parts.push(compacted::item(serial));
        }
        let mut calls = Vec::new();
        for (index, tool) in tools.iter().enumerate() {
            let id = format!("s{serial}.{index}");
            let arguments = arguments(about, round);
            message.parts.push(Part::ToolCall(ToolCall::new(&id, *tool, &arguments)));
            calls.push(Call { id, tool: (*tool).to_owned(), arguments });
        }
        let waits = script[about].waits(round);
        let answered = Event::Answered { run, serial, calls, waits, has_item };
        let unanswered = || world.note(Event::Unanswered { serial });
        let mut cut = None;
        match world.step("the model") {
            Step::Fine => {}
            Step::Dead => return std::future::pending().await,
            Step::Wrong(mut rng) => match rng.below(5) {
                0 | 1 => {
                    unanswered();
                    return Err("overloaded".into());
                }
                2 => return std::future::pending().await,
                how => cut = Some((rng.below(6), how)),
            },
        }
        if !request.options.stream && cut.is_none() {
            world.note(answered);
            return Ok(ChatResponse::whole([message], Finish::stop()));
        }
        let text = ChatUpdate::TextDelta(format!("a{serial}"));
        let updates = vec![
            text,
            ChatUpdate::Message(message.into()),
            ChatUpdate::Finish(Finish::stop().into()),
        ];
        let updates = stream::iter(updates.into_iter().enumerate()).then(move |(at, update)| {
            let (world, answered) = (world.clone(), answered.clone());
            async move {
                for _ in 0..world.delay() {
                    yield_now().await;
                }
                match cut {
                    // The stream fails after all updates except the end.
                    Some((cut, 3)) if at >= cut.min(2) => {
                        world.note(Event::Unanswered { serial });
                        return Err("connection reset".into());
                    }
                    Some((cut, _)) if at >= cut.min(2) => return std::future::pending().await,
                    _ => {}
                }
                if let Step::Dead = world.step("an update") {
                    return std::future::pending().await;
                }
                if matches!(update, ChatUpdate::Finish(_)) {
                    world.note(answered);
                }
                Ok(update)
            }
        });
        Ok(ChatResponse::stream(updates))
    }
}

impl Readers {
    /// Loads the conversation during a run, and checks that the run is not visible if the mode
    /// requires it.
    async fn look(&self, world: &World, conversation: &tower_chat::run::Conversation) {
        if !self.all_or_nothing {
            return;
        }
        let history = self.store.load(&conversation.key).await.expect("nothing is wrong here");
        let is_of_run =
            |message: &&Arc<Message>| message.id.is_some_and(|id| id.run == conversation.run);
        let seen = history.messages.iter().filter(is_of_run).count();
        if seen > 0 {
            world.add_failure(format!("{seen} messages of a run in progress are visible"));
        }
    }
}

pub(crate) fn is_valid(messages: &Messages) -> Result<(), String> {
    let messages = || messages.iter().map(|message| &**message);
    validate_messages(messages()).map_err(|invalid| invalid.to_string())?;
    let body = openai_chat::render_messages(messages(), Audience::Model);
    let body = body.iter().map(|message| message.parse::<Value>().expect("JSON"));
    let body = json!({ "messages": body.collect::<Vec<_>>() });
    validate(Wire::OpenAiChat, &body).map_err(|invalid| invalid.to_string())
}

pub(crate) fn definition(name: &str) -> ToolDefinition {
    let definition = ToolDefinition::new(name, name, json!({"type": "object"}));
    match name {
        "again" => definition.safe_to_retry(),
        "pay" => definition.needs_approval(),
        _ => definition,
    }
}

/// Returns tools that add their executions to the trace.
pub(crate) fn tools(world: &World, readers: &Readers) -> Tools {
    TOOLS.iter().fold(Tools::new(), |tools, name| {
        let (world, readers) = (world.clone(), readers.clone());
        tools.with(tool_fn(definition(name), move |context| {
            run_tool(name, context, world.clone(), readers.clone())
        }))
    })
}

async fn run_tool(
    name: &'static str,
    context: ToolContext,
    world: World,
    readers: Readers,
) -> Result<ToolOutput, BoxError> {
    let call = context.call_id().to_owned();
    let token = world.next_execution(&call);
    if world.is_dead() {
        return std::future::pending().await;
    }
    world.note(Event::Started {
        run: world.run_of(context.run()),
        call,
        token: token.clone(),
        key: context.idempotency_key(),
        arguments: context.call().arguments.clone(),
    });
    if let Some(conversation) = context.extensions().get() {
        readers.look(&world, conversation).await;
    }
    for _ in 0..world.delay() {
        yield_now().await;
    }
    let wrong = match world.step("a tool") {
        Step::Fine => None,
        Step::Dead => return std::future::pending().await,
        Step::Wrong(mut rng) => Some(rng.below(4)),
    };
    if wrong == Some(0) {
        return std::future::pending().await;
    }
    world.note(Event::Finished { token: token.clone() });
    if !world.pass() {
        return std::future::pending().await;
    }
    match (name, wrong) {
        // Unwinds like a panic, but without the output of the panic hook.
        (_, Some(1)) => std::panic::resume_unwind(Box::new(format!("<{token}>"))),
        (_, Some(_)) | ("fail", _) => Err(format!("broken <{token}>").into()),
        ("stop", None) => Ok(ToolOutput::from(format!("stopped <{token}>")).terminate()),
        (_, None) => Ok(ToolOutput::from(format!("found <{token}>"))),
    }
}
