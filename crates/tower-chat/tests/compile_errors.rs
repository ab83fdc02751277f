//! Tests of the compiler's errors for incorrect programs, which are in the folder `compile_errors`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Each program, with the texts that the compiler's errors must contain.
const PROGRAMS: &[(&str, &[&[&str]])] = &[
    (
        "boxed_service",
        &[&[
            "error[E0277]: `BoxService<",
            "cannot be the client of a `ChatPipeline`",
            "`tower::util::BoxCloneSyncService`",
        ]],
    ),
    (
        "boxed_clone_service",
        &[&[
            "error[E0277]: `BoxCloneService<",
            "cannot be the client of a `ChatPipeline`",
            "`tower::util::BoxCloneSyncService`",
        ]],
    ),
    (
        "argument_without_derives",
        &[
            &[
                "the trait bound `Dish: JsonSchema` is not satisfied",
                "required for `__Arguments<Dish, u8>`",
            ],
            &[
                "the trait bound `Dish: serde::Deserialize<'de>` is not satisfied",
                "#[derive(serde::Deserialize)]",
            ],
        ],
    ),
    (
        "argument_without_schema",
        &[&["the trait bound `Dish: JsonSchema` is not satisfied", "required for `Vec<Dish>`"]],
    ),
    (
        "result_without_serialize",
        &[&["`Receipt` cannot be the result of a tool", "a type that derives `serde::Serialize`"]],
    ),
    (
        "error_that_is_none",
        &[&["`Broken` cannot be the error of a tool", "implements `std::error::Error`"]],
    ),
    (
        "state_of_one_thread",
        &[&["`Rc<u8>` cannot be the state of a tool", "`Arc` instead of `Rc`", "&Rc<u8>"]],
    ),
    (
        "tool_signatures",
        &[
            &[
                "an argument and all values in it are owned",
                "city: Option<&str>",
                "city: Cow<'_, str>",
            ],
            &["write the type instead of `impl Trait`", "city: impl Into<String>"],
            &["no provider accepts the tool name \"has space\"", "1 to 64"],
            &["no provider accepts the tool name \"größe\"", "#[tool(name = "],
        ],
    ),
    ("by_the_facade_alone", &[]),
    ("other_answers", &[&["expected `ChatResponse`, found `String`"]]),
];

#[test]
fn errors_say_what_to_do() {
    let errors = errors_by_program();
    for (program, expected) in PROGRAMS {
        let errors = errors.get(*program).map_or_else(Vec::new, |errors| errors.values().collect());
        let all: String = errors.iter().map(|error| error.as_str()).collect();
        assert_eq!(errors.len(), expected.len(), "the errors of {program}:\n{all}");
        for parts in *expected {
            let says_all = |error: &&&String| parts.iter().all(|part| error.contains(part));
            let count = errors.iter().filter(says_all).count();
            assert_eq!(count, 1, "the errors of {program} with {parts:?}:\n{all}");
        }
    }
}

/// The compiler errors of a program, by the first line of each report. If several reports have the
/// same first line, their texts are joined, because with debug information the compiler reports
/// some errors twice, with different notes.
type Errors = BTreeMap<String, String>;

/// Returns the compiler errors of each program. One run of cargo compiles all programs, which are
/// the binaries of one package, which depends only on the facade.
fn errors_by_program() -> BTreeMap<String, Errors> {
    let package = package();
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["check", "--offline", "--quiet", "--keep-going", "--bins"])
        .args(["--message-format", "json", "--target-dir"])
        .arg(package.join("target"))
        .current_dir(&package)
        .output()
        .unwrap();
    let mut errors = BTreeMap::<_, Errors>::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: Value = serde_json::from_slice(line).unwrap();
        let message = &line["message"];
        // An error without a span only states how many other errors there are.
        let is_error = message["level"] == "error"
            && message["spans"].as_array().is_some_and(|spans| !spans.is_empty());
        if line["reason"] == "compiler-message" && is_error {
            let program = line["target"]["name"].as_str().unwrap().to_owned();
            let first_line = message["message"].as_str().unwrap().to_owned();
            let reports = errors.entry(program).or_default().entry(first_line).or_default();
            *reports += message["rendered"].as_str().unwrap();
        }
    }
    assert!(!errors.is_empty(), "cargo: {}", String::from_utf8_lossy(&output.stderr));
    errors
}

/// Writes the package that contains the programs.
fn package() -> PathBuf {
    let facade = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile_errors");
    fs::create_dir_all(&package).unwrap();
    let mut manifest = format!(
        "[package]\nname = \"compile-errors\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         tower-chat = {{ path = {facade:?}, default-features = false, features = [\"macros\"] }}\n"
    );
    for (program, _) in PROGRAMS {
        let path = facade.join(format!("tests/compile_errors/{program}.rs"));
        manifest += &format!("\n[[bin]]\nname = {program:?}\npath = {path:?}\n");
    }
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The lock file of the workspace has versions that are available without a network.
    fs::copy(facade.join("../../Cargo.lock"), package.join("Cargo.lock")).unwrap();
    package
}
