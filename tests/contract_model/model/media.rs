//! Computes which media a request contains. In place of each old medium, the model receives a
//! sentence.

use super::{Model, replay::SentItem};
use crate::contract_model::media::{MediaLimit, count, without_old};

impl Model<'_> {
    /// Replaces the old media in the messages of earlier runs by sentences. The entries of the run
    /// that sends the request begin at `begins`. Their media are always sent.
    pub(super) fn without_old_media(&self, shown: Vec<SentItem>, begins: usize) -> Vec<SentItem> {
        let Some(kept) = self.case.old_media else { return shown };
        let is_earlier = |shown: &SentItem| shown.result_index.is_none_or(|index| index < begins);
        let earlier: Vec<&SentItem> = shown.iter().filter(|shown| is_earlier(shown)).collect();
        let media = |shown: &[&SentItem]| shown.iter().map(|shown| count(&shown.text)).sum();
        let mut old = match kept {
            MediaLimit::Last(kept) => usize::saturating_sub(media(&earlier), kept),
            MediaLimit::Turns(kept) => {
                let turns = self.turns(&earlier);
                let first = turns.len().checked_sub(kept).map(|first| turns.get(first));
                let first = first.map_or(0, |first| *first.unwrap_or(&earlier.len()));
                media(&earlier[..first])
            }
        };
        let without_old = |shown: SentItem| match is_earlier(&shown) {
            true => SentItem { text: without_old(&shown.text, &mut old), ..shown },
            false => shown,
        };
        shown.into_iter().map(without_old).collect()
    }

    /// Returns the positions at which turns begin: at the first message, and at each message of the
    /// user that follows a final answer, or that is of another run than the first message of its
    /// turn.
    fn turns(&self, shown: &[&SentItem]) -> Vec<usize> {
        let (mut turns, mut run_of_turn) = (Vec::new(), None);
        let mut after_answer = false;
        for (at, shown) in shown.iter().enumerate() {
            let run = shown.index.map(|index| self.history[index].0);
            let is_input = shown.text.starts_with("user: ");
            let is_of_other_run = run_of_turn.is_some() && run.is_some() && run_of_turn != run;
            let begins = at == 0 || (is_input && (after_answer || is_of_other_run));
            if begins {
                turns.push(at);
            }
            if is_input && (begins || run_of_turn.is_none()) {
                run_of_turn = run;
            }
            let follows_calls = shown.compaction.as_ref().is_some_and(|it| it.follows_calls);
            after_answer = shown.text.starts_with("assistant: ") && !follows_calls;
        }
        turns
    }
}
