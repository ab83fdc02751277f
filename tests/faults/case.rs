//! A test case: a conversation, the faults in one of its runs, and the steps after that run. The
//! run may have several attempts, because its request is sent again.

use tower_chat::PersistenceMode;

use tower_chat_testkit::Rng;

use crate::faults::{
    branches::Branching,
    pictures::Pictures,
    script::{Input, RunScript},
    world::FaultPlan,
};

#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// The seed of the run ids.
    pub(crate) seed: u64,
    pub(crate) mode: PersistenceMode,
    pub(crate) streamed: bool,
    pub(crate) concurrent: bool,
    pub(crate) on_disk: bool,
    /// Whether a failed write fails the call, in the modes that have this option.
    pub(crate) fail_call: bool,
    /// Whether a resumed run repeats the execution of a call whose tool may already have run.
    pub(crate) run_again: bool,
    /// Whether runs make summaries of earlier runs.
    pub(crate) summarizes: bool,
    /// Whether a part of the approvals contains other arguments than those of the model.
    pub(crate) changes_arguments: bool,
    /// Whether a part of the answers contains a summary by the service.
    pub(crate) compacts: bool,
    /// The pictures in the inputs of runs.
    pub(crate) pictures: Option<Pictures>,
    /// The branch that a caller creates during or after the first attempt at the run with faults.
    pub(crate) branching: Option<Branching>,
    pub(crate) runs: Vec<RunScript>,
    /// The index of the run with faults.
    pub(crate) faulty_run: usize,
    /// The first attempts of that run, each with its faults.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) then: Then,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Attempt {
    pub(crate) fault_plan: FaultPlan,
    pub(crate) caller: Caller,
    /// Whether another process makes the next attempt.
    pub(crate) restarts: bool,
}

/// How a caller waits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Caller {
    /// Waits for the answer until a timeout that is longer than any operation that does not hang.
    #[default]
    Patient,
    /// Drops the future or the stream after this number of polls.
    Drops(u32),
    /// Is aborted after another task has yielded this number of times.
    Aborts(u32),
}

/// The step after the run with faults. An open run is a journaled run that was neither committed
/// nor discarded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Then {
    /// The caller sends the same request again.
    Retry,
    /// The caller sends the next message, under the default policy.
    Goes,
    /// An open run is committed. Then the caller sends the next message.
    GoesAfterCommit,
    /// An open run is discarded. Then the caller sends the next message.
    GoesAfterDiscard,
    Commit,
    Discard,
}

impl Case {
    /// Creates a case without faults, summaries, other arguments, pictures and branches. Tools run
    /// concurrently if the answers are streamed, so that both values occur in few cases.
    pub(crate) fn plain(
        seed: u64,
        mode: PersistenceMode,
        streamed: bool,
        runs: Vec<RunScript>,
    ) -> Self {
        Self {
            seed,
            mode,
            streamed,
            concurrent: streamed,
            on_disk: false,
            fail_call: false,
            run_again: false,
            summarizes: false,
            changes_arguments: false,
            compacts: false,
            pictures: None,
            branching: None,
            runs,
            faulty_run: 0,
            attempts: Vec::new(),
            then: Then::Retry,
        }
    }

    pub(crate) fn random(seed: u64, number: u64) -> Self {
        let mut rng = Rng::of(seed, number);
        let mode = match rng.below(5) {
            0 => PersistenceMode::PerRun,
            1 | 2 => PersistenceMode::PerServiceCall,
            _ => PersistenceMode::Journaled,
        };
        let mut runs: Vec<_> = (0..1 + rng.below(3)).map(|_| RunScript::random(&mut rng)).collect();
        // Without this, few cases would have calls that need approval.
        if rng.one_in(4) && runs.len() > 1 {
            let asking = rng.below(runs.len() - 1);
            runs[asking].rounds = vec![vec![["pay", "look"][rng.below(2)], "pay"]];
            runs[asking + 1].input = Input::Approve;
        }
        let faulty_run = runs.len() - 1 - rng.below(runs.len().min(2));
        let attempts = (0..1 + rng.below(2)).map(|_| Attempt::random(&mut rng)).collect();
        let then = match (mode, rng.below(8)) {
            (_, 0..3) => Then::Retry,
            (_, 3 | 4) => Then::Goes,
            (PersistenceMode::Journaled, 5) => Then::GoesAfterCommit,
            (PersistenceMode::Journaled, 6) => Then::GoesAfterDiscard,
            (PersistenceMode::Journaled, _) => {
                if rng.one_in(2) {
                    Then::Commit
                } else {
                    Then::Discard
                }
            }
            _ => Then::Goes,
        };
        let mut pictures = Rng::of(seed ^ 0x50_4943, number);
        let mut branching = Rng::of(seed ^ 0x42_5241, number);
        Self {
            seed: rng.next(),
            mode,
            streamed: rng.one_in(2),
            concurrent: rng.one_in(2),
            on_disk: rng.one_in(8),
            fail_call: rng.one_in(4),
            run_again: rng.one_in(4),
            // Separate generators, so that the other parts of the case do not change.
            summarizes: Rng::of(!seed, number).one_in(3),
            changes_arguments: Rng::of(seed ^ 0x41_5247, number).one_in(2),
            compacts: Rng::of(seed ^ 0x43_4f4d, number).one_in(3),
            pictures: pictures.one_in(3).then(|| Pictures::random(&mut pictures)),
            branching: branching.one_in(4).then(|| Branching::random(&mut branching)),
            runs,
            faulty_run,
            attempts,
            then,
        }
    }

    pub(crate) fn simpler(&self) -> Vec<Self> {
        let mut simpler = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut case = self.clone();
            change(&mut case);
            simpler.push(case);
        };
        for at in 0..self.attempts.len() {
            if self.attempts.len() > 1 {
                with(&|case| drop(case.attempts.remove(at)));
            }
            for fault in 0..self.attempts[at].fault_plan.faults.len() {
                with(&|case| _ = case.attempts[at].fault_plan.faults.remove(fault));
            }
            if self.attempts[at].fault_plan.kill_at.is_some() {
                with(&|case| case.attempts[at].fault_plan.kill_at = None);
            }
            if self.attempts[at].fault_plan.delays != 0 {
                with(&|case| case.attempts[at].fault_plan.delays = 0);
            }
            if self.attempts[at].caller != Caller::Patient {
                with(&|case| case.attempts[at].caller = Caller::Patient);
            }
            if self.attempts[at].restarts {
                with(&|case| case.attempts[at].restarts = false);
            }
        }
        if self.summarizes {
            with(&|case| case.summarizes = false);
        }
        if self.changes_arguments {
            with(&|case| case.changes_arguments = false);
        }
        if self.compacts {
            with(&|case| case.compacts = false);
        }
        if let Some(pictures) = self.pictures {
            with(&|case| case.pictures = None);
            with(&|case| case.pictures = pictures.simpler());
        }
        if let Some(branching) = &self.branching {
            with(&|case| case.branching = None);
            for simpler in branching.simpler() {
                with(&|case| case.branching = Some(simpler.clone()));
            }
        }
        for at in 0..self.runs.len() {
            if self.runs.len() > 1 {
                with(&|case| {
                    case.runs.remove(at);
                    if at < case.faulty_run || case.faulty_run == case.runs.len() {
                        case.faulty_run -= 1;
                    }
                });
            }
            for fewer in self.runs[at].simpler() {
                with(&|case| case.runs[at] = fewer.clone());
            }
        }
        if self.on_disk {
            with(&|case| case.on_disk = false);
        }
        if self.streamed {
            with(&|case| case.streamed = false);
        }
        if self.concurrent {
            with(&|case| case.concurrent = false);
        }
        if self.fail_call {
            with(&|case| case.fail_call = false);
        }
        if self.run_again {
            with(&|case| case.run_again = false);
        }
        if self.then != Then::Retry {
            with(&|case| case.then = Then::Retry);
        }
        simpler
    }
}

impl Attempt {
    fn random(rng: &mut Rng) -> Self {
        let reach = 4 + rng.below(60);
        let step = |rng: &mut Rng| 1 + rng.below(reach) as u64;
        let polls = |rng: &mut Rng| u32::try_from(rng.below(reach)).expect("small");
        let mut attempt = Self::default();
        let kind = rng.below(10);
        if kind < 6 {
            let count = 1 + rng.below(2);
            attempt.fault_plan.faults = (0..count).map(|_| (step(rng), rng.next())).collect();
        }
        if kind == 5 || kind == 6 {
            attempt.fault_plan.kill_at = Some(step(rng));
        }
        if kind > 6 || rng.one_in(6) {
            let polls = polls(rng);
            let drops = rng.one_in(2);
            attempt.caller = if drops { Caller::Drops(polls) } else { Caller::Aborts(polls) };
        }
        if rng.one_in(2) {
            attempt.fault_plan.delays = rng.next();
        }
        attempt.restarts = rng.one_in(3);
        attempt
    }
}
