//! The tool loop of an application, its stack, and the comparison with the expected conversation. A
//! turn is one question of the user and everything up to its answer. The persister is
//! `PerServiceCallPersistence`.

use std::{
    cell::OnceCell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};
use tower_chat::{
    Answer, BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish,
    HistoryStore, MemoryStore, Message, Part, PersistenceError, Role,
    layer::PerServiceCallPersistence,
    run::{Conversation, Run, RunId},
    store::Maintenance,
};
use tower_chat_testkit::ScriptedModel;

use super::{
    case::{Case, IN_COPY, Sends},
    key,
    planted::Fault,
    words,
};
use crate::contract_model::planted::Process;

type Client = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

struct OwnLoop {
    case: Case,
    state: Mutex<State>,
    /// The persister of this process, and that of another process.
    below: [Client; 2],
}

#[derive(Default)]
struct State {
    list: Vec<Message>,
    turns: Vec<usize>,
}

impl OwnLoop {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics")
    }

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

    fn outgoing(&self, state: &State) -> Vec<Message> {
        let State { list, turns } = state;
        let turn = |back: usize| {
            turns.len().checked_sub(back).and_then(|turn| turns.get(turn)).copied().unwrap_or(0)
        };
        let from = match self.case.sends {
            Sends::All => 0,
            Sends::Run => turn(1),
            Sends::New => {
                let answer = list.iter().rposition(|it| it.role == Role::Assistant);
                answer.map_or(0, |answer| answer + 1)
            }
            Sends::TwoTurns => turn(2),
        };
        let system = self.case.has_system.then(|| Message::system("be brief"));
        system.into_iter().chain(list[from..].iter().cloned()).collect()
    }

    async fn send(
        &self,
        request: &ChatRequest,
        messages: Vec<Message>,
        conversation: Conversation,
        process: usize,
    ) -> Result<Answer, BoxError> {
        let mut next = request.clone();
        next.set_messages(messages, 0);
        if request.extensions.get::<Run>().is_none() {
            next = next.in_run(conversation);
        }
        self.below[process].clone().oneshot(next).await?.collect().await
    }

    /// Runs a turn, and returns its answer unless the turn is stopped.
    async fn turn(
        &self,
        number: usize,
        run: RunId,
        request: &ChatRequest,
    ) -> Result<Option<Answer>, BoxError> {
        let turn = &self.case.turns[number];
        let begin = self.state().list.len();
        self.state().turns.push(begin);
        self.push(request.messages().last().map(|message| self.kept(message)));
        for call in 0..turn.service_calls() {
            let messages = self.outgoing(&self.state());
            let process = usize::from(turn.restarts && call % 2 == 1);
            let send = || {
                let run = if self.case.keeps_run { run } else { RunId::new() };
                self.send(request, messages.clone(), Conversation { key: key(), run }, process)
            };
            let is_last = call == turn.rounds.len();
            let mut answer = send().await;
            if answer.as_ref().is_err_and(|error| error.to_string() == "overloaded") {
                answer = send().await;
            }
            if turn.loses_answer && is_last {
                answer?;
                answer = send().await;
            }
            let answer = answer?;
            self.push(answer.messages.iter().map(|message| self.kept(message)));
            if is_last {
                let spoken = Message::assistant(answer.text());
                return Ok(Some(Answer::new(vec![spoken.into()], Finish::stop())));
            }
            self.push(self.case.results(number, call));
        }
        Ok(None)
    }

    async fn continue_in(
        &self,
        copy: ConversationKey,
        request: &ChatRequest,
    ) -> Result<(), BoxError> {
        let messages = {
            let state = self.state();
            let mut state = State { list: state.list.clone(), turns: state.turns.clone() };
            state.turns.push(state.list.len());
            state.list.push(Message::user(IN_COPY));
            self.outgoing(&state)
        };
        let conversation = Conversation { key: copy, run: RunId::new() };
        self.send(request, messages, conversation, 0).await.map(drop)
    }

    fn push(&self, messages: impl IntoIterator<Item = Message>) {
        self.state().list.extend(messages);
    }
}

/// Creates the persister of one process over the model.
fn persister(case: &Case, store: &Process, model: &ScriptedModel, fault: Option<Fault>) -> Client {
    let (case, model) = (Arc::new(case.clone()), model.clone());
    let store = store.clone();
    BoxCloneSyncService::new(service_fn(move |mut request: ChatRequest| {
        let sent = request.messages().len();
        if let Some(fault) = fault {
            fault.change_sent(&case, &mut request);
        }
        let (case, model) = (case.clone(), model.clone());
        let shown = service_fn(move |mut request: ChatRequest| {
            if let Some(fault) = fault {
                fault.change_shown(&case, sent, &mut request);
            }
            model.clone().oneshot(request)
        });
        PerServiceCallPersistence::new(store.clone()).layer(shown).oneshot(request)
    }))
}

pub(super) fn difference(case: &Case, fault: Option<Fault>) -> Option<String> {
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
    let store = Process::new(MemoryStore::new(), fault.and_then(Fault::of_store));
    let model = ScriptedModel::new(case.script());
    let below = [(); 2].map(|()| persister(case, &store, &model, fault));
    let own = Arc::new(OwnLoop { case: case.clone(), state: Mutex::default(), below });
    for (number, turn) in case.turns.iter().enumerate() {
        let mut request = ChatRequest::user(format!("say {}", turn.text));
        if case.streamed {
            request = request.streamed();
        }
        let run = RunId::new();
        let answered = answer(&own, &store, number, run, &request).await;
        let answered = answered.map_err(|error| format!("turn {number} fails: {error}"))?;
        let expected = turn.stops.is_none().then(|| format!("ok {}", turn.text));
        let answered: Vec<_> = answered.map(|answer| answer.text()).into_iter().collect();
        same("the answer", &answered, &expected.into_iter().collect::<Vec<_>>())?;
        if turn.reuses_id {
            let other = with_text(&request, "say something else");
            let again = answer(&own, &store, number, run, &other).await;
            let error = again.err().ok_or("a run id that is used again is accepted")?;
            let is_reused =
                matches!(error.downcast_ref(), Some(PersistenceError::RunIdReused { .. }));
            same("a run id that is used again", &[is_reused.to_string()], &["true".to_owned()])?;
        }
        if turn.forks {
            let copy = ConversationKey::new("alice", format!("copy {number}"));
            store.fork_at(&key(), None, &copy).await.map_err(|error| error.to_string())?;
            let answer = own.continue_in(copy, &request).await;
            answer.map_err(|error| format!("the copy of turn {number}: {error}"))?;
        }
    }
    compare(case, &store, &model).await
}

fn with_text(request: &ChatRequest, text: &str) -> ChatRequest {
    let mut request = request.clone();
    request.set_new_messages(Message::user(text));
    request
}

/// Runs a turn, through the layer above the loop if there is one.
async fn answer(
    own: &Arc<OwnLoop>,
    store: &Process,
    number: usize,
    run: RunId,
    request: &ChatRequest,
) -> Result<Option<Answer>, BoxError> {
    let Some(mode) = own.case.above else {
        return own.turn(number, run, request).await;
    };
    let own = own.clone();
    let client = service_fn(move |request: ChatRequest| {
        let own = own.clone();
        async move {
            let answer = own.turn(number, run, &request).await?;
            Ok::<_, BoxError>(ChatResponse::from(answer.ok_or("a turn without an answer")?))
        }
    });
    let builder = ChatPipeline::builder(client).use_client_as_is(true);
    let agent = builder.history(store.clone()).persistence(mode).build()?;
    let request = request.clone().in_run(Conversation { key: key(), run });
    agent.oneshot(request).await?.collect().await.map(Some)
}

async fn compare(case: &Case, store: &Process, model: &ScriptedModel) -> Result<(), String> {
    let expected = case.expected();
    let system = |is_there: bool| is_there.then(|| "system be brief".to_owned());
    let stored = store.load(&key()).await.map_err(|error| error.to_string())?;
    let found: Vec<String> = stored.messages.iter().flat_map(|message| words(message)).collect();
    // Without a layer above the loop, the persister also stores the system message of the loop.
    let first = system(case.has_system && case.above.is_none());
    let spoken = expected.spoken.iter().filter(|spoken| spoken.is_stored);
    let spoken = spoken.map(|spoken| spoken.text.clone());
    same("the store", &found, &first.into_iter().chain(spoken).collect::<Vec<_>>())?;
    for (call, (request, texts)) in model.requests().iter().zip(&expected.calls).enumerate() {
        let shown: Vec<String> =
            request.messages().iter().flat_map(|message| words(message)).collect();
        let first = system(case.has_system).into_iter();
        let texts: Vec<String> = first.chain(texts.iter().cloned()).collect();
        same(&format!("service call {call}"), &shown, &texts)?;
    }
    let (found, expected) = (model.requests().len(), expected.calls.len());
    same("service calls", &[found.to_string()], &[expected.to_string()])
}

fn same(what: &str, found: &[String], expected: &[String]) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:#?}, not {expected:#?}")),
    }
}
