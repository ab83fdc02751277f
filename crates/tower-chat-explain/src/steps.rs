//! Explains the changes that the steps of a policy make to the output of the fold.
//!
//! A replay converts the stored messages to those of a request. The *fold* is its first part; the
//! policy determines the steps after the fold. Each message has a *mark*, by which this module
//! finds the message in the output of a step. The mark of a part replaces its *native item*, the
//! part in the provider's own format.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{Message, Messages};
use tower_chat_layers::replay::{
    CompactionTime, OutdatedCalls, Replay, ReplayContext, ReplayPolicy, ToolHistory, Window,
};

use crate::{
    reason::{ReasonKind, Reasons},
    tags::{Sent, tagged_like, untagged},
};

/// Applies the steps of a policy one after the other, and adds a reason for each change. Returns
/// the messages and parts that are sent after all steps.
pub(crate) fn explain(
    stored: &Messages,
    replay: &mut Replay,
    policy: &ReplayPolicy,
    context: &ReplayContext<'_>,
    reasons: &mut Reasons,
) -> Sent {
    let sent = Sent::of(&replay.view());
    let mut steps = Steps { stored, context, reasons, replay, sent };
    steps.summarize();
    if policy.tool_history == ToolHistory::Omit {
        let omit = ReplayPolicy::default().with_tool_history(ToolHistory::Omit);
        steps.apply_step(&omit, ReasonKind::ToolHistory);
    } else {
        steps.apply_tool_steps(policy);
    }
    if let Some(old_media) = &policy.old_media {
        steps.apply_part_changes(ReasonKind::OldMedia, |closed| old_media.apply(closed));
    }
    if let Some(window) = &policy.window {
        steps.apply_window(window);
    }
    steps.sent
}

struct Steps<'a, 'r> {
    stored: &'a Messages,
    context: &'a ReplayContext<'a>,
    reasons: &'r mut Reasons,
    replay: &'r mut Replay,
    /// The messages and parts that are sent after the steps that were already applied.
    sent: Sent,
}

impl Steps<'_, '_> {
    /// Applies the step that replaces the oldest messages by a summary, and adds a reason for each
    /// message that is no longer sent.
    fn summarize(&mut self) {
        ReplayPolicy::default().edit(self.replay, self.context);
        self.find_left_out(ReasonKind::Summarized);
    }

    fn apply_tool_steps(&mut self, policy: &ReplayPolicy) {
        let before = self.replay.clone();
        let fresh = ReplayPolicy::default().with_freshness(policy.freshness.clone());
        if policy.freshness.is_some() {
            self.apply_step(&fresh, ReasonKind::Stale);
        }
        if policy.outdated_calls != OutdatedCalls::keep() {
            // The two settings together determine which calls of an open round are removed. This
            // step therefore applies both of them to the original messages. The previous step was
            // only necessary to find the parts that are too old.
            *self.replay = before;
            let both = fresh.with_outdated_calls(policy.outdated_calls);
            self.apply_step(&both, ReasonKind::Outdated);
        }
        let citations = policy.citations.as_ref();
        if let Some(citations) = citations.filter(|it| it.time() == CompactionTime::AtReplay) {
            self.apply_part_changes(ReasonKind::Compacted, |closed| citations.apply(closed));
        }
    }

    /// Applies a policy, and adds a reason for each part and message that is no longer sent.
    fn apply_step(&mut self, policy: &ReplayPolicy, kind: ReasonKind) {
        policy.edit(self.replay, self.context);
        let sent = Sent::of(&self.replay.view());
        for (position, message) in self.stored.iter().enumerate() {
            let mut is_explained = false;
            for index in 0..message.parts.len() {
                let here = (position, index);
                if self.sent.has_part(here) && !sent.has_part(here) {
                    self.reasons.add(position, kind, Some(index));
                    is_explained = true;
                }
            }
            let has_left = self.sent.has_message(position) && !sent.has_message(position);
            if has_left && !is_explained {
                self.reasons.add(position, kind, None);
            }
        }
        self.sent = sent;
    }

    /// Applies a step that changes parts, and adds a reason for each changed part.
    fn apply_part_changes(&mut self, kind: ReasonKind, step: impl FnOnce(&Messages) -> Messages) {
        let mut changed = Vec::new();
        self.replay.edit_closed(|closed| {
            let (tagged, positions) = tagged_like(closed, &step(closed));
            changed = positions;
            tagged
        });
        for (position, part) in changed {
            self.reasons.add(position, kind, Some(part));
        }
    }

    fn apply_window(&mut self, window: &Window) {
        let (stored, context) = (self.stored, self.context);
        let policy = ReplayPolicy::default().with_window(window.clone());
        self.replay.edit_closed(|closed| {
            // The window is applied to messages without marks, because its token counter must count
            // the native items instead of the marks.
            let as_sent: Messages =
                closed.iter().map(|message| Arc::new(untagged(message, stored))).collect();
            let inside = policy.apply(&as_sent, context);
            let inside: HashSet<*const Message> = inside.iter().map(Arc::as_ptr).collect();
            let pairs = closed.iter().zip(as_sent.iter());
            pairs
                .filter(|(_, as_sent)| inside.contains(&Arc::as_ptr(as_sent)))
                .map(|(closed, _)| closed.clone())
                .collect()
        });
        self.find_left_out(ReasonKind::OutsideWindow);
    }

    fn find_left_out(&mut self, kind: ReasonKind) {
        let sent = Sent::of(&self.replay.view());
        for position in 0..self.stored.len() {
            if self.sent.has_message(position) && !sent.has_message(position) {
                self.reasons.add(position, kind, None);
            }
        }
        self.sent = sent;
    }
}
