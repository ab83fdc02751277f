//! Tests the example that sends its trace and metrics to a collector.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_collector_receives_the_run_as_a_tree_and_its_metrics() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_otlp"));
    let output = program.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (trace, metrics) = printed.split_once("\n\n").unwrap();
    let name = |line: &str| {
        let text = line.trim_start();
        let name = text.split("  ").next().unwrap_or_default();
        format!("{}{name}", &line[..line.len() - text.len()])
    };
    let call = ["  reserve", "  chat claude", "  append"];
    let events = ["    * writes were committed", "    * a submission has its outcome"];
    let mut tree = vec!["invoke_agent stylist", "  head"];
    for tool in [Some("  execute_tool weather"), Some("  execute_tool wardrobe"), None] {
        tree.extend(call.into_iter().chain(events).chain(tool));
    }
    assert_eq!(trace.lines().map(name).collect::<Vec<_>>(), tree, "{trace}");
    let root = trace.lines().next().unwrap();
    for field in ["gen_ai.usage.input_tokens=900", "tower_chat.mode=per_service_call"] {
        assert!(root.split(' ').any(|it| it == field), "{root}");
    }
    // Removes the means, because they depend on durations.
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mean = if words[2] == "x" { words.get(4).filter(|unit| **unit == "ms") } else { None };
        let labels = match (words[2], mean) {
            ("x", Some(_)) => 5,
            ("x", None) => 4,
            _ => 2,
        };
        format!("{} {} {}", words[0], words[1], words[labels..].join(" "))
    };
    let chat = "gen_ai.operation.name=chat gen_ai.provider.name=anthropic \
                gen_ai.request.model=claude";
    let stored = "db.system.name=sqlite";
    let done = "db.system.name=sqlite tower_chat.outcome=completed";
    let operation = "tower_chat.store.operation.duration";
    let expected = [
        format!("gen_ai.client.operation.duration 3 {chat} tower_chat.outcome=completed"),
        format!("gen_ai.client.token.usage 3 {chat} gen_ai.token.type=input"),
        format!("gen_ai.client.token.usage 3 {chat} gen_ai.token.type=output"),
        "gen_ai.execute_tool.duration 1 gen_ai.tool.name=wardrobe tower_chat.outcome=completed"
            .to_owned(),
        "gen_ai.execute_tool.duration 1 gen_ai.tool.name=weather tower_chat.outcome=completed"
            .to_owned(),
        "gen_ai.invoke_agent.duration 1 gen_ai.agent.name=stylist gen_ai.request.model=claude \
         tower_chat.mode=per_service_call tower_chat.outcome=completed"
            .to_owned(),
        format!("tower_chat.store.commit.duration 3 {stored}"),
        format!("tower_chat.store.commit.size 3 {stored}"),
        format!("tower_chat.store.commit.writes 3 {stored}"),
        format!("{operation} 3 db.operation.name=append {done}"),
        format!("{operation} 1 db.operation.name=head {done}"),
        format!("{operation} 3 db.operation.name=reserve {done}"),
        format!("tower_chat.store.queue.duration 3 {stored}"),
        format!("tower_chat.store.queue.length 0 {stored}"),
        format!("tower_chat.store.queue.size 0 {stored}"),
        format!("tower_chat.store.queue.writes 0 {stored}"),
    ];
    let rows: Vec<String> = metrics.trim().lines().skip(1).map(row).collect();
    assert_eq!(rows, expected, "{metrics}");
}
