//! Checks and repairs the summaries of a conversation.
//!
//! The model receives the last summary, which is the summary *in force*, instead of the messages
//! that this summary covers. To *prune* a conversation is to delete its oldest runs.

use tower_chat_core::{
    ConversationKey, Messages,
    store::{
        ConversationRows, Head, HistoryStore, HistorySummary, StoreError, Summaries, SummaryInForce,
    },
};
use tower_chat_layers::replay::{DanglingCalls, Replay, Turns};

use crate::{
    Finding, RepairError, Target,
    error::chain,
    problems::{all_messages, last_visible},
    sealed::{is_damage, is_key_missing},
};

/// The advice for a problem that a repair does not solve.
const REMOVE: &str =
    "remove it with Summaries::remove_summary, so that the messages are sent again";

/// A problem of the summaries of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SummaryProblem {
    what: String,
    repair: SummaryRepair,
}

/// The repair of a [`SummaryProblem`].
#[derive(Debug, PartialEq, Eq)]
enum SummaryRepair {
    /// The summary in force, which has this id, is removed. All its messages are stored, except for
    /// pruned messages about which it contains no readable text.
    Remove { id: u64 },
    /// Nothing is changed. The text is the advice for the operator.
    None { advice: &'static str },
}

impl SummaryProblem {
    /// Returns the finding of a check, with the advice for the operator.
    pub(crate) fn finding(&self, key: &ConversationKey) -> Finding {
        let advice = match self.repair {
            SummaryRepair::Remove { .. } => {
                "repair removes it, so that the messages are sent again"
            }
            SummaryRepair::None { advice } => advice,
        };
        Finding::of_conversation(key, &*self.what).with_repair(advice)
    }

    /// Returns the id of the summary that a repair removes, and the finding of this repair. Returns
    /// `None` if the problem is not repaired.
    pub(crate) fn repair(&self, key: &ConversationKey) -> Option<(u64, Finding)> {
        let SummaryRepair::Remove { id } = self.repair else { return None };
        let done = "it is removed, so that the messages are sent again";
        Some((id, Finding::of_conversation(key, &*self.what).with_repair(done)))
    }
}

/// The summaries of a conversation, as a check reads them.
#[derive(Debug)]
pub(crate) struct ReadSummaries {
    /// The summary that the head of the conversation names.
    in_force: Option<SummaryInForce>,
    rows: Result<Vec<HistorySummary>, UnreadableRows>,
}

/// A row of a summary cannot be read. A store then returns none of the rows.
#[derive(Debug)]
struct UnreadableRows {
    reason: String,
    /// Whether the summary in force is readable. Then an earlier summary is unreadable.
    is_earlier: bool,
}

impl ReadSummaries {
    /// Reads the summaries of a conversation. Returns `None` if the conversation has none, if the
    /// store has no summaries, or if another process changed the conversation after `rows` were
    /// read.
    pub(crate) async fn of(
        target: &Target,
        key: &ConversationKey,
        rows: &ConversationRows,
    ) -> Result<Option<Self>, RepairError> {
        let store = target.history();
        if store.summaries().is_none() {
            return Ok(None);
        }
        // `rows` were read without an error, so a head that cannot be read has changed since.
        let Ok(head) = store.head(key).await else { return Ok(None) };
        let in_force = head.summary;
        let rows_of_summaries = match store.history_summaries(key).await {
            Ok(found) => Ok(found),
            Err(error) => {
                let reason = damage(key, error)?;
                let found = match in_force {
                    Some(summary) => store.history_summary(key, summary.id).await,
                    None => Ok(None),
                };
                let is_earlier = match found {
                    Ok(found) => found.is_some(),
                    Err(error) => damage(key, error).map(|_| false)?,
                };
                Err(UnreadableRows { reason, is_earlier })
            }
        };
        let is_same = |now: &Head| {
            (now.revision, now.rewrites) == (rows.head.revision, head.rewrites)
                && now.summary == in_force
        };
        if !store.head(key).await.is_ok_and(|now| is_same(&now)) {
            return Ok(None);
        }
        let is_empty = in_force.is_none() && rows_of_summaries.as_ref().is_ok_and(Vec::is_empty);
        Ok((!is_empty).then_some(Self { in_force, rows: rows_of_summaries }))
    }

    /// Returns the problems, in the order of the summaries. `rows` are the rows of the conversation.
    pub(crate) fn problems(&self, rows: &ConversationRows) -> Vec<SummaryProblem> {
        let messages = all_messages(rows);
        let summaries = match &self.rows {
            Ok(summaries) => summaries,
            Err(unreadable) => return vec![self.unreadable(unreadable, messages.is_some())],
        };
        let mut problems: Vec<SummaryProblem> = Vec::new();
        let mut before: Option<&HistorySummary> = None;
        for summary in summaries {
            let is_in_order = before.is_none_or(|it| it.covers_to < summary.covers_to);
            if !is_in_order {
                problems.push(SummaryProblem {
                    what: format!("{} is at the wrong position", named(summary.covers_to)),
                    repair: SummaryRepair::None { advice: "restore the store from a backup" },
                });
            }
            if let Some(what) = problem_of(summary, rows, messages.as_ref()) {
                let what = format!("{} {what}", named(summary.covers_to));
                problems.push(SummaryProblem { what, repair: self.repair_of(summary, rows) });
            }
            before = Some(summary);
        }
        problems.extend(self.problem_of_head(summaries));
        problems
    }

    /// Removes a summary from this value, as a repair removes the summary from the store.
    pub(crate) fn remove(&mut self, id: u64) {
        self.retain(|summary| summary.id != id);
    }

    /// Removes the summaries that cover the message `first` from this value, as a change of this
    /// message removes them from the store.
    pub(crate) fn remove_from(&mut self, first: u64) {
        if self.in_force.is_some_and(|summary| summary.covers_to >= first) {
            self.retain(|summary| summary.covers_to < first);
        }
    }

    /// If the rows are unreadable, removes all of them, because their order is unknown.
    fn retain(&mut self, is_retained: impl Fn(&HistorySummary) -> bool) {
        let mut rows = std::mem::replace(&mut self.rows, Ok(Vec::new())).unwrap_or_default();
        rows.retain(is_retained);
        self.in_force = rows.last().map(HistorySummary::in_force);
        self.rows = Ok(rows);
    }

    fn unreadable(&self, unreadable: &UnreadableRows, is_whole: bool) -> SummaryProblem {
        let UnreadableRows { reason, is_earlier } = unreadable;
        let repair = match self.in_force {
            Some(summary) if is_whole && !is_earlier => SummaryRepair::Remove { id: summary.id },
            _ => SummaryRepair::None { advice: "restore the store from a backup" },
        };
        SummaryProblem { what: format!("a summary cannot be read: {reason}"), repair }
    }

    fn repair_of(&self, summary: &HistorySummary, rows: &ConversationRows) -> SummaryRepair {
        if summary.covers_to > last_visible(rows) {
            // The last messages may be lost, and the summary may contain the only text about them.
            SummaryRepair::None { advice: "restore the store from a backup" }
        } else if self.in_force != Some(summary.in_force()) {
            let advice =
                "it is not in force; it becomes so only when the later summaries are removed";
            SummaryRepair::None { advice }
        } else if all_messages(rows).is_none() {
            SummaryRepair::None { advice: "restore the missing messages from a backup" }
        } else if rows.head.pruned > 0 {
            // Only this summary may contain anything about the pruned messages.
            SummaryRepair::None { advice: REMOVE }
        } else {
            SummaryRepair::Remove { id: summary.id }
        }
    }

    /// Returns the difference between the head and the rows.
    fn problem_of_head(&self, summaries: &[HistorySummary]) -> Option<SummaryProblem> {
        let last = summaries.last().map(HistorySummary::in_force);
        if last == self.in_force {
            return None;
        }
        let (what, repair) = match self.in_force {
            Some(named_by_head) if !summaries.iter().any(|it| it.id == named_by_head.id) => (
                format!("{} is in force, but is not stored", named(named_by_head.covers_to)),
                SummaryRepair::Remove { id: named_by_head.id },
            ),
            Some(named_by_head) => (
                format!(
                    "{} is in force, although it is not the last summary",
                    named(named_by_head.covers_to)
                ),
                SummaryRepair::None { advice: REMOVE },
            ),
            None => (
                "summaries are stored, but none is in force".to_owned(),
                SummaryRepair::None { advice: "the messages are sent; make a new summary" },
            ),
        };
        Some(SummaryProblem { what, repair })
    }
}

/// Returns the description of the damage that an error reports. A missing encryption key is not
/// damage.
fn damage(key: &ConversationKey, error: StoreError) -> Result<String, RepairError> {
    let key = key.clone();
    match error {
        source if is_key_missing(&source) => Err(RepairError::NoKey { key, source }),
        error if is_damage(&error) || error.is_damage() => Ok(chain(&error)),
        source => Err(RepairError::Conversation { key, source }),
    }
}

fn named(covers_to: u64) -> String {
    format!("the summary up to message {covers_to}")
}

/// Returns the problem of one summary. `messages` are the messages of the conversation if none of
/// them is missing or unreadable.
fn problem_of(
    summary: &HistorySummary,
    rows: &ConversationRows,
    messages: Option<&Messages>,
) -> Option<String> {
    let (covers_to, pruned, last) = (summary.covers_to, rows.head.pruned, last_visible(rows));
    if covers_to > last {
        return Some(format!("ends after the last message, which is message {last}"));
    }
    // The message at the end is pruned, and cannot be checked.
    if covers_to <= pruned {
        return None;
    }
    match rows.messages.iter().find(|(sequence, _)| *sequence == covers_to) {
        None => return Some("ends at a message that is missing".to_owned()),
        Some((_, Ok(message))) if message.id != Some(summary.last) => {
            return Some("was made for another message with this number".to_owned());
        }
        Some(_) => {}
    }
    let covered = usize::try_from(covers_to - pruned).ok()?;
    let mut turns = Turns::default();
    let mut replay = Replay::new(DanglingCalls::default());
    for (position, message) in messages?.iter().enumerate().take(covered.saturating_add(1)) {
        // The first message after the summary completes the last round of calls.
        replay.push(message);
        let begins_turn = turns.begins_with(message);
        if position == covered && !begins_turn {
            return Some("ends inside a turn".to_owned());
        }
    }
    replay
        .awaits_results()
        .then(|| "covers a call that waits for its result or for approval".to_owned())
}
