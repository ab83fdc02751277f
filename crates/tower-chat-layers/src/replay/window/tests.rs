//! Tests at which message the window begins, and when its beginning changes.

use tower_chat_core::{
    ErrorPart, Media, MediaSource, MessageId, Native, Reasoning, Role, RunId, ToolCall, ToolResult,
};

use super::*;
use crate::replay::generated::{Rng, SEEDS, check_step, history, output_of};

/// Returns a turn of two messages, or of four if it used a tool.
fn turn(number: usize, uses_tool: bool) -> Vec<Message> {
    let mut turn = vec![Message::user(format!("question {number}"))];
    if uses_tool {
        turn.push(Message::tool_calls([ToolCall::new("c", "look", "{}")]));
        turn.push(Message::tool_results([ToolResult::new("c", "found")]));
    }
    turn.push(Message::assistant(format!("answer {number}")));
    turn
}

fn turns(count: usize) -> Messages {
    (0..count).flat_map(|number| turn(number, number % 2 == 1)).collect()
}

fn first_text(messages: &Messages) -> String {
    messages.get(0).map(|message| message.text()).unwrap_or_default()
}

#[test]
fn messages_that_fit_the_window_are_shared() {
    let messages = turns(4);
    for window in [Window::turns(4), Window::messages(12), Window::tokens(1_000_000)] {
        let output = window.apply(&messages);
        assert!(messages.iter().zip(output.iter()).all(|(a, b)| Arc::ptr_eq(a, b)), "{window:?}");
        assert_eq!(output.len(), 12);
    }
}

#[test]
fn a_window_omits_only_whole_turns() {
    for limit in 0..14 {
        let output = Window::messages(limit).with_low_water(limit).apply(&turns(4));
        assert_eq!(output.get(0).unwrap().role, Role::User, "limit {limit}");
        assert!(output.len() <= limit.max(4), "limit {limit}");
        assert!(output.iter().eq(turns(4).iter().skip(12 - output.len())), "limit {limit}");
    }
}

#[test]
fn the_beginning_of_the_window_moves_in_steps() {
    let window = Window::turns(8);
    let first: Vec<String> =
        (1..=14).map(|count| first_text(&window.apply(&turns(count)))).collect();
    let expected = |number: usize| format!("question {number}");
    assert_eq!(first[..8], vec![expected(0); 8]);
    assert_eq!(first[8..11], vec![expected(3); 3], "from 9 turns down to 6");
    assert_eq!(first[11..], vec![expected(6); 3]);
}

#[test]
fn the_low_water_mark_is_at_most_the_limit() {
    assert_eq!(Window::turns(8).with_low_water(1).apply(&turns(9)).len(), 2);
    assert_eq!(first_text(&Window::turns(8).with_low_water(99).apply(&turns(9))), "question 1");
}

#[test]
fn initial_instructions_are_always_sent_and_count_towards_the_limit() {
    let mut messages: Messages =
        [Message::system("s"), Message::new(Role::Developer, vec![Part::text("d")])].into();
    messages.append(&turns(3));
    let output = Window::messages(4).with_low_water(4).apply(&messages);
    let texts: Vec<String> = output.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["s", "d", "question 2", "answer 2"]);
    assert_eq!(Window::messages(1).apply(&messages), output, "the newest turn is never removed");
    assert_eq!(Window::turns(3).apply(&messages), messages, "system messages are not a turn");
}

#[test]
fn later_instructions_are_omitted_with_their_turn() {
    let mut messages = turns(1);
    messages.push(Message::system("from now on"));
    messages.append(&turns(2));
    let output = Window::turns(1).apply(&messages);
    assert_eq!(first_text(&output), "question 1");
    assert_eq!(output.len(), 4);
}

#[test]
fn a_single_turn_over_the_limit_is_shown_whole() {
    let long: Messages = turn(1, true).into();
    assert_eq!(Window::messages(2).apply(&long), long);
    let mut after = turns(3);
    after.append(&long);
    assert_eq!(Window::messages(2).apply(&after), long);
    assert_eq!(Window::turns(0).apply(&after), long);
}

#[test]
fn a_run_with_queued_messages_is_one_turn() {
    let mut messages = turn(0, true);
    messages.insert(3, Message::user("hurry"));
    messages.extend(turn(1, false));
    let output = Window::turns(2).apply(&messages.clone().into());
    assert_eq!(output.len(), 7);
    assert_eq!(Window::turns(1).apply(&messages.into()).len(), 2);
}

#[test]
fn runs_that_were_never_answered_are_turns() {
    let asked = |run: u8| {
        let mut message = Message::user(format!("question {run}"));
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index: 0 });
        message
    };
    let messages: Messages = (0..5).map(asked).collect();
    assert_eq!(first_text(&Window::turns(3).with_low_water(3).apply(&messages)), "question 2");
}

#[test]
fn the_token_counter_of_a_window_is_configurable() {
    let window = Window::tokens_counted_by(20, |message: &Message| message.text().len());
    assert_eq!(window.with_low_water(20).apply(&turns(3)).len(), 2);
    let long = Message::assistant("x".repeat(4000));
    assert_eq!(EstimatedTokens.tokens(&long), 1008);
    let result = Message::tool_results([ToolResult::new("c", "x".repeat(4000))]);
    assert_eq!(EstimatedTokens.tokens(&result), 1008);
}

#[test]
fn token_counts_near_the_maximum_do_not_overflow() {
    let window = Window::tokens_counted_by(usize::MAX - 1, |_: &Message| usize::MAX);
    assert_eq!(window.apply(&turns(3)).len(), 2);
}

#[test]
fn a_window_keeps_every_history_valid() {
    let window = |seed: u64| match seed % 3 {
        0 => Window::messages((seed % 17) as usize),
        1 => Window::turns((seed % 5) as usize),
        _ => Window::tokens((seed % 211) as usize),
    };
    check_step(|messages, seed| window(seed).apply(messages), &[]);
}

/// Between two changes of the boundary, which is the beginning of the window, the sent messages
/// only grow at their end.
#[test]
fn the_shown_prefix_changes_only_when_the_boundary_moves() {
    for seed in 1..SEEDS {
        let messages = output_of(&history(seed));
        let limit = 1 + Rng::of(seed).below(20);
        let window = Window::messages(limit);
        let mut before = (0, Messages::new());
        for count in 1..=messages.len() {
            let prefix = messages.take(count);
            let (_, begin) = window.bounds(&prefix, 0);
            let now = window.apply(&prefix);
            if before.0 == begin {
                assert_eq!(now.take(before.1.len()), before.1, "seed {seed}");
            }
            before = (begin, now);
        }
    }
}

#[test]
fn the_default_low_water_mark_is_three_quarters_of_the_limit() {
    let limits: Vec<usize> = (0..20).chain([usize::MAX]).collect();
    for limit in limits {
        let three_quarters = (limit as u128 * 3 / 4) as usize;
        assert_eq!(Window::turns(limit).low_water, three_quarters, "of {limit}");
    }
}

#[test]
fn the_debug_output_of_a_window_contains_its_unit_and_its_limits() {
    let units = [(Window::messages(4), "messages"), (Window::turns(8), "turns")];
    for (window, unit) in units.into_iter().chain([(Window::tokens(9), "tokens")]) {
        let limits = format!("limit: {}, low_water: {}", window.limit, window.low_water);
        assert_eq!(format!("{window:?}"), format!("Window {{ unit: {unit:?}, {limits} }}"));
    }
}

#[test]
fn every_kind_of_part_has_its_tokens() {
    let text = "x".repeat(41);
    let image = MediaSource::Url("https://example.com/a-coat.png".to_owned());
    let item = format!("{{\"id\":\"{}\"}}", "y".repeat(40)).parse().unwrap();
    let parts: [(Part, usize); 7] = [
        (Part::text(text.clone()), 11),
        (Reasoning::new(text.clone()).into(), 11),
        (ToolCall::new("an id", "look", text.clone()).into(), 12),
        (ToolResult::new("an id", text.clone()).into(), 11),
        (Part::Error(ErrorPart::new(text)), 11),
        (Media::new("image/png", image).into(), 1000),
        (Native::new("a wire", item).into(), 13),
    ];
    for (part, tokens) in parts {
        let message = Message::new(Role::Assistant, vec![part.clone()]);
        assert_eq!(EstimatedTokens.tokens(&message), 8 + tokens, "{part:?}");
    }
}
