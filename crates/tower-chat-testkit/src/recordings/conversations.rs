//! [`Recordings`], the folders of recorded data.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{cassette::Cassette, error::RecordingError};

/// The subfolders that do not contain whole conversations.
const OTHERS: [&str; 2] = ["cassettes", "oracle"];

/// The environment variable that names a folder of additional recorded data.
const VARIABLE: &str = "TOWER_CHAT_DATA";

/// A set of folders that contain recorded data.
///
/// ```
/// use tower_chat_testkit::recordings::Recordings;
///
/// for cassette in Recordings::all().cassettes()? {
///     for exchange in cassette.exchanges.iter().filter(|exchange| exchange.is_streamed()) {
///         assert!(!exchange.events()?.is_empty(), "{}", exchange.source);
///     }
/// }
/// # Ok::<(), tower_chat_testkit::recordings::RecordingError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recordings {
    folders: Vec<PathBuf>,
}

/// A recorded request body, and whether its provider accepted it.
#[derive(Debug, Clone)]
pub struct OracleRequest {
    /// The id of the entry.
    pub id: String,
    /// The request body.
    pub body: Value,
    /// The whole entry: the provider, the status, and, if the provider refused the request, the
    /// error.
    pub line: Value,
}

/// A whole conversation in the format of OpenAI Chat Completions.
#[derive(Debug, Clone)]
pub struct RecordedConversation {
    /// The name of the folder of the file, which names the source of the recordings.
    pub folder: String,
    /// The file and the line of the conversation.
    pub source: String,
    /// The recorded messages.
    pub messages: Vec<Value>,
}

impl Recordings {
    /// Returns the data of the repository, in `data/` of this crate. If the environment variable
    /// `TOWER_CHAT_DATA` names a folder, the data in this folder is included.
    ///
    /// # Panics
    ///
    /// Panics if one of these folders lacks a kind of data, because a test must not pass without
    /// data.
    pub fn all() -> Self {
        let named = std::env::var_os(VARIABLE);
        match Self::with(named.as_deref()) {
            Ok(recordings) => recordings,
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the data of the repository, and the data in another folder if there is one.
    fn with(named: Option<&OsStr>) -> Result<Self, RecordingError> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let folders = [own].into_iter().chain(named.map(PathBuf::from)).collect();
        let recordings = Self { folders };
        for folder in &recordings.folders {
            let alone = Self::at(folder);
            let missing = if entries(&folder.join("cassettes"))?.is_empty() {
                "cassettes"
            } else if entries(&folder.join("oracle"))?.is_empty() {
                "oracle"
            } else if alone.conversation_files()?.is_empty() {
                "a folder of conversations"
            } else {
                continue;
            };
            let problem = format!("has no files in {missing} ({VARIABLE} names recorded data)");
            return Err(RecordingError::new(folder.display().to_string(), problem));
        }
        Ok(recordings)
    }

    /// Returns only the recorded data in one folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folders: vec![folder.into()] }
    }

    /// Returns the folders of recorded data.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Reads every file of recorded exchanges. Within each folder, the files are ordered by
    /// provider and name.
    ///
    /// # Errors
    ///
    /// Fails if a file, or an exchange in a file, cannot be parsed.
    pub fn cassettes(&self) -> Result<Vec<Cassette>, RecordingError> {
        let mut all = Vec::new();
        for folder in &self.folders {
            all.extend(cassettes(folder)?);
        }
        Ok(all)
    }

    /// Reads the request bodies of a wire (the JSON format of a provider), such as `openai-chat` or
    /// `bedrock-invoke`, that a provider answered with a status of 2xx. Returns no bodies if no
    /// folder has a file for this wire.
    ///
    /// # Errors
    ///
    /// Fails if a line cannot be parsed.
    pub fn accepted(&self, wire: &str) -> Result<Vec<OracleRequest>, RecordingError> {
        self.oracle(&format!("accepted_{wire}.jsonl"))
    }

    /// Reads the request bodies that a provider refused. Returns no bodies if no folder has a file
    /// of refused bodies.
    ///
    /// # Errors
    ///
    /// Fails if a line cannot be parsed.
    pub fn rejected(&self) -> Result<Vec<OracleRequest>, RecordingError> {
        self.oracle("rejected.jsonl")
    }

    fn oracle(&self, file: &str) -> Result<Vec<OracleRequest>, RecordingError> {
        let mut found = Vec::new();
        for folder in &self.folders {
            let path = folder.join("oracle").join(file);
            if path.exists() {
                found.extend(lines(&path)?);
            }
        }
        let lines = found.into_iter().map(|(source, line)| {
            let id = line.get("id").and_then(Value::as_str).map(str::to_owned);
            let id = id.ok_or_else(|| RecordingError::new(&source, "a line has no id"))?;
            let body = line.get("request").cloned();
            let body = body.ok_or_else(|| RecordingError::new(&source, "a line has no request"))?;
            Ok(OracleRequest { id, body, line })
        });
        lines.collect()
    }

    /// Reads every whole conversation, ordered by folder, file and line.
    ///
    /// # Errors
    ///
    /// Fails if a line cannot be parsed.
    pub fn conversations(&self) -> Result<Vec<RecordedConversation>, RecordingError> {
        let mut conversations = Vec::new();
        for path in self.conversation_files()? {
            let folder = path.parent().map(file_name).unwrap_or_default();
            for (source, mut line) in lines(&path)? {
                let messages = line.get_mut("messages").map(Value::take);
                let Some(Value::Array(messages)) = messages else {
                    return Err(RecordingError::new(source, "a line has no messages"));
                };
                conversations.push(RecordedConversation {
                    folder: folder.clone(),
                    source,
                    messages,
                });
            }
        }
        Ok(conversations)
    }

    /// Returns the files that contain a whole conversation in each line, ordered by folder and
    /// name.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be read.
    pub fn conversation_files(&self) -> Result<Vec<PathBuf>, RecordingError> {
        let mut files = Vec::new();
        for folder in &self.folders {
            for source in entries(folder)? {
                if source.is_dir() && !OTHERS.contains(&file_name(&source).as_str()) {
                    files.extend(entries(&source)?);
                }
            }
        }
        files.retain(|path| path.extension().is_some_and(|kind| kind == "jsonl"));
        Ok(files)
    }
}

/// Reads the files of recorded exchanges in a folder.
fn cassettes(folder: &Path) -> Result<Vec<Cassette>, RecordingError> {
    let mut cassettes = Vec::new();
    for folder in entries(&folder.join("cassettes"))? {
        if !folder.is_dir() {
            continue;
        }
        let name = file_name(&folder);
        for path in entries(&folder)? {
            match path.extension().and_then(|kind| kind.to_str()) {
                Some("yaml" | "yml") => cassettes.push(Cassette::read(&name, &path)?),
                // This file describes the source of the other files in the folder.
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

/// Reads a file that contains a JSON value in each line. Returns each value with its file and line.
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is a failing test")]
mod tests {
    use super::*;

    #[test]
    fn the_repository_has_data_of_every_kind() {
        let recordings = Recordings::with(None).unwrap();
        assert_eq!(recordings.folders().len(), 1);
        assert!(!recordings.cassettes().unwrap().is_empty());
        assert!(!recordings.accepted("ollama").unwrap().is_empty());
        assert!(!recordings.rejected().unwrap().is_empty());
        assert!(!recordings.conversations().unwrap().is_empty());
    }

    #[test]
    fn a_configured_folder_without_data_is_an_error_that_names_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let error = || Recordings::with(Some(folder.path().as_os_str())).unwrap_err().to_string();
        let path = folder.path().display().to_string();
        assert!(error().starts_with(&format!("{path}/cassettes: ")), "{}", error());
        for kind in ["cassettes", "oracle"] {
            fs::create_dir(folder.path().join(kind)).unwrap();
        }
        assert_eq!(
            error(),
            format!("{path}: has no files in cassettes (TOWER_CHAT_DATA names recorded data)")
        );
        for (kind, missing) in
            [("cassettes/a", "oracle"), ("oracle/b", "a folder of conversations")]
        {
            fs::write(folder.path().join(kind), "").unwrap();
            assert!(error().starts_with(&format!("{path}: has no files in {missing} ")));
        }
    }
}
