//! Fills stores with problems that `verify` finds.

use tower_chat::{
    Message, Part, Role, ToolCall, ToolResult,
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
    tool::ApprovalRequest,
};
use tower_chat_repair::extract;

use super::{Store, execute, fill_recorded};

pub(crate) fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "look", "{}")
}

/// Stores a conversation in the scope `play`, with its record of tool calls.
pub(crate) fn fill_play(store: &Store, id: &str, messages: Vec<Message>) {
    let records = extract(&messages.iter().cloned().collect(), 1, 0);
    fill_recorded(store, "play", id, messages, records);
}

/// Stores two conversations without problems: a complete turn, and a call that waits for approval.
pub(crate) fn fill_intact(store: &Store) {
    fill_play(
        store,
        "sound",
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1")]),
            Message::tool_results([ToolResult::new("c1", "found")]),
            Message::assistant("There."),
        ],
    );
    let request = ApprovalRequest::new("a1", ToolCall::new("c1", "pay", "{}"), true);
    fill_play(
        store,
        "waiting",
        vec![
            Message::user("pay"),
            Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]),
        ],
    );
}

/// Stores conversations with every kind of problem that `repair` can repair.
pub(crate) fn fill_repairable(store: &Store) {
    // Two calls have no result: one of the two calls of a round, and a call in the last message.
    fill_play(
        store,
        "dangling",
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1"), call("c2")]),
            Message::tool_results([ToolResult::new("c2", "two")]),
            Message::assistant("And?"),
            Message::tool_calls([call("c1")]),
        ],
    );
    let messages = vec![Message::user("go"), Message::tool_calls([call("c1")])];
    let mut record =
        ToolRecord::pending(SequencePosition { sequence: 2, index: 0 }, 0, "c1", "look");
    record.status = tower_chat::tool::ToolStatus::Ok;
    record.result = RecordedResult::Apart(Box::new(ToolResult::new("c1", "from the record")));
    fill_recorded(store, "play", "recorded", messages, vec![record]);
    fill_play(
        store,
        "results",
        vec![
            Message::user("go"),
            Message::tool_results([ToolResult::new("gone", "an orphan")]),
            Message::tool_calls([call("c1")]),
            Message::tool_results([
                ToolResult::new("lost", "in front"),
                ToolResult::new("c1", "found"),
                ToolResult::new("c1", "again"),
            ]),
            Message::assistant("There."),
        ],
    );
    fill_play(
        store,
        "rows",
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1")]),
            Message::tool_results([ToolResult::new("c1", "found")]),
            Message::assistant("There."),
        ],
    );
    let of_rows = "(SELECT id FROM conversations WHERE conversation = 'rows')";
    let astray =
        format!("UPDATE tool_invocations SET result_index = 7 WHERE place >> 32 = {of_rows}");
    assert_eq!(execute(&store.path(), &astray), 1);
    for row_key in [format!("({of_rows} << 32) + 4"), "99 << 32".to_owned()] {
        let of_nothing = format!(
            "INSERT INTO tool_invocations (place, call_index, round_index, call_id, name, status)
             VALUES ({row_key}, 0, 0, 'c9', 'look', 'ok')"
        );
        assert_eq!(execute(&store.path(), &of_nothing), 1);
    }
}

/// Stores conversations with problems that `repair` cannot repair: an unreadable message between
/// calls without results, and a missing message.
pub(crate) fn fill_unreadable(store: &Store) {
    let messages = || {
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1")]),
            Message::assistant("Well?"),
            Message::tool_calls([call("c2")]),
            Message::tool_results([ToolResult::new("c2", "two")]),
            Message::assistant("Done."),
        ]
    };
    fill_play(store, "torn", messages());
    fill_play(store, "gap", messages());
    let at = |id: &str, sequence: u32| {
        format!(
            "WHERE place = ((SELECT id FROM conversations WHERE conversation = '{id}') << 32)
                + {sequence}"
        )
    };
    let tear = format!("UPDATE messages SET body = '{{\"v\":1,\"ro' {}", at("torn", 5));
    let newer = format!("UPDATE messages SET body = '{{\"v\":9}}' {}", at("torn", 6));
    let remove = format!("DELETE FROM messages {}", at("gap", 3));
    for damage in [tear, newer, remove] {
        assert_eq!(execute(&store.path(), &damage), 1, "{damage}");
    }
}
