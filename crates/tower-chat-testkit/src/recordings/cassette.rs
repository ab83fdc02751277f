//! Parses files of recorded exchanges.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::{body, error::RecordingError, exchange::Exchange, yaml};

/// A file of recorded exchanges.
#[derive(Debug, Clone)]
pub struct Cassette {
    /// The name of the folder of the file, which names a provider or a host.
    pub folder: String,
    /// The name of the file, without its extension.
    pub name: String,
    /// The exchanges in the order of the file.
    pub exchanges: Vec<Exchange>,
}

impl Cassette {
    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// Fails if any part of the text cannot be parsed.
    pub fn parse(folder: &str, file: &str, text: &str) -> Result<Self, RecordingError> {
        let name = file.rsplit_once('.').map_or(file, |(name, _)| name).to_owned();
        let source = format!("{folder}/{file}");
        let documents =
            yaml::documents(text).map_err(|problem| RecordingError::new(&source, problem))?;
        let mut exchanges = Vec::new();
        for document in &documents {
            for (request, response) in pairs(document, &source)? {
                let source = format!("{source}#{}", exchanges.len());
                exchanges.push(exchange(source, folder, request, response)?);
            }
        }
        if exchanges.is_empty() {
            return Err(RecordingError::new(source, "it has no exchange"));
        }
        Ok(Self { folder: folder.to_owned(), name, exchanges })
    }

    pub(super) fn read(folder: &str, path: &Path) -> Result<Self, RecordingError> {
        let failed = |problem: String| RecordingError::new(path.display().to_string(), problem);
        let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        Self::parse(folder, &file, &text)
    }
}

type Pair<'a> = (&'a Value, &'a Value);

/// Returns the pairs of a request and its response in a YAML document. The document contains the
/// list `interactions` (vcrpy, go-vcr) or `http_interactions` (VCR), or a single pair (httpmock).
fn pairs<'a>(document: &'a Value, source: &str) -> Result<Vec<Pair<'a>>, RecordingError> {
    if document.is_null() {
        return Ok(Vec::new());
    }
    let both = |item: &'a Value, request: &str, response: &str| {
        let pair = item.get(request).zip(item.get(response));
        pair.filter(|(request, response)| request.is_object() && response.is_object())
    };
    let unknown = |what: &str| {
        RecordingError::new(
            source,
            format!("{what} has an unknown structure: record it with a supported recorder"),
        )
    };
    for name in ["interactions", "http_interactions"] {
        if let Some(list) = document.get(name) {
            let list = list.as_array().ok_or_else(|| unknown("a list of interactions"))?;
            let pairs = list.iter().map(|item| both(item, "request", "response"));
            return pairs.collect::<Option<_>>().ok_or_else(|| unknown("an interaction"));
        }
    }
    both(document, "when", "then").map(|pair| vec![pair]).ok_or_else(|| unknown("a document"))
}

fn exchange(
    source: String,
    folder: &str,
    request: &Value,
    response: &Value,
) -> Result<Exchange, RecordingError> {
    let failed = |problem: String| RecordingError::new(source.clone(), problem);
    let url = ["uri", "url", "path"].iter().find_map(|name| request.get(*name)?.as_str());
    let url = url.ok_or_else(|| failed("a request has no address".to_owned()))?;
    let method = request.get("method").and_then(Value::as_str).unwrap_or("POST");
    let request_headers = headers(request).map_err(failed)?;
    let response_headers = headers(response).map_err(failed)?;
    let encoding = |headers: &BTreeMap<String, String>| headers.get("content-encoding").cloned();
    let request_body = body::bytes(request, encoding(&request_headers).as_deref());
    let body = body::bytes(response, encoding(&response_headers).as_deref());
    let exchange = Exchange {
        folder: folder.to_owned(),
        method: method.to_ascii_uppercase(),
        url: url.to_owned(),
        request: Value::Null,
        request_body: request_body.map_err(failed)?,
        request_headers,
        status: status(response).map_err(failed)?,
        headers: response_headers,
        body: body.map_err(failed)?,
        source: source.clone(),
    };
    exchange.with_request_json()
}

fn status(response: &Value) -> Result<u16, String> {
    let pointers = ["/status/code", "/status/status_code", "/code", "/status"];
    let found = pointers.iter().find_map(|pointer| response.pointer(pointer));
    let found = found.ok_or("a response has no status")?;
    let number = found.as_u64().and_then(|number| number.try_into().ok());
    let named = || found.as_str()?.split(' ').next()?.parse().ok();
    number.or_else(named).ok_or_else(|| format!("the status {found} is not a number"))
}

/// Returns the headers, with names in lower case. A recorder writes headers as a mapping from names
/// to strings or lists of strings, or as a list of `{name, value}`.
fn headers(of: &Value) -> Result<BTreeMap<String, String>, String> {
    let mut headers = BTreeMap::new();
    let mut add = |name: &str, value: &Value| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null => String::new(),
            Value::Array(values) => {
                let values: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
                values
                    .ok_or_else(|| format!("the header {name} has values that are not strings"))?
                    .join(", ")
            }
            other => {
                return Err(format!(
                    "the header {name} is not a string or a list of strings: {other}"
                ));
            }
        };
        headers.insert(name.to_ascii_lowercase(), value);
        Ok(())
    };
    match of.get("headers").or_else(|| of.get("header")) {
        None | Some(Value::Null) => {}
        Some(Value::Object(fields)) => {
            fields.iter().try_for_each(|(name, value)| add(name, value))?;
        }
        Some(Value::Array(list)) => list.iter().try_for_each(|header| {
            let name = header.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| format!("a header has no name: {header}"))?;
            add(name, header.get("value").unwrap_or(&Value::Null))
        })?,
        Some(other) => {
            return Err(format!("the headers are neither an object nor a list: {other}"));
        }
    }
    Ok(headers)
}
