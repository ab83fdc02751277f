//! The initial content of the stores of several targets: messages, rows about tool calls, and an
//! open run.

use std::sync::Arc;

use tower_chat::{
    ConversationKey, HistoryStore, Message, Part, Role, ToolCall, ToolResult,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision, SequencePosition, ServiceIdChange,
        author::{RecordedResult, Staged, ToolRecord, Write},
    },
    tool::{ApprovalRequest, ToolStatus},
};

pub(crate) fn conversation() -> ConversationKey {
    ConversationKey::new("fuzz", "rows")
}

pub(crate) async fn fill(store: &dyn HistoryStore) {
    let run = RunId::from_bytes([1; 16]);
    let asked = ["first", "second"].map(|id| ToolCall::new(id, "look", format!("[\"{id}\"]")));
    let needed = ApprovalRequest::new("approve", ToolCall::new("third", "buy", "{}"), true);
    let result = SequencePosition { sequence: 3, index: 0 };
    let apart = ToolResult::new("second", "apart");
    let records = [
        (ToolStatus::Ok, RecordedResult::InMessage(result)),
        (ToolStatus::Error, RecordedResult::Apart(Box::new(apart))),
        (ToolStatus::PendingApproval, RecordedResult::None),
    ];
    let records = (0..).zip(records).map(|(index, (status, result))| {
        let call = SequencePosition { sequence: 2, index };
        let mut record = ToolRecord::pending(call, 0, format!("id {index}"), "look");
        (record.status, record.result) = (status, result);
        record.error = Some(format!("why {status:?}"));
        record.started_at = Some(std::time::UNIX_EPOCH);
        record
    });
    let records = records.collect();
    let asking = asked.into_iter().map(Part::ToolCall).chain([needed.into()]).collect();
    let messages = [
        Message::user("Which ship?"),
        Message::new(Role::Assistant, asking),
        Message::tool_results([ToolResult::new("first", "the red one")]),
        Message::assistant("The red one."),
    ];
    let id = MessageId { run, index: 0 };
    let whole = Write::new(conversation(), id, Revision::ABSENT, messages.map(Arc::new))
        .with_tools(records)
        .with_service_id(ServiceIdChange::Set("kept-elsewhere".into()));
    let at = whole.result();
    let lease = Lease {
        attempt: 1,
        holder: 1,
        renewed_at: std::time::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let text = Some("It is".into());
    let staged = Staged { lease, close: None, service_id: None, partial_text: text };
    let id = MessageId { run: RunId::from_bytes([2; 16]), index: 0 };
    let staged =
        Write::new(conversation(), id, at, [Arc::new(Message::user("When?"))]).staged(staged);
    for write in [whole, staged] {
        let slot = store.reserve().await.expect("a slot");
        store.append(slot, vec![write]).await.expect("a write that is stored");
    }
    store.flush().await.expect("all is stored");
}
