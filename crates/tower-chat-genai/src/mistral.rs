//! Mistral's ids of tool calls: nine letters and digits.

use std::sync::Arc;

use tower_chat_core::{Message, Messages, Part};

const LENGTH: usize = 9;
const ALPHABET: [u8; 62] = *b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The messages with ids that Mistral takes. Its own stay; another is made of the id that was
/// there, so that a call and its result agree and every replay shows the same.
pub(crate) fn with_acceptable_ids(messages: &Messages) -> Messages {
    let mut renamed = Messages::new();
    for message in messages.iter() {
        renamed.push(acceptable(message));
    }
    renamed
}

fn acceptable(message: &Arc<Message>) -> Arc<Message> {
    let is_odd = |id: &Option<String>| id.as_deref().is_some_and(|id| !is_acceptable(id));
    let has_odd_id = message.parts.iter().any(|part| match part {
        Part::ToolCall(call) => is_odd(&call.id),
        Part::ToolResult(result) => is_odd(&result.call_id),
        _ => false,
    });
    if !has_odd_id {
        return message.clone();
    }
    let mut parts = message.parts.clone();
    for part in &mut parts {
        let id = match part {
            Part::ToolCall(call) => &mut call.id,
            Part::ToolResult(result) => &mut result.call_id,
            _ => continue,
        };
        if let Some(odd) = id.as_deref().filter(|id| !is_acceptable(id)) {
            *id = Some(made_of(odd));
        }
    }
    Arc::new(message.with_parts(parts))
}

fn is_acceptable(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Nine letters and digits that depend on the id alone: its FNV-1a hash.
fn made_of(id: &str) -> String {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let digits = (0..LENGTH).scan(hash, |rest, _| {
        let digit = usize::try_from(*rest % 62).ok()?;
        *rest /= 62;
        ALPHABET.get(digit).map(|byte| char::from(*byte))
    });
    digits.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tower_chat_core::{Message, ToolCall, ToolResult};

    use super::{is_acceptable, with_acceptable_ids};

    #[test]
    fn foreign_ids_become_nine_characters_on_call_and_result() {
        let ids = ["call_abc", "toolu_01", "Ab3456789", ""];
        for id in ids {
            let messages = [
                Message::tool_calls([ToolCall::new(id, "f", "{}")]),
                Message::tool_results([ToolResult::new(id, "r")]),
            ];
            let renamed = with_acceptable_ids(&messages.into());
            let call = renamed.get(0).unwrap().calls().next().unwrap().id.clone().unwrap();
            let result = renamed.get(1).unwrap().results().next().unwrap().call_id.clone();
            assert!(is_acceptable(&call), "{call}");
            assert_eq!(Some(&call), result.as_ref());
            assert_eq!(call == id, is_acceptable(id));
        }
    }
}
