//! Decodes recorded bodies.

use std::io::Read;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde_json::Value;

use super::yaml::BINARY;

const GZIP: &[u8] = &[0x1f, 0x8b];

/// Returns the bytes of a recorded body after decompression. `content_encoding` is the value of the
/// header. Some recorders decompress the body but keep this header.
pub(super) fn bytes(of: &Value, content_encoding: Option<&str>) -> Result<Vec<u8>, String> {
    let recorded = recorded(of)?;
    decompressed(recorded, content_encoding)
}

fn recorded(of: &Value) -> Result<Vec<u8>, String> {
    if let Some(parsed) = of.get("parsed_body").filter(|parsed| !parsed.is_null()) {
        return Ok(parsed.to_string().into_bytes());
    }
    for name in ["body_base64", "base64_body"] {
        if let Some(text) = of.get(name).and_then(Value::as_str) {
            return from_base64(text);
        }
    }
    match of.get("body").unwrap_or(&Value::Null) {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Object(fields) => {
            if let Some(text) = fields.get(BINARY).and_then(Value::as_str) {
                return from_base64(text);
            }
            for name in ["base64_string", "base64"] {
                if let Some(text) = fields.get(name).and_then(Value::as_str) {
                    return from_base64(text);
                }
            }
            match fields.get("string") {
                Some(Value::String(text)) => Ok(text.clone().into_bytes()),
                Some(Value::Null) => Ok(Vec::new()),
                Some(Value::Object(binary)) => match binary.get(BINARY).and_then(Value::as_str) {
                    Some(text) => from_base64(text),
                    None => Err("the text of a body is a mapping, not a string".to_owned()),
                },
                Some(other) => Err(format!("the text of a body is not a string: {other}")),
                // Recordings of one Python client contain the JSON value instead of its text.
                None => Ok(of.get("body").unwrap_or(&Value::Null).to_string().into_bytes()),
            }
        }
        other => Err(format!("a body is neither a string nor an object: {other}")),
    }
}

fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    let text: String = text.split_whitespace().collect();
    BASE64.decode(text).map_err(|error| format!("a body is not valid base64: {error}"))
}

fn decompressed(recorded: Vec<u8>, content_encoding: Option<&str>) -> Result<Vec<u8>, String> {
    let mut bytes = recorded;
    // Some recorders write a compressed body as a string in base64.
    if is_base64_of_gzip(&bytes) {
        bytes = from_base64(&String::from_utf8_lossy(&bytes))?;
    }
    let mut unpacked = Vec::new();
    let outcome = match content_encoding {
        _ if bytes.starts_with(GZIP) => {
            flate2::read::MultiGzDecoder::new(&*bytes).read_to_end(&mut unpacked)
        }
        Some("deflate") if std::str::from_utf8(&bytes).is_err() => {
            flate2::read::ZlibDecoder::new(&*bytes).read_to_end(&mut unpacked)
        }
        // The recorder has decompressed the body but kept the header.
        None | Some("" | "identity" | "gzip" | "deflate") => return Ok(bytes),
        Some(_) if std::str::from_utf8(&bytes).is_ok() => return Ok(bytes),
        Some(other) => {
            return Err(format!("the content encoding {other} of a body is not supported"));
        }
    };
    outcome.map_err(|error| format!("a body cannot be decompressed: {error}"))?;
    Ok(unpacked)
}

fn is_base64_of_gzip(bytes: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=\r\n ".contains(byte);
    bytes.starts_with(b"H4sI") && bytes.iter().all(is_base64)
}
