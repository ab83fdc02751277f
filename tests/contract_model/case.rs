//! A test case: a conversation as a list of steps. Each step is a run.
//!
//! An attempt sends the request of a run once. A batch is the calls of one answer. It is pending
//! while one of its calls waits for approval.

use std::fmt;

use tower_chat::PersistenceMode;

use tower_chat_testkit::Rng;

use crate::contract_model::{
    approvals::ApprovalInput,
    compaction::{ItemPlan, Service},
    features::Features,
    media::{Kind, MediaLimit},
    tools::{Tool, ToolMask},
};

/// A number that is combined with the seed for the generator of the arguments of approvals.
const OTHER_ARGUMENTS: u64 = 1;
/// A number that is combined with the seed for the generator of media.
const MEDIA: u64 = 2;
/// A number that is combined with the seed for the generator of summaries by services.
const COMPACTION: u64 = 3;

/// A conversation: the layers of its stack, and its steps.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Whether the stack has `PerRunPersistence` above `PerServiceCallPersistence`.
    pub(crate) has_run_layer: bool,
    /// Whether the calls of one round run at the same time.
    pub(crate) concurrent: bool,
    pub(crate) max_rounds: Option<usize>,
    /// Whether a request is sent again after its run has ended.
    pub(crate) repeats: bool,
    /// The limit above which runs make summaries, if they make any.
    pub(crate) summarize: Option<Limit>,
    /// A bit mask of the requests for summaries that fail: bit n is set if request n fails.
    pub(crate) failing_summaries: u64,
    /// Whether runs load only the messages after the last summary.
    pub(crate) loads_ranges: bool,
    /// The media that are sent again. `None` if all media are sent again.
    pub(crate) old_media: Option<MediaLimit>,
    /// A bit mask that selects the results with a medium.
    pub(crate) media_in_results: u64,
    pub(crate) steps: Vec<Step>,
}

/// The limit above which a summary is made: the size of the conversation, in texts, media and
/// results. No summary covers the newest `turns` turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) size: usize,
    pub(crate) turns: usize,
}

/// A change of the summaries of the conversation between two attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SummaryChange {
    /// The application makes summaries with `Summarize::now`.
    Make(Limit),
    /// The application adds a summary to the store. The summary ends with one of the turns.
    Add { end: usize },
    /// The application removes the summary in force.
    Undo,
}

/// A run: its input, the answers of the model, and the attempts at its request.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) input: Input,
    /// The media in the message of the user, if the input has a text.
    pub(crate) media: Vec<Kind>,
    /// The tools that are registered when the run begins.
    pub(crate) tools: ToolMask,
    /// The answers of the model, in order. After the last one, the model answers with a text.
    pub(crate) answers: Vec<AnswerPlan>,
    /// The attempts at the request of the run.
    pub(crate) attempts: Vec<Attempt>,
    /// Whether the run id is used again with another input after each attempt.
    pub(crate) reuses_id: bool,
    /// Whether the conversation is copied after the last attempt, and the pending calls are
    /// approved in the copy.
    pub(crate) forks: bool,
}

/// The input of a run. If no pending call can be answered in this way, the caller sends a text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Text,
    /// Approvals and rejections of calls in pending batches.
    Approvals(ApprovalInput),
    /// Results of calls that were returned to the caller.
    Results(ResultInput),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResultInput {
    pub(crate) calls: usize,
    pub(crate) skipped: usize,
    pub(crate) has_text: bool,
    pub(crate) from_record: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct AnswerPlan {
    pub(crate) messages: Vec<MessagePlan>,
    pub(crate) ids: Ids,
    /// The change of the registered tools, if any.
    pub(crate) tools_then: Option<ToolChange>,
    /// The summary of the earlier messages in the answer, if any.
    pub(crate) compaction: Option<ItemPlan>,
}

#[derive(Debug, Clone)]
pub(crate) struct MessagePlan {
    pub(crate) has_text: bool,
    pub(crate) calls: Vec<Tool>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ToolChange {
    pub(crate) tools: ToolMask,
    /// Whether the tools change while the first tool of the answer runs, and not while the model
    /// answers.
    pub(crate) while_tool_runs: bool,
}

/// The ids of the calls of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ids {
    /// Each call of the conversation has a different id.
    Distinct,
    Missing,
    Empty,
    /// All calls of all answers have the same id.
    Equal,
    /// The calls of each answer are numbered from 0.
    Counted,
    /// Each call has an id of one of the other kinds.
    Mixed,
}

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) mode: PersistenceMode,
    pub(crate) streamed: bool,
    pub(crate) cut: Option<Cut>,
    /// Whether another process makes this attempt.
    pub(crate) restarts: bool,
    /// A change of the summaries after the attempt.
    pub(crate) summary: Option<SummaryChange>,
    pub(crate) service: Service,
}

/// The service call at which an attempt is cut off, if the attempt reaches it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    /// The index of the service call in the attempt.
    pub(crate) at_call: usize,
    pub(crate) how: How,
}

/// How a service call is cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// The service fails.
    Fails,
    /// The service fails after this number of updates.
    FailsAfter(usize),
    /// The service hangs, and the caller drops the response.
    Hangs,
    /// The service hangs after this number of updates, and the caller drops the response.
    HangsAfter(usize),
}

impl Case {
    /// Creates the case with this number, which depends only on the seed and the number.
    pub(crate) fn random(seed: u64, number: u64, features: &Features) -> Self {
        let mut rng = Rng::of(seed, number);
        let has_run_layer = !features.persister_alone || !rng.one_in(6);
        let without_approvals = features.without_approvals();
        let features = if has_run_layer { features } else { &without_approvals };
        let count = 2 + rng.below(4);
        let mut steps: Vec<Step> =
            (0..count).map(|_| Step::random(&mut rng, features, has_run_layer)).collect();
        // The final run checks the replay of the complete history.
        steps.push(Step::probe(has_run_layer));
        let case = Self {
            has_run_layer,
            concurrent: rng.one_in(2),
            repeats: features.repeats,
            max_rounds: (features.round_limit && rng.one_in(6)).then(|| 1 + rng.below(2)),
            summarize: None,
            failing_summaries: 0,
            loads_ranges: false,
            old_media: None,
            media_in_results: 0,
            steps,
        };
        let mut case = if features.summaries { case.with_summaries(&mut rng) } else { case };
        // The other features have their own generators, which do not change the values above.
        if features.other_arguments {
            case.add_other_arguments(&mut Rng::of(seed ^ OTHER_ARGUMENTS, number));
        }
        if features.media {
            case.add_media(&mut Rng::of(seed ^ MEDIA, number));
        }
        if features.compaction {
            case.add_compaction(&mut Rng::of(seed ^ COMPACTION, number));
        }
        case
    }

    /// Adds summaries by services to answers of a third of the cases. In half of these cases, the
    /// service changes.
    fn add_compaction(&mut self, rng: &mut Rng) {
        if !rng.one_in(3) {
            return;
        }
        let changes = rng.one_in(2);
        for step in &mut self.steps {
            for answer in &mut step.answers {
                answer.compaction = rng.one_in(3).then(|| ItemPlan::random(rng));
            }
            for attempt in &mut step.attempts {
                if changes && rng.one_in(3) {
                    attempt.service = Service::Second;
                }
            }
        }
    }

    /// Adds media to messages and results of half of the cases. Three quarters of these cases have
    /// a policy for old media.
    fn add_media(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            return;
        }
        self.old_media = (!rng.one_in(4)).then(|| MediaLimit::random(rng));
        self.media_in_results = if rng.one_in(3) { 0 } else { rng.next() & rng.next() };
        for step in &mut self.steps {
            let count = [0, 0, 1, 2][rng.below(4)];
            step.media = (0..count).map(|_| Kind::random(rng)).collect();
        }
    }

    /// Adds other arguments to the approvals of half of the runs with approvals.
    fn add_other_arguments(&mut self, rng: &mut Rng) {
        for step in &mut self.steps {
            let with_arguments = if rng.one_in(2) { 0 } else { rng.next() };
            if let Input::Approvals(input) = &mut step.input {
                input.with_arguments = with_arguments;
            }
        }
    }

    /// Adds changes of summaries to two thirds of the cases.
    fn with_summaries(mut self, rng: &mut Rng) -> Self {
        if rng.one_in(3) {
            return self;
        }
        self.summarize = rng.one_in(2).then(|| Limit::random(rng));
        self.failing_summaries = if rng.one_in(3) { rng.next() & rng.next() } else { 0 };
        self.loads_ranges = rng.one_in(2);
        for attempt in self.steps.iter_mut().flat_map(|step| &mut step.attempts) {
            attempt.summary = rng.one_in(3).then(|| SummaryChange::random(rng));
        }
        self
    }

    /// Returns simpler variants of the case.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            simpler.push(case);
        };
        for at in 0..self.steps.len().saturating_sub(1) {
            with(&|case| drop(case.steps.remove(at)));
        }
        for (at, step) in self.steps.iter().enumerate() {
            for fewer in step.simpler() {
                with(&|case| case.steps[at] = fewer.clone());
            }
        }
        if self.concurrent {
            with(&|case| case.concurrent = false);
        }
        if self.max_rounds.is_some() {
            with(&|case| case.max_rounds = None);
        }
        if self.summarize.is_some() {
            with(&|case| case.summarize = None);
        }
        if self.failing_summaries != 0 {
            with(&|case| case.failing_summaries = 0);
        }
        if self.loads_ranges {
            with(&|case| case.loads_ranges = false);
        }
        if self.old_media.is_some() {
            with(&|case| case.old_media = None);
        }
        if self.media_in_results != 0 {
            with(&|case| case.media_in_results = 0);
        }
        simpler
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { has_run_layer, concurrent, max_rounds, repeats: _, steps, .. } = self;
        let Self { summarize, failing_summaries, loads_ranges, .. } = self;
        let stack = if *has_run_layer { "" } else { ", PerServiceCallPersistence alone" };
        writeln!(f, "concurrent: {concurrent}, max_rounds: {max_rounds:?}{stack}")?;
        writeln!(
            f,
            "summarize: {summarize:?}, failing: {failing_summaries:b}, ranges: {loads_ranges}"
        )?;
        let Self { old_media, media_in_results, .. } = self;
        writeln!(f, "old media: {old_media:?}, in results: {media_in_results:b}")?;
        for (run, step) in steps.iter().enumerate() {
            let Step { input, media, tools, answers, attempts, reuses_id, forks } = step;
            writeln!(f, "run {run}: {input:?}, {media:?}, {tools:?}")?;
            if *reuses_id || *forks {
                writeln!(f, "    reuses its id: {reuses_id}, forks: {forks}")?;
            }
            answers.iter().try_for_each(|answer| writeln!(f, "    {answer:?}"))?;
            attempts.iter().try_for_each(|attempt| writeln!(f, "    {attempt:?}"))?;
        }
        Ok(())
    }
}

impl Step {
    fn random(rng: &mut Rng, features: &Features, has_run_layer: bool) -> Self {
        let tools = |rng: &mut Rng| {
            if features.changing_tools && rng.one_in(4) {
                ToolMask::random(rng)
            } else {
                ToolMask::ALL
            }
        };
        let input = match rng.below(10) {
            0..4 if features.approvals => Input::Approvals(ApprovalInput::random(rng, features)),
            4..7 if features.late_results => Input::Results(ResultInput {
                calls: 1 + rng.below(3),
                skipped: if rng.one_in(3) { 1 } else { 0 },
                has_text: rng.one_in(2),
                from_record: features.pending_results && rng.one_in(3),
            }),
            _ => Input::Text,
        };
        let begins_with = tools(rng);
        let answers = (0..rng.below(4)).map(|_| AnswerPlan::random(rng, features)).collect();
        let mut attempts: Vec<Attempt> = Vec::new();
        while attempts.len() < 4 {
            let mut attempt = Attempt::random(rng, features, has_run_layer);
            if let (Some(first), false) = (attempts.first(), features.mode_changes) {
                let Attempt { mode, .. } = first;
                attempt.mode = *mode;
            }
            let is_cut = attempt.cut.is_some();
            attempts.push(attempt);
            let is_repeated =
                if is_cut { !rng.one_in(3) } else { features.repeats && rng.one_in(6) };
            if !is_repeated {
                break;
            }
        }
        let reuses_id = features.reused_ids && rng.one_in(4);
        let forks = features.forks && has_run_layer && rng.one_in(4);
        Self { input, media: Vec::new(), tools: begins_with, answers, attempts, reuses_id, forks }
    }

    fn probe(has_run_layer: bool) -> Self {
        let mode =
            if has_run_layer { PersistenceMode::PerRun } else { PersistenceMode::PerServiceCall };
        let attempt = Attempt {
            mode,
            streamed: false,
            cut: None,
            restarts: true,
            summary: None,
            service: Service::First,
        };
        Self {
            input: Input::Text,
            media: Vec::new(),
            tools: ToolMask::ALL,
            answers: Vec::new(),
            attempts: vec![attempt],
            reuses_id: false,
            forks: false,
        }
    }

    fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut step = self.clone();
            change(&mut step);
            simpler.push(step);
        };
        if self.input != Input::Text {
            with(&|step| step.input = Input::Text);
        }
        match &self.input {
            Input::Approvals(input) => {
                for fewer in input.simpler() {
                    with(&|step| step.input = Input::Approvals(fewer.clone()));
                }
            }
            Input::Results(input) if input.has_text => {
                with(&|step| {
                    step.input = Input::Results(ResultInput { has_text: false, ..input.clone() });
                });
            }
            Input::Results(_) | Input::Text => {}
        }
        for at in 0..self.media.len() {
            with(&|step| _ = step.media.remove(at));
        }
        if self.reuses_id {
            with(&|step| step.reuses_id = false);
        }
        if self.forks {
            with(&|step| step.forks = false);
        }
        if self.tools != ToolMask::ALL {
            with(&|step| step.tools = ToolMask::ALL);
        }
        for at in 0..self.attempts.len() {
            if self.attempts.len() > 1 {
                with(&|step| _ = step.attempts.remove(at));
            }
            if self.attempts[at].cut.is_some() {
                with(&|step| step.attempts[at].cut = None);
            }
            if self.attempts[at].streamed {
                with(&|step| step.attempts[at].streamed = false);
            }
            if self.attempts[at].restarts {
                with(&|step| step.attempts[at].restarts = false);
            }
            if self.attempts[at].service != Service::First {
                with(&|step| step.attempts[at].service = Service::First);
            }
            if self.attempts[at].summary.is_some() {
                with(&|step| step.attempts[at].summary = None);
            }
        }
        for at in 0..self.answers.len() {
            with(&|step| drop(step.answers.remove(at)));
            if self.answers[at].tools_then.is_some() {
                with(&|step| step.answers[at].tools_then = None);
            }
            if self.answers[at].compaction.is_some() {
                with(&|step| step.answers[at].compaction = None);
            }
            if self.answers[at].ids != Ids::Distinct {
                with(&|step| step.answers[at].ids = Ids::Distinct);
            }
            for (of, message) in self.answers[at].messages.iter().enumerate() {
                if self.answers[at].messages.len() > 1 {
                    with(&|step| drop(step.answers[at].messages.remove(of)));
                }
                if message.has_text && !message.calls.is_empty() {
                    with(&|step| step.answers[at].messages[of].has_text = false);
                }
                for call in 0..message.calls.len() {
                    if message.calls.len() > 1 {
                        with(&|step| _ = step.answers[at].messages[of].calls.remove(call));
                    }
                    if message.calls[call] != Tool::Look {
                        with(&|step| step.answers[at].messages[of].calls[call] = Tool::Look);
                    }
                }
            }
        }
        simpler
    }
}

impl AnswerPlan {
    fn random(rng: &mut Rng, features: &Features) -> Self {
        let count = if features.several_messages && rng.one_in(4) { 2 } else { 1 };
        let mut messages: Vec<MessagePlan> =
            (0..count).map(|_| MessagePlan::random(rng, features)).collect();
        let mut calls = messages.iter().flat_map(|message| &message.calls);
        if calls.any(|tool| tool.needs_approval()) {
            let is_left_out = |tool: &Tool| {
                !(features.hooked_approvals || tool.hook().keeps_call())
                    || (!features.mixed_batches && *tool == Tool::Ask)
            };
            let calls = messages.iter_mut().flat_map(|message| &mut message.calls);
            calls.filter(|tool| is_left_out(tool)).for_each(|tool| *tool = Tool::Look);
        }
        let ids = match rng.below(8) {
            0 => Ids::Missing,
            1 => Ids::Empty,
            2 => Ids::Equal,
            3 => Ids::Counted,
            4 => Ids::Mixed,
            _ => Ids::Distinct,
        };
        let changes = features.changing_tools && rng.one_in(6);
        let tools_then = changes.then(|| ToolChange {
            tools: if rng.one_in(3) { ToolMask::ALL } else { ToolMask::random(rng) },
            while_tool_runs: rng.one_in(2),
        });
        let ids = if features.any_ids { ids } else { Ids::Distinct };
        Self { messages, ids, tools_then, compaction: None }
    }
}

impl MessagePlan {
    fn random(rng: &mut Rng, features: &Features) -> Self {
        let kinds = features.tools();
        let count = [0, 1, 1, 1, 2, 2, 3][rng.below(7)];
        // Half of the calls in a batch are of the same kind. Otherwise, most batches would mix
        // approvals and returned calls.
        let favourite = kinds[rng.below(kinds.len())];
        let calls: Vec<Tool> = (0..count)
            .map(|_| if rng.one_in(2) { favourite } else { kinds[rng.below(kinds.len())] })
            .collect();
        Self { has_text: calls.is_empty() || rng.one_in(3), calls }
    }
}

impl Attempt {
    fn random(rng: &mut Rng, features: &Features, has_run_layer: bool) -> Self {
        let mode = match rng.below(3) {
            _ if !has_run_layer => PersistenceMode::PerServiceCall,
            0 => PersistenceMode::PerRun,
            1 => PersistenceMode::PerServiceCall,
            _ => PersistenceMode::Journaled,
        };
        let is_cut = features.failures && rng.one_in(4);
        let cut = is_cut.then(|| Cut { at_call: rng.below(3), how: How::random(rng, features) });
        let (streamed, restarts) = (rng.one_in(2), rng.one_in(4));
        Self { mode, streamed, cut, restarts, summary: None, service: Service::First }
    }
}

impl Limit {
    fn random(rng: &mut Rng) -> Self {
        Self { size: 1 + rng.below(10), turns: rng.below(4) }
    }
}

impl SummaryChange {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Self::Undo,
            1 => Self::Add { end: rng.below(12) },
            _ => Self::Make(Limit::random(rng)),
        }
    }
}

impl How {
    fn random(rng: &mut Rng, features: &Features) -> Self {
        match rng.below(6) {
            0 => Self::FailsAfter(rng.below(3)),
            1 if features.drops => Self::HangsAfter(rng.below(3)),
            2 | 3 if features.drops => Self::Hangs,
            _ => Self::Fails,
        }
    }
}
