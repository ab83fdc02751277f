//! Tests runs whose input contains the result of an earlier run's call. The messages have the same
//! ids in the answer and in the store, and all calls of the run are stored.

use tower_chat::{
    ChatRequest, Message, Role, ToolContext, ToolResult, Tools,
    layer::ToolLoopLayer,
    message::MessageId,
    replay::effective_call_ids,
    tool::{CallPosition, ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Step, cases};

use super::*;

const IDS: [[Option<&str>; 4]; 4] = [
    [Some("c1"), Some("c2"), Some("c3"), Some("c4")],
    [Some("c1"), Some("c1"), Some("c1"), Some("c1")],
    [None, None, None, None],
    [Some(""), Some(""), Some("c9"), Some("")],
];

const INPUTS: [(&[&str], &[&str]); 4] =
    [(&[], &[]), (&[], &["and go on"]), (&["first this"], &[]), (&["first this"], &["then that"])];

fn call(name: &str, id: Option<&str>) -> ToolCall {
    let mut call = ToolCall::new("", name, format!("{{\"of\":\"{name}\"}}"));
    call.id = id.map(str::to_owned);
    call
}

fn tools() -> Tools {
    Tools::new()
        .declare(definition("ask"))
        .with(tool_fn(definition("look"), |context: ToolContext| async move {
            Ok(format!("looked with {}", context.arguments()))
        }))
        .with(tool_fn(definition("fail"), |_| async {
            Err::<ToolOutput, BoxError>("disk on fire".into())
        }))
}

fn pairs(request: &ChatRequest) -> Vec<(String, String, String)> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut pairs = Vec::new();
    for message in request.messages().iter() {
        let ids = effective_call_ids(message);
        open.extend(message.calls().map(|call| call.name.clone()).zip(ids));
        for result in message.results() {
            let id = result.call_id.clone().unwrap_or_default();
            let index = open.iter().position(|(_, open)| *open == id);
            let (name, id) = open.remove(index.unwrap_or_else(|| panic!("{result:?}")));
            pairs.push((name, id, result.text()));
        }
    }
    assert_eq!(open, [], "each call has a result");
    pairs
}

/// Returns the id, the role and the content of each message. The other fields differ between the
/// answer and the store.
fn numbered(messages: &[Arc<Message>]) -> Vec<(MessageId, Role, String)> {
    let row = |message: &Arc<Message>| {
        let calls: Vec<_> = message.calls().map(|call| call.name.clone()).collect();
        let results: Vec<_> = message.results().map(|result| result.text()).collect();
        let text = format!("{} {} {}", message.text(), calls.join(","), results.join(","));
        (message.id.unwrap(), message.role, text)
    };
    messages.iter().map(row).collect()
}

#[tokio::test]
async fn a_late_result_shifts_no_number_and_the_calls_of_its_run_have_whole_rows() {
    for (ids, (before, after), text_follows, (mode, streamed)) in
        cases!(IDS, INPUTS, BOTH_WAYS, every_way())
    {
        late_result(ids, (before, after), text_follows, mode, streamed).await;
    }
}

async fn late_result(
    [late, look, fail, nobody]: [Option<&str>; 4],
    (before, after): (&[&str], &[&str]),
    text_follows: bool,
    mode: PersistenceMode,
    streamed: bool,
) {
    let about = format!(
        "{late:?} {look:?} {before:?} {after:?} text {text_follows} {mode:?} streamed {streamed}"
    );
    let asking =
        Message::tool_calls([call("look", look), call("fail", fail), call("nobody", nobody)]);
    let mut answer = vec![asking];
    answer.extend(text_follows.then(|| Message::assistant("one moment")));
    let script = vec![
        Step::message(Message::tool_calls([call("ask", late)])),
        Step::text("of something else"),
        Step::answer(answer, tower_chat::Finish::stop()),
        Step::text("done"),
        Step::text("bye"),
    ];
    let agent = Agent::new(mode, ToolLoopLayer::new(tools()), script);
    let returned = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
    agent.send_as(streamed, ChatRequest::user("something else")).await.unwrap();
    let id = effective_call_ids(&returned.messages[0]).remove(0);
    let users = |texts: &[&str]| texts.iter().map(|text| Message::user(*text)).collect::<Vec<_>>();
    let mut input = users(before);
    input.push(Message::tool_results([ToolResult::new(id, "forty-two")]));
    input.extend(users(after));
    let inputs = input.len();
    let messages: tower_chat::message::Messages = input.into_iter().collect();
    let live = agent.send_as(streamed, ChatRequest::new(messages)).await.unwrap();

    let stored = agent.stored().await;
    let of_run = stored.len() - live.messages.len();
    assert_eq!(numbered(&live.messages), numbered(&stored[of_run..]), "{about}");
    let indexes: Vec<_> = live.messages.iter().map(|message| message.id.unwrap().index).collect();
    assert_eq!(indexes[0] as usize, inputs, "{about}");

    let asking = returned.messages[0].id.unwrap();
    let named = stored.iter().flat_map(|message| message.results()).map(|it| it.call);
    let late = CallPosition { message: asking, index: 0 };
    assert_eq!(named.collect::<Vec<_>>(), [Some(late), None, None, None], "{about}");

    let rows: Vec<_> = agent.record().await.iter().map(row).collect();
    let looked = "looked with {\"of\":\"look\"}";
    let unknown = "There is no tool named \"nobody\".";
    assert_eq!(
        rows,
        [
            ("ask", ToolStatus::Ok, "forty-two", None, false),
            ("look", ToolStatus::Ok, looked, None, true),
            ("fail", ToolStatus::Error, "The tool failed.", Some("disk on fire"), true),
            ("nobody", ToolStatus::UnknownTool, unknown, None, false),
        ]
        .map(|(name, status, result, error, timed)| {
            (name.to_owned(), status, result.to_owned(), error.map(str::to_owned), timed)
        }),
        "{about}"
    );

    agent.send_as(streamed, ChatRequest::user("bye")).await.unwrap();
    let requests = agent.model.requests();
    let (live, later) = (pairs(&requests[3]), pairs(&requests[4]));
    assert_eq!(live, later, "{about}");
    let names: Vec<_> = live.iter().map(|(name, _, text)| (name.as_str(), text.as_str())).collect();
    let expected =
        [("ask", "forty-two"), ("look", looked), ("fail", "The tool failed."), ("nobody", unknown)];
    assert_eq!(names, expected, "{about}");
}

fn row(call: &ToolInvocation) -> (String, ToolStatus, String, Option<String>, bool) {
    assert_eq!(call.started_at.is_some(), call.finished_at.is_some());
    (
        call.name.clone(),
        call.status,
        call.result.as_ref().map(|result| result.text()).unwrap_or_default(),
        call.error.clone(),
        call.finished_at.is_some(),
    )
}
