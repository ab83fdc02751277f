//! Generated conversations, copied up to every message.

use std::{env, sync::Arc};

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, ToolInvocation, ToolResult, ToolStatus,
    store::{
        HistoryStore, Maintenance, Revision,
        author::{RecordedResult, ToolRecord, Write},
    },
};

use super::{Store, fixture::*};
use crate::Rng;

const SEED: u64 = 45;

/// The number of conversations, unless `TOWER_CHAT_CASES` is set.
const CASES: u64 = 3;

/// The number of runs of a conversation.
const RUNS: usize = 6;

/// A copy of a generated conversation, up to any message, is the same as in a [`MemoryStore`]. A
/// copy of this copy is the same too. For each run of the original, a copy contains all messages of
/// the run or none.
pub async fn generated_forks_end_as_in_memory(store: Store) {
    let cases = env::var("TOWER_CHAT_CASES").ok().and_then(|cases| cases.parse().ok());
    for case in 0..cases.unwrap_or(CASES) {
        let reference: Store = Arc::new(MemoryStore::new());
        let mut generator = Generator { rng: Rng::of(SEED, case), calls: Vec::new() };
        let from = key(&format!("generated {case}"));
        let mut at = Revision::ABSENT;
        for _ in 0..RUNS {
            let write = generator.run(&from, at);
            stored(&reference, write.clone()).await;
            at = stored(&store, write).await;
        }
        let before = 1 + generator.rng.below(at.sequence as usize + 1) as u64;
        for before in [None, Some(before), Some(before / 2)] {
            let to = key(&format!("copy {case} {before:?}"));
            let expected = copied(&reference, &from, before, &to).await;
            let found = copied(&store, &from, before, &to).await;
            assert_eq!(found, expected, "case {case}, before {before:?}");
            check(&store, &from, before, found.0).await;
            // A copy of a copy.
            let again = key(&format!("copy of {case} {before:?}"));
            let end = 1 + generator.rng.below(found.1.len() + 1) as u64;
            let expected = copied(&reference, &to, Some(end), &again).await;
            let found = copied(&store, &to, Some(end), &again).await;
            assert_eq!(found, expected, "case {case}, before {before:?}, then before {end}");
            check(&store, &to, Some(end), found.0).await;
        }
    }
}

type Copied = (u64, Vec<String>, Vec<ToolInvocation>);

/// Copies a conversation, and returns the position and the content of the copy.
async fn copied(
    store: &Store,
    from: &ConversationKey,
    before: Option<u64>,
    to: &ConversationKey,
) -> Copied {
    let fork = store.fork_at(from, before, to).await.expect("the conversation is forked");
    (fork.position, texts(store, to).await, recorded(store, to).await)
}

/// Checks that a copy up to this position ends before the message `before`. Also checks that it
/// contains, for each run of the original, all messages or none.
async fn check(store: &Store, from: &ConversationKey, before: Option<u64>, position: u64) {
    assert!(before.is_none_or(|before| position < before.max(1)));
    let history = store.load(from).await.expect("the history is loaded");
    let runs = |copied: bool| {
        let side = history.numbered().filter(move |(number, _)| (*number <= position) == copied);
        side.filter_map(|(_, message)| message.id).map(|id| id.run).collect::<Vec<_>>()
    };
    let later = runs(false);
    assert!(runs(true).iter().all(|run| !later.contains(run)), "a run is divided");
}

struct Generator {
    rng: Rng,
    /// The calls without a result.
    calls: Vec<ToolRecord>,
}

impl Generator {
    /// Returns the write of a run, which may answer earlier calls and leave its own call open.
    fn run(&mut self, key: &ConversationKey, at: Revision) -> Write {
        let mut messages = Vec::new();
        let mut rows = Vec::new();
        if self.rng.one_in(2) {
            messages.push(Message::user(format!("question {}", self.rng.next())));
        }
        let next = |messages: &Vec<Message>| at.sequence + messages.len() as u64 + 1;
        if !self.calls.is_empty() && self.rng.one_in(2) {
            let call = self.calls.swap_remove(self.rng.below(self.calls.len()));
            rows.push(answered(call, next(&messages)));
            messages.push(result());
        }
        if self.rng.one_in(2) {
            let mut call = pending(next(&messages), 0, "weather");
            messages.push(asking(&["weather"]));
            match self.rng.below(3) {
                0 => {
                    rows.push(answered(call, next(&messages)));
                    messages.push(result());
                }
                waits => {
                    if waits == 1 {
                        call.status = ToolStatus::PendingApproval;
                    }
                    rows.push(call.clone());
                    self.calls.push(call);
                }
            }
        }
        messages.push(Message::assistant(format!("answer {}", self.rng.next())));
        write_messages(key, at, messages).with_tools(rows)
    }
}

/// Returns the row of a call whose result is in the message with this number.
fn answered(call: ToolRecord, sequence: u64) -> ToolRecord {
    with_outcome(call, ToolStatus::Ok, RecordedResult::InMessage(position(sequence, 0)))
}

fn result() -> Message {
    Message::tool_results([ToolResult::new("id 0", "done")])
}
