//! Conversations with recorded answers, and the execution of their turns. A turn is one question of
//! the user and everything up to its answer.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::{Service as _, ServiceExt};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ConversationKey, HistoryStore, PersistenceMode,
    ToolDefinition, Tools,
    layer::ToolLoopLayer,
    run::{Conversation, RunId},
    tool_fn,
};
use tower_chat_testkit::recordings::{Cassette, Exchange};

use crate::continuation::{
    providers::{Model, Provider},
    scripted,
    server::{Answers, Received, Server},
};

/// The maximum number of rounds in a turn. A round is an answer with tool calls, and their results.
const ROUNDS: usize = 3;

/// The maximum number of turns of a conversation.
const TURNS: u64 = 4;

pub(crate) const MODES: [PersistenceMode; 3] =
    [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled];

/// A recorded conversation with one provider, in one mode.
pub(crate) struct Recorded {
    pub(crate) provider: &'static Provider,
    pub(crate) mode: PersistenceMode,
    /// The unique name of the conversation.
    pub(crate) source: String,
    pub(crate) answers: Answers,
    /// Whether the answers were written for these tests, and not recorded.
    pub(crate) is_scripted: bool,
    pub(crate) is_streamed: bool,
    number: u64,
    tools: Vec<String>,
}

/// A local server in the role of a provider, and a model client that uses it.
pub(crate) struct Service {
    pub(crate) server: Server,
    model: Model,
}

impl Service {
    pub(crate) async fn start(provider: &Provider) -> Self {
        let server = Server::start().await;
        let model = (provider.model)(&server.url);
        Self { server, model }
    }
}

/// The requests that a turn sends to the provider, and its outcome.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) sent: Vec<Received>,
    pub(crate) outcome: String,
    pub(crate) succeeded: bool,
}

impl Recorded {
    /// Returns the conversations of a provider in a cassette (a file of recorded exchanges): at
    /// most one with whole answers and one with streamed answers, in every mode.
    pub(crate) fn of(
        cassette: &Cassette,
        provider: &'static Provider,
        numbers: &mut impl Iterator<Item = u64>,
    ) -> Vec<Self> {
        let Cassette { folder, name, .. } = cassette;
        let answered = |exchange: &&Exchange| {
            (provider.speaks)(folder, exchange)
                && exchange.is_success()
                && exchange.reported_error().unwrap().is_none()
                && !exchange.body.is_empty()
        };
        let exchanges: Vec<&Exchange> = cassette.exchanges.iter().filter(answered).collect();
        let mut found = Vec::new();
        for is_streamed in [false, true] {
            let those: Vec<&&Exchange> =
                exchanges.iter().filter(|it| it.is_streamed() == is_streamed).collect();
            // Without an earlier answer in any request, the exchanges are no conversation.
            if those.len() < 2 || !those.iter().any(|it| has_earlier_answer(&it.request)) {
                continue;
            }
            let bodies = those.iter().map(|it| it.body.clone()).collect();
            let mut tools = Vec::new();
            for field in ["tools", "toolConfig"] {
                those.iter().for_each(|it| names(&it.request[field], &mut tools));
            }
            tools.sort();
            tools.dedup();
            let source = format!("{folder}/{name}");
            found.extend(Self::in_all_modes(
                provider,
                &source,
                is_streamed,
                bodies,
                &tools,
                numbers,
            ));
        }
        found
    }

    /// Returns the conversations of a provider that were written for these tests.
    pub(crate) fn scripted(
        provider: &'static Provider,
        numbers: &mut impl Iterator<Item = u64>,
    ) -> Vec<Self> {
        let mut found = Vec::new();
        for is_streamed in [false, true] {
            let bodies = scripted::answers(provider.wire, is_streamed);
            let tools = [scripted::TOOL.to_owned()];
            found.extend(Self::in_all_modes(
                provider,
                scripted::SOURCE,
                is_streamed,
                bodies,
                &tools,
                numbers,
            ));
        }
        found
    }

    fn in_all_modes(
        provider: &'static Provider,
        source: &str,
        is_streamed: bool,
        bodies: Vec<Vec<u8>>,
        tools: &[String],
        numbers: &mut impl Iterator<Item = u64>,
    ) -> Vec<Self> {
        let content_type = if is_streamed { provider.stream_type() } else { "application/json" };
        let in_mode = |mode| Self {
            provider,
            mode,
            source: format!("{} {source} {is_streamed} {mode:?}", provider.name),
            number: numbers.next().unwrap(),
            is_scripted: source == scripted::SOURCE,
            is_streamed,
            answers: Answers { content_type, bodies: bodies.clone() },
            tools: tools.to_vec(),
        };
        MODES.map(in_mode).into()
    }

    pub(crate) fn stack(&self, service: &Service, store: impl HistoryStore) -> ChatPipeline {
        let tools = self.tools.iter().fold(Tools::new(), |tools, name| {
            let definition = ToolDefinition::new(name, "a tool", json!({"type": "object"}));
            tools.with(tool_fn(definition, |context| async move {
                Ok(format!("done: {}", context.arguments()))
            }))
        });
        ChatPipeline::builder(service.model.clone())
            .tool_loop(ToolLoopLayer::new(tools).max_rounds(ROUNDS).unwrap())
            .history(store)
            .persistence(self.mode)
            .build()
            .unwrap()
    }

    pub(crate) fn key(&self) -> ConversationKey {
        ConversationKey::new("continuation", self.source.as_str())
    }

    pub(crate) async fn turn(&self, stack: &ChatPipeline, service: &Service, turn: u64) -> Turn {
        self.turn_in(self.key(), stack, service, turn).await
    }

    pub(crate) async fn turn_in(
        &self,
        key: ConversationKey,
        stack: &ChatPipeline,
        service: &Service,
        turn: u64,
    ) -> Turn {
        let run = run_id(self.number * TURNS + turn);
        let mut request =
            ChatRequest::user(format!("question {turn}")).in_run(Conversation { key, run });
        if self.is_streamed {
            request = request.streamed();
        }
        let answer = async {
            let response = stack.clone().ready().await?.call(request).await?;
            Ok::<_, BoxError>(response.collect().await?.text())
        };
        let (outcome, succeeded) = match answer.await {
            Ok(text) => (text, true),
            Err(error) => (error.to_string(), false),
        };
        Turn { sent: service.server.take_received(), outcome, succeeded }
    }
}

/// Returns whether a request contains an earlier answer of the model.
fn has_earlier_answer(request: &Value) -> bool {
    let items = ["messages", "contents", "input"].map(|field| request[field].as_array());
    let is_answer = |item: &Value| {
        item["role"] == "assistant" || item["role"] == "model" || item["type"] == "function_call"
    };
    request["previous_response_id"].is_string()
        || items.into_iter().flatten().flatten().any(is_answer)
}

/// Returns the run id with this number. Replay derives the ids of calls that have no id from the
/// run id, which must therefore be the same in every process. A greater number results in a greater
/// id.
fn run_id(number: u64) -> RunId {
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&(1_760_000_000_000 + number).to_be_bytes()[2..]);
    bytes[6] = 0x70;
    bytes[8..].copy_from_slice(&(number | 1 << 63).to_be_bytes());
    RunId::from_bytes(bytes)
}

/// Collects the names of all tools in a JSON value of any provider.
fn names(tools: &Value, found: &mut Vec<String>) {
    match tools {
        Value::Array(items) => items.iter().for_each(|item| names(item, found)),
        Value::Object(fields) => {
            for (field, value) in fields {
                match (field.as_str(), value) {
                    ("name", Value::String(name)) => found.push(name.clone()),
                    (
                        "function"
                        | "functionDeclarations"
                        | "function_declarations"
                        | "tools"
                        | "toolSpec",
                        inner,
                    ) => {
                        names(inner, found);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
