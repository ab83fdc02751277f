//! Tests which results are fresh, and which messages are removed together with a stale result.

use serde_json::json;
use tower_chat_core::{Message, MessageId, Part, Reasoning, RunId, ToolCall, ToolResult};

use super::*;
use crate::replay::generated::{Rng, check_step};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A question, one message with calls, their results and an answer, with the times at which the
/// calls finished.
struct Turn {
    messages: Messages,
    times: FinishTimes,
}

fn turn(calls: &[(&str, Option<u64>)]) -> Turn {
    let id = |index| MessageId { run: RunId::from_bytes([1; 16]), index };
    let ids = || (0..calls.len()).map(|index| format!("c{index}"));
    let asked = ids().zip(calls).map(|(id, (tool, _))| ToolCall::new(id, *tool, "{}"));
    let mut asking = Message::tool_calls(asked);
    asking.parts.insert(0, Part::text("Let me look."));
    let answers = Message::tool_results(ids().map(|id| ToolResult::new(&id, &id)));
    let mut messages = [Message::user("u"), asking, answers, Message::assistant("a")];
    (0..).zip(&mut messages).for_each(|(index, message)| message.id = Some(id(index)));
    let mut times = FinishTimes::new();
    for ((index, call_id), (_, time)) in (0..).zip(ids()).zip(calls) {
        times.insert(id(1), index, call_id, time.map(at));
    }
    Turn { messages: messages.into(), times }
}

impl Turn {
    /// Returns the ids of the remaining calls, and asserts that their results remain too.
    fn left(&self, policy: &Freshness, now: u64, channel: Option<&Channel>) -> Vec<String> {
        let output = policy.apply(&self.messages, at(now), channel, &self.times);
        let ids = |message: &Message| -> Vec<String> {
            message.calls().filter_map(|call| call.id.clone()).collect()
        };
        let calls: Vec<String> = output.iter().flat_map(|message| ids(message)).collect();
        let results = output.iter().flat_map(|message| message.results());
        let answered: Vec<String> = results.map(ToolResult::text).collect();
        assert_eq!(calls, answered);
        calls
    }
}

#[test]
fn a_result_is_fresh_up_to_and_including_the_age_of_the_window() {
    let turn = turn(&[("look", Some(1000))]);
    let policy = Freshness::within(seconds(60));
    assert_eq!(turn.left(&policy, 1060, None), ["c0"]);
    let later = at(1060) + Duration::from_nanos(1);
    assert_eq!(policy.apply(&turn.messages, later, None, &turn.times).len(), 3);
}

#[test]
fn a_result_from_the_future_is_fresh() {
    assert_eq!(turn(&[("look", Some(9000))]).left(&Freshness::default(), 1000, None), ["c0"]);
}

#[test]
fn a_freshness_window_of_zero_makes_every_result_stale() {
    let turn = turn(&[("look", Some(1000)), ("look", Some(2000)), ("look", None)]);
    assert!(turn.left(&Freshness::within(Duration::ZERO), 1000, None).is_empty());
}

#[test]
fn a_call_of_unknown_time_is_fresh() {
    assert_eq!(turn(&[("look", None)]).left(&Freshness::default(), 1 << 40, None), ["c0"]);
    let mut unknown = turn(&[("look", Some(0))]);
    unknown.times = FinishTimes::new();
    assert_eq!(unknown.left(&Freshness::default(), 1 << 40, None), ["c0"]);
}

#[test]
fn only_the_stale_calls_of_a_batch_are_omitted_with_their_results() {
    let turn = turn(&[("a", Some(1000)), ("b", Some(2000)), ("c", Some(1000))]);
    assert_eq!(turn.left(&Freshness::within(seconds(100)), 2100, None), ["c1"]);
}

#[test]
fn a_stale_round_keeps_its_text_and_loses_its_reasoning() {
    let mut turn = turn(&[("a", Some(0)), ("b", Some(0))]);
    let mut messages: Vec<Message> =
        turn.messages.iter().map(|message| (**message).clone()).collect();
    messages[1].parts.insert(1, Reasoning::new("hm").into());
    turn.messages = messages.into();
    let output = Freshness::default().apply(&turn.messages, at(1 << 40), None, &turn.times);
    let texts: Vec<String> = output.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["u", "Let me look.", "a"]);
    assert!(output.iter().all(|message| message.parts.len() == 1));
}

#[test]
fn text_in_the_message_of_stale_results_is_not_omitted() {
    let turn = turn(&[("look", Some(1000))]);
    let with_note = |message: &Arc<Message>| {
        let mut message = (**message).clone();
        if message.results().next().is_some() {
            message.parts.push(Part::text("a note"));
        }
        message
    };
    let messages: Messages = turn.messages.iter().map(with_note).collect();
    let output = Freshness::within(seconds(60)).apply(&messages, at(2000), None, &turn.times);
    let texts: Vec<String> = output.iter().map(|message| message.text()).collect();
    assert_eq!(texts, ["u", "Let me look.", "a note", "a"]);
    assert!(output.iter().all(|message| message.results().next().is_none()));
}

#[test]
fn a_window_for_a_channel_or_a_tool_replaces_the_general_window() {
    let turn = turn(&[("quick", Some(1000)), ("look", Some(1000))]);
    let policy = Freshness::within(seconds(1))
        .with_channel("voice", seconds(10))
        .with_channel("archive", Duration::MAX)
        .with_tool("quick", seconds(50))
        .with_window(seconds(100));
    let [voice, email, archive] = ["voice", "email", "archive"].map(Channel::new);
    assert_eq!(format!("{voice}, {email}, {archive}"), "voice, email, archive");
    let left = |now, channel| turn.left(&policy, now, channel).join(" ");
    assert_eq!(left(1020, None), "c0 c1");
    assert_eq!(left(1060, None), "c1");
    assert_eq!(left(1010, Some(&voice)), "c0 c1");
    assert_eq!(left(1020, Some(&voice)), "", "the channel's window is shorter than the tool's");
    assert_eq!(left(1060, Some(&voice)), "");
    assert_eq!(left(1060, Some(&email)), "c1", "the channel has no window");
    assert_eq!(left(1 << 40, Some(&archive)), "c1");
}

/// A window for channel and tool together replaces the windows of the channel and of the tool.
/// Without this window, the shorter one of the other two windows applies.
#[test]
fn a_window_for_channel_and_tool_wins_and_otherwise_the_shorter_of_their_windows_applies() {
    let policy = Freshness::within(seconds(100))
        .with_channel("live", seconds(10))
        .with_channel("archive", seconds(1000))
        .with_tool("quick", seconds(50))
        .with_tool("slow", seconds(500))
        .with_channel_and_tool("live", "slow", seconds(700));
    let [live, archive, email] = ["live", "archive", "email"].map(Channel::new);
    let window = |channel, tool| policy.window_for(channel, tool).as_secs();
    assert_eq!(window(Some(&live), "slow"), 700, "a window for channel and tool together");
    assert_eq!(window(Some(&live), "quick"), 10, "the channel's window is shorter");
    assert_eq!(window(Some(&archive), "quick"), 50, "the tool's window is shorter");
    assert_eq!(window(Some(&archive), "look"), 1000, "only the channel has a window");
    assert_eq!(window(Some(&email), "slow"), 500, "only the tool has a window");
    assert_eq!(window(None, "look"), 100);
}

#[test]
fn calls_with_the_same_id_keep_separate_finish_times() {
    let mut turn = turn(&[("a", Some(0)), ("b", Some(0))]);
    let mut messages: Vec<Message> =
        turn.messages.iter().map(|message| (**message).clone()).collect();
    messages[1] = Message::tool_calls(["x", "x"].map(|id| ToolCall::new(id, "look", "{}")));
    messages[1].id = turn.messages.get(1).unwrap().id;
    messages[2] = Message::tool_results(["1", "2"].map(|text| ToolResult::new("x", text)));
    turn.messages = messages.into();
    let id = turn.messages.get(1).unwrap().id.unwrap();
    for (first, second, left) in [(0, 1000, "2"), (1000, 0, "1")] {
        turn.times.insert(id, 1, "x", Some(at(second)));
        turn.times.insert(id, 0, "x", Some(at(first)));
        let fresh = |messages| Freshness::default().apply(messages, at(1000), None, &turn.times);
        let once = fresh(&turn.messages);
        let results: Vec<String> =
            once.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
        assert_eq!(results, [left]);
        assert_eq!(fresh(&once), once);
    }
}

#[test]
fn the_finish_time_of_a_call_without_a_message_id_is_found_by_a_unique_call_id() {
    let turn = turn(&[("look", Some(0))]);
    let moved = Message::tool_calls([ToolCall::new("c0", "look", "{}")]);
    assert_eq!(turn.times.of(&moved, 0), Some(at(0)));
    let mut twice = turn.times.clone();
    twice.insert(MessageId { run: RunId::from_bytes([2; 16]), index: 0 }, 0, "c0", Some(at(9)));
    assert_eq!(twice.of(&moved, 0), None, "the id does not identify one of the two calls");
}

#[test]
fn finish_times_are_found_in_every_order_of_insertion_and_lookup() {
    let message = |index: u32| {
        let mut message = Message::tool_calls(["a", "b"].map(|id| ToolCall::new(id, "look", "{}")));
        message.id = Some(MessageId { run: RunId::from_bytes([1; 16]), index });
        message
    };
    let time = |index: u32, call: u32| at(u64::from(index * 2 + call));
    for step in [1, 3, 7, 16] {
        let mut times = FinishTimes::new();
        for index in (0..17).map(|n| n * step % 17) {
            for (call, id) in [(1, "b"), (0, "?"), (0, "a")] {
                times.insert(message(index).id.unwrap(), call, id, Some(time(index, call)));
            }
        }
        for index in (0..100).map(|n| n * 5 % 19) {
            let message = message(index);
            for (call, _) in (0..).zip(message.asked_calls()) {
                let expected = (index < 17).then(|| time(index, call));
                assert_eq!(times.of(&message, call as usize), expected);
            }
        }
    }
}

#[test]
fn fresh_messages_are_shared() {
    let turn = turn(&[("look", Some(1000))]);
    let output = Freshness::default().apply(&turn.messages, at(1000), None, &turn.times);
    assert!(turn.messages.iter().zip(output.iter()).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn settings_are_parsed_and_missing_settings_have_their_defaults() {
    let settings = json!({
        "window": 0.5, "channels": {"voice": 60, "sms": null}, "tools": {"look": 0},
        "channels_and_tools": {"voice": {"look": 7, "pay": null}}
    });
    let expected = Freshness::within(Duration::from_millis(500))
        .with_channel("voice", seconds(60))
        .with_channel("sms", Duration::MAX)
        .with_tool("look", Duration::ZERO)
        .with_channel_and_tool("voice", "look", seconds(7))
        .with_channel_and_tool("voice", "pay", Duration::MAX);
    assert_eq!(Freshness::from_settings(&settings), Ok(expected.clone()));
    assert_eq!(Freshness::try_from(settings.clone()), Ok(expected.clone()));
    assert_eq!(serde_json::from_value::<Freshness>(settings).unwrap(), expected);
    assert_eq!(Freshness::from_settings(&json!({})), Ok(Freshness::default()));
}

#[test]
fn settings_with_unknown_keys_or_wrong_types_are_refused() {
    let refused = |settings| Freshness::from_settings(&settings).unwrap_err();
    let key = "windows".to_owned();
    assert_eq!(refused(json!({"windows": 1})), FreshnessError::UnknownKey { key });
    let message = refused(json!({"channels": {"voice": "60"}})).to_string();
    assert!(message.contains("channels.voice") && message.contains(r#""60""#), "{message}");
    for settings in [
        json!(null),
        json!(300),
        json!([]),
        json!({"window": -1}),
        json!({"window": 1e300}),
        json!({"window": true}),
        json!({"tools": []}),
        json!({"tools": null}),
        json!({"tools": {"look": {}}}),
    ] {
        let error = refused(settings.clone());
        assert!(matches!(error, FreshnessError::WrongType { .. }), "{settings}: {error}");
    }
}

#[test]
fn omitting_stale_results_keeps_every_history_valid() {
    let policy = Freshness::within(seconds(100)).with_tool("look", seconds(200));
    check_step(
        |messages, seed| {
            let mut rng = Rng::of(seed);
            let mut times = FinishTimes::new();
            let run = RunId::from_bytes([1; 16]);
            // The finish times depend only on the ids of the calls, because the second application
            // of the step must read the same times as the first.
            for index in 0..40 {
                for id in ["again", "c0_0", "c0_1", "c1_0", "c2_2"] {
                    let run = RunId::from_bytes([index as u8; 16]);
                    let time = at(rng.below(400) as u64);
                    times.insert(MessageId { run, index }, 0, id, Some(time));
                }
            }
            for message in messages.iter().filter_map(|message| message.id) {
                for (index, id) in (0..).zip(["c0_0", "again", "c0_2", "c1_0", "c2_1"]) {
                    let time = at((message.index as u64 * 50 + index as u64 * 70) % 400);
                    times.insert(message, index, id, Some(time));
                }
            }
            times.insert(MessageId { run, index: 99 }, 0, "other", None);
            policy.apply(messages, at(400), None, &times)
        },
        &[],
    );
}

/// Returns the same time as [`FinishTimes::of`], by a linear search.
fn searched(
    known: &[(u32, &str, Option<SystemTime>)],
    message: &Message,
    index: usize,
) -> Option<SystemTime> {
    let call = message.asked_calls().nth(index).unwrap();
    let Some(id) = call.id.as_deref().filter(|id| !id.is_empty()) else {
        return known.iter().find(|known| known.0 as usize == index)?.2;
    };
    let same: Vec<_> = known.iter().filter(|known| known.1 == id).map(|known| known.2).collect();
    let is_same = |asked: &&ToolCall| asked.id.as_deref() == Some(id);
    let before = message.asked_calls().take(index).filter(is_same).count();
    match message.asked_calls().filter(is_same).count() == same.len() {
        true => same[before],
        false => same.into_iter().max().flatten(),
    }
}

#[test]
fn indexed_finish_times_equal_those_of_a_linear_search() {
    const IDS: [&str; 5] = ["a", "b", "c", "", "e"];
    for seed in 0..300 {
        let mut rng = Rng::of(seed);
        let mut times = FinishTimes::new();
        let run = RunId::from_bytes([3; 16]);
        let mut asked = Vec::new();
        for index in 0..6 {
            let calls: Vec<_> = (0..rng.below(24)).map(|_| IDS[rng.below(5)]).collect();
            let id = MessageId { run, index };
            let (mut known, mut left) = (Vec::new(), Vec::new());
            for (call, call_id) in (0..).zip(&calls) {
                if rng.below(12) > 0 {
                    let time = (rng.below(4) > 0).then(|| at(u64::from(index * 100 + call)));
                    times.insert(id, call, *call_id, time);
                    known.push((call, *call_id, time));
                }
                if seed % 2 == 0 || rng.below(12) > 0 {
                    left.push(ToolCall::new(*call_id, "look", "{}"));
                }
            }
            // A replay may split a message into two messages with the same id.
            let rest = left.split_off(left.len() - rng.below(left.len() + 1) / 2);
            for calls in [left, rest] {
                let mut message = Message::tool_calls(calls);
                message.id = Some(id);
                asked.push((known.clone(), message));
            }
        }
        for (known, message) in &asked {
            for (index, _) in message.asked_calls().enumerate() {
                let expected = searched(known, message, index);
                assert_eq!(times.of(message, index), expected, "{seed}: {message:?} {index}");
            }
        }
    }
}

#[test]
fn results_with_equal_ids_get_the_times_of_their_own_messages() {
    let asking = |index: u32, count: usize| {
        let mut message =
            Message::tool_calls((0..count).map(|_| ToolCall::new("same", "look", "")));
        message.id = Some(MessageId { run: RunId::from_bytes([4; 16]), index });
        message
    };
    let answer = |text: u64| {
        let mut message = Message::tool_results([ToolResult::new("same", text.to_string())]);
        message.added_at = Some(at(text));
        message
    };
    let mut messages = vec![asking(0, 2), answer(10), answer(11), asking(1, 20)];
    messages.extend((20..40).map(answer));
    messages.extend([asking(2, 1), answer(50)]);
    let mut times = FinishTimes::new();
    let last = messages[24].id.unwrap();
    times.insert(last, 0, "same", Some(at(49)));
    times.complete(&messages.clone().into());
    let of = |message: usize, index| times.of(&messages[message], index);
    assert_eq!([of(0, 0), of(0, 1)], [Some(at(10)), Some(at(11))]);
    for index in 0..20 {
        assert_eq!(of(3, index), Some(at(20 + index as u64)));
    }
    assert_eq!(of(24, 0), Some(at(49)), "known times do not change");
}
