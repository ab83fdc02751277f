//! The decisions of callers about calls that wait for approval. A batch is the calls of one answer.

use tower_chat::{
    Message, Part,
    tool::{ApprovalRequest, ApprovalResponse},
};
use tower_chat_testkit::Rng;

use crate::contract_model::features::Features;

/// The decision about a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Approved,
    /// The call is approved with these arguments in place of those of the model.
    ApprovedWith(String),
    Rejected,
}

impl Decision {
    pub(crate) fn is_approved(&self) -> bool {
        *self != Self::Rejected
    }

    /// Returns the other arguments, if the decision has any.
    pub(crate) fn arguments(&self) -> Option<&str> {
        match self {
            Self::ApprovedWith(arguments) => Some(arguments),
            Self::Approved | Self::Rejected => None,
        }
    }

    /// Returns the response to the approval request of the call with this token.
    pub(crate) fn response(&self, request: &ApprovalRequest, token: &str) -> ApprovalResponse {
        match self {
            Self::Approved => request.approve(),
            Self::ApprovedWith(arguments) => request.approve_with(arguments),
            Self::Rejected => request.reject(format!("no {token}")),
        }
    }

    /// Formats the decision, in the notation of the model.
    pub(crate) fn text(token: &str, is_approved: bool, arguments: Option<&str>) -> String {
        let arguments = arguments.map(|arguments| format!(" with {arguments}"));
        format!("approval {token} {is_approved}{}", arguments.unwrap_or_default())
    }
}

/// Returns the sentence that reports to the model that a call was executed with other arguments.
pub(crate) fn report(arguments: &str) -> String {
    format!("[The call was approved with other arguments. The tool was called with {arguments}]")
}

/// Returns the messages with other arguments in each decision with arguments, if there are any.
pub(crate) fn with_changed_arguments(messages: &[Message]) -> Option<Vec<Message>> {
    let mut changed = messages.to_vec();
    let parts = changed.iter_mut().flat_map(|message| &mut message.parts);
    let arguments = parts.filter_map(|part| match part {
        Part::ApprovalResponse(decision) => decision.arguments.as_mut(),
        _ => None,
    });
    let count = arguments.map(|arguments| arguments.push(' ')).count();
    (count > 0).then_some(changed)
}

/// The approvals and rejections in the input of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApprovalInput {
    /// The number of pending batches to answer, oldest first.
    pub(crate) batches: usize,
    /// The number of older pending batches to skip.
    pub(crate) skipped: usize,
    /// Whether the answers are in reverse order.
    pub(crate) reversed: bool,
    /// A bit mask of the rejected requests: bit n is set if request n is rejected.
    pub(crate) rejected: u64,
    /// A bit mask of the calls that are approved with other arguments: bit n is set for request n.
    pub(crate) with_arguments: u64,
    /// Whether the message also has a text.
    pub(crate) has_text: bool,
    pub(crate) extent: Extent,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Extent {
    Whole,
    /// All requests of the selected batches except the last one.
    Partial,
    /// Requests that an earlier run has already approved or rejected.
    Again,
}

impl ApprovalInput {
    pub(crate) fn random(rng: &mut Rng, features: &Features) -> Self {
        let extent = match rng.below(8) {
            0 if features.partial_approvals => Extent::Partial,
            1 if features.approved_twice => Extent::Again,
            _ => Extent::Whole,
        };
        Self {
            batches: 1 + rng.below(2),
            skipped: if rng.one_in(3) { 1 } else { 0 },
            reversed: rng.one_in(3),
            rejected: if rng.one_in(2) { 0 } else { rng.next() },
            with_arguments: 0,
            has_text: rng.one_in(3),
            extent,
        }
    }

    pub(crate) fn simpler(&self) -> Vec<Self> {
        let whole = Self { extent: Extent::Whole, ..self.clone() };
        let plain = Self { has_text: false, ..self.clone() };
        let approving = Self { rejected: 0, ..self.clone() };
        let unchanged = Self { with_arguments: 0, ..self.clone() };
        let in_order = Self { reversed: false, ..self.clone() };
        let one = Self { batches: 1, skipped: 0, ..self.clone() };
        let mut simpler = vec![whole, plain, approving, unchanged, in_order, one];
        simpler.retain(|input| input != self);
        simpler
    }

    /// Returns the decision of a run about the call with this token, to which the request with this
    /// index belongs.
    pub(crate) fn decision(&self, run: usize, index: usize, token: &str) -> Decision {
        let is_set = |mask: u64| mask >> (index % 64) & 1 == 1;
        if is_set(self.rejected) {
            Decision::Rejected
        } else if is_set(self.with_arguments) {
            Decision::ApprovedWith(format!(r#"{{"decided in run {run}":"{token}"}}"#))
        } else {
            Decision::Approved
        }
    }
}
