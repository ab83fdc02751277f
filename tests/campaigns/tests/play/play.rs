//! Tests of the command `play`.

use crate::{expected::*, support::*};
use serde_json::{Value, json};

#[test]
fn every_shape_plays_without_divergence_and_is_exported_as_it_was_recorded() {
    let file = shapes();
    for mode in MODES {
        for stream in [&[][..], &["--stream"]] {
            for concurrency in ["1", "8"] {
                let store = Store::new();
                let options = ["--persistence", mode, "--concurrency", concurrency];
                let arguments = [&[&file[..], "--store", &store.argument()], &options[..], stream];
                let summary = play_well(&arguments.concat());
                assert_eq!(summary["conversations"], recorded(&file).len());
                assert_exported(&file, &store.export(), own_export);
            }
        }
    }
}

#[test]
fn conversations_can_be_played_with_a_store_in_memory() {
    let file = shapes();
    for mode in MODES {
        for stream in [&[][..], &["--stream"]] {
            let arguments = [&[&file[..], "--store", "memory:", "--persistence", mode], stream];
            play_well(&arguments.concat());
        }
    }
}

#[test]
fn the_summary_of_a_play_has_exactly_the_documented_fields_and_counts() {
    let store = Store::new();
    let line = json!({"id": "x", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}},
            {"id": "2", "type": "function", "function": {"name": "b", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "that is all"},
        {"role": "user", "content": "never played"},
    ]});
    let file = store.file("x.jsonl", &line.to_string());
    let mut summary = play_well(&[&file[..], "--store", "memory:"]);
    let wall = summary.as_object_mut().unwrap().remove("wall_ms").unwrap();
    assert!(wall.is_u64());
    let expected = json!({
        "conversations": 1, "runs": 2, "service_calls": 3, "tool_executions": 2, "divergences": 0,
    });
    assert_eq!(summary, expected);
}

#[test]
fn every_mode_stores_the_same_messages_whether_answers_are_streamed_or_not() {
    let file = shapes();
    let mut records = Vec::new();
    for mode in MODES {
        for stream in [&[][..], &["--stream"]] {
            let store = Store::new();
            let options = ["--store", &store.argument(), "--persistence", mode];
            play_well(&[&[&file[..]], &options[..], stream].concat());
            let contents = store.contents();
            // Generated ids are derived from run ids, which differ between plays.
            let recorded: Vec<Vec<String>> = recorded(&file)
                .into_iter()
                .filter(|(id, _)| !id.ends_with(" ids") && !id.ends_with("2023"))
                .filter_map(|(id, _)| contents.get(&id).cloned())
                .collect();
            records.push(recorded);
        }
    }
    assert!(records.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn recorded_data_play_without_divergence_and_are_exported_as_they_were_recorded() {
    for file in data_files() {
        for mode in MODES {
            for stream in [&[][..], &["--stream"]] {
                let store = Store::new();
                let options =
                    ["--store", &store.argument(), "--persistence", mode, "--concurrency", "4"];
                let summary = play_well(&[&[&file[..]], &options[..], stream].concat());
                assert_eq!(summary["conversations"], recorded(&file).len());
                let exported = store.export();
                assert_exported(&file, &exported, |line| expected_export(&line["messages"]));
            }
        }
    }
}

#[test]
fn two_concurrent_plays_of_half_a_file_each_store_the_same_as_one_play() {
    let mut files = data_files();
    files.push(shapes());
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let store = Store::new();
        let half = |parity: usize| {
            let lines = text.lines().enumerate().filter(|(position, _)| position % 2 == parity);
            lines.map(|(_, line)| format!("{line}\n")).collect::<String>()
        };
        let halves = [store.file("even.jsonl", &half(0)), store.file("odd.jsonl", &half(1))];
        let plays: Vec<_> = halves
            .iter()
            .zip(MODES)
            .map(|(half, mode)| {
                let argument = store.argument();
                let arguments = [half.as_str(), "--store", &argument, "--persistence", mode];
                command(&arguments).stdout(std::process::Stdio::null()).spawn().unwrap()
            })
            .collect();
        for mut play in plays {
            assert_eq!(play.wait().unwrap().code(), Some(0), "{file}");
        }
        let alone = Store::new();
        play_well(&[&file[..], "--store", &alone.argument()]);
        let (together, alone) = (store.export(), alone.export());
        let messages = |line: &Value| {
            let id = line["id"].as_str().map_or_else(|| line["id"].to_string(), Into::into);
            alone.get(&id).cloned()
        };
        assert_eq!(together.len(), alone.len());
        let strip = |conversation: &Value, id: &str| {
            let line = recorded(&file).into_iter().find(|(recorded, _)| recorded == id).unwrap().1;
            let expected = own_export(&line).unwrap();
            let expected = match line.get("export") {
                Some(_) => expected,
                None => expected_export(&line["messages"]).unwrap_or(expected),
            };
            without_generated_ids(&expected, conversation).1
        };
        for (id, conversation) in &together {
            let one = messages(&json!({"id": id})).unwrap();
            assert_eq!(strip(conversation, id), strip(&one, id), "{id} of {file}");
        }
    }
}
