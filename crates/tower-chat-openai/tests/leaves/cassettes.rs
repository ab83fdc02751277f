//! The recorded exchanges, in the three forms in which three recorders keep them.

use std::{fs, io::Read, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;
use serde_json::Value;

/// A file of exchanges.
pub(crate) struct Cassette {
    pub(crate) folder: String,
    pub(crate) name: String,
    pub(crate) exchanges: Vec<Exchange>,
}

/// A request and what the service answered.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) url: String,
    pub(crate) request: Value,
    pub(crate) status: u16,
    pub(crate) response: String,
}

impl Cassette {
    /// The exchanges of Chat Completions.
    pub(crate) fn chat(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| exchange.is_chat())
    }

    /// The exchanges of Responses.
    pub(crate) fn responses(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(|exchange| exchange.is_responses())
    }
}

impl Exchange {
    pub(crate) fn is_chat(&self) -> bool {
        self.path().ends_with("/chat/completions")
    }

    pub(crate) fn is_responses(&self) -> bool {
        self.path().ends_with("/responses")
    }

    /// The address without what stands behind the path.
    pub(crate) fn path(&self) -> &str {
        self.url.split('?').next().unwrap()
    }

    /// Whether the answer was streamed.
    pub(crate) fn is_streamed(&self) -> bool {
        self.request["stream"] == true && self.status == 200
    }

    /// The events of a streamed answer, read as plainly as can be.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.response.lines().filter_map(|line| line.strip_prefix("data:"));
        let events = lines.map(str::trim).filter(|data| *data != "[DONE]");
        events.map(|data| serde_json::from_str(data).expect(data)).collect()
    }
}

/// All cassettes, in order; `None`, and a word about it, where no data are named.
pub(crate) fn all() -> Option<Vec<Cassette>> {
    let Some(data) = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from) else {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
        return None;
    };
    let mut cassettes = Vec::new();
    for folder in fs::read_dir(data.join("cassettes")).unwrap() {
        let folder = folder.unwrap();
        if !folder.file_type().unwrap().is_dir() {
            continue;
        }
        for file in fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml") {
                cassettes.push(Cassette {
                    folder: folder.file_name().into_string().unwrap(),
                    name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                    exchanges: read(&fs::read_to_string(&path).unwrap()),
                });
            }
        }
    }
    cassettes.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    Some(cassettes)
}

fn read(text: &str) -> Vec<Exchange> {
    let mut exchanges = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let document = json(serde_yaml_ng::Value::deserialize(document).unwrap());
        let list = ["interactions", "http_interactions"].map(|name| document[name].as_array());
        if let Some(list) = list.into_iter().flatten().next() {
            let pairs = list.iter().map(|item| (&item["request"], &item["response"]));
            exchanges.extend(pairs.map(|(request, response)| exchange(request, response)));
        } else if document.is_object() {
            exchanges.push(exchange(&document["when"], &document["then"]));
        }
    }
    exchanges
}

fn exchange(request: &Value, response: &Value) -> Exchange {
    let first = |of: &Value, names: &[&str]| {
        names.iter().find_map(|name| of.pointer(name).filter(|value| !value.is_null()).cloned())
    };
    let status = first(response, &["/status/code", "/code", "/status"]).expect("a status");
    let body = |of: &Value| {
        let body = first(of, &["/body/string", "/body/base64_string", "/parsed_body", "/body"]);
        match body {
            None => String::new(),
            Some(Value::String(text)) => unpacked(text),
            Some(value) => value.to_string(),
        }
    };
    Exchange {
        url: first(request, &["/uri", "/url", "/path"]).unwrap().as_str().unwrap().to_owned(),
        request: serde_json::from_str(&body(request)).unwrap_or(Value::Null),
        status: status.as_u64().expect("a number").try_into().unwrap(),
        response: body(response),
    }
}

/// The text of a body that was recorded compressed.
fn unpacked(text: String) -> String {
    const GZIP_IN_BASE64: &str = "H4sI";
    if !text.starts_with(GZIP_IN_BASE64) {
        return text;
    }
    let bytes = BASE64.decode(text.split_whitespace().collect::<String>()).unwrap();
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut unpacked).unwrap();
    unpacked
}

fn json(value: serde_yaml_ng::Value) -> Value {
    use serde_yaml_ng::Value as Yaml;
    match value {
        Yaml::Sequence(items) => items.into_iter().map(json).collect(),
        Yaml::Mapping(fields) => {
            let fields = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), json(value))));
            Value::Object(fields.collect())
        }
        Yaml::Tagged(tagged) if tagged.tag == "!binary" => {
            let text = tagged.value.as_str().unwrap().split_whitespace().collect::<String>();
            Value::String(String::from_utf8(BASE64.decode(text).unwrap()).unwrap())
        }
        Yaml::Tagged(tagged) => json(tagged.value),
        plain => serde_json::to_value(plain).unwrap(),
    }
}
