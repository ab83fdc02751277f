//! Tests the replay of calls that wait for approval.

use super::{answers::pairs, *};

pub(super) fn waiting() -> Message {
    let request = ApprovalRequest::new("approval_1", call("1"), true);
    Message::new(Role::Assistant, vec![Part::text("May I?"), request.into()])
}

pub(super) fn approving(rest: Option<&str>) -> Message {
    let request = ApprovalRequest::new("approval_1", call("1"), true);
    let mut parts = vec![Part::ApprovalResponse(request.approve())];
    parts.extend(rest.map(Part::text));
    Message::new(Role::User, parts)
}

#[test]
fn a_call_that_waits_for_approval_is_omitted_and_reported_as_pending() {
    let replay = replay([Message::user("u"), waiting(), Message::user("What time is it?")]);
    let output: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&output), "u:t a:t u:t");
    let pending = replay.pending_approvals();
    assert_eq!((pending.len(), pending[0][0].id.as_str()), (1, "approval_1"));
}

#[test]
fn a_summary_by_the_service_is_sent_without_its_call_that_waits_or_has_no_result() {
    let native = |wire: &str, item: &str| Part::Native(Native::new(wire, item.parse().unwrap()));
    let [summary, reasoning] = ["compaction", "reasoning"].map(|kind| {
        let item = format!(r#"{{"type":"{kind}","encrypted_content":"gAAA"}}"#);
        native("openai-responses", &item)
    });
    let block = native("anthropic", r#"{"type":"compaction","content":"in short"}"#);
    let failed = native("anthropic", r#"{"type":"compaction","content":null}"#);
    let of_another_wire = native("cohere", r#"{"type":"compaction","content":"in short"}"#);
    let request = || Part::from(ApprovalRequest::new("approval_1", call("1"), true));
    for (parts, sent) in [
        (vec![summary.clone(), request()], Some(vec![summary.clone()])),
        (
            vec![Part::text("May I?"), summary.clone(), reasoning.clone(), request()],
            Some(vec![Part::text("May I?"), summary.clone()]),
        ),
        (vec![reasoning.clone(), request()], None),
        (vec![block.clone(), request()], Some(vec![block.clone()])),
        (vec![failed.clone(), request()], None),
        (vec![of_another_wire, request()], None),
        (vec![summary.clone(), call("1").into()], Some(vec![summary.clone()])),
        (vec![block.clone(), call("1").into()], Some(vec![block.clone()])),
        (vec![failed, call("1").into()], None),
    ] {
        let waiting = Message::new(Role::Assistant, parts);
        let output = view([Message::user("u"), waiting, Message::user("What time is it?")]);
        let found = output[1..].iter().find(|message| message.role == Role::Assistant);
        assert_eq!(found.map(|message| &message.parts), sent.as_ref());
    }
}

#[test]
fn an_approved_call_is_sent_with_its_text_its_result_and_the_text_after_it() {
    let messages = [Message::user("u"), waiting(), approving(Some("Go on.")), results(["1"])];
    let replay = replay(messages.clone());
    assert!(replay.pending_approvals().is_empty());
    assert_eq!(output_of(messages), "u:t a:t+c(1) T:r(1) u:t");
}

#[test]
fn text_beside_an_approval_comes_before_the_results_of_a_later_run() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let messages = [
        of_run(1, 0, calls(["2"])),
        of_run(2, 0, Message::user("meanwhile")),
        of_run(2, 1, waiting()),
        of_run(3, 0, approving(Some("Go on."))),
        of_run(3, 1, results(["1"])),
        of_run(4, 0, results(["2"])),
    ];
    assert_eq!(output_of(messages), "u:t a:t+c(1) T:r(1) u:t a:c(2) T:r(2)");
}

#[test]
fn text_beside_an_approval_comes_after_the_results_of_an_earlier_run() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let messages = [
        of_run(1, 0, calls(["2"])),
        of_run(2, 0, Message::user("in between")),
        of_run(2, 1, waiting()),
        of_run(3, 0, results(["2"])),
        of_run(4, 0, approving(Some("Now pay."))),
        of_run(4, 1, results(["1"])),
    ];
    assert_eq!(output_of(messages), "u:t a:t+c(1) T:r(1) a:c(2) T:r(2) u:t");
}

#[test]
fn text_with_an_approval_of_each_of_two_runs_is_sent_after_the_results_of_its_own_run() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let requests = ["1", "2"].map(|id| ApprovalRequest::new(format!("a{id}"), call(id), true));
    let asking =
        Message::new(Role::Assistant, requests.iter().map(|it| it.clone().into()).collect());
    let approving = |request: &ApprovalRequest, text: &str| {
        Message::new(Role::User, vec![Part::ApprovalResponse(request.approve()), Part::text(text)])
    };
    let messages = [
        of_run(1, 0, asking),
        of_run(2, 0, Message::user("meanwhile")),
        of_run(2, 1, calls(["3"])),
        of_run(3, 0, approving(&requests[0], "first")),
        of_run(3, 1, results(["1"])),
        of_run(4, 0, approving(&requests[1], "second")),
        of_run(4, 1, results(["2"])),
    ];
    let expected = "u:t a:c(1) T:r(1) u:t a:c(2) T:r(2) u:t";
    assert_eq!(output_of(messages), expected);
}

/// A result answers a call of the last answer, or a call of an earlier answer that the replay has
/// omitted.
#[test]
fn a_late_result_does_not_answer_an_approved_call_without_an_id() {
    let requests = ["approval_1", "approval_2"]
        .map(|id| ApprovalRequest::new(id, ToolCall::without_id("look", "{}"), true));
    let asking =
        Message::new(Role::Assistant, requests.iter().map(|it| it.clone().into()).collect());
    for asked_first in [true, false] {
        let (first, then) = match asked_first {
            true => (calls(["2"]), asking.clone()),
            false => (asking.clone(), calls(["2"])),
        };
        let approvals = requests.iter().map(|it| Part::ApprovalResponse(it.approve()));
        let messages = [
            first,
            Message::user("meanwhile"),
            then,
            Message::new(Role::User, approvals.collect()),
            // The call of the second request did not run, because the call of the first request has
            // ended the run.
            Message::tool_results([ToolResult::new("", "result of the approved call")]),
            results(["2"]),
        ];
        let output = view(messages);
        let pairs = output.iter().flat_map(|message| message.results());
        let pairs: Vec<_> = pairs.map(|it| (it.call_id.as_deref().unwrap(), it.text())).collect();
        let ids = output.iter().flat_map(|it| it.calls()).filter_map(|call| call.id.as_deref());
        let approved = ids.filter(|id| *id != "2").collect::<Vec<_>>();
        let approved = (approved[0], "result of the approved call".to_owned());
        let late = ("2", "result of 2".to_owned());
        let expected = if asked_first { [approved, late] } else { [late, approved] };
        assert_eq!(pairs, expected, "asked first: {asked_first}");
    }
}

#[test]
fn results_of_approved_calls_in_several_messages_answer_one_call_after_the_other() {
    for id in [Some("same"), Some(""), None] {
        let requests = ["book", "pay"].map(|tool| {
            let mut call = ToolCall::without_id(tool, "{}");
            call.id = id.map(str::to_owned);
            ApprovalRequest::new(format!("approval to {tool}"), call, true)
        });
        let approving = |requests: &[ApprovalRequest]| {
            let approvals = requests.iter().map(|it| Part::ApprovalResponse(it.approve()));
            Message::new(Role::User, approvals.collect())
        };
        let asking = Message::new(Role::Assistant, requests.clone().map(Part::from).into());
        let result = |text: &str| {
            let mut result = ToolResult::new("", text);
            result.call_id = id.map(str::to_owned);
            Message::tool_results([result])
        };
        let (booked, paid) = (result("booked"), result("paid"));
        let [book, pay] = [&requests[..1], &requests[1..]].map(approving);
        let at_once = vec![asking.clone(), approving(&requests), booked.clone(), paid.clone()];
        let one_by_one = vec![asking, book, booked, pay, paid];
        let expected = [("book", "booked"), ("pay", "paid")];
        let expected = expected.map(|(tool, text)| (tool.to_owned(), text.to_owned()));
        for messages in [at_once, one_by_one] {
            assert_eq!(pairs(messages), expected, "{id:?}");
        }
    }
}

/// By order, the first result answers the first call. When a second result with the position of the
/// first call is pushed, the first result answers the approved call instead.
#[test]
fn a_positioned_result_moves_an_earlier_result_without_a_position_to_the_approved_call() {
    let call = |tool: &str| ToolCall::without_id(tool, "{}");
    let request = ApprovalRequest::new("approval_1", call("pay"), true);
    let approving = Message::new(Role::User, vec![Part::ApprovalResponse(request.approve())]);
    let parts = vec![call("open").into(), request.into(), call("close").into()];
    let mut asking = Message::new(Role::Assistant, parts);
    let message = MessageId { run: RunId::from_bytes([5; 16]), index: 1 };
    asking.id = Some(message);
    let result = |text: &str| {
        let mut result = ToolResult::new("", text);
        result.call_id = None;
        result
    };
    let opened = result("opened").answering(CallPosition { message, index: 0 });
    let results = [result("moved on"), opened, result("closed")];
    let [first, second, third] = results.map(|it| Message::tool_results([it]));
    let expected = [("open", "opened"), ("pay", "moved on"), ("close", "closed")];
    let expected = expected.map(|(tool, text)| (tool.to_owned(), text.to_owned()));
    assert_eq!(pairs([asking, first, approving, second, third]), expected);
}

/// A result with the id of an approved call answers this call, unless the model has made another
/// call with the same id after the approval.
#[test]
fn a_result_answers_the_approved_call_unless_the_model_has_called_again_after_the_approval() {
    let [pay, look] = ["pay", "look"].map(|tool| ToolCall::new("same", tool, "{}"));
    let request = ApprovalRequest::new("approval_1", pay, true);
    let asking = Message::new(Role::Assistant, vec![request.clone().into()]);
    let approving = Message::new(Role::User, vec![request.approve().into()]);
    let looking = Message::tool_calls([look]);
    let hurry = Message::user("hurry");
    let result = || Message::tool_results([ToolResult::new("same", "the only result")]);
    let answered = |tool: &str| vec![(tool.to_owned(), "the only result".to_owned())];
    let approved_last =
        [asking.clone(), hurry.clone(), looking.clone(), approving.clone(), hurry.clone()];
    assert_eq!(pairs(approved_last.into_iter().chain([result()])), answered("pay"));
    let asked_last = [asking, approving, hurry, looking];
    assert_eq!(pairs(asked_last.into_iter().chain([result()])), answered("look"));
}

#[test]
fn a_call_that_is_answered_while_a_later_round_waits_is_no_longer_pending() {
    let waiting = |request: &str, id: &str| {
        let request = ApprovalRequest::new(request, call(id), true);
        Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)])
    };
    let replay = replay([
        Message::user("a"),
        waiting("approval_1", "1"),
        Message::user("b"),
        waiting("approval_2", "2"),
        results(["1"]),
    ]);
    let pending: Vec<_> = replay.pending_approvals().into_iter().flatten().collect();
    assert_eq!(
        pending.iter().map(|request| request.id.as_str()).collect::<Vec<_>>(),
        ["approval_2"]
    );
}

#[test]
fn a_call_that_is_approved_late_is_sent_with_its_result_at_the_end() {
    let messages = [
        waiting(),
        Message::user("What time is it?"),
        Message::assistant("Noon."),
        approving(None),
        results(["1"]),
    ];
    assert_eq!(output_of(messages), "a:t u:t a:t a:c(1) T:r(1)");
}
