//! A round whose results come next.

use tower_chat_core::{ToolResult, store::SequencePosition};

use super::Seen;
use crate::replay::{
    call_ids::AnswerIds,
    pairing::{Answers, Asked, RoundPairing},
};

/// The round whose results come next.
#[derive(Debug, Clone)]
pub(super) struct OpenRound {
    /// Where its calls begin among all.
    pub(super) first: usize,
    /// Where those of the last message of the answer begin.
    pub(super) last: usize,
    pub(super) ids: AnswerIds,
    pub(super) round_index: u32,
    /// Its results so far.
    pub(super) results: Vec<(SequencePosition, ToolResult)>,
    /// Which calls they answer; `None` before the first, when more calls may come.
    pub(super) pairing: Option<RoundPairing<String>>,
    /// No more messages belong to the answer.
    pub(super) is_answered: bool,
}

impl OpenRound {
    pub(super) fn at(first: usize, round_index: u32) -> Self {
        Self {
            first,
            last: first,
            round_index,
            ids: AnswerIds::default(),
            results: Vec::new(),
            pairing: None,
            is_answered: false,
        }
    }

    /// No more calls belong to the round, which has these.
    pub(super) fn pair(&mut self, calls: &[Seen]) {
        if self.pairing.is_none() {
            self.pairing = Some(RoundPairing::of(owned(calls), self.last - self.first, &[]).0);
        }
    }

    /// What the results from a position on are to the calls; `None` if with them others are the
    /// answers of other calls.
    pub(super) fn paired(&mut self, from: usize) -> Option<Vec<Answers>> {
        let new = self.results.get(from..).unwrap_or_default();
        let pairing = self.pairing.as_mut()?;
        new.iter().map(|(_, result)| pairing.push(result)).collect()
    }

    /// What all results are to the calls.
    pub(super) fn pair_anew(&mut self, calls: &[Seen]) -> Vec<Answers> {
        let results: Vec<_> = self.results.iter().map(|(_, result)| result).collect();
        let (pairing, found) = RoundPairing::of(owned(calls), self.last - self.first, &results);
        self.pairing = Some(pairing);
        found
    }
}

fn owned(calls: &[Seen]) -> Vec<Asked<String>> {
    calls.iter().map(|seen| seen.asked(false).into_owned()).collect()
}
