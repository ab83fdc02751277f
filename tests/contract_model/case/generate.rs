//! Generates random cases.

use tower_chat::PersistenceMode;
use tower_chat_testkit::Rng;

use super::{
    AnswerPlan, Attempt, Case, Cut, How, Ids, Input, Limit, MessagePlan, ResultInput, Step,
    SummaryChange, ToolChange,
};
use crate::contract_model::{
    approvals::ApprovalInput,
    branches::BranchPlan,
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
/// A number that is combined with the seed for the generator of branches.
const BRANCHES: u64 = 4;

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
        if features.branches {
            case.add_branches(&mut Rng::of(seed ^ BRANCHES, number));
        }
        case
    }

    /// Adds branches to half of the cases.
    fn add_branches(&mut self, rng: &mut Rng) {
        if rng.one_in(2) {
            return;
        }
        for step in &mut self.steps {
            step.branch = rng.one_in(3).then(|| BranchPlan::random(rng));
        }
    }

    /// Adds summaries by services to answers of a third of the cases, and paused answers with such
    /// a summary. In half of these cases, the service changes.
    fn add_compaction(&mut self, rng: &mut Rng) {
        if !rng.one_in(3) {
            return;
        }
        let changes = rng.one_in(2);
        for step in &mut self.steps {
            for answer in &mut step.answers {
                answer.compaction = rng.one_in(3).then(|| ItemPlan::random(rng));
            }
            if rng.one_in(4) {
                step.answers.insert(rng.below(step.answers.len() + 1), AnswerPlan::paused(rng));
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
        let (branch, media, tools) = (None, Vec::new(), begins_with);
        Self { input, branch, media, tools, answers, attempts, reuses_id, forks }
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
            branch: None,
            media: Vec::new(),
            tools: ToolMask::ALL,
            answers: Vec::new(),
            attempts: vec![attempt],
            reuses_id: false,
            forks: false,
        }
    }
}

impl AnswerPlan {
    /// Returns an answer without calls that the service pauses.
    fn paused(rng: &mut Rng) -> Self {
        let item = ItemPlan { message: 0, is_last: rng.one_in(3), pauses: true };
        Self {
            messages: vec![MessagePlan { has_text: true, calls: Vec::new() }],
            ids: Ids::Distinct,
            tools_then: None,
            compaction: Some(item),
        }
    }

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
