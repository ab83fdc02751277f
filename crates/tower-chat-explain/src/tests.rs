//! Tests of explanations, of single cases and of randomly damaged histories.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Media, MediaSource, MemoryStore, Message, MessageId,
    Messages, Native, Part, Role, RunId, ToolCall, ToolResult, ToolStatus,
    store::{
        AddedSummary, HistoryStore, HistorySummary, Revision, SequencePosition, Summaries,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_layers::replay::{
    Citations, DanglingCalls, FinishTimes, Freshness, OldMedia, OutdatedCalls, Replay, ToolHistory,
    Truncation, Window,
};
use tower_chat_testkit::damaged_history;

use super::{tags::untagged, *};

/// The number of generated histories.
const SEEDS: u64 = 400;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// Formats the explanation of each message as a text. The text begins with `=` for an unchanged
/// message, `~` for a changed one and `-` for an omitted one. The reasons and their parts follow.
fn sketch(explained: &[Explained]) -> Vec<String> {
    let sketch = |explained: &Explained| {
        let sign = match explained {
            Explained::Unchanged => "=",
            Explained::Changed { .. } => "~",
            Explained::LeftOut { .. } => "-",
        };
        let reasons = explained.reasons().iter().map(|reason| match reason.part {
            Some(part) => format!(" {part}:{}", reason.kind.as_str()),
            None => format!(" {}", reason.kind.as_str()),
        });
        format!("{sign}{}", reasons.collect::<String>())
    };
    explained.iter().map(sketch).collect()
}

fn explained<const N: usize>(messages: [Message; N], policy: &ReplayPolicy) -> Vec<String> {
    sketch(&explain(&messages.into(), policy, &ReplayContext::at(NOW)))
}

fn by_default<const N: usize>(messages: [Message; N]) -> Vec<String> {
    explained(messages, &ReplayPolicy::default())
}

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "look", format!(r#"{{"for": "{id}"}}"#))
}

fn calls<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_calls(ids.map(call))
}

fn results<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_results(ids.map(|id| ToolResult::new(id, format!("found {id}"))))
}

fn with_metadata(mut message: Message, name: &str, value: Value) -> Message {
    message.metadata.insert(name.to_owned(), value);
    message
}

#[test]
fn what_is_in_order_is_unchanged() {
    let native = Native::new("a wire", r#"{"signature": 1}"#.parse().unwrap());
    let mut signed = call("c2");
    signed.native = Some(native);
    let mut own = call("of the provider");
    own.provider_executed = true;
    let explained = by_default([
        Message::system("rules"),
        Message::user("one"),
        calls(["c1"]),
        results(["c1"]),
        Message::new(Role::Assistant, vec![Part::text("and"), signed.into()]),
        results(["c2"]),
        Message::new(Role::Assistant, vec![own.into(), Part::text("done")]),
    ]);
    assert_eq!(explained, ["="; 7]);
}

#[test]
fn a_dangling_call_is_interrupted_or_left_out() {
    let stored = || [calls(["c1", "c2"]), results(["c2"]), Message::user("well?")];
    assert_eq!(by_default(stored()), ["~ 0:interrupted", "=", "="]);
    let drop = ReplayPolicy::default().with_dangling_calls(DanglingCalls::Drop);
    assert_eq!(explained(stored(), &drop), ["~ 0:dangling", "=", "="]);
    let alone = [calls(["c3"]), Message::user("and?")];
    assert_eq!(explained(alone, &drop), ["- 0:dangling", "="]);
}

#[test]
fn old_media_are_replaced_by_sentences() {
    let picture = Media::new("image/png", MediaSource::Base64("b25l".to_owned()));
    let mut result = results(["c1"]);
    if let Some(Part::ToolResult(result)) = result.parts.first_mut() {
        result.content.push(Part::Media(picture.clone()));
    }
    let asked = Message::new(Role::User, vec![Part::text("look"), Part::Media(picture)]);
    let stored = [asked, calls(["c1"]), result, Message::assistant("seen")];
    let explained = |policy| explained(stored.clone(), &policy);
    let keep = |media| ReplayPolicy::default().with_old_media(OldMedia::keep_last(media));
    assert_eq!(explained(keep(2)), ["=", "=", "=", "="]);
    assert_eq!(explained(keep(1)), ["~ 1:old_media", "=", "=", "="]);
    assert_eq!(explained(keep(0)), ["~ 1:old_media", "=", "~ 0:old_media", "="]);
}

#[test]
fn an_explanation_has_a_name() {
    let drop = ReplayPolicy::default().with_dangling_calls(DanglingCalls::Drop);
    let stored = [calls(["c1", "c2"]), results(["c2"]), Message::user("so?"), calls(["c3"])];
    let explained = explain(&stored.into(), &drop, &ReplayContext::at(NOW));
    let names: Vec<_> = explained.iter().map(Explained::as_str).collect();
    assert_eq!(names, ["changed", "unchanged", "unchanged", "left_out"]);
}

#[test]
fn each_reason_has_words_of_its_own() {
    let kinds = [
        ReasonKind::Truncated,
        ReasonKind::Redacted,
        ReasonKind::NotStored,
        ReasonKind::Misplaced,
        ReasonKind::Dangling,
        ReasonKind::Interrupted,
        ReasonKind::FromRecord,
        ReasonKind::AwaitingApproval,
        ReasonKind::Decision,
        ReasonKind::Orphan,
        ReasonKind::Repeated,
        ReasonKind::Moved,
        ReasonKind::Empty,
        ReasonKind::ToolHistory,
        ReasonKind::Stale,
        ReasonKind::Outdated,
        ReasonKind::Compacted,
        ReasonKind::OldMedia,
        ReasonKind::OutsideWindow,
    ];
    let words: HashSet<String> = kinds.iter().map(ReasonKind::to_string).collect();
    let names: HashSet<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    assert_eq!((words.len(), names.len()), (kinds.len(), kinds.len()));
    assert!(words.iter().all(|words| words.contains(' ')), "{words:?}");
}

#[test]
fn calls_of_a_run_that_ended_and_of_forgotten_results_are_left_out() {
    let ended = with_metadata(calls(["c1"]), "run_ended", json!(true));
    let explained = by_default([Message::user("one"), ended, Message::user("two")]);
    assert_eq!(explained, ["=", "- 0:dangling", "="]);
    let forgets = with_metadata(results(["c3"]), "results_not_kept", json!(["c2"]));
    assert_eq!(by_default([calls(["c2", "c3"]), forgets]), ["~ 0:not_stored", "~ not_stored"]);
}

#[test]
fn approvals_wait_and_decisions_are_not_sent() {
    let request = ApprovalRequest::new("a1", call("c1"), true);
    let asks = Message::new(Role::Assistant, vec![Part::text("May I?"), request.clone().into()]);
    assert_eq!(by_default([asks.clone()]), ["~ 1:awaiting_approval"]);
    let decision = Message::approvals([request.approve()]);
    let explained = by_default([asks, decision, results(["c1"])]);
    assert_eq!(explained, ["=", "- 0:decision", "="]);
}

#[test]
fn results_without_a_call_and_calls_of_others_are_left_out() {
    let explained = by_default([
        results(["c9"]),
        calls(["c1"]),
        results(["c1", "c1", "c8"]),
        Message::new(Role::User, vec![Part::text("run this"), call("c2").into()]),
        Message::assistant(""),
    ]);
    let expected = ["- 0:orphan", "=", "~ 1:repeated 2:orphan", "~ 1:misplaced", "- empty"];
    assert_eq!(explained, expected);
}

#[test]
fn what_is_sent_at_another_position_is_moved() {
    let late = [calls(["c1"]), Message::user("hurry"), results(["c1"])];
    assert_eq!(by_default(late), ["~ 0:moved", "=", "="]);
    let words = [calls(["c3"]), Message::assistant("Wait."), results(["c3"])];
    assert_eq!(by_default(words), ["=", "~ moved", "="]);
    let split = [calls(["c1", "c2"]), results(["c1"]), results(["c2"])];
    assert_eq!(by_default(split), ["="; 3]);
}

#[test]
fn marks_of_the_write_are_reported() {
    let cut = format!("a long text{}", Truncation::MARKER);
    let explained = by_default([
        with_metadata(calls(["c1", "c2"]), "arguments_not_kept", json!([1])),
        Message::tool_results([ToolResult::new("c1", cut), ToolResult::new("c2", "short")]),
        with_metadata(Message::assistant("I looked."), "calls_not_kept", json!(true)),
    ]);
    assert_eq!(explained, ["~ 1:redacted", "~ 0:truncated", "~ not_stored"]);
}

#[test]
fn each_step_says_what_it_leaves_out() {
    let found = r#"[{"source_number": 0}, {"source_number": 1}]"#;
    let stored = || {
        [
            Message::user("first"),
            Message::assistant("answer"),
            Message::user("second"),
            Message::tool_calls([
                ToolCall::new("c1", "rate", "{}"),
                ToolCall::new("c2", "gone", "{}"),
                ToolCall::new("c3", "search", "{}"),
            ]),
            Message::tool_results([
                ToolResult::new("c1", "7"),
                ToolResult::new("c2", "8"),
                ToolResult::new("c3", found),
            ]),
            Message::assistant("See [source1]."),
        ]
    };
    let policy = ReplayPolicy::default()
        .with_freshness(Freshness::within(Duration::MAX).with_tool("rate", Duration::ZERO))
        .with_outdated_calls(OutdatedCalls::keep().drop_unregistered())
        .with_citations(Citations::default())
        .with_window(Window::turns(1));
    let context = ReplayContext::at(NOW).with_tools(&["rate", "search"]);
    let explained = sketch(&explain(&stored().into(), &policy, &context));
    let expected = [
        "- outside_window",
        "- outside_window",
        "=",
        "~ 0:stale 1:outdated",
        "~ 0:stale 1:outdated 2:compacted",
        "=",
    ];
    assert_eq!(explained, expected);
    let omit = ReplayPolicy::default().with_tool_history(ToolHistory::Omit);
    let explained = self::explained(stored(), &omit);
    let (calls, results) = (explained[3].clone(), explained[4].clone());
    assert_eq!(calls, "- 0:tool_history 1:tool_history 2:tool_history");
    assert_eq!(results, calls);
}

/// Returns one policy for each step, and a policy with all steps.
fn policies() -> Vec<ReplayPolicy> {
    let fresh = Freshness::within(Duration::MAX).with_tool("look", Duration::ZERO);
    let outdated = OutdatedCalls::keep().drop_unreadable_arguments().drop_unregistered();
    let length = |message: &Message| serde_json::to_string(message).unwrap().len();
    let all = ReplayPolicy::default()
        .with_freshness(fresh.clone())
        .with_outdated_calls(outdated)
        .with_citations(Citations::default())
        .with_window(Window::tokens_counted_by(2000, length));
    vec![
        ReplayPolicy::default(),
        ReplayPolicy::default().with_dangling_calls(DanglingCalls::Drop),
        ReplayPolicy::default().with_tool_history(ToolHistory::Omit).with_window(Window::turns(2)),
        ReplayPolicy::default().with_freshness(fresh),
        ReplayPolicy::default().with_window(Window::tokens_counted_by(900, length)),
        all,
    ]
}

#[test]
fn an_explanation_is_that_of_the_real_replay() {
    let context = ReplayContext::at(NOW).with_tools(&["look", "search"]);
    for (case, policy) in policies().iter().enumerate() {
        let (mut changed, mut left_out) = (0, 0);
        for seed in 1..=SEEDS {
            let stored = damaged_history(seed);
            let mut real = Replay::new(policy.dangling_calls);
            real.push_from(&stored, 0);
            policy.edit(&mut real, &context);
            let real = real.view();

            let mut folded = Folded::of(&stored, policy.dangling_calls);
            let mut reasons = Reasons::of(stored.len());
            steps::explain(&stored, &mut folded.replay, policy, &context, &mut reasons);
            let sent = folded.replay.view();
            let sent: Messages = sent.iter().map(|it| untagged(it, &stored)).collect();
            assert_eq!(sent, real, "policy {case}, seed {seed}");

            let explained = explain(&stored, policy, &context);
            assert_eq!(explained.len(), stored.len());
            for (explained, message) in explained.iter().zip(stored.iter()) {
                let is_sent = real.iter().any(|it| it.parts == message.parts);
                let is_plain = message.asked_calls().count() + message.results().count() == 0;
                match explained {
                    Explained::Unchanged => {
                        assert!(is_sent || !is_plain, "policy {case}, seed {seed}: {message:?}");
                    }
                    Explained::Changed { reasons } => {
                        assert_ne!(reasons, &[]);
                        changed += 1;
                    }
                    Explained::LeftOut { reasons } => {
                        assert_ne!(reasons, &[]);
                        left_out += 1;
                    }
                }
            }
        }
        assert!(changed > 50 && left_out > 50, "policy {case}: {changed} and {left_out}");
    }
}

async fn store_of(messages: &[Message], tools: Vec<ToolRecord>) -> (MemoryStore, ConversationKey) {
    let (store, key) = (MemoryStore::new(), ConversationKey::new("s", "explained"));
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = messages.iter().cloned().map(std::sync::Arc::new);
    let write = Write::new(key.clone(), id, Revision::ABSENT, messages).with_tools(tools);
    store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
    (store, key)
}

#[tokio::test]
async fn a_result_of_the_record_is_sent_and_calls_of_a_run_that_a_tool_ended_are_not() {
    let row = |index, id: &str, ends_run| {
        let call = SequencePosition { sequence: 2, index };
        let mut row = ToolRecord::pending(call, 0, id, "look");
        row.status = ToolStatus::Ok;
        let mut result = ToolResult::new(id, format!("recorded {id}"));
        result.ends_run = ends_run;
        row.result = RecordedResult::Apart(Box::new(result));
        row
    };
    let stored = [Message::user("go"), calls(["c1", "c2"]), Message::user("and?")];
    let by_default = ReplayPolicy::default();
    let drop = ReplayPolicy::default().with_dangling_calls(DanglingCalls::Drop);
    for (policy, ends_run, expected) in [
        (&by_default, false, ["1 =", "2 ~ 0:from_record 1:from_record", "3 ="]),
        (&by_default, true, ["1 =", "2 - 0:dangling 1:dangling", "3 ="]),
        (&drop, false, ["1 =", "2 - 0:dangling 1:dangling", "3 ="]),
    ] {
        let rows = vec![row(0, "c1", false), row(1, "c2", ends_run)];
        let (store, key) = store_of(&stored, rows).await;
        let context = ReplayContext::at(NOW);
        let found = explain_stored(&store, &key, policy, &context).await.unwrap();
        let (numbers, explained): (Vec<u64>, Vec<Explained>) = found.into_iter().unzip();
        let found = numbers.iter().zip(sketch(&explained));
        let found: Vec<String> = found.map(|(number, it)| format!("{number} {it}")).collect();
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn covered_messages_are_replaced_by_the_summary_in_force() {
    let stored = [
        Message::system("rules"),
        Message::user("one"),
        calls(["c1"]),
        results(["c1"]),
        Message::assistant("found"),
        Message::user("two"),
        Message::assistant("yes"),
        Message::user("three"),
        Message::assistant("no"),
    ];
    let (store, key) = store_of(&stored, Vec::new()).await;
    let last = store.load(&key).await.unwrap().message(5).and_then(|message| message.id).unwrap();
    let summary = HistorySummary::new(5, last, "in short");
    let added = store.add_summary(&key, &summary, 0).await.unwrap();
    assert_eq!(added, AddedSummary::Stored);
    let covered = ["=", "- summarized", "- summarized", "- summarized", "- summarized"];
    let window = ReplayPolicy::default().with_window(Window::messages(4).with_low_water(4));
    let later = ["= = = =", "- outside_window - outside_window = ="];
    for (policy, later) in [ReplayPolicy::default(), window].iter().zip(later) {
        let found = explain_stored(&store, &key, policy, &ReplayContext::at(NOW)).await.unwrap();
        let explained: Vec<Explained> = found.into_iter().map(|(_, explained)| explained).collect();
        let sketched = sketch(&explained);
        assert_eq!(sketched[..5], covered);
        assert_eq!(sketched[5..].join(" "), later);
    }
}

#[tokio::test]
async fn times_of_the_record_are_asked_for_where_the_policy_needs_them() {
    let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "c1", "look");
    row.status = ToolStatus::Ok;
    row.finished_at = Some(NOW);
    row.result = RecordedResult::InMessage(SequencePosition { sequence: 2, index: 0 });
    let (store, key) = store_of(&[calls(["c1"]), results(["c1"])], vec![row]).await;
    let policy = ReplayPolicy::default().with_freshness(Freshness::default());
    for (age, expected) in [(299, "="), (301, "- 0:stale")] {
        let context = ReplayContext::at(NOW + Duration::from_secs(age));
        let found = explain_stored(&store, &key, &policy, &context).await.unwrap();
        let explained: Vec<Explained> = found.into_iter().map(|(_, explained)| explained).collect();
        assert_eq!(sketch(&explained), [expected, expected]);
    }
}

#[tokio::test]
async fn times_of_the_context_count_instead_of_those_of_the_record() {
    let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "c2", "look");
    row.status = ToolStatus::Ok;
    row.finished_at = Some(NOW);
    row.result = RecordedResult::InMessage(SequencePosition { sequence: 2, index: 0 });
    let (store, key) = store_of(&[calls(["c2"]), results(["c2"])], vec![row]).await;
    let policy = ReplayPolicy::default().with_freshness(Freshness::default());
    let unknown = FinishTimes::new();
    let context = ReplayContext::at(NOW + Duration::from_secs(400)).with_finish_times(&unknown);
    let found = explain_stored(&store, &key, &policy, &context).await.unwrap();
    let explained: Vec<Explained> = found.into_iter().map(|(_, explained)| explained).collect();
    assert_eq!(sketch(&explained), ["=", "="], "a call without a known time is not stale");
}

#[tokio::test]
async fn a_call_that_failed_by_the_record_was_not_interrupted() {
    let mut row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "c3", "look");
    row.status = ToolStatus::Error;
    row.result = RecordedResult::Apart(Box::new(ToolResult::error("c3", "no such place")));
    let (store, key) = store_of(&[calls(["c3"]), Message::user("why?")], vec![row]).await;
    let context = ReplayContext::at(NOW);
    let found = explain_stored(&store, &key, &ReplayPolicy::default(), &context).await.unwrap();
    let explained: Vec<Explained> = found.into_iter().map(|(_, explained)| explained).collect();
    assert_eq!(sketch(&explained), ["~ 0:from_record", "="]);
}

#[test]
fn a_row_that_is_split_has_not_moved() {
    let parts = vec![Part::text("Look:"), call("c1").into(), ToolResult::new("c1", "found").into()];
    let row = Message::new(Role::Assistant, parts);
    assert_eq!(by_default([Message::user("one"), row, Message::assistant("done")]), ["="; 3]);
}

#[test]
fn calls_that_only_a_message_that_is_not_sent_parts_from_their_results_have_not_moved() {
    let forged = Message::new(Role::User, vec![call("c9").into()]);
    let stored = [Message::user("one"), calls(["c1", "c2"]), forged, results(["c1", "c2"])];
    assert_eq!(by_default(stored), ["=", "=", "- 0:misplaced", "="]);
}
