//! Tests of the results that are moved out of a message with calls.

use super::*;
use crate::{ToolCall, ToolResult};

/// Returns the same as [`moved_results`], but checks every piece again whenever a result is moved
/// out.
fn moved_one_by_one(message: &Message) -> BTreeSet<usize> {
    let mut moved = foreign_results(message);
    let is_answer = |parts: &[Part], result: &ToolResult| {
        let mut calls = parts.iter().filter_map(id_of_provider_call);
        calls.any(|id| id == result.call_id.as_deref())
    };
    loop {
        let parted = pieces_by(message.role, message.parts.len(), &moved)
            .into_iter()
            .filter(|piece| piece.role != Role::Tool)
            .find_map(|piece| {
                let parts = &message.parts[piece.parts.clone()];
                let is_separated = |part: &Part| {
                    part.as_tool_result().is_some_and(|result| !is_answer(parts, result))
                };
                Some(piece.parts.start + parts.iter().position(is_separated)?)
            });
        match parted {
            Some(parted) => moved.insert(parted),
            None => return moved,
        };
    }
}

#[test]
fn leaving_results_matches_a_check_of_every_part_one_by_one() {
    let mut seed = 0x5eed_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut parted = 0;
    for case in 0..5_000 {
        let ids = 1 + random(9);
        let part = |index: u64| -> Part {
            let id = format!("ws_{}", random(ids));
            match random(7) {
                0..=2 => {
                    let mut call = ToolCall::new(id, "web_search", format!("[{index}]"));
                    call.provider_executed = true;
                    call.into()
                }
                3..=5 => ToolResult::new(id, format!("page {index}")).into(),
                _ => ToolResult::new(format!("c{index}"), format!("found {index}")).into(),
            }
        };
        let parts = (0..2 + case % 17).map(part).collect();
        let message = Message::new(Role::Assistant, parts);
        let moved = moved_results(&message);
        assert_eq!(moved, moved_one_by_one(&message), "case {case}: {:?}", message.parts);
        parted += usize::from(moved.len() > foreign_results(&message).len());
    }
    assert!(parted > 500, "{parted}");
}
