//! The folder of recorded data.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{cassette::Cassette, error::RecordingError};

/// The folders that hold no whole conversations.
const OTHERS: [&str; 2] = ["cassettes", "oracle"];

/// A folder of recorded data.
#[derive(Debug, Clone)]
pub struct Recordings {
    folder: PathBuf,
}

/// A request body from the oracle, and what is recorded about it.
#[derive(Debug, Clone)]
pub struct OracleRequest {
    /// Its name in the oracle.
    pub id: String,
    /// The body that was sent.
    pub body: Value,
    /// The whole line: the provider, the status, the error of a refusal.
    pub line: Value,
}

/// A whole conversation in the format of OpenAI Chat Completions.
#[derive(Debug, Clone)]
pub struct RecordedConversation {
    /// The folder of its file, which names where it was recorded.
    pub folder: String,
    /// The file and the line.
    pub source: String,
    /// Its messages, as they were recorded.
    pub messages: Vec<Value>,
}

impl Recordings {
    /// The folder that the environment variable `TOWER_CHAT_DATA` names. `None`, with a line on
    /// standard error, if the variable is not set.
    pub fn from_env() -> Option<Self> {
        let folder = std::env::var_os("TOWER_CHAT_DATA");
        if folder.is_none() {
            eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
        }
        folder.map(Self::at)
    }

    /// The recorded data in a folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every file of recorded exchanges, ordered by folder and name.
    ///
    /// # Errors
    ///
    /// If a file, or an exchange in it, is not understood.
    pub fn cassettes(&self) -> Result<Vec<Cassette>, RecordingError> {
        let mut cassettes = Vec::new();
        for folder in entries(&self.folder.join("cassettes"))? {
            if !folder.is_dir() {
                continue;
            }
            let name = file_name(&folder);
            for path in entries(&folder)? {
                match path.extension().and_then(|kind| kind.to_str()) {
                    Some("yaml" | "yml") => cassettes.push(Cassette::read(&name, &path)?),
                    // Where the files come from.
                    None if file_name(&path) == "SOURCE" => {}
                    _ => {
                        let source = path.display().to_string();
                        return Err(RecordingError::new(source, "is no file of a known kind"));
                    }
                }
            }
        }
        cassettes.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
        Ok(cassettes)
    }

    /// The request bodies of a wire that a provider answered with 2xx, such as `openai-chat`,
    /// `bedrock-invoke`; none, if the folder has no file of this wire.
    ///
    /// # Errors
    ///
    /// If a line is not understood.
    pub fn accepted(&self, wire: &str) -> Result<Vec<OracleRequest>, RecordingError> {
        self.oracle(&format!("accepted_{wire}.jsonl"))
    }

    /// The request bodies that a provider refused; none, if the folder has no file of them.
    ///
    /// # Errors
    ///
    /// If a line is not understood.
    pub fn rejected(&self) -> Result<Vec<OracleRequest>, RecordingError> {
        self.oracle("rejected.jsonl")
    }

    fn oracle(&self, file: &str) -> Result<Vec<OracleRequest>, RecordingError> {
        let path = self.folder.join("oracle").join(file);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let lines = lines(&path)?.into_iter().map(|(source, line)| {
            let id = line.get("id").and_then(Value::as_str).map(str::to_owned);
            let id = id.ok_or_else(|| RecordingError::new(&source, "a line has no id"))?;
            let body = line.get("request").cloned();
            let body = body.ok_or_else(|| RecordingError::new(&source, "a line has no request"))?;
            Ok(OracleRequest { id, body, line })
        });
        lines.collect()
    }

    /// Every whole conversation, ordered by folder, file and line.
    ///
    /// # Errors
    ///
    /// If a line is not understood.
    pub fn conversations(&self) -> Result<Vec<RecordedConversation>, RecordingError> {
        let mut conversations = Vec::new();
        for folder in entries(&self.folder)? {
            let name = file_name(&folder);
            if !folder.is_dir() || OTHERS.contains(&name.as_str()) {
                continue;
            }
            for path in entries(&folder)? {
                if path.extension().is_none_or(|kind| kind != "jsonl") {
                    continue;
                }
                for (source, mut line) in lines(&path)? {
                    let messages = line.get_mut("messages").map(Value::take);
                    let Some(Value::Array(messages)) = messages else {
                        return Err(RecordingError::new(source, "a line has no messages"));
                    };
                    conversations.push(RecordedConversation {
                        folder: name.clone(),
                        source,
                        messages,
                    });
                }
            }
        }
        Ok(conversations)
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    let failed = |error: std::io::Error| {
        RecordingError::new(folder.display().to_string(), error.to_string())
    };
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed));
    let mut paths = paths.collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

/// The lines of a file of JSON values, with where each is.
fn lines(path: &Path) -> Result<Vec<(String, Value)>, RecordingError> {
    let source = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|error| RecordingError::new(&source, error.to_string()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let values = lines.map(|(number, line)| {
        let source = format!("{source}:{}", number + 1);
        match serde_json::from_str(line) {
            Ok(value) => Ok((source, value)),
            Err(error) => Err(RecordingError::new(source, error.to_string())),
        }
    });
    values.collect()
}
