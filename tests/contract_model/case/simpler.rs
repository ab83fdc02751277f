//! Simplifies a case that fails.

use super::{Case, Ids, Input, ResultInput, Step};
use crate::contract_model::{
    branches::BranchPlan,
    compaction::{ItemPlan, Service},
    tools::{Tool, ToolMask},
};

impl Case {
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

impl Step {
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
        if let Some(branch) = self.branch {
            with(&|step| step.branch = None);
            if branch.continues {
                with(&|step| step.branch = Some(BranchPlan { continues: false, ..branch }));
            }
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
            if let Some(item) = self.answers[at].compaction.filter(|item| item.pauses) {
                let item = ItemPlan { pauses: false, ..item };
                with(&|step| step.answers[at].compaction = Some(item));
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
