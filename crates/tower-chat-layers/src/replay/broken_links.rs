//! Removes the ids of reasoning and other items if the replay omits a call between them.
//!
//! OpenAI Responses links a reasoning item with the item after the reasoning. The service
//! recognises the two items by their ids, and refuses an input that contains only one of them. If
//! reasoning has encrypted content, or if a call has a `call_id`, the service accepts the item
//! without its id.

use std::{collections::BTreeMap, ops::Range};

use tower_chat_core::{Native, Part, RawJson, ToolCall};

use super::round::drop_trailing_reasoning;

#[cfg(test)]
mod tests;

const WIRE: &str = "openai-responses";

/// Omits the parts for which `keep` returns `false`, the ids of the items that may be linked with
/// them, and the reasoning at the end that belongs to them.
pub(super) fn retain(parts: &mut Vec<Part>, mut keep: impl FnMut(&Part) -> bool) {
    let (mut kept, mut gaps) = (0, Vec::new());
    parts.retain(|part| {
        let is_kept = keep(part);
        match is_kept {
            true => kept += 1,
            false => gaps.push(kept),
        }
        is_kept
    });
    if !gaps.is_empty() {
        unlink(parts, &gaps);
        drop_trailing_reasoning(parts);
    }
}

/// Removes the ids of items that may be linked with omitted calls: the reasoning directly before an
/// omitted call, and the items from the call to the next reasoning. Reasoning without encrypted
/// content is removed completely.
///
/// `gaps` contains, in ascending order, the indices in `parts` at which the omitted calls were.
pub(super) fn unlink(parts: &mut Vec<Part>, gaps: &[usize]) {
    let mut broken = Vec::new();
    let mut last_gap = 0;
    for gap in gaps {
        let since = parts.get(last_gap..*gap).unwrap_or_default();
        let before = since.iter().rposition(|part| !is_reasoning(part));
        let first = before.map_or(last_gap, |last| last_gap + last + 1);
        last_gap = *gap;
        if first < *gap {
            let end = parts.iter().skip(*gap).position(is_reasoning);
            broken.push(first..end.map_or(parts.len(), |end| gap + end));
        }
    }
    let mut index = 0;
    let mut broken = broken.into_iter().peekable();
    parts.retain_mut(|part| {
        while broken.next_if(|range: &Range<usize>| range.end <= index).is_some() {}
        let is_broken = broken.peek().is_some_and(|range| range.contains(&index));
        index += 1;
        !is_broken || unlink_part(part)
    });
}

/// Removes the id from a call that is sent without the other parts of its answer.
pub(super) fn unlink_call(call: &mut ToolCall) {
    if let Some(native) = &mut call.native {
        without_id(native);
    }
}

fn is_reasoning(part: &Part) -> bool {
    matches!(part, Part::Reasoning(reasoning)
        if reasoning.native.as_ref().is_some_and(|native| &*native.wire == WIRE))
}

/// Removes the id from a part. Returns `false` if the part must be removed.
fn unlink_part(part: &mut Part) -> bool {
    match part {
        Part::Reasoning(reasoning) => {
            let Some(native) = &mut reasoning.native else { return true };
            let fields = without_id(native).unwrap_or_default();
            let content = fields.get("encrypted_content").map(RawJson::get);
            !matches!(content, None | Some("null" | "\"\""))
        }
        Part::ToolCall(call) => {
            unlink_call(call);
            true
        }
        Part::Native(native) => {
            without_id(native);
            true
        }
        _ => true,
    }
}

/// Removes the id from an item of OpenAI Responses, and returns its other fields.
fn without_id(native: &mut Native) -> Option<BTreeMap<String, RawJson>> {
    if &*native.wire != WIRE {
        return None;
    }
    let mut fields: BTreeMap<String, RawJson> = native.item.parse().ok()?;
    if fields.remove("id").is_some() {
        native.item = RawJson::from_value(&fields).ok()?;
    }
    Some(fields)
}
