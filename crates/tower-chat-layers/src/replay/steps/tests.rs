//! Tests several steps together.

use std::{sync::Arc, time::Duration};

use tower_chat_core::{Message, MessageId, Part, Role, RunId, ToolCall, ToolResult};

use super::*;
use crate::replay::generated::{Rng, check_step, history, output_of};

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
}

/// Returns a policy that is generated from a seed.
fn policy(seed: u64) -> ReplayPolicy {
    let mut rng = Rng::of(seed ^ 0xabcd);
    let mut policy = ReplayPolicy::default();
    if rng.one_in(2) {
        policy =
            policy.with_freshness(Freshness::default().with_tool("look", Duration::from_secs(900)));
    }
    if rng.one_in(2) {
        let outdated = OutdatedCalls::keep().drop_unregistered().drop_unreadable_arguments();
        policy = policy.with_outdated_calls(outdated);
    }
    if rng.one_in(2) {
        policy = policy.with_citations(Citations::default());
    }
    if rng.one_in(2) {
        policy = policy.with_window(Window::messages(rng.below(30)));
    }
    if rng.one_in(8) {
        policy = policy.with_tool_history(ToolHistory::Omit);
    }
    policy
}

fn times(messages: &Messages) -> FinishTimes {
    let mut times = FinishTimes::new();
    for message in messages.iter() {
        let Some(id) = message.id else { continue };
        for (index, call) in (0..).zip(message.asked_calls()) {
            let age = (u64::from(id.index) * 131 + u64::from(index) * 97) % 1000;
            let call_id = call.id.clone().unwrap_or_default();
            times.insert(id, index, call_id, Some(now() - Duration::from_secs(age)));
        }
    }
    times
}

#[test]
fn every_replay_step_is_off_by_default() {
    let policy = ReplayPolicy::default();
    assert!(policy.is_off() && !policy.needs_finish_times() && !policy.needs_tools());
    let messages = output_of(&history(7));
    let output = policy.apply(&messages, &ReplayContext::at(now()));
    assert!(messages.iter().zip(output.iter()).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn a_policy_reports_whether_it_needs_finish_times_or_tools() {
    let policy = ReplayPolicy::default().with_freshness(Freshness::default());
    assert!(policy.needs_finish_times() && !policy.needs_tools() && !policy.is_off());
    let policy = policy.with_outdated_calls(OutdatedCalls::keep().drop_unregistered());
    assert!(policy.needs_tools());
    let policy = policy.with_tool_history(ToolHistory::Omit);
    assert!(!policy.needs_finish_times() && !policy.needs_tools() && !policy.is_off());
}

#[test]
fn compaction_at_save_is_not_a_replay_step() {
    let policy = ReplayPolicy::default().with_citations(Citations::when(CompactionTime::AtSave));
    assert!(policy.is_off() && policy.citations_at_save().is_some());
    let policy = policy.with_citations(Citations::default());
    assert!(!policy.is_off() && policy.citations_at_save().is_none());
}

#[test]
fn an_open_round_without_tool_history_keeps_only_text_and_calls_that_wait_for_results() {
    let answer = |index, words: &str, waiting: &str| {
        let mut search = ToolCall::new(format!("search {index}"), "web_search", "{}");
        search.provider_executed = true;
        let found = ToolResult::new(format!("search {index}"), "pages");
        let call = ToolCall::new(waiting, "look", "{}");
        let parts = vec![search.into(), found.into(), Part::text(words), call.into()];
        let mut message = Message::new(Role::Assistant, parts);
        message.id = Some(MessageId { run: RunId::from_bytes([1; 16]), index });
        message
    };
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push(&Arc::new(answer(0, "Let me look.", "c1")));
    replay.push(&Arc::new(answer(1, "And there.", "c2")));
    let policy = ReplayPolicy::default().with_tool_history(ToolHistory::Omit);
    policy.edit(&mut replay, &ReplayContext::at(now()));
    let results = ["c1", "c2"].map(|id| ToolResult::new(id, format!("found by {id}")));
    replay.push(&Arc::new(Message::tool_results(results)));
    let shown = replay.view();
    let words: Vec<String> = shown.iter().map(|message| message.text()).collect();
    assert_eq!(words, ["Let me look.", "", "And there.", ""]);
    let calls = shown.iter().flat_map(|message| message.calls());
    assert_eq!(calls.map(|call| call.id.as_deref()).collect::<Vec<_>>(), [Some("c1"), Some("c2")]);
    let results = shown.iter().flat_map(|message| message.results());
    let results: Vec<String> = results.map(ToolResult::text).collect();
    assert_eq!(results, ["found by c1", "found by c2"]);
}

/// The window counts the messages that remain after the other steps.
#[test]
fn the_steps_run_in_their_order() {
    let id = |index| MessageId { run: RunId::from_bytes([1; 16]), index };
    let mut asking = Message::tool_calls([ToolCall::new("1", "look", "{}")]);
    asking.id = Some(id(1));
    let messages: Messages = [
        Message::user("u"),
        asking,
        Message::tool_results([ToolResult::new("1", "old")]),
        Message::assistant("a"),
        Message::user("v"),
        Message::assistant("b"),
    ]
    .into();
    let mut finished = FinishTimes::new();
    finished.insert(id(1), 0, "1", Some(SystemTime::UNIX_EPOCH));
    let policy = ReplayPolicy::default()
        .with_freshness(Freshness::default())
        .with_window(Window::messages(4));
    let output = policy.apply(&messages, &ReplayContext::at(now()).with_finish_times(&finished));
    let texts: Vec<String> = output.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["u", "a", "v", "b"]);
}

#[test]
fn every_history_stays_valid_under_every_policy() {
    let channel = Channel::new("web");
    check_step(
        |messages, seed| {
            // Both applications of the steps use the finish times of the whole history.
            let finished = times(&output_of(&history(seed)));
            let context = ReplayContext::at(now())
                .with_channel(Some(&channel))
                .with_tools(&["look", "search"])
                .with_finish_times(&finished);
            policy(seed).apply(messages, &context)
        },
        &[],
    );
}

#[test]
fn a_history_that_no_step_changes_is_shared_with_the_request() {
    // A short sequence contains its messages inline. A long sequence contains them in nodes, which
    // clones share.
    let messages: Messages = (0..500).map(|n| Message::user(format!("question {n}"))).collect();
    let slots = |messages: &Messages| messages.iter().map(std::ptr::from_ref).collect::<Vec<_>>();
    for window in [None, Some(1000)] {
        let outdated = OutdatedCalls::keep().drop_unregistered();
        let mut policy = ReplayPolicy::default().with_outdated_calls(outdated);
        policy.window = window.map(Window::messages);
        let output = policy.apply(&messages, &ReplayContext::at(now()).with_tools(&["look"]));
        assert_eq!(slots(&output), slots(&messages), "{window:?}");
    }
}
