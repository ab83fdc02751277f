use tower_chat_core::{MessageId, RunId, ToolCall, ToolResult};

use super::*;

fn split(message: Message) -> Vec<Message> {
    match in_order(&Arc::new(message.clone())) {
        Some(pieces) => pieces.iter().map(|piece| (**piece).clone()).collect(),
        None => vec![message],
    }
}

#[test]
fn an_answer_with_a_call_a_result_and_text_is_split_into_three_messages() {
    let mut row = Message::new(
        Role::Assistant,
        vec![
            Part::text("Let me look."),
            ToolCall::new("c1", "look", "{}").into(),
            ToolResult::new("c1", "found").into(),
            Part::text("There it is."),
        ],
    );
    let id = MessageId { run: RunId::from_bytes([7; 16]), index: 2 };
    row.id = Some(id);
    let pieces = split(row);
    let roles: Vec<Role> = pieces.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
    let ids: Vec<Option<MessageId>> = pieces.iter().map(|message| message.id).collect();
    assert_eq!(ids, [Some(id), None, None], "only one message has the id of the row");
}

#[test]
fn results_in_a_user_message_are_moved_before_its_text() {
    let row = Message::new(
        Role::User,
        vec![Part::text("and now?"), ToolResult::new("c1", "found").into()],
    );
    let roles: Vec<Role> = split(row).iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Tool, Role::User]);
}

#[test]
fn the_result_of_a_provider_executed_call_is_not_moved() {
    let mut call = ToolCall::new("ws_1", "web_search", "{}");
    call.provider_executed = true;
    let message = Message::new(
        Role::Assistant,
        vec![call.into(), ToolResult::new("ws_1", "pages").into(), Part::text("Found.")],
    );
    assert_eq!(split(message.clone()), [message]);
}

#[test]
fn a_provider_result_that_is_separated_from_its_call_is_moved_like_other_results() {
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
