//! Tests the position at which results are cut.

use tower_chat_core::{Media, MediaSource, Native, Text, ToolCall};

use super::*;
use crate::replay::generated::Rng;

fn cut_to(limit: usize, text: &str) -> String {
    let mut result = ToolResult::new("1", text);
    Truncation::to(limit).apply(&mut result);
    result.text()
}

#[test]
fn the_truncation_marker_is_at_the_end_and_counts_towards_the_limit() {
    let cut = cut_to(100, &"x".repeat(101));
    assert_eq!(cut.len(), 100);
    assert_eq!(cut, format!("{}\n[truncated]", "x".repeat(88)));
}

#[test]
fn content_exactly_at_the_limit_is_untouched() {
    let text = "x".repeat(100);
    assert_eq!(cut_to(100, &text), text);
    let mut result = ToolResult::new("1", &*text);
    assert!(!Truncation::to(100).apply(&mut result));
    assert!(Truncation::to(99).apply(&mut result));
}

#[test]
fn a_limit_shorter_than_the_marker_cuts_the_marker() {
    for limit in 0..=Truncation::MARKER.len() {
        assert_eq!(cut_to(limit, &"x".repeat(50)), Truncation::MARKER[..limit]);
    }
}

#[test]
fn truncation_splits_no_character() {
    for limit in 0..60 {
        for text in ["é".repeat(40), "日本語".repeat(10), format!("a{}", "😀".repeat(15))] {
            let cut = cut_to(limit, &text);
            assert!(cut.len() <= limit);
            let retained = cut.strip_suffix(Truncation::MARKER).unwrap_or("");
            assert!(text.starts_with(retained));
            assert!(limit < 12 || limit - cut.len() < 4, "the text is cut as late as possible");
        }
    }
}

#[test]
fn markers_are_never_stacked() {
    let once = cut_to(40, &"x".repeat(100));
    assert_eq!(cut_to(40, &once), once);
    let twice = cut_to(30, &once);
    assert_eq!(twice, format!("{}\n[truncated]", "x".repeat(18)));
    let mut text = "x".repeat(500);
    for limit in (0..400).rev() {
        text = cut_to(limit, &text);
        assert!(text.matches('[').count() <= 1, "{text}");
        assert!(text.len() <= limit);
    }
}

#[test]
fn only_the_text_parts_of_a_result_count_towards_the_limit_and_they_count_together() {
    let image = Media::new("image/png", MediaSource::Base64("A".repeat(1000)));
    let mut result = ToolResult::new("1", "x".repeat(30));
    result.content.extend([image.clone().into(), Part::text("y".repeat(30)), Part::text("z")]);
    assert!(!Truncation::to(61).apply(&mut result.clone()));
    assert!(Truncation::to(60).apply(&mut result));
    let retained = format!("{}\n[truncated]", "y".repeat(18));
    assert_eq!(result.content, [Part::text("x".repeat(30)), image.into(), Part::text(retained)]);
}

#[test]
fn a_truncated_result_loses_its_native_items() {
    let native = Native::new("w", r#""all of it""#.parse().unwrap());
    let mut result = ToolResult::new("1", "");
    let mut text = Text::new("xyz");
    text.native = Some(native.clone());
    result.content = vec![text.into()];
    result.native = Some(native);
    let whole = result.clone();
    assert!(!Truncation::to(3).apply(&mut result));
    assert_eq!(result, whole);
    assert!(Truncation::to(2).apply(&mut result));
    assert_eq!((result.native, result.content), (None, vec![Part::text("\n[")]));
}

#[test]
fn only_long_results_of_a_message_are_cut_and_arguments_never_are() {
    let arguments = format!(r#"{{"a": "{}"}}"#, "x".repeat(100));
    let asking = Arc::new(Message::tool_calls([ToolCall::new("1", "look", arguments)]));
    let policy = Truncation::to(20);
    assert!(Arc::ptr_eq(&asking, &policy.apply_to(asking.clone())));
    let short = ToolResult::new("1", "short");
    let message = Message::tool_results([short.clone(), ToolResult::new("2", "x".repeat(21))]);
    let cut = policy.apply_to(message.into());
    assert_eq!(cut.results().next(), Some(&short));
    assert_eq!(cut.results().nth(1).unwrap().text().len(), 20);
}

#[test]
fn results_of_provider_executed_calls_are_not_truncated() {
    let mut call = ToolCall::new("ws", "web_search", "{}");
    call.provider_executed = true;
    let parts = vec![call.into(), ToolResult::new("ws", "x".repeat(100)).into()];
    let message = Arc::new(Message::new(Role::Assistant, parts));
    assert!(Arc::ptr_eq(&message, &Truncation::to(5).apply_to(message.clone())));
}

#[test]
fn the_default_limit_is_256_kib_and_truncation_can_be_off() {
    let mut result = ToolResult::new("1", "x".repeat(256 * 1024 + 1));
    assert!(!Truncation::off().apply(&mut result));
    assert!(Truncation::default().apply(&mut result));
    assert_eq!(result.text().len(), 256 * 1024);
}

#[test]
fn truncated_results_are_within_the_limit_for_random_parts_and_limits() {
    let texts = ["", "a", "日本", "x[truncated]", "\n[truncated]", "😀😀😀😀😀", "long and longer"];
    for seed in 0..2000 {
        let mut rng = Rng::of(seed);
        let mut result = ToolResult::new("1", "");
        let text = |rng: &mut Rng| Part::text(texts[rng.below(texts.len())]);
        result.content = (0..rng.below(5)).map(|_| text(&mut rng)).collect();
        let limit = rng.below(50);
        let before = result.clone();
        let is_long = before.text().len() > limit;
        assert_eq!(Truncation::to(limit).apply(&mut result), is_long, "seed {seed}");
        assert!(result.text().len() <= limit, "seed {seed}: {result:?}");
        assert!(is_long || result == before, "seed {seed}");
        let marked = &Truncation::MARKER[..limit.min(12)];
        assert!(!is_long || result.text().ends_with(marked), "seed {seed}: {result:?}");
    }
}
