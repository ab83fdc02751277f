//! The recorded data.

use std::{fs, path::PathBuf};

use serde_json::Value;
use tower_chat_wire::validate::Wire;

/// The folder of recorded data; says so if there is none.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
    }
    folder
}

/// The lines of a file of JSON values.
pub(crate) fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A request that a provider answered with 2xx.
pub(crate) struct Accepted {
    pub(crate) wire: Wire,
    pub(crate) id: String,
    pub(crate) body: Value,
}

/// All of them, of every wire that can be checked; Bedrock's raw invocations of Claude speak the
/// wire of Anthropic.
pub(crate) fn accepted() -> Option<Vec<Accepted>> {
    let oracle = folder()?.join("oracle");
    let files = Wire::ALL.map(|wire| (wire, wire.name())).into_iter();
    let files = files.chain([(Wire::Anthropic, "bedrock-invoke")]);
    let bodies = files.flat_map(|(wire, name)| {
        lines(&oracle.join(format!("accepted_{name}.jsonl"))).into_iter().map(move |mut line| {
            let id = line["id"].as_str().unwrap().to_owned();
            Accepted { wire, id, body: line["request"].take() }
        })
    });
    Some(bodies.collect())
}

/// Whole conversations in the format of OpenAI Chat Completions, with where each comes from.
pub(crate) fn transcripts() -> Option<Vec<(String, Vec<Value>)>> {
    let folder = folder()?;
    let mut found = Vec::new();
    for name in ["tau_bench", "tau2", "openhands", "swe_agent", "toolbench_legacy"] {
        let entries = fs::read_dir(folder.join(name)).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        for path in paths {
            for (number, line) in lines(&path).into_iter().enumerate() {
                let place = format!("{}:{}", path.display(), number + 1);
                found.push((place, line["messages"].as_array().unwrap().clone()));
            }
        }
    }
    Some(found)
}
