//! The list of scenarios, and the table of the contract, name tests that exist.

use std::{fs, path::Path};

#[test]
fn every_test_that_the_list_of_scenarios_names_exists() {
    let list = document("scenarios.md");
    let mut checked = 0;
    for name in names(&list) {
        assert_exists(name);
        checked += 1;
    }
    assert!(checked > 100, "only {checked} names were found");
}

#[test]
fn every_cell_of_the_contract_names_tests_that_exist() {
    let contract = document("contract.md");
    names(&contract).for_each(assert_exists);
    let rows = contract.lines().filter(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches('|').split('|').collect()).collect();
    let (head, rows) = rows.split_first().expect("a table");
    let head: Vec<&str> = head.iter().map(|cell| cell.trim()).collect();
    assert_eq!(head, ["event", "`PerRun`", "`PerServiceCall`", "`Journaled`"]);
    let events = rows.get(1..).expect("rows below the line");
    assert!(events.len() >= 15, "only {} events", events.len());
    for row in events {
        assert_eq!(row.len(), 4, "{row:?}");
        for cell in row.iter().skip(1) {
            assert!(names(cell).next().is_some(), "no test shows: {cell}");
        }
    }
}

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(name)).expect("the document")
}

/// The names of tests in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|name| name.contains("::") && !name.contains('…'))
}

fn assert_exists(name: &str) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path: Vec<&str> = name.split("::").collect();
    let files = match path.as_slice() {
        ["persistence" | "journal" | "record" | "tool_loop", ..] => "tower-chat/tests",
        ["replay" | "transcript", ..] => "tower-chat/src",
        ["replay_properties" | "faults" | "contract_model", ..] => "../tests",
        ["wire", ..] => "tower-chat-wire/tests",
        ["cli", ..] => "tower-chat-cli/tests/cli",
        ["encrypted", ..] => "tower-chat-encrypted/tests/encryption",
        ["http", ..] => "tower-chat-http/tests",
        ["openai", ..] => "tower-chat-openai/tests/leaves",
        ["genai", ..] => "tower-chat-genai/tests/genai",
        ["core", ..] => "tower-chat-core/tests",
        ["sqlite", ..] => "tower-chat-sqlite",
        ["redis", ..] => "tower-chat-redis",
        ["postgres", ..] => "tower-chat-postgres",
        ["store_contract", _] => "tower-chat-testkit/src/store_contract",
        other => panic!("{name}: no folder for {other:?}"),
    };
    let (test, modules) = path.split_last().expect("a name");
    let modules = match path.first() {
        Some(
            &("cli" | "core" | "encrypted" | "genai" | "http" | "openai" | "postgres" | "redis"
            | "sqlite" | "store_contract" | "wire"),
        ) => modules.get(1..).unwrap_or_default(),
        _ => modules,
    };
    let source = modules.iter().fold(crates.join(files), |path, module| path.join(module));
    let texts = match source.is_dir() {
        true => fs::read_dir(&source)
            .expect("a folder")
            .map(|file| fs::read_to_string(file.expect("a file").path()).expect("a text"))
            .collect(),
        false => vec![fs::read_to_string(source.with_extension("rs")).expect(name)],
    };
    let declared = format!("fn {test}(");
    assert!(texts.iter().any(|text| text.contains(&declared)), "no test is named {name}");
}
