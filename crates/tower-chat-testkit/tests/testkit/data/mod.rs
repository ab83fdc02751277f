//! Generates the files in `data/`, which contain conversations and HTTP exchanges in the format of
//! every provider.
//!
//! The generator follows the providers' documentation, and shares no code with the crates under
//! test. The test [`the_files_of_the_folder_are_exactly_those_that_this_module_defines`] compares
//! the generated files with those in the folder. After a change of the generator, write the files
//! again:
//! ```console
//! $ cargo test -p tower-chat-testkit -- --ignored write_the_files
//! ```

mod anthropic;
mod bedrock;
mod chat;
mod cohere;
mod conversations;
mod dialogue;
mod exchange;
mod gemini;
mod ollama;
mod oracle;
mod responses;
mod special;
mod text;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use self::{
    anthropic::Claude,
    bedrock::Converse,
    cohere::Cohere,
    dialogue::Dialogue,
    exchange::{Exchange, Provider, cassette},
    gemini::Gemini,
    ollama::Ollama,
    text::Texts,
};

const SEED: u64 = 20_260_301;

/// Returns the content of each file, by the path of the file in the folder.
fn files() -> BTreeMap<PathBuf, String> {
    let mut texts = Texts::new(SEED);
    let mut files = BTreeMap::new();
    for (folder, name, exchanges) in cassettes(&mut texts) {
        let path = Path::new("cassettes").join(folder).join(name + ".yaml");
        assert!(files.insert(path, cassette(&exchanges)).is_none());
    }
    for (wire, lines) in oracle::accepted(&mut texts) {
        files.insert(format!("oracle/accepted_{wire}.jsonl").into(), lines);
    }
    files.insert("oracle/rejected.jsonl".into(), oracle::rejected(&mut texts));
    for (folder, name, lines) in conversations::files(&mut texts) {
        files.insert(Path::new(folder).join(name), lines);
    }
    files
}

type Named = (&'static str, String, Vec<Exchange>);

/// The name of a dialogue, and the function that creates it.
type Making = (&'static str, fn(&mut Texts) -> Dialogue);

fn cassettes(texts: &mut Texts) -> Vec<Named> {
    const ALL: [Making; 3] =
        [("parallel", Texts::parallel), ("rounds", Texts::rounds), ("thinking", Texts::thinking)];
    const PAIR: &[Making] = &[("pair", Texts::pair)];
    let mut found: Vec<Named> = Vec::new();
    let mut add = |provider: &dyn Provider, prefix: &str, makings: &[Making]| {
        for (name, make) in makings {
            let streamed = (*name != "rounds").then_some((true, "_streamed"));
            for (is_streamed, suffix) in [(false, "")].into_iter().chain(streamed) {
                let exchanges = provider.exchanges(&make(texts), is_streamed);
                found.push((provider.folder(), format!("{prefix}{name}{suffix}"), exchanges));
            }
        }
    };
    add(&chat::OPENAI, "", &ALL[..2]);
    for service in &chat::COMPATIBLE {
        let makings = if service.reasoning.is_some() { &ALL[2..] } else { PAIR };
        add(service, "", makings);
    }
    add(&responses::OPENAI, "", &ALL);
    add(&responses::AZURE, "responses_", &ALL[2..]);
    add(&Claude::Anthropic, "", &ALL);
    add(&Claude::Vertex, "claude_", &ALL[2..]);
    add(&Gemini::GoogleAi, "", &ALL);
    add(&Gemini::Vertex, "gemini_", PAIR);
    add(&Converse, "", &ALL);
    add(&Cohere, "", &ALL[..2]);
    add(&Ollama, "", &ALL);
    let invoked = Claude::BedrockInvoke.exchanges(&texts.pair(), false);
    found.push(("bedrock", "invoked".to_owned(), invoked));
    let kept = responses::Responses { is_kept: true, ..responses::OPENAI };
    for (is_streamed, name) in [(false, "kept"), (true, "kept_streamed")] {
        let exchanges = kept.kept(&texts.pair(), is_streamed);
        found.push(("openai_responses", name.to_owned(), exchanges));
    }
    let special = special::cassettes(texts).into_iter();
    found.extend(special.map(|(folder, name, exchanges)| (folder, name.to_owned(), exchanges)));
    found
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data")
}

/// Reads all files in a folder and its subfolders, and adds them to `files`.
fn found(folder: &Path, files: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found(&path, files);
        } else if path.file_name().is_some_and(|name| name != "README.md") {
            let text = fs::read_to_string(&path).unwrap();
            files.insert(path.strip_prefix(self::folder()).unwrap().to_owned(), text);
        }
    }
}

#[test]
fn the_files_of_the_folder_are_exactly_those_that_this_module_defines() {
    let (expected, mut there) = (files(), BTreeMap::new());
    found(&folder(), &mut there);
    let names = |files: &BTreeMap<PathBuf, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&there), names(&expected));
    for (path, text) in &expected {
        assert!(there[path] == *text, "{} differs from the generated file", path.display());
    }
}

#[test]
#[ignore = "it writes the files, which the other test compares"]
fn write_the_files() {
    for (path, text) in files() {
        let path = folder().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
