//! The messages that the model receives.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    compaction::Compaction,
    entry::{AnswerMessage, Entry, Outcome},
    summaries::InForce,
};
use crate::contract_model::{compaction, media::Medium, script::UserMessage, tools::Hook};

/// Returns the messages that the model receives: every text, and every call with a result.
///
/// - Each entry has its index in the conversation, the index of its run, and a flag: whether its
///   stored form is sent, and not its original form.
/// - A call whose result follows after other messages is moved to the position of the result.
/// - The calls in `interrupted` have no result at the end of their round, even if a later message
///   contains their result.
/// - `summary` is sent in place of the entries that it covers.
pub(super) fn replay<'e>(
    entries: impl Iterator<Item = (usize, usize, &'e Entry, bool)>,
    interrupted: &BTreeSet<&str>,
    summary: Option<&InForce>,
) -> Vec<SentItem> {
    let covered = summary.map_or(0, |summary| summary.covers);
    let mut replay = Replay { covered, interrupted: interrupted.clone(), ..Replay::default() };
    for (index, run, entry, is_stored) in entries {
        (replay.index, replay.run) = (index, run);
        match entry {
            Entry::Text(message) => replay.user(&message.text, &message.media),
            Entry::Queued(text) => replay.user(text, &[]),
            Entry::Approvals { message, .. } => {
                message.iter().for_each(|message| replay.approver(message));
            }
            // The hooks of tools have dropped all parts of this answer. It is not stored, and
            // begins no round.
            Entry::Answer(_) if is_stored && entry.texts(true).is_empty() => {}
            Entry::Answer(answers) => replay.answer(answers, is_stored),
            Entry::Results(outcomes) => replay.results(outcomes, is_stored),
        }
    }
    let shown = replay.shown().into_iter().filter(|shown| shown.index >= Some(covered));
    let summary = summary.map(|summary| SentItem {
        index: None,
        result_index: None,
        text: summary.text.clone(),
        compaction: None,
    });
    summary.into_iter().chain(shown).collect()
}

/// A text that the model receives, a medium, or a call with its result.
pub(super) struct SentItem {
    /// The index of its entry in the conversation, or `None` for the text of a summary.
    pub(super) index: Option<usize>,
    /// The index of the entry with the result of the call. Equal to `index` if this is no call.
    pub(super) result_index: Option<usize>,
    pub(super) text: String,
    /// The summary of the earlier messages, if this is one.
    pub(super) compaction: Option<Compaction>,
}

#[derive(Default)]
struct Replay<'c> {
    /// The number of entries that the summary covers.
    covered: usize,
    /// The index of the current entry.
    index: usize,
    /// The index of its run.
    run: usize,
    items: Vec<Item>,
    /// The formatted calls of all previous answers, by their tokens.
    calls: BTreeMap<String, String>,
    /// The index of the first item of the last round. A round is an answer's calls and their
    /// results.
    round: usize,
    /// The indices at which the messages of the last round begin, and the index of its end.
    messages: Vec<usize>,
    /// Texts that the caller has sent with approvals, while calls of the round have no result yet,
    /// with the indices of their runs. They are inserted after the results of the round, and before
    /// late results of later runs.
    beside_approvals: Vec<(usize, Item)>,
    interrupted: BTreeSet<&'c str>,
}

/// A text, a medium, or a call with its result. The item is sent at the position of the entry with
/// the index.
enum Item {
    Text(usize, String),
    /// A summary of the earlier messages, in a message with the calls of these tokens.
    Compaction {
        index: usize,
        item: compaction::Item,
        follows_text: bool,
        tokens: Vec<String>,
    },
    Pair {
        index: usize,
        token: String,
        call: String,
        result: Option<(usize, String)>,
    },
}

/// Returns whether an item has the result of the tool that has ended a run.
fn ends_run(item: &Item) -> bool {
    match item {
        // A sentence about the arguments of the call may follow.
        Item::Pair { token, result: Some((_, result)), .. } => {
            result.starts_with(&format!("stopped {token}"))
        }
        Item::Pair { .. } | Item::Text(..) | Item::Compaction { .. } => false,
    }
}

/// Returns the items of a message of the user: its text and its media.
fn of_user(index: usize, text: &str, media: &[Medium]) -> Vec<Item> {
    let texts = [text.to_owned()].into_iter().chain(media.iter().map(Medium::to_string));
    texts.map(|text| Item::Text(index, format!("user: {text}"))).collect()
}

impl Replay<'_> {
    fn user(&mut self, text: &str, media: &[Medium]) {
        self.close_round();
        self.items.extend(of_user(self.index, text, media));
        self.round = self.items.len();
    }

    fn approver(&mut self, message: &UserMessage) {
        let items = of_user(self.index, &message.text, &message.media);
        let waits = |item: &Item| matches!(item, Item::Pair { result: None, .. });
        if self.items[self.round..].iter().any(waits) {
            let run = self.run;
            self.beside_approvals.extend(items.into_iter().map(|item| (run, item)));
        } else {
            self.items.extend(items);
        }
    }

    fn answer(&mut self, answers: &[AnswerMessage], is_stored: bool) {
        self.close_round();
        self.round = self.items.len();
        self.messages.push(self.round);
        for answer in answers {
            let index = self.index;
            let text = answer.text.iter();
            let text = text.map(|text| Item::Text(index, format!("assistant: {text}")));
            let calls = answer.calls.iter();
            let calls = calls.filter(|call| !(is_stored && call.hook == Hook::Drop));
            let compaction = answer.compaction.as_ref().map(|item| Item::Compaction {
                index,
                item: item.clone(),
                follows_text: item.is_last && answer.text.is_some(),
                tokens: calls.clone().map(|call| call.token.clone()).collect(),
            });
            let (first, last) = match &answer.compaction {
                Some(item) if item.is_last => (None, compaction),
                _ => (compaction, None),
            };
            self.items.extend(first.into_iter().chain(text));
            for call in calls {
                let (token, call) = (call.token.clone(), call.text(is_stored));
                self.calls.insert(token.clone(), call.clone());
                self.items.push(Item::Pair { index, token, call, result: None });
            }
            self.items.extend(last);
            self.messages.push(self.items.len());
        }
    }

    /// Returns whether a call has its result in the round of its answer. Otherwise the call is sent
    /// with a later result, or omitted.
    fn is_answered_in_round(&self, token: &String) -> bool {
        let of_round = self.items.iter().find_map(|item| match item {
            Item::Pair { token: of, result, .. } if of == token => Some(result.is_some()),
            Item::Pair { .. } | Item::Text(..) | Item::Compaction { .. } => None,
        });
        of_round.unwrap_or(false)
    }

    /// Ends the round. Results must directly follow the message with their calls. Messages of the
    /// model after the last answered call are therefore moved before the message with this call. A
    /// message with an interrupted call is not moved.
    fn close_round(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        let is_answered = |item: &Item| matches!(item, Item::Pair { result: Some(_), .. });
        let mut answered = messages
            .windows(2)
            .filter(|message| self.items[message[0]..message[1]].iter().any(is_answered));
        if let Some(last) = answered.next_back().map(|message| message[0]) {
            let bounds: Vec<usize> = messages.iter().copied().filter(|it| *it >= last).collect();
            let is_ended = self.items[messages[0]..].iter().any(ends_run);
            let mut rest = self.items.split_off(last).into_iter();
            let (mut words, mut asking) = (Vec::new(), Vec::new());
            for (index, bounds) in bounds.windows(2).enumerate() {
                let message: Vec<Item> = rest.by_ref().take(bounds[1] - bounds[0]).collect();
                let is_interrupted = |item| !is_ended && self.is_interrupted(item);
                let stays = index == 0 || message.iter().any(is_interrupted);
                if stays { &mut asking } else { &mut words }.extend(message);
            }
            self.items.extend(words.into_iter().chain(asking).chain(rest));
        }
        self.items.extend(self.beside_approvals.drain(..).map(|(_, item)| item));
    }

    fn is_interrupted(&self, item: &Item) -> bool {
        match item {
            Item::Pair { token, result: None, .. } => self.interrupted.contains(&**token),
            Item::Pair { .. } | Item::Text(..) | Item::Compaction { .. } => false,
        }
    }

    fn results(&mut self, outcomes: &[Outcome], is_stored: bool) {
        for outcome in outcomes.iter().filter(|it| !(is_stored && it.hook == Hook::Drop)) {
            let text = Some((self.index, outcome.text(is_stored)));
            // The summary ends the round of its last calls. A later result is sent with its call.
            let is_later = |index: usize| index < self.covered && self.covered <= self.index;
            let of_round = self.items[self.round..].iter_mut().find_map(|item| match item {
                Item::Pair { index, .. } if is_later(*index) => None,
                Item::Pair { token, result, .. } if *token == outcome.token => Some(result),
                Item::Pair { .. } | Item::Text(..) | Item::Compaction { .. } => None,
            });
            match of_round {
                Some(result) => *result = text,
                None => {
                    let run = self.run;
                    let earlier = self.beside_approvals.extract_if(.., |(of, _)| *of != run);
                    self.items.extend(earlier.map(|(_, item)| item));
                    let token = outcome.token.clone();
                    let call = self.calls.get(&token).cloned().unwrap_or_default();
                    let index = self.index;
                    self.items.push(Item::Pair { index, token, call, result: text });
                }
            }
        }
        self.items.extend(self.beside_approvals.drain(..).map(|(_, item)| item));
    }

    fn shown(mut self) -> Vec<SentItem> {
        self.close_round();
        let has_calls = |item: &Item| match item {
            Item::Compaction { tokens, .. } => {
                tokens.iter().any(|token| self.is_answered_in_round(token))
            }
            Item::Text(..) | Item::Pair { .. } => false,
        };
        let has_calls: Vec<bool> = self.items.iter().map(has_calls).collect();
        let shown =
            self.items.into_iter().zip(has_calls).filter_map(|(item, has_calls)| match item {
                Item::Text(index, text) => {
                    let (index, compaction) = (Some(index), None);
                    Some(SentItem { index, result_index: index, text, compaction })
                }
                Item::Compaction { index, item, follows_text, .. } => {
                    let follows_calls = item.is_last && has_calls;
                    let compaction = Compaction { item, follows_text, follows_calls };
                    let text = format!("assistant: {}", compaction.item.text());
                    let (index, compaction) = (Some(index), Some(compaction));
                    Some(SentItem { index, result_index: index, text, compaction })
                }
                Item::Pair { index, call, result, .. } => {
                    let (result_index, result) = result?;
                    let text = format!("{call} = {result}");
                    let (index, result_index) = (Some(index), Some(result_index));
                    Some(SentItem { index, result_index, text, compaction: None })
                }
            });
        shown.collect()
    }
}
