//! Tests of a tool loop that belongs to the application, in generated conversations: repeated
//! messages in its requests are stored once, and every service call sends the complete
//! conversation.
//!
//! The loop sends all messages, its run, the new messages, or the last two turns. Its message types
//! keep or lose ids, reasoning and metadata, and may join the results of a round. Service calls
//! fail and are repeated, answers are lost, and the loop continues in another process. Texts and
//! ids repeat, so that only its position identifies a message.

use std::{
    cell::OnceCell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ChatResponse, Conversation, ConversationKey,
    Finish, MemoryStore, Message, Messages, Part, PerServiceCallPersistence, PersistenceMode,
    Reasoning, RepeatedTranscript, Role, RunId, ToolCall, ToolResult, run::Run,
    store::HistoryStore,
};
use tower_chat_testkit::{Rng, ScriptedModel, Step};

use crate::search::{Search, shrunk};

type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// A planted fault between the loop and the persister.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// No message of a request is recognised if the loop loses the run ids.
    NothingRecognised,
    /// The last message of a request is lost.
    LastLost,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sends {
    All,
    Run,
    New,
    TwoTurns,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ids {
    Distinct,
    Equal,
    Missing,
}

/// A conversation of a tool loop.
#[derive(Debug, Clone)]
struct Case {
    /// The mode of the layer above the loop, if any.
    above: Option<PersistenceMode>,
    sends: Sends,
    /// Whether each request has the run id of its turn. Otherwise it has its own run id.
    keeps_run: bool,
    /// Whether the types of the loop keep ids, reasoning and metadata.
    keeps_all: bool,
    /// Whether the results of a round are joined in one message.
    joins: bool,
    has_system: bool,
    streamed: bool,
    ids: Ids,
    turns: Vec<Turn>,
}

#[derive(Debug, Clone)]
struct Turn {
    /// The number of the text of the user and the model. There are few texts, so that they repeat.
    text: usize,
    /// The number of calls in each round.
    rounds: Vec<usize>,
    /// The service call that fails once and is repeated.
    fails: Option<usize>,
    /// Whether the last answer is lost and its request is sent again.
    loses_answer: bool,
    /// Whether each service call is made in another process.
    restarts: bool,
}

impl Case {
    fn random(seed: u64, number: u64) -> Self {
        let mut rng = Rng::of(seed, number);
        let above = [
            None,
            Some(PersistenceMode::PerRun),
            Some(PersistenceMode::PerServiceCall),
            Some(PersistenceMode::Journaled),
        ];
        let above = above[rng.below(4)];
        let count = 1 + rng.below(4);
        let turns = (0..count).map(|_| Turn::random(&mut rng, above.is_none())).collect();
        Self {
            above,
            sends: [Sends::All, Sends::Run, Sends::New, Sends::TwoTurns][rng.below(4)],
            keeps_run: rng.one_in(2),
            keeps_all: rng.one_in(3),
            joins: rng.one_in(2),
            has_system: rng.one_in(3),
            streamed: rng.one_in(2),
            ids: [Ids::Distinct, Ids::Equal, Ids::Missing][rng.below(3)],
            turns,
        }
    }

    fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            if case.to_string() != self.to_string() {
                simpler.push(case);
            }
        };
        for turn in 0..self.turns.len() {
            with(&|case| {
                case.turns.remove(turn);
            });
            with(&|case| {
                case.turns[turn].rounds.pop();
            });
            with(&|case| case.turns[turn].rounds.iter_mut().for_each(|calls| *calls = 1));
            with(&|case| case.turns[turn].fails = None);
            with(&|case| case.turns[turn].loses_answer = false);
            with(&|case| case.turns[turn].restarts = false);
        }
        with(&|case| case.has_system = false);
        with(&|case| case.streamed = false);
        with(&|case| case.ids = Ids::Distinct);
        simpler.retain(|case| {
            let is_valid = |turn: &Turn| {
                turn.fails.is_none_or(|call| call <= turn.rounds.len())
                    && !(turn.loses_answer && turn.rounds.is_empty())
            };
            !case.turns.is_empty() && case.turns.iter().all(is_valid)
        });
        simpler
    }

    /// Returns the answers of the model, in order.
    fn script(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (number, turn) in self.turns.iter().enumerate() {
            for call in 0..=turn.rounds.len() {
                if turn.fails == Some(call) {
                    steps.push(Step::error("overloaded"));
                }
                steps.push(Step::message(self.answer(number, call)));
            }
        }
        steps
    }

    /// Returns the answer to a service call of a turn.
    fn answer(&self, number: usize, call: usize) -> Message {
        let turn = &self.turns[number];
        let Some(calls) = turn.rounds.get(call) else {
            return Message::assistant(format!("ok {}", turn.text));
        };
        let calls = (0..*calls).map(|index| {
            let mut call_of = ToolCall::without_id("look", "{}");
            call_of.id = match self.ids {
                Ids::Distinct => Some(format!("id_{number}_{call}_{index}")),
                Ids::Equal => Some("same".to_owned()),
                Ids::Missing => None,
            };
            call_of
        });
        let mut message = Message::tool_calls(calls);
        message.parts.insert(0, Reasoning::new("hm").into());
        message
    }

    /// Returns the results of a round. Each result contains its position.
    fn results(&self, number: usize, call: usize) -> Vec<Message> {
        let asking = self.answer(number, call);
        let results = asking.calls().enumerate().map(|(index, asked)| {
            let mut result = ToolResult::new("", format!("result {number} {call} {index}"));
            result.call_id.clone_from(&asked.id);
            result
        });
        match self.joins {
            true => vec![Message::tool_results(results)],
            false => results.map(|result| Message::tool_results([result])).collect(),
        }
    }

    /// Returns the texts of the conversation, and the number of texts before each service call.
    fn expected(&self) -> (Vec<String>, Vec<usize>) {
        let (mut spoken, mut calls) = (Vec::new(), Vec::new());
        for (number, turn) in self.turns.iter().enumerate() {
            spoken.push(format!("user say {}", turn.text));
            for call in 0..=turn.rounds.len() {
                let times = if turn.fails == Some(call) { 2 } else { 1 };
                calls.extend(std::iter::repeat_n(spoken.len(), times));
                spoken.extend(words(&self.answer(number, call)));
                if call < turn.rounds.len() {
                    spoken.extend(self.results(number, call).iter().flat_map(words));
                }
            }
        }
        (spoken, calls)
    }
}

impl Turn {
    fn random(rng: &mut Rng, is_alone: bool) -> Self {
        let count = rng.below(4);
        let rounds: Vec<usize> = (0..count).map(|_| 1 + rng.below(3)).collect();
        let fails = rng.one_in(3).then(|| rng.below(rounds.len() + 1));
        Self {
            text: rng.below(2),
            fails,
            loses_answer: is_alone && !rounds.is_empty() && rng.one_in(4),
            restarts: rng.one_in(2),
            rounds,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}

/// Returns the texts of a message. Each result is a separate text, since the model may receive
/// several results in one message.
fn words(message: &Message) -> Vec<String> {
    let results: Vec<String> =
        message.results().map(|result| format!("tool {}", result.text())).collect();
    if !results.is_empty() {
        return results;
    }
    let calls = message.calls().map(|call| format!("{} ", call.name)).collect::<String>();
    vec![format!("{:?} {}{calls}", message.role, message.text()).to_lowercase()]
}

fn key() -> ConversationKey {
    ConversationKey::new("alice", "support")
}

/// The tool loop of an application, with its list of messages.
struct OwnLoop {
    case: Case,
    list: Mutex<Vec<Message>>,
    /// The persister of this process, and the one of another process.
    below: [Client; 2],
}

impl OwnLoop {
    fn kept(&self, message: &Message) -> Message {
        if self.case.keeps_all {
            return message.clone();
        }
        let mut kept = Message::new(message.role, Vec::new());
        let is_kept =
            |part: &&Part| matches!(part, Part::Text(_) | Part::ToolCall(_) | Part::ToolResult(_));
        kept.parts = message.parts.iter().filter(is_kept).cloned().collect();
        kept
    }

    fn outgoing(&self) -> Vec<Message> {
        let list = self.list.lock().expect("nothing panics");
        let last_user = |end: usize| list[..end].iter().rposition(|it| it.role == Role::User);
        let turn = last_user(list.len()).unwrap_or_default();
        let from = match self.case.sends {
            Sends::All => 0,
            Sends::Run => turn,
            Sends::New => {
                let answer = list.iter().rposition(|it| it.role == Role::Assistant);
                answer.map_or(0, |answer| answer + 1)
            }
            Sends::TwoTurns => last_user(turn).unwrap_or(turn),
        };
        let system = self.case.has_system.then(|| Message::system("be brief"));
        system.into_iter().chain(list[from..].iter().cloned()).collect()
    }

    async fn turn(&self, number: usize, request: &ChatRequest) -> Result<Answer, BoxError> {
        let turn = &self.case.turns[number];
        let input = request.messages.last().map(|message| self.kept(message));
        self.push(input);
        let run = RunId::new();
        for call in 0..=turn.rounds.len() {
            let answer = loop {
                let mut next = request.clone();
                next.messages = self.outgoing().into_iter().map(Arc::new).collect::<Messages>();
                next.new_from = 0;
                if request.extensions.get::<Run>().is_none() {
                    let run = if self.case.keeps_run { run } else { RunId::new() };
                    next = next.in_run(Conversation { key: key(), run });
                }
                let below = &self.below[usize::from(turn.restarts && call % 2 == 1)];
                let send =
                    async |next: ChatRequest| below.clone().oneshot(next).await?.collect().await;
                match send(next.clone()).await {
                    Err(error) if error.to_string() == "overloaded" => continue,
                    Ok(_) if turn.loses_answer && call == turn.rounds.len() => {
                        break send(next).await?;
                    }
                    answer => break answer?,
                }
            };
            self.push(answer.messages.iter().map(|message| self.kept(message)));
            if call == turn.rounds.len() {
                let spoken = Message::assistant(answer.text());
                return Ok(Answer::new(vec![spoken.into()], Finish::stop()));
            }
            self.push(self.case.results(number, call));
        }
        Err("a turn without an answer".into())
    }

    fn push(&self, messages: impl IntoIterator<Item = Message>) {
        self.list.lock().expect("nothing panics").extend(messages);
    }
}

/// Creates the persister of one process over the model.
fn persister(
    case: &Case,
    store: &MemoryStore,
    model: &ScriptedModel,
    fault: Option<Fault>,
) -> Client {
    let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
    let (below, is_alone) = (BoxCloneSyncService::new(below), case.above.is_none());
    BoxCloneSyncService::new(service_fn(move |mut request: ChatRequest| {
        let below = below.clone();
        async move {
            match fault {
                Some(Fault::NothingRecognised) if is_alone => {
                    request = request.with_extension(RepeatedTranscript::Append);
                }
                Some(Fault::LastLost) if request.messages.len() > 1 => {
                    request.messages = request.messages.take(request.messages.len() - 1);
                }
                _ => {}
            }
            below.oneshot(request).await
        }
    }))
}

/// Returns the difference from the expected conversation, if any.
fn difference(case: &Case, fault: Option<Fault>) -> Option<String> {
    thread_local! {
        static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
    }
    let drive = || {
        RUNTIME.with(|runtime| {
            let build = || Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.get_or_init(build).block_on(drive(case, fault)).err()
        })
    };
    catch_unwind(AssertUnwindSafe(drive)).unwrap_or_else(|_| Some("a panic".to_owned()))
}

async fn drive(case: &Case, fault: Option<Fault>) -> Result<(), String> {
    let store = MemoryStore::new();
    let model = ScriptedModel::new(case.script());
    let below = [(); 2].map(|()| persister(case, &store, &model, fault));
    let own = Arc::new(OwnLoop { case: case.clone(), list: Mutex::default(), below });
    for (number, turn) in case.turns.iter().enumerate() {
        let mut request = ChatRequest::user(format!("say {}", turn.text));
        if case.streamed {
            request = request.streamed();
        }
        let answer = match case.above {
            None => own.turn(number, &request).await,
            Some(mode) => {
                let own = own.clone();
                let client = service_fn(move |request: ChatRequest| {
                    let own = own.clone();
                    async move {
                        Ok::<_, BoxError>(ChatResponse::from(own.turn(number, &request).await?))
                    }
                });
                let builder = ChatPipeline::builder(client).use_client_as_is(true);
                let agent = builder.history(store.clone()).persistence(mode).build();
                let agent = agent.map_err(|error| error.to_string())?;
                let answer =
                    async { agent.oneshot(request.in_conversation(key())).await?.collect().await };
                answer.await
            }
        };
        let answer = answer.map_err(|error| format!("turn {number} fails: {error}"))?;
        same("the answer", &[answer.text()], &[format!("ok {}", turn.text)])?;
    }
    let (spoken, calls) = case.expected();
    let system = |is_there: bool| is_there.then(|| "system be brief".to_owned());
    let stored = store.load(&key()).await.map_err(|error| error.to_string())?;
    let found: Vec<String> = stored.messages.iter().flat_map(|message| words(message)).collect();
    // The loop adds its own system message if no layer above it has begun the conversation.
    let first = system(case.has_system && case.above.is_none());
    same("the store", &found, &first.into_iter().chain(spoken.clone()).collect::<Vec<_>>())?;
    for (call, (request, seen)) in model.requests().iter().zip(&calls).enumerate() {
        let shown: Vec<String> =
            request.messages.iter().flat_map(|message| words(message)).collect();
        let first = system(case.has_system);
        let expected: Vec<String> =
            first.into_iter().chain(spoken.iter().take(*seen).cloned()).collect();
        same(&format!("service call {call}"), &shown, &expected)?;
    }
    same("service calls", &[model.requests().len().to_string()], &[calls.len().to_string()])
}

fn same(what: &str, found: &[String], expected: &[String]) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:#?}, not {expected:#?}")),
    }
}

const SEED: u64 = 20_261_126;
const CASES: u64 = 500;

#[test]
fn a_loop_of_other_types_stores_each_message_once() {
    let search = Search::new(SEED, CASES);
    let differs = |case| difference(&Case::random(search.seed, case), None).is_some();
    let (failed, begun) = search.first(differs);
    if let Some(number) = failed {
        let differs = |case: &Case| difference(case, None).is_some();
        let case = shrunk(Case::random(search.seed, number), Case::simpler, differs);
        let difference = difference(&case, None).unwrap_or_default();
        let command = Search::command(search.seed, number, "contract_model::own_loop");
        panic!("{command}\n{case}\n{difference}");
    }
    println!("{begun} cases");
}

#[test]
fn planted_faults_below_such_a_loop_are_found() {
    for fault in [Fault::NothingRecognised, Fault::LastLost] {
        let shows = |case: &Case| difference(case, Some(fault)).is_some();
        let found = (0..200).map(|case| Case::random(SEED, case)).find(shows);
        let found = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
        assert_eq!(difference(&found, None), None, "{fault:?}");
    }
}
