//! Finds the calls in a replay that wait for approval. A batch is the calls of one answer. A round
//! is a batch with its results, and the open round is the last one, if results may still arrive for
//! it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{ApprovalRequest, CallPosition, MessageId};

use super::{Replay, round::RoundCall};

/// A call that waits for approval.
#[derive(Debug, Clone)]
pub(crate) struct PendingApproval {
    /// `None` if the message of the call has no id.
    pub(crate) call_position: Option<(MessageId, usize)>,
    pub(crate) request: ApprovalRequest,
    /// The id by which the result refers to the call.
    pub(crate) call_id: String,
}

/// The calls of one answer, some of which wait for approval.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingBatch {
    pub(crate) waiting: Vec<PendingApproval>,
    /// The tool and the id of each call without a result that the caller executes.
    pub(crate) returned: Vec<(String, String)>,
    /// Whether the answer also contains calls that need no approval, with or without a result.
    pub(crate) has_returned: bool,
}

impl Replay {
    /// Returns the approval requests without a response, from the oldest to the newest. Each inner
    /// list contains the requests of one answer of the model.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let batches = self.approvals_in_order().into_iter();
        batches.map(|batch| batch.into_iter().map(|call| call.request).collect()).collect()
    }

    pub(crate) fn approvals_in_order(&self) -> Vec<Vec<PendingApproval>> {
        self.pending_batches().into_iter().map(|batch| batch.waiting).collect()
    }

    /// Returns whether a result may still arrive: a round is open, or a call of an earlier round
    /// waits for approval or was returned to the caller.
    pub fn awaits_results(&self) -> bool {
        self.open.is_some() || self.omitted_calls.iter().any(|call| call.is_awaited)
    }

    /// Returns the batches with a call that waits for approval.
    pub(crate) fn pending_batches(&self) -> Vec<PendingBatch> {
        let ended = self.ended();
        let mut calls: Vec<Arc<RoundCall>> = ended.omitted_calls.iter().cloned().collect();
        // `close_round` has added the unanswered calls of the open round to `omitted_calls`, except
        // the dangling calls of a lenient replay.
        let omitted_calls: HashSet<CallPosition> = calls.iter().map(|call| call.named_by).collect();
        let open = self.unanswered_of_open_round().into_iter();
        calls.extend(open.filter(|call| !omitted_calls.contains(&call.named_by)));
        let mut batches: Vec<PendingBatch> = Vec::new();
        let mut positions: HashMap<usize, usize> = HashMap::new();
        for call in calls {
            let batch = *positions.entry(call.position).or_insert_with(|| {
                batches.push(PendingBatch::default());
                batches.len() - 1
            });
            let Some(batch) = batches.get_mut(batch) else { continue };
            batch.has_returned |= call.answer_has_calls_without_approval;
            let call_id = call.id.clone();
            match call.approval.clone() {
                Some(request) => {
                    batch.waiting.push(PendingApproval {
                        call_position: call.call_position,
                        request,
                        call_id,
                    });
                }
                None => batch.returned.push((call.call.name.clone(), call_id)),
            }
        }
        batches.retain(|batch| !batch.waiting.is_empty());
        batches
    }
}
