//! Checks properties of the replay steps for generated histories that are damaged.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{Message, Messages, Part};
pub(super) use tower_chat_testkit::{
    assert_valid_replay as assert_valid, damaged_history as history,
};

use super::{DanglingCalls, Replay};

/// The number of generated histories for the test of each step.
pub(super) const SEEDS: u64 = 400;

/// A random number generator with a fixed seed (xorshift, by Marsaglia).
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

pub(super) fn output_of(history: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(history, 0);
    replay.view()
}

/// Asserts that a step is deterministic and idempotent, that its output is valid, that unchanged
/// messages are shared, and that only the texts in `policy_says` are new.
pub(super) fn check_step(step: impl Fn(&Messages, u64) -> Messages, policy_says: &[&str]) {
    let mut changed = 0;
    for seed in 1..=SEEDS {
        let before = output_of(&history(seed));
        let after = step(&before, seed);
        assert_valid(&after, seed);
        assert_eq!(after, step(&before, seed), "the step is deterministic, seed {seed}");
        assert_eq!(after, step(&after, seed), "the step is idempotent, seed {seed}");
        assert_nothing_new(&before, &after, policy_says, seed);
        assert_shared(&before, &after, seed);
        changed += usize::from(before != after);
    }
    assert!(changed > 20, "the step changed {changed} of {SEEDS} histories");
}

fn assert_nothing_new(before: &Messages, after: &Messages, policy_says: &[&str], seed: u64) {
    let known: HashSet<&str> = before.iter().flat_map(|message| texts(message)).collect();
    for text in after.iter().flat_map(|message| texts(message)) {
        let is_compacted = text.starts_with('[');
        let is_known = known.contains(text) || policy_says.contains(&text) || is_compacted;
        assert!(is_known, "invented {text:?}, seed {seed}");
    }
}

fn texts(message: &Message) -> Vec<&str> {
    message.parts.iter().flat_map(texts_of).collect()
}

fn texts_of(part: &Part) -> Vec<&str> {
    match part {
        Part::Text(text) => vec![text.text.as_str()],
        Part::ToolCall(call) => vec![call.name.as_str(), call.arguments.as_str()],
        Part::ToolResult(result) => result.content.iter().filter_map(Part::as_text).collect(),
        _ => Vec::new(),
    }
}

fn assert_shared(before: &Messages, after: &Messages, seed: u64) {
    let known: HashSet<*const Message> = before.iter().map(Arc::as_ptr).collect();
    for message in after.iter().filter(|message| message.id.is_some()) {
        let is_unchanged = before.iter().any(|old| old == message);
        assert_eq!(
            is_unchanged,
            known.contains(&Arc::as_ptr(message)),
            "an unchanged message was copied, seed {seed}"
        );
    }
}
