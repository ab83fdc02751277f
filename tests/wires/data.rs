//! The recorded data.

use std::{fs, path::PathBuf};

use serde_json::Value;
use tower_chat_wire::validate::Wire;

use crate::codec::WIRES;

/// A request body that a provider answered with 2xx.
pub(crate) struct Accepted {
    pub(crate) wire: Wire,
    pub(crate) id: String,
    pub(crate) body: Value,
}

/// All of them, of every wire with a codec; `None`, said aloud, if there is no recorded data.
pub(crate) fn accepted() -> Option<Vec<Accepted>> {
    let Some(data) = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from) else {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
        return None;
    };
    let bodies = WIRES.into_iter().flat_map(|wire| {
        let path = data.join(format!("oracle/accepted_{wire}.jsonl"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.into_iter().map(move |mut line| {
            let id = line["id"].as_str().unwrap().to_owned();
            Accepted { wire, id, body: line["request"].take() }
        })
    });
    Some(bodies.collect())
}
