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
    pub(crate) response: Vec<u8>,
}

impl Exchange {
    /// The path of the address, without its query.
    pub(crate) fn path(&self) -> &str {
        self.url.split('?').next().unwrap()
    }

    /// The answer as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.response).unwrap()
    }

    /// The data of the events of a streamed answer, read as plainly as can be.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.response).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let events = lines.map(str::trim).filter(|data| *data != "[DONE]");
        events.map(|data| serde_json::from_str(data).expect(data)).collect()
    }
}

/// The cassettes of some folders, in order; `None`, and a word about it, where no data are named.
pub(crate) fn of(folders: &[&str]) -> Option<Vec<Cassette>> {
    let Some(data) = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from) else {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
        return None;
    };
    let mut cassettes = Vec::new();
    for folder in folders {
        for file in fs::read_dir(data.join("cassettes").join(folder)).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "yaml" || kind == "yml") {
                cassettes.push(Cassette {
                    folder: (*folder).to_owned(),
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
            None => Vec::new(),
            Some(Value::String(text)) => unpacked(text),
            Some(value) => value.to_string().into_bytes(),
        }
    };
    let status = status.as_u64().or_else(|| status.as_str()?.split(' ').next()?.parse().ok());
    Exchange {
        url: first(request, &["/uri", "/url", "/path"]).unwrap().as_str().unwrap().to_owned(),
        request: serde_json::from_slice(&body(request)).unwrap_or(Value::Null),
        status: status.expect("a number").try_into().unwrap(),
        response: body(response),
    }
}

/// The bytes of a body; one that is no text was recorded in base64, some compressed before.
fn unpacked(text: String) -> Vec<u8> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\n".contains(&byte);
    if text.len() < 16 || !text.bytes().all(is_base64) {
        return text.into_bytes();
    }
    let bytes = BASE64.decode(text.split_whitespace().collect::<String>());
    let Ok(bytes) = bytes else { return text.into_bytes() };
    if !bytes.starts_with(GZIP) {
        return bytes;
    }
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&*bytes).read_to_end(&mut unpacked).unwrap();
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
        Yaml::Tagged(tagged) => json(tagged.value),
        plain => serde_json::to_value(plain).unwrap(),
    }
}
