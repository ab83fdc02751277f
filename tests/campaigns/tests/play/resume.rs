//! Plays that are continued after a crash, after an interruption, or with a longer recording.

use std::process::{Child, Command, Stdio};

use crate::{expected::*, support::*};
use serde_json::{Value, json};
use tower_chat_testkit::Rng;

/// Waits until this many messages are stored, or the command has ended.
fn wait_for_messages(child: &mut Child, store: &Store, messages: usize) {
    while stored_messages(&store.path()) < messages && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
}

/// Starts a play and kills it repeatedly, until one play completes. Returns the number of kills.
fn play_killed(store: &Store, arguments: &[&str], rng: &mut Rng, step: usize) -> usize {
    for kills in 0.. {
        let mut child =
            command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let messages = stored_messages(&store.path()) + rng.below(step);
        wait_for_messages(&mut child, store, messages);
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            None => {}
            Some(0) => return kills,
            Some(code) => {
                panic!("{code} after {kills} kills: {}{}", stdout(&output), stderr(&output))
            }
        }
    }
    unreachable!()
}

#[test]
fn a_play_that_is_killed_at_any_moment_is_resumed_to_the_same_result() {
    let mut seed = 0;
    for mode in ["per-service-call", "per-run"] {
        for stream in [&[][..], &["--stream"]] {
            seed += 1;
            let store = Store::new();
            let file = store.file("many.jsonl", &many_shapes(3));
            let options = ["--persistence", mode, "--resume", "--concurrency", "3"];
            let arguments = [&[&file[..], "--store", &store.argument()], &options[..], stream];
            let kills = play_killed(&store, &arguments.concat(), &mut Rng::of(seed, 0), 60);
            assert!(kills >= 3, "only {kills} kills");
            assert_exported(&file, &store.export(), own_export);
        }
    }
}

#[test]
fn a_play_of_recorded_data_that_is_killed_at_any_moment_is_resumed_to_the_same_result() {
    let files = data_files();
    for (seed, file) in files.iter().enumerate() {
        let store = Store::new();
        let argument = store.argument();
        let options = ["--persistence", "per-service-call", "--resume", "--concurrency", "2"];
        let arguments = [&[&file[..], "--store", &argument], &options[..]].concat();
        play_killed(&store, &arguments, &mut Rng::of(seed as u64, 0), 400);
        let exported = store.export();
        assert_exported(file, &exported, |line| expected_export(&line["messages"]));
    }
}

#[test]
fn an_interrupted_play_prints_its_summary_and_can_be_resumed() {
    for mode in MODES {
        for stream in [&[][..], &["--stream"]] {
            let store = Store::new();
            let file = store.file("many.jsonl", &many_shapes(25));
            let argument = store.argument();
            let options = ["--store", &argument, "--persistence", mode, "--concurrency", "4"];
            let play = [&[&file[..]], &options[..], stream].concat();
            let mut child =
                command(&play).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait_for_messages(&mut child, &store, 100);
            let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            assert!(interrupt.unwrap().success());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
            let summary: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
            let done = summary["conversations"].as_u64().unwrap();
            assert!(done > 0 && done < 25 * 37, "{summary}");
            assert_eq!(summary["divergences"], 0);

            let resume = [&[&file[..]], &options[..], &["--resume"], stream].concat();
            play_well(&resume);
            assert_exported(&file, &store.export(), own_export);
        }
    }
}

#[test]
fn resuming_a_finished_play_makes_no_service_calls() {
    let file = shapes();
    for mode in MODES {
        let store = Store::new();
        let arguments = [&file[..], "--store", &store.argument(), "--persistence", mode];
        let first = play_well(&arguments);
        let before = store.contents();
        let summary = play_well(&[&arguments[..], &["--resume"]].concat());
        let counts =
            |summary: &Value, names: [&str; 2]| names.map(|name| summary[name].as_u64().unwrap());
        assert_eq!(counts(&summary, ["conversations", "runs"]), [37, 0]);
        let paid = ["service_calls", "tool_executions"];
        // The counts of journaled plays are stored in a file, and therefore include the first play.
        let expected = if mode == "journaled" { counts(&first, paid) } else { [0, 0] };
        assert_eq!(counts(&summary, paid), expected);
        assert_eq!(store.contents(), before);
    }
}

/// Each play continues all conversations by one message.
#[test]
fn a_play_of_every_prefix_of_a_recording_can_be_continued() {
    let lines = recorded(&shapes());
    let longest = lines.iter().map(|(_, line)| line["messages"].as_array().unwrap().len()).max();
    for mode in MODES {
        let store = Store::new();
        for length in 1..=longest.unwrap() {
            let cut = lines.iter().map(|(_, line)| {
                let mut line = line.clone();
                line["messages"].as_array_mut().unwrap().truncate(length);
                format!("{line}\n")
            });
            let file = store.file("cut.jsonl", &cut.collect::<String>());
            let options = ["--store", &store.argument(), "--persistence", mode, "--resume"];
            play_well(&[&[&file[..]], &options[..]].concat());
        }
        let file = shapes();
        assert_eq!(store.export().len(), 35);
        play_well(&[&file[..], "--store", &store.argument(), "--persistence", mode, "--resume"]);
    }
}

fn greeting() -> Value {
    json!({"id": "greeting", "messages": [
        {"role": "user", "content": "how are you?"},
        {"role": "assistant", "content": "well, thank you"},
        {"role": "user", "content": "good"},
        {"role": "assistant", "content": "indeed"},
    ]})
}

#[test]
fn a_resumed_play_reports_an_altered_stored_text_and_stops_there() {
    let store = Store::new();
    let mut line = greeting();
    let whole = store.file("whole.jsonl", &line.to_string());
    line["messages"].as_array_mut().unwrap().truncate(2);
    let half = store.file("half.jsonl", &line.to_string());
    play_well(&[&half, "--store", &store.argument()]);
    assert_eq!(replace_stored(&store.path(), "well,", "bad,"), 1);
    let arguments = [&whole[..], "--store", &store.argument(), "--resume"];
    let (code, divergences, summary) = play(&arguments);
    assert_eq!((code, &summary["divergences"]), (1, &json!(1)));
    assert_eq!(
        divergences,
        ["divergence in conversation \"greeting\", stored record, message 1: content differs: \
          expected \"well, thank you\", found \"bad, thank you\""]
    );
    assert_eq!(stored_messages(&store.path()), 2);

    let (code, divergences, _) = play(&[&arguments[..], &["--no-verify"]].concat());
    assert_eq!((code, divergences), (0, Vec::new()));
    assert_eq!(stored_messages(&store.path()), 4);
}

#[test]
fn a_resumed_play_reports_an_altered_recorded_text() {
    let store = Store::new();
    let whole = store.file("whole.jsonl", &greeting().to_string());
    play_well(&[&whole, "--store", &store.argument()]);
    for message in 0..4 {
        let mut line = greeting();
        line["messages"][message]["content"] = json!("something else");
        let altered = store.file("altered.jsonl", &line.to_string());
        let (code, divergences, _) = play(&[&altered, "--store", &store.argument(), "--resume"]);
        assert_eq!((code, divergences.len()), (1, 1));
        assert!(divergences[0].contains(&format!("message {message}: content differs")));
    }
}

#[test]
fn a_resumed_conversation_of_another_shape_fails_and_the_others_continue() {
    let store = Store::new();
    let first = store.file("first.jsonl", &greeting().to_string());
    play_well(&[&first, "--store", &store.argument()]);
    let mut other = greeting();
    other["messages"].as_array_mut().unwrap().remove(0);
    let mut fine = greeting();
    fine["id"] = json!("fine");
    let both = store.file("both.jsonl", &format!("{other}\n{fine}\n"));
    let arguments = [&both[..], "--store", &store.argument(), "--resume", "--no-verify"];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("\"greeting\" is another conversation from message 0 on"));
    let summary: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!((&summary["conversations"], &summary["runs"]), (&json!(1), &json!(2)));
    assert_eq!(store.export()["fine"], fine["messages"]);
}

/// Kills a journaled play after it has stored this number of messages.
fn play_killed_at(file: &str, store: &Store, messages: usize) {
    let arguments = [file, "--store", &store.argument(), "--persistence", "journaled", "--resume"];
    let mut child = command(&[&arguments[..], &["--concurrency", "4"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while stored_messages(&store.path()) < messages && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait_with_output().unwrap();
}

#[test]
fn a_killed_journaled_play_is_resumed_without_requesting_a_staged_answer_again() {
    const CONCURRENCY: u64 = 4;
    for stream in [&[][..], &["--stream"]] {
        let undisturbed = Store::new();
        let file = undisturbed.file("many.jsonl", &many_shapes(3));
        let options = ["--persistence", "journaled", "--concurrency", "4"];
        let all = [&[&file[..], "--store", &undisturbed.argument()], &options[..], stream];
        let expected = play_well(&all.concat());

        let store = Store::new();
        let mut kills = 0;
        for messages in [1, 20, 50, 51, 90, 130, 170, 200, 260] {
            play_killed_at(&file, &store, messages);
            kills += 1;
        }
        let all = [&[&file[..], "--store", &store.argument()], &options[..], &["--resume"], stream];
        let summary = play_well(&all.concat());
        assert_eq!(store.export(), undisturbed.export());
        for count in ["service_calls", "tool_executions"] {
            let [expected, found] = [&expected, &summary].map(|it| it[count].as_u64().unwrap());
            let max = expected + kills * CONCURRENCY;
            assert!((expected..=max).contains(&found), "{count}: {found} of {expected}..={max}");
        }
        assert_eq!(store.open_runs(), 0);
    }
}
