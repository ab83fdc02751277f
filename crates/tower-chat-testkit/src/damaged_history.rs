//! Generates histories with many kinds of damage, and checks their replay: the form in which a
//! history is sent to a model.

use tower_chat_core::{
    ApprovalRequest, Message, MessageId, Messages, Part, Reasoning, Role, RunId, ToolCall,
    ToolResult,
};

/// Generates a stored history with damage, such as calls without results, results without calls,
/// repeated call ids, and several turns in one message. The same seed results in the same history.
/// Either no message has an id, or every message has one except the system message.
///
/// ```
/// use tower_chat_testkit::damaged_history;
/// assert_eq!(damaged_history(7), damaged_history(7));
/// assert_ne!(damaged_history(7), damaged_history(8));
/// ```
pub fn damaged_history(seed: u64) -> Messages {
    let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut messages = Vec::new();
    if rng.one_in(3) {
        messages.push(Message::system("rules"));
    }
    let has_ids = !rng.one_in(4);
    for turn in 0..1 + rng.below(6) {
        let first = messages.len();
        turn_of(&mut rng, turn, &mut messages);
        if has_ids {
            let number = u64::from_be_bytes([7; 8]);
            let [run, turn] =
                [number, seed.wrapping_mul(100).wrapping_add(turn as u64)].map(u128::from);
            let run = RunId::from_bytes(((run << 64) | turn).to_be_bytes());
            for (index, message) in (0..).zip(messages.iter_mut().skip(first)) {
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
            parts.push(Part::text(one_of(rng, &["", "Let me look.", "As [source1] says."])));
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
        messages.push(Message::assistant(one_of(rng, &answer)));
    }
}

fn call(rng: &mut Rng, round: usize, index: usize) -> ToolCall {
    let name = one_of(rng, &["look", "search", "gone"]);
    let arguments = one_of(rng, &["{}", "", r#"{"a": "é"}"#, r#"{"cut": "#, "[1]", "7"]);
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

/// Generates the text of a result, which sometimes is a JSON list of sources with numbers from
/// `first`.
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

/// Asserts that every call has an id. Also asserts that each message with calls is followed
/// directly by exactly the results of these calls, in the order of the calls.
///
/// # Panics
///
/// Panics if an assertion fails. The panic message contains the seed.
pub fn assert_valid_replay(messages: &Messages, seed: u64) {
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

/// A generator of pseudorandom numbers, which depend only on the seed: xorshift, by Marsaglia.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap_or_default()
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

fn one_of<'a>(rng: &mut Rng, values: &[&'a str]) -> &'a str {
    values.get(rng.below(values.len())).copied().unwrap_or_default()
}
