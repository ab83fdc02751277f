//! The state that the model client, the tools and the stores of a case share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tower_chat::{
    ChatRequest, Finish, Message, Part, ToolCall, Tools,
    message::Text,
    request::FinishReason,
    run::RunId,
    tool::{SharedTools, StoredCall},
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::contract_model::{
    case::{AnswerPlan, Case, Cut, How},
    compaction::Service,
    observe,
    planted::Fault,
    script::{self, Scripted},
    summaries::written,
    tools::{self, ToolMask},
};

#[derive(Clone)]
pub(crate) struct World(Arc<Shared>);

struct Shared {
    case: Case,
    fault: Option<Fault>,
    tools: SharedTools,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answered: BTreeMap<usize, usize>,
    /// The service call at which the current attempt to execute a request is cut off.
    cut: Option<Cut>,
    /// The service that answers the current attempt.
    service: Option<Service>,
    /// The set of tools that becomes registered while the next tool runs.
    tools_then: Option<ToolMask>,
    seen: Seen,
    /// The scripted model of the newest stack.
    model: Option<ScriptedModel>,
    /// The service that writes summaries.
    summarizer: Option<ScriptedModel>,
    /// The number of requests that this service has received.
    written: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The messages of each request to the service that writes summaries.
    pub(crate) summarized: Vec<Result<Vec<String>, String>>,
    /// The messages of each service call.
    pub(crate) shown: Vec<Result<Vec<String>, String>>,
    /// The calls whose tools ran.
    pub(crate) ran: Vec<String>,
}

impl World {
    pub(crate) fn new(case: &Case, fault: Option<Fault>) -> Self {
        Self(Arc::new(Shared {
            case: case.clone(),
            fault,
            tools: SharedTools::default(),
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nothing panics while it is locked")
    }

    pub(crate) fn case(&self) -> &Case {
        &self.0.case
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.0.fault
    }

    pub(crate) fn tools(&self) -> SharedTools {
        self.0.tools.clone()
    }

    pub(crate) fn register(&self, tools: ToolMask) {
        self.0.tools.set(tools::registered(tools, self));
    }

    pub(crate) fn begin(&self, cut: Option<Cut>) {
        let mut state = self.state();
        state.cut = cut;
        state.seen = Seen::default();
    }

    pub(crate) fn use_service(&self, service: Service) {
        self.state().service = Some(service);
    }

    pub(crate) fn take_seen(&self) -> Seen {
        std::mem::take(&mut self.state().seen)
    }

    pub(crate) fn tool_runs(&self, call: String) {
        let then = {
            let mut state = self.state();
            state.seen.ran.push(call);
            state.tools_then.take()
        };
        if let Some(tools) = then {
            self.register(tools);
        }
    }

    pub(crate) fn loses_hook(&self, call: &StoredCall<'_>) -> bool {
        self.0.fault == Some(Fault::LostHook) && call.result().is_some()
    }

    pub(crate) fn misses_stop(&self) -> bool {
        self.0.fault == Some(Fault::MissedStop)
    }

    pub(crate) fn model(&self) -> ScriptedModel {
        let model = ScriptedModel::new([]);
        self.state().model = Some(model.clone());
        self.expect_call();
        model
    }

    fn expect_call(&self) {
        let Some(model) = self.state().model.clone() else { return };
        let world = self.clone();
        model.push(Step::respond(move |request| {
            world.expect_call();
            world.respond(request)
        }));
    }

    /// Returns the service that writes summaries.
    pub(crate) fn summarizer(&self) -> ScriptedModel {
        let known = self.state().summarizer.clone();
        known.unwrap_or_else(|| {
            let service = ScriptedModel::new([]);
            self.state().summarizer = Some(service.clone());
            self.expect_summary();
            service
        })
    }

    fn expect_summary(&self) {
        let Some(service) = self.state().summarizer.clone() else { return };
        let world = self.clone();
        service.push(Step::respond(move |request| {
            world.expect_summary();
            let mut state = world.state();
            state.written += 1;
            state.seen.summarized.push(observe::shown(request.messages()));
            written(&world.0.case, state.written).into_step()
        }));
    }

    /// Drops the services and the tools. Because they refer to this world, the reference cycles
    /// would otherwise leak the memory of every case.
    pub(crate) fn end(&self) {
        self.state().model = None;
        self.state().summarizer = None;
        self.0.tools.set(Tools::new());
    }

    fn respond(&self, request: &ChatRequest) -> Step {
        let Some(run) = request.conversation().and_then(|conversation| run_of(conversation.run))
        else {
            return Step::error("the request names no run");
        };
        let mut state = self.state();
        let call = state.seen.shown.len();
        let service = state.service.unwrap_or(Service::First);
        state.seen.shown.push(observe::shown(&service.received(request)));
        let cut = state.cut.filter(|cut| cut.at_call == call).map(|cut| cut.how);
        let index = state.answered.get(&run).copied().unwrap_or_default();
        let answer = script::answer(&self.0.case, run, index, service);
        let plan = self.0.case.steps[run].answers.get(index);
        let finish = match plan.is_some_and(AnswerPlan::is_paused) {
            true => Finish::new(FinishReason::Other("compaction".to_owned())),
            false => Finish::stop(),
        };
        let step = Step::answer(answer.into_iter().map(message), finish);
        match cut {
            Some(How::Fails) => return Step::error("overloaded"),
            Some(How::Hangs) => return Step::hang(),
            Some(How::FailsAfter(updates)) => return step.fails_after(updates, "overloaded"),
            Some(How::HangsAfter(updates)) => return step.hangs_after(updates),
            None => {}
        }
        state.answered.insert(run, index + 1);
        state.tools_then = None;
        let change = self.0.case.steps[run].answers.get(index).and_then(|plan| plan.tools_then);
        let Some(change) = change else { return step };
        if change.while_tool_runs {
            state.tools_then = Some(change.tools);
        } else {
            drop(state);
            self.register(change.tools);
        }
        step
    }
}

fn message(answer: Scripted) -> Message {
    let mut parts: Vec<Part> = answer.text.into_iter().map(|text| Text::new(text).into()).collect();
    parts.extend(answer.calls.into_iter().map(|call| {
        let (name, arguments) = (call.tool.name(&call.token), tools::arguments(&call.token));
        let mut asked = ToolCall::without_id(name, arguments);
        asked.id = call.id;
        Part::ToolCall(asked)
    }));
    if let Some(item) = answer.compaction {
        let position = if item.is_last { parts.len() } else { 0 };
        parts.insert(position, item.part());
    }
    let mut message = Message::assistant("");
    message.parts = parts;
    message
}

pub(crate) fn run_id(run: usize) -> RunId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&0x0193_0000_0000_7000_u64.to_be_bytes());
    bytes[5] = u8::try_from(run).expect("few runs");
    bytes[8] = 0x80;
    bytes[15] = bytes[5];
    RunId::from_bytes(bytes)
}

fn run_of(id: RunId) -> Option<usize> {
    let run = usize::from(id.to_bytes()[5]);
    (run_id(run) == id).then_some(run)
}
