//! Tests of pairing over generated histories, with ids that are present, missing, empty and
//! repeated.

mod call_ids;
mod call_log;
mod matcher;

use crate::{CallPosition, MessageId, RunId, ToolCall, ToolResult};

const IDS: [Option<&str>; 5] = [None, Some(""), Some("a"), Some("b"), Some("c")];
const NAMES: [&str; 3] = ["look", "pay", "wait"];

/// A seeded generator, the same in every run.
struct Rng(u64);

impl Rng {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % count as u64).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy, const N: usize>(&mut self, values: [T; N]) -> T {
        values[self.below(N)]
    }
}

fn message_id(index: usize) -> MessageId {
    MessageId { run: RunId::from_bytes([7; 16]), index: u32::try_from(index).unwrap() }
}

fn position(message: usize, index: usize) -> CallPosition {
    CallPosition { message: message_id(message), index: u32::try_from(index).unwrap() }
}

fn call(rng: &mut Rng) -> ToolCall {
    let mut call = ToolCall::without_id(rng.pick(NAMES), "{}");
    call.id = rng.pick(IDS).map(str::to_owned);
    call
}

fn result(rng: &mut Rng, text: String) -> ToolResult {
    let mut result = ToolResult::new("", text);
    result.call_id = rng.pick(IDS).map(str::to_owned);
    result.name = rng.one_in(3).then(|| rng.pick(NAMES).to_owned());
    result
}
