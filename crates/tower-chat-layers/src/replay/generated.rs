//! Histories of every odd shape, and what must hold of every step over every one of them.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Messages, Part, Reasoning, Role, RunId, ToolCall,
    ToolResult,
};

use super::{DanglingCalls, Replay};

/// How many histories each step is tried on.
pub(super) const SEEDS: u64 = 400;

/// A generator of the same numbers at every run (xorshift, by Marsaglia).
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

    fn one_of<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.below(values.len())]
    }
}

/// A stored history: ids on all messages or on none, and damage everywhere.
pub(super) fn history(seed: u64) -> Messages {
    let mut rng = Rng::of(seed);
    let mut messages = Vec::new();
    if rng.one_in(3) {
        messages.push(Message::system("rules"));
    }
    let has_ids = !rng.one_in(4);
    for turn in 0..1 + rng.below(6) {
        let first = messages.len();
        turn_of(&mut rng, turn, &mut messages);
        if has_ids {
            let mut bytes = [7; 16];
            bytes[8..].copy_from_slice(&(seed * 100 + turn as u64).to_be_bytes());
            let run = RunId::from_bytes(bytes);
            for (index, message) in (0..).zip(&mut messages[first..]) {
                message.id = Some(MessageId { run, index });
            }
        }
    }
    messages.into_iter().collect()
}

fn turn_of(rng: &mut Rng, turn: usize, messages: &mut Vec<Message>) {
    if rng.one_in(12) {
        messages.push(results(rng, &[ToolCall::new("orphan", "look", "{}")], turn));
    }
    if !rng.one_in(12) {
        messages.push(Message::user(format!("question {turn}")));
    }
    for round in 0..rng.below(4) {
        let calls: Vec<ToolCall> =
            (0..1 + rng.below(3)).map(|index| call(rng, round, index)).collect();
        let mut parts = Vec::new();
        if rng.one_in(4) {
            parts.push(Reasoning::new("hm").into());
        }
        if rng.one_in(3) {
            parts.push(Part::text(rng.one_of(&["", "Let me look.", "As [source1] says."])));
        }
        let waits = rng.one_in(10);
        parts.extend(calls.iter().cloned().map(|call| match waits {
            true => ApprovalRequest::new(format!("approval {turn} {round}"), call, true).into(),
            false => Part::ToolCall(call),
        }));
        let answer = results(rng, &calls, turn);
        if rng.one_in(10) {
            parts.extend(answer.parts);
            parts.push(Part::text("All in one row."));
            messages.push(Message::new(Role::Assistant, parts));
            continue;
        }
        messages.push(Message::new(Role::Assistant, parts));
        if rng.one_in(10) {
            messages.push(Message::user("hurry up"));
        }
        if !rng.one_in(8) {
            messages.push(answer);
        }
    }
    if !rng.one_in(6) {
        let answer = ["Done.", "", "See [source0] and [Source3].", "[source 2]", "[source1]"];
        messages.push(Message::assistant(rng.one_of(&answer)));
    }
}

fn call(rng: &mut Rng, round: usize, index: usize) -> ToolCall {
    let name = rng.one_of(&["look", "search", "gone"]);
    let arguments = rng.one_of(&["{}", "", r#"{"a": "é"}"#, r#"{"cut": "#, "[1]", "7"]);
    match rng.below(8) {
        0 => ToolCall::without_id(name, arguments),
        1 => ToolCall::new("", name, arguments),
        2 => ToolCall::new("again", name, arguments),
        _ => ToolCall::new(format!("c{round}_{index}"), name, arguments),
    }
}

fn results(rng: &mut Rng, calls: &[ToolCall], turn: usize) -> Message {
    let mut results = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let text = result_text(rng, turn * 3 + index);
        let mut result = ToolResult::new("", text);
        result.call_id.clone_from(&call.id);
        result.is_error = rng.one_in(9);
        match rng.below(14) {
            0 => continue,
            1 => results.insert(0, result),
            2 => results.extend([result.clone(), result]),
            3 => result.content.extend([Part::text("more"), Part::text(String::new())]),
            _ => results.push(result),
        }
    }
    Message::tool_results(results)
}

fn result_text(rng: &mut Rng, first: usize) -> String {
    let source = |number: usize| {
        format!(r#"{{ "content":"текст {number}", "source_number": {number}, "score": 1.0 }}"#)
    };
    match rng.below(8) {
        0 => String::new(),
        1 => "plain".to_owned(),
        2 => format!("[{}] and a reminder", source(first)),
        3 => format!(r#"[{}, "mixed"]"#, source(first)),
        4 => r#"[{"source_number": 99999999999999999999}]"#.to_owned(),
        _ => {
            let sources: Vec<String> = (0..rng.below(5)).map(|n| source(first + n)).collect();
            format!("[{}]", sources.join(" , "))
        }
    }
}

/// What the fold shows of a history.
pub(super) fn output_of(history: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(history, 0);
    replay.view()
}

/// What must hold of a step: it gives the same at every time, changes nothing the second time, is
/// valid, shares what it leaves as it is, and says nothing that was not there but what the policy
/// says.
pub(super) fn check_step(step: impl Fn(&Messages, u64) -> Messages, policy_says: &[&str]) {
    let mut changed = 0;
    for seed in 1..=SEEDS {
        let before = output_of(&history(seed));
        let after = step(&before, seed);
        assert_valid(&after, seed);
        assert_eq!(after, step(&before, seed), "the same at every time, seed {seed}");
        assert_eq!(after, step(&after, seed), "nothing more to do, seed {seed}");
        assert_nothing_new(&before, &after, policy_says, seed);
        assert_shared(&before, &after, seed);
        changed += usize::from(before != after);
    }
    assert!(changed > 20, "the step did something in {changed} of {SEEDS} histories");
}

/// Every call is answered right after its message, by results in its order and no others.
pub(super) fn assert_valid(messages: &Messages, seed: u64) {
    let mut pending: Vec<String> = Vec::new();
    for message in messages.iter() {
        if message.role == Role::Tool {
            for result in message.results() {
                assert!(!pending.is_empty(), "an orphan result, seed {seed}: {messages:?}");
                assert_eq!(result.call_id, Some(pending.remove(0)), "seed {seed}: {messages:?}");
            }
            continue;
        }
        assert!(pending.is_empty(), "a dangling call, seed {seed}: {messages:?}");
        pending = message.calls().map(|call| call.id.clone().unwrap_or_default()).collect();
        assert!(!pending.contains(&String::new()), "a call without an id, seed {seed}");
    }
    assert!(pending.is_empty(), "a dangling call at the end, seed {seed}: {messages:?}");
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
        assert_eq!(is_unchanged, known.contains(&Arc::as_ptr(message)), "a copy, seed {seed}");
    }
}
