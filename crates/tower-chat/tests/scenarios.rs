//! The list of scenarios names tests that exist.

use std::{fs, path::Path};

#[test]
fn every_test_that_the_list_of_scenarios_names_exists() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = fs::read_to_string(crates.join("../docs/scenarios.md")).expect("the list");
    let names = list.split('`').skip(1).step_by(2).filter(|name| name.contains("::"));
    let mut checked = 0;
    for name in names.filter(|name| !name.contains('…')) {
        let path: Vec<&str> = name.split("::").collect();
        let files = match path.as_slice() {
            ["persistence" | "record" | "tool_loop", ..] => "tower-chat/tests",
            ["replay", ..] => "tower-chat/src",
            ["replay_properties", ..] => "../tests",
            ["wire", ..] => "tower-chat-wire/tests",
            ["core", ..] => "tower-chat-core/tests",
            ["store_contract", _] => "tower-chat-testkit/src/store_contract",
            other => panic!("{name}: no folder for {other:?}"),
        };
        let (test, modules) = path.split_last().expect("a name");
        let modules = match path.first() {
            Some(&("core" | "store_contract" | "wire")) => modules.get(1..).unwrap_or_default(),
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
        checked += 1;
    }
    assert!(checked > 100, "only {checked} names were found");
}
