use tower_chat_core::{ToolCall, ToolResult};

use super::*;

fn split(message: Message) -> Vec<Message> {
    match in_order(&Arc::new(message.clone())) {
        Ordered::Unchanged => vec![message],
        Ordered::Split(pieces) => pieces.iter().map(|piece| (**piece).clone()).collect(),
    }
}

#[test]
fn an_aggregate_row_becomes_call_result_and_text() {
    let row = Message::new(
        Role::Assistant,
        vec![
            Part::text("Let me look."),
            ToolCall::new("c1", "look", "{}").into(),
            ToolResult::new("c1", "found").into(),
            Part::text("There it is."),
        ],
    );
    let roles: Vec<Role> = split(row).iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
}

#[test]
fn results_in_a_user_message_come_before_its_words() {
    let row = Message::new(
        Role::User,
        vec![Part::text("and now?"), ToolResult::new("c1", "found").into()],
    );
    let roles: Vec<Role> = split(row).iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Tool, Role::User]);
}

/// The same as [`leaving_results`], by looking at all of each piece again whenever a result
/// leaves.
fn leaving_one_by_one(message: &Message) -> BTreeSet<usize> {
    let mut leaving = foreign_results(message);
    let is_answer = |parts: &[Part], result: &ToolResult| {
        let mut calls = parts.iter().filter_map(id_of_provider_call);
        calls.any(|id| id == result.call_id.as_deref())
    };
    loop {
        let parted = pieces_by(message.role, message.parts.len(), &leaving)
            .into_iter()
            .filter(|piece| piece.role != Role::Tool)
            .find_map(|piece| {
                let parts = &message.parts[piece.parts.clone()];
                let is_parted = |part: &Part| {
                    part.as_tool_result().is_some_and(|result| !is_answer(parts, result))
                };
                Some(piece.parts.start + parts.iter().position(is_parted)?)
            });
        match parted {
            Some(parted) => leaving.insert(parted),
            None => return leaving,
        };
    }
}

#[test]
fn the_results_that_leave_are_those_of_a_look_at_every_piece() {
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
        let leaving = leaving_results(&message);
        assert_eq!(leaving, leaving_one_by_one(&message), "case {case}: {:?}", message.parts);
        parted += usize::from(leaving.len() > foreign_results(&message).len());
    }
    assert!(parted > 500, "{parted}");
}

#[test]
fn a_result_of_the_providers_own_tool_stays_where_it_is() {
    let mut call = ToolCall::new("ws_1", "web_search", "{}");
    call.provider_executed = true;
    let message = Message::new(
        Role::Assistant,
        vec![call.into(), ToolResult::new("ws_1", "pages").into(), Part::text("Found.")],
    );
    assert_eq!(split(message.clone()), [message]);
}

#[test]
fn a_result_parted_from_the_providers_own_call_is_a_result_like_others() {
    let mut call = ToolCall::new("ws_1", "web_search", "{}");
    call.provider_executed = true;
    let row = Message::new(
        Role::Assistant,
        vec![
            call.into(),
            ToolCall::new("c1", "look", "{}").into(),
            ToolResult::new("c1", "found").into(),
            ToolResult::new("ws_1", "pages").into(),
            Part::text("There it is."),
        ],
    );
    let pieces = split(row);
    let roles: Vec<Role> = pieces.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
    assert_eq!(pieces[1].results().count(), 2);
}
