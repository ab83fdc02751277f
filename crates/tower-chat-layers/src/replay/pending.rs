//! Calls that wait for approval, as a replay finds them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tower_chat_core::{ApprovalRequest, CallPosition, MessageId};

use super::{Replay, round::Unanswered};

/// A call that waits for approval.
#[derive(Debug, Clone)]
pub(crate) struct PendingApproval {
    /// The message that holds the call, if it has an id, and the call's place in it.
    pub(crate) call_position: Option<(MessageId, usize)>,
    pub(crate) request: ApprovalRequest,
    /// The id by which its result names it.
    pub(crate) call_id: String,
}

/// The calls of one answer of which some wait for approval.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingBatch {
    pub(crate) waiting: Vec<PendingApproval>,
    /// The tools and ids of those that need no approval and have no result.
    pub(crate) returned: Vec<(String, String)>,
    /// The caller executes a part of it, answered or not.
    pub(crate) has_returned: bool,
}

impl Replay {
    /// The approval requests that nobody has answered yet, oldest first; those of one answer are
    /// one batch.
    pub fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let batches = self.approvals_in_order().into_iter();
        batches.map(|batch| batch.into_iter().map(|call| call.request).collect()).collect()
    }

    /// The same with the positions of the calls, where their messages have ids.
    pub(crate) fn approvals_in_order(&self) -> Vec<Vec<PendingApproval>> {
        self.pending_batches().into_iter().map(|batch| batch.waiting).collect()
    }

    /// The batches of calls of which some wait for approval, oldest first, with those of their
    /// calls that the caller executes.
    pub(crate) fn pending_batches(&self) -> Vec<PendingBatch> {
        // The open round may hold results that answer calls before it.
        let mut ended = self.clone();
        ended.close_round();
        let mut calls: Vec<Arc<Unanswered>> = ended.left_out.iter().cloned().collect();
        // Dangling calls of the open round are left out, or shown, by policy.
        let left_out: HashSet<CallPosition> = calls.iter().map(|call| call.named_by).collect();
        let open = self.unanswered_of_open().into_iter();
        calls.extend(open.filter(|call| !left_out.contains(&call.named_by)));
        let mut batches: Vec<PendingBatch> = Vec::new();
        let mut positions: HashMap<usize, usize> = HashMap::new();
        for call in calls {
            let batch = *positions.entry(call.position).or_insert_with(|| {
                batches.push(PendingBatch::default());
                batches.len() - 1
            });
            let Some(batch) = batches.get_mut(batch) else { continue };
            batch.has_returned |= call.is_beside_calls;
            let call_id = call.id().to_owned();
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
