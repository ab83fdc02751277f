//! Checks the documents that contain names of tests: the contract, the threat model, and the list
//! of tests outside of the matrix of cases.

use std::{fs, path::Path};

/// Returns the rows of all tables with a column for each mode in a part of the contract, without
/// the header rows.
fn rows_by_mode(part: &str) -> Vec<Vec<&str>> {
    let rows = part.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let rows = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    let mut rows: Vec<Vec<&str>> = rows.filter(|row| row.len() == 4).collect();
    let count = rows.len();
    rows.retain(|row| *row != ["event", "`PerRun`", "`PerServiceCall`", "`Journaled`"]);
    assert!(rows.len() < count, "no table has a column for each mode");
    rows
}

#[test]
fn the_contract_describes_each_event_and_names_existing_tests_for_each_mode() {
    let contract = document("contract.md");
    names(&contract).for_each(assert_exists);
    let (behaviour, tests) = contract.split_once("\n## The tests\n").expect("two parts");
    assert_eq!(names(behaviour).next(), None, "the first part, for users, must not name tests");
    let (behaviour, tests) = (rows_by_mode(behaviour), rows_by_mode(tests));
    assert!(behaviour.len() >= 25, "only {} events", behaviour.len());
    let events = |rows: &[Vec<&str>]| rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>();
    assert_eq!(events(&behaviour), events(&tests));
    for row in &behaviour {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
    for row in &tests {
        for cell in row.iter().skip(1) {
            assert!(names(cell).next().is_some(), "a cell names no test: {}", row[0]);
        }
    }
}

#[test]
fn every_promise_against_a_threat_names_tests_that_exist() {
    let model = document("../SECURITY.md");
    let threats = model.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let threats: Vec<&str> = threats.filter(|row| !row.ends_with("| shown by |")).collect();
    assert!(threats.len() > 25, "only {} threats", threats.len());
    for threat in threats {
        let tests = threat.trim_matches('|').split('|').nth(2).expect("a third cell");
        assert!(names(tests).next().is_some(), "the row names no test: {threat}");
        names(tests).for_each(assert_exists);
    }
}

/// Returns whether a test runs in several cases.
fn uses_the_matrix(text: &str) -> bool {
    ["every_case(", "every_id(", "Cases::all()"].iter().any(|matrix| text.contains(matrix))
}

#[test]
fn tests_outside_of_the_matrix_of_cases_are_listed_with_their_cases() {
    let list = document("../crates/tower-chat-layers/tests/layers/case/exceptions.md");
    let rows: Vec<&str> = list
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|row| row.split('|').nth(1).expect("a cell").split('`').skip(1).step_by(2))
        .collect();
    let is_of = |name: &str, row: &str| {
        name.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let mut tests = Vec::new();
    for folder in ["persistence", "journal", "record", "tool_loop"] {
        collect_tests(folder, &mut tests);
    }
    let (inside, outside): (Vec<_>, Vec<_>) =
        tests.into_iter().partition(|(_, text)| uses_the_matrix(text));
    assert!(inside.len() > 200, "only {} tests run over the matrix", inside.len());
    for (name, _) in &outside {
        assert!(
            rows.iter().any(|row| is_of(name, row)),
            "{name} does not run in every case (`every_case` of tests/layers/case), and has no row \
             in exceptions.md"
        );
    }
    for row in rows {
        assert!(
            outside.iter().any(|(name, _)| is_of(name, row)),
            "the row for {row} is not needed"
        );
    }
}

/// Adds the name and the code of each test in a module (such as `journal::fencing`) and its
/// submodules.
fn collect_tests(module: &str, tests: &mut Vec<(String, String)>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layers");
    let path = folder.join(module.replace("::", "/"));
    let source = match path.is_dir() {
        true => path.join("mod.rs"),
        false => path.with_extension("rs"),
    };
    let text = fs::read_to_string(source).expect(module);
    for attribute in ["\n#[test]", "\n#[tokio::test"] {
        for (at, _) in text.match_indices(attribute) {
            let test = text.get(at..).expect("a test");
            let test = test.get(..test.find("\n}\n").expect("its end")).expect("a test");
            let name = test.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            tests.push((format!("{module}::{}", name.expect("a name").0), test.to_owned()));
        }
    }
    if path.is_dir() {
        for file in fs::read_dir(path).expect(module) {
            let file = file.expect("a file").path();
            let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            if stem != "mod" {
                collect_tests(&format!("{module}::{stem}"), tests);
            }
        }
    }
}

fn document(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(name)).expect("the document")
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|name| name.contains("::") && !name.contains('…'))
}

fn assert_exists(name: &str) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path: Vec<&str> = name.split("::").collect();
    let files = match path.as_slice() {
        ["persistence" | "journal" | "record" | "tool_loop", ..] => {
            "tower-chat-layers/tests/layers"
        }
        ["replay" | "transcript", ..] => "tower-chat-layers/src",
        ["pairing", ..] => "tower-chat-core/src",
        ["repair", ..] => "tower-chat-repair/src",
        ["rows", ..] => "tower-chat-import/src",
        ["replay_properties" | "faults" | "contract_model", ..] => "../tests",
        ["fuzz", _] => "../fuzz/tests",
        ["play", ..] => "../tests/campaigns/tests",
        ["wire", ..] => "tower-chat-wire/tests/wire",
        ["cli", ..] => "tower-chat-cli/tests/cli",
        ["encrypted", ..] => "tower-chat-encrypted/tests/encryption",
        ["http", ..] => "tower-chat-http/tests/http",
        ["providers", ..] => "tower-chat-providers/tests/providers",
        ["core", ..] => "tower-chat-core/tests/core",
        ["import", ..] => "tower-chat-import/tests/import",
        ["inspector", ..] => "tower-chat-inspector/tests/inspector",
        ["mcp", ..] => "tower-chat-mcp/tests/mcp",
        ["sqlite", "src" | "tests", ..] => "tower-chat-sqlite",
        ["sqlite", ..] => "tower-chat-sqlite/tests/sqlite",
        ["redis", ..] => "tower-chat-redis/tests/redis",
        ["postgres", ..] => "tower-chat-postgres/tests/postgres",
        ["transfer", ..] => "tower-chat-transfer/tests/transfer",
        ["store_contract", _] => "tower-chat-testkit/src/store_contract",
        other => panic!("{name}: no folder for {other:?}"),
    };
    let (test, modules) = path.split_last().expect("a name");
    let modules = match path.first() {
        Some(
            &("cli" | "core" | "encrypted" | "http" | "import" | "inspector" | "mcp" | "postgres"
            | "providers" | "redis" | "repair" | "sqlite" | "store_contract" | "transfer"
            | "wire"),
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
