//! Tests which call a result answers if calls of several runs, or calls in several messages of one
//! answer, have the same id or no id.

use std::sync::{Arc, Mutex};

use tower_chat::{
    Answer, BoxError, ChatRequest, Finish, HistoryStore, Message, Part, PersistenceMode, Role,
    ToolCall, ToolContext, ToolResult, Tools,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    message::MessageId,
    policy::ConflictPolicy,
    run::RunId,
    store::{
        InvocationQuery, SequencePosition, ToolCallQueries,
        author::{RecordedResult, ToolRecord, Write},
    },
    tool::{
        ApprovalRequest, CallPosition, Retention, ToolOutput, ToolStatus, pending_results,
        persist_with,
    },
    tool_fn,
    validate::validate_request,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

/// The ids that a provider may set for two calls.
const IDS: [[Option<&str>; 2]; 4] =
    [[Some("c"), Some("c")], [None, None], [Some(""), Some("")], [Some("c1"), Some("c2")]];

#[derive(Debug, Clone, Default)]
pub(crate) struct Executed(Arc<Mutex<Vec<String>>>);

impl Executed {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// Returns tools whose results are `<name> <arguments>`. `pay` needs approval, `look` does not,
    /// `stop` ends the run, and only the caller can run `ask`.
    pub(crate) fn tools(&self) -> Tools {
        let executed = |name: &'static str| {
            let executed = self.clone();
            move |context: ToolContext| {
                let arguments = context.call().arguments.clone();
                executed.0.lock().unwrap().push(arguments.clone());
                let output = ToolOutput::from(format!("{name} {arguments}"));
                let output = if name == "stop" { output.terminate() } else { output };
                async move { Ok::<_, BoxError>(output) }
            }
        };
        Tools::new()
            .with(tool_fn(definition("pay").needs_approval(), executed("pay")))
            .with(tool_fn(definition("look"), executed("look")))
            .with(tool_fn(definition("stop"), executed("stop")))
            .declare(definition("ask"))
    }
}

pub(crate) fn call(name: &str, id: Option<&str>, number: usize) -> ToolCall {
    let mut call = ToolCall::without_id(name, number.to_string());
    call.id = id.map(str::to_owned);
    call
}

pub(crate) fn asking(name: &str, id: Option<&str>, number: usize) -> Step {
    Step::message(Message::tool_calls([call(name, id, number)]))
}

pub(crate) fn requests(answer: &Answer) -> Vec<ApprovalRequest> {
    answer.approval_requests().cloned().collect()
}

pub(crate) fn approving<'a>(
    requests: impl IntoIterator<Item = &'a ApprovalRequest>,
    streamed: bool,
) -> ChatRequest {
    let decisions = requests.into_iter().map(|request| request.approve().into()).collect();
    request_with([Message::new(Role::User, decisions)], streamed)
}

pub(crate) fn shown(model: &ScriptedModel, service_call: usize) -> Vec<(String, String)> {
    let request = &model.requests()[service_call];
    validate_request(request).unwrap();
    let messages: Vec<_> = request.messages().iter().cloned().collect();
    let mut shown = Vec::new();
    for (position, message) in messages.iter().enumerate() {
        let results = messages[position + 1..].iter().take_while(|next| next.role == Role::Tool);
        let results: Vec<_> = results.flat_map(|message| message.results()).collect();
        for call in message.calls() {
            let result = results.iter().find(|result| result.call_id == call.id).unwrap();
            assert_eq!(result.call, None, "a result directly after its call needs no position");
            shown.push((call.arguments.clone(), result.text()));
        }
    }
    shown
}

/// Returns the arguments, the result and the status of each stored call.
pub(crate) async fn recorded(store: &Store) -> Vec<(String, String, ToolStatus)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let row = |(_, call): (_, tower_chat::tool::ToolInvocation)| {
        let result = call.result.map(|result| result.text()).unwrap_or_default();
        (call.arguments, result, call.status)
    };
    found.into_iter().map(row).collect()
}

pub(crate) fn pair(call: usize, result: &str) -> (String, String) {
    (call.to_string(), result.to_owned())
}

pub(crate) fn row(call: usize, result: &str, status: ToolStatus) -> (String, String, ToolStatus) {
    (call.to_string(), result.to_owned(), status)
}

fn loop_error(result: Result<Answer, BoxError>) -> ToolLoopError {
    let error = result.expect_err("the call fails");
    *error.downcast::<ToolLoopError>().expect("an error of the tool loop")
}

/// Creates a conversation with two runs, each with a payment that waits for approval.
async fn two_payments(
    setup: &Setup,
    ids: [Option<&str>; 2],
    streamed: bool,
) -> [ApprovalRequest; 2] {
    let model = ScriptedModel::new([asking("pay", ids[0], 1), asking("pay", ids[1], 2)]);
    let client = setup.stack(&model, Executed::default().tools());
    let first = requests(&send(&client, ask("buy 1", streamed)).await.unwrap()).remove(0);
    let second = requests(&send(&client, ask("buy 2", streamed)).await.unwrap()).remove(0);
    [first, second]
}

#[tokio::test]
async fn an_approval_runs_and_records_the_call_that_it_names() {
    let all = BOTH_WAYS.into_iter().flat_map(|streamed| ALL_MODES.map(|mode| (streamed, mode)));
    for ((streamed, mode), ids, [first, second], restarts) in
        cases!(all, IDS, [[1, 2], [2, 1]], [false, true])
    {
        let case = format!("{mode:?} {ids:?} {first} first, {streamed} {restarts}");
        let (store, executed) = (store(), Executed::default());
        let mut setup = Setup::new(&store).mode(mode);
        let asked = two_payments(&setup, ids, streamed).await;
        let model = ScriptedModel::new(["ok", "done", "bye"].map(Step::text));
        if restarts {
            setup = setup.elsewhere();
        }
        let client = setup.stack(&model, executed.tools());
        let paid = |number: usize| format!("pay {number}");
        send(&client, approving([&asked[first - 1]], streamed)).await.unwrap();
        assert_eq!(executed.take(), [first.to_string()], "{case}");
        assert_eq!(shown(&model, 0), [pair(first, &paid(first))], "{case}");
        let mut rows =
            [row(1, "", ToolStatus::PendingApproval), row(2, "", ToolStatus::PendingApproval)];
        rows[first - 1] = row(first, &paid(first), ToolStatus::Ok);
        assert_eq!(recorded(&store).await, rows, "{case}");
        if restarts {
            setup = setup.elsewhere();
        }
        let client = setup.stack(&model, executed.tools());
        send(&client, approving([&asked[second - 1]], streamed)).await.unwrap();
        assert_eq!(executed.take(), [second.to_string()], "{case}");
        let both = [pair(first, &paid(first)), pair(second, &paid(second))];
        assert_eq!(shown(&model, 1), both, "{case}");
        rows[second - 1] = row(second, &paid(second), ToolStatus::Ok);
        assert_eq!(recorded(&store).await, rows, "{case}");
        send(&client, ask("and?", streamed)).await.unwrap();
        assert_eq!(shown(&model, 2), both, "{case}");
    }
}

#[tokio::test]
async fn a_decision_about_an_answered_or_unknown_request_is_refused_before_any_effect() {
    for (streamed, mode, ids) in cases!(BOTH_WAYS, ALL_MODES, IDS) {
        let case = format!("{mode:?} {ids:?} {streamed}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = two_payments(&setup, ids, streamed).await;
        let model = ScriptedModel::new([Step::text("ok"), Step::text("done")]);
        let client = setup.stack(&model, executed.tools());
        send(&client, approving([&asked[0]], streamed)).await.unwrap();
        executed.take();
        let before = stored(&store).await;
        let mut forged = asked[1].clone();
        forged.id = "approval_0_0_0".to_owned();
        for (request, is_known) in [(&asked[0], true), (&forged, false)] {
            // The request also contains a valid approval, whose call is not executed either.
            let request = approving([request, &asked[1]], streamed);
            match loop_error(send(&client, request).await) {
                ToolLoopError::ApprovalAnswered { id, conversation } if is_known => {
                    assert_eq!((id, conversation), (asked[0].id.clone(), Some(key())));
                }
                ToolLoopError::ApprovalUnknown { id, conversation } if !is_known => {
                    assert_eq!((id, conversation), (forged.id.clone(), Some(key())));
                }
                error => panic!("{case}: {error:?}"),
            }
            assert_eq!((executed.take().len(), model.requests().len()), (0, 1), "{case}");
            assert_eq!(stored(&store).await, before, "{case}");
            assert!(open(&store).await.is_none(), "no run is open: {case}");
        }
        send(&client, approving([&asked[1]], streamed)).await.unwrap();
        assert_eq!(executed.take(), ["2"], "{case}");
    }
}

#[tokio::test]
async fn a_batch_decided_in_part_leaves_no_run_open() {
    every_case(async |case| {
        let (store, executed) = (case.store().await, Executed::default());
        let setup = Setup::new(&store).mode(case.mode);
        // Two messages of one answer are one batch.
        let answer = [call("pay", Some("c"), 1), call("pay", Some("c"), 2)];
        let answer = answer.map(|call| Message::tool_calls([call]));
        let model = ScriptedModel::new([Step::answer(answer, Finish::stop()), Step::text("done")]);
        let client = setup.stack(&model, executed.tools());
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let error = loop_error(send(&client, approving([&asked[1]], false)).await);
        let ToolLoopError::ApprovalMissing { ids, .. } = error else { panic!("{error:?}") };
        assert_eq!(ids, [asked[0].id.clone()]);
        assert!(open(&store).await.is_none());
        send(&client, approving(asked.iter().rev(), false)).await.unwrap();
        assert_eq!(executed.take(), ["1", "2"]);
        assert_eq!(shown(&model, 1), [pair(1, "pay 1"), pair(2, "pay 2")]);
    })
    .await;
}

/// The shapes of answers: the number of calls in each message. A message without calls has a text.
const SHAPES: [&[usize]; 5] = [&[1, 1], &[2, 1], &[1, 2], &[1, 0, 1], &[2, 0, 2]];

/// Returns an answer with this shape. Its calls are numbered from 1.
fn answer_of(shape: &[usize], name: &str, id: impl Fn(usize) -> Option<String>) -> Vec<Message> {
    let mut number = 0;
    let mut next = || {
        number += 1;
        call(name, id(number).as_deref(), number)
    };
    let message = |calls: &usize| match calls {
        0 => Message::assistant("Let me look."),
        calls => Message::tool_calls((0..*calls).map(|_| next()).collect::<Vec<_>>()),
    };
    shape.iter().map(message).collect()
}

fn id_of(kind: &str, number: usize) -> Option<String> {
    match kind {
        "equal" => Some("c".to_owned()),
        "missing" => None,
        "empty" => Some(String::new()),
        "partly missing" => (number == 1).then(|| "c1".to_owned()),
        _ => Some(format!("c{number}")),
    }
}

const KINDS: [&str; 5] = ["equal", "missing", "empty", "partly missing", "distinct"];

#[tokio::test]
async fn calls_of_several_messages_of_one_answer_keep_their_results() {
    for (streamed, mode, (kind, shape), concurrent) in cases!(
        BOTH_WAYS,
        ALL_MODES,
        KINDS.iter().flat_map(|kind| SHAPES.map(|shape| (kind, shape))),
        [false, true]
    ) {
        let case = format!("{mode:?} {kind} {shape:?} {streamed} {concurrent}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode).concurrent(concurrent);
        let answer = answer_of(shape, "look", |number| id_of(kind, number));
        let model = ScriptedModel::new([
            Step::answer(answer, Finish::stop()),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let client = setup.stack(&model, executed.tools());
        send(&client, ask("where?", streamed)).await.unwrap();
        let all = 1..=shape.iter().sum::<usize>();
        let looked = |number: usize| pair(number, &format!("look {number}"));
        let pairs: Vec<_> = all.clone().map(looked).collect();
        assert_eq!(shown(&model, 1), pairs, "live: {case}");
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, ask("and?", streamed)).await.unwrap();
        assert_eq!(shown(&model, 2), pairs, "later: {case}");
        let rows: Vec<_> =
            all.map(|number| row(number, &format!("look {number}"), ToolStatus::Ok)).collect();
        assert_eq!(recorded(&store).await, rows, "{case}");
        let shown: Vec<String> =
            model.requests()[2].messages().iter().flat_map(|it| call_ids(it)).collect();
        let distinct: std::collections::HashSet<_> = shown.iter().collect();
        assert_eq!(distinct.len(), shown.len(), "{case}: {shown:?}");
    }
}

#[tokio::test]
async fn calls_beside_one_that_is_not_stored_keep_their_results() {
    let all = BOTH_WAYS.into_iter().flat_map(|streamed| ALL_MODES.map(|mode| (streamed, mode)));
    for ((streamed, mode), (kind, dropped)) in
        cases!(all, KINDS.into_iter().flat_map(|kind| [1, 2, 3].map(|it| (kind, it))))
    {
        let case = format!("{kind} ids, call {dropped} is dropped, {mode:?} {streamed}");
        let calls = [1, 2, 3].map(|number| {
            let name = if number == dropped { "whisper" } else { "look" };
            call(name, id_of(kind, number).as_deref(), number)
        });
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            Step::text("done"),
            Step::text("later"),
        ]);
        let tools = Executed::default().tools();
        let whisper = tool_fn(definition("whisper"), |_| async { Ok("whispered") });
        let tools = tools.with(persist_with(whisper, |_| Ok(Retention::Forget)));
        let setup = Setup::new(&store()).mode(mode);
        send(&setup.stack(&model, tools.clone()), ask("look", streamed)).await.unwrap();
        let elsewhere = setup.elsewhere();
        send(&elsewhere.stack(&model, tools), ask("and?", streamed)).await.unwrap();
        let kept = || [1, 2, 3].into_iter().filter(|number| *number != dropped);
        let expected: Vec<_> =
            kept().map(|number| pair(number, &format!("look {number}"))).collect();
        assert_eq!(shown(&model, 2), expected, "{case}");
        let expected: Vec<_> =
            kept().map(|number| row(number, &format!("look {number}"), ToolStatus::Ok)).collect();
        assert_eq!(recorded(&setup.store).await, expected, "{case}");
    }
}

fn call_ids(message: &Message) -> Vec<String> {
    message.calls().map(|call| call.id.clone().unwrap()).collect()
}

#[tokio::test]
async fn approved_calls_of_several_messages_of_one_answer_keep_their_results() {
    for (streamed, mode, (kind, shape)) in cases!(
        BOTH_WAYS,
        ALL_MODES,
        KINDS.iter().flat_map(|kind| SHAPES.map(|shape| (kind, shape)))
    ) {
        let case = format!("{mode:?} {kind} {shape:?} {streamed}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let answer = answer_of(shape, "pay", |number| id_of(kind, number));
        let model = ScriptedModel::new([Step::answer(answer, Finish::stop()), Step::text("done")]);
        let client = setup.stack(&model, executed.tools());
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        let client = setup.elsewhere().stack(&model, executed.tools());
        let decisions: Vec<Part> = asked
            .iter()
            .rev()
            .map(|request| match request.call.arguments.as_str() {
                "1" => request.reject("too dear").into(),
                _ => request.approve().into(),
            })
            .collect();
        let decided = request_with([Message::new(Role::User, decisions)], streamed);
        send(&client, decided).await.unwrap();
        let all = 2..=shape.iter().sum::<usize>();
        let numbers: Vec<_> = all.clone().map(|number| number.to_string()).collect();
        assert_eq!(executed.take(), numbers, "{case}");
        let shown = shown(&model, 1);
        assert!(shown[0].0 == "1" && shown[0].1.contains("too dear"), "{case}: {shown:?}");
        let paid = |number: usize| pair(number, &format!("pay {number}"));
        assert_eq!(shown[1..], all.map(paid).collect::<Vec<_>>(), "{case}");
        let rows = recorded(&store).await;
        assert_eq!(rows[0].2, ToolStatus::RejectedByApproval, "{case}");
        let pairs: Vec<_> =
            rows.iter().map(|(call, result, _)| (call.clone(), result.clone())).collect();
        assert_eq!(pairs, shown, "{case}");
    }
}

#[tokio::test]
async fn a_late_result_answers_the_newest_call_of_its_id_or_the_one_that_it_names() {
    for (streamed, mode, named) in cases!(BOTH_WAYS, ALL_MODES, [None, Some(0), Some(1)]) {
        let case = format!("{mode:?} {named:?} {streamed}");
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let model = ScriptedModel::new([
            asking("ask", Some("c"), 1),
            asking("ask", Some("c"), 2),
            Step::text("thanks"),
            Step::text("bye"),
        ]);
        let client = setup.stack(&model, Executed::default().tools());
        let mut returned = Vec::new();
        for text in ["one", "two"] {
            let answer = send(&client, ask(text, streamed)).await.unwrap();
            let message = answer.messages.last().unwrap().id.unwrap();
            returned.push(CallPosition { message, index: 0 });
        }
        let mut result = ToolResult::new("c", "by hand");
        if let Some(named) = named {
            result = result.answering(returned[named]);
        }
        let late = Message::tool_results([result]);
        send(&client, request_with([late], streamed)).await.unwrap();
        let answered = named.unwrap_or(1) + 1;
        assert_eq!(shown(&model, 2), [pair(answered, "by hand")], "{case}");
        let client = setup.elsewhere().stack(&model, Executed::default().tools());
        send(&client, ask("and?", streamed)).await.unwrap();
        assert_eq!(shown(&model, 3), [pair(answered, "by hand")], "{case}");
        let mut rows = [row(1, "", ToolStatus::Returned), row(2, "", ToolStatus::Returned)];
        rows[answered - 1] = row(answered, "by hand", ToolStatus::Ok);
        assert_eq!(recorded(&store).await, rows, "{case}");
    }
}

#[tokio::test]
async fn results_from_the_record_answer_the_calls_of_their_own_runs() {
    for (streamed, mode, ids) in cases!(BOTH_WAYS, ALL_MODES, IDS) {
        let case = format!("{mode:?} {ids:?} {streamed}");
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let model = ScriptedModel::new([
            asking("stop", ids[0], 1),
            asking("stop", ids[1], 2),
            Step::text("thanks"),
        ]);
        let client = setup.stack(&model, Executed::default().tools());
        send(&client, ask("one", streamed)).await.unwrap();
        send(&client, ask("two", streamed)).await.unwrap();
        let mut results = pending_results(&store, &key()).await.unwrap().unwrap();
        // A caller may send the results in any order.
        results.parts.reverse();
        send(&client, request_with([results], streamed)).await.unwrap();
        let mut shown = shown(&model, 2);
        shown.sort();
        assert_eq!(shown, [pair(1, "stop 1"), pair(2, "stop 2")], "{case}");
        let rows = [row(1, "stop 1", ToolStatus::Ok), row(2, "stop 2", ToolStatus::Ok)];
        assert_eq!(recorded(&store).await, rows, "{case}");
    }
}

#[tokio::test]
async fn a_service_that_keeps_the_history_leaves_approvals_to_their_own_calls() {
    let kept = |message: Message| Step::answer([message], Finish::stop().with_service_id("s1"));
    for (streamed, mode, ids, first) in
        cases!(BOTH_WAYS, [PerRun, PerServiceCall], [IDS[0], IDS[3]], [0, 1])
    {
        let case = format!("{mode:?} {ids:?} {first} {streamed}");
        let (store, executed) = (store(), Executed::default());
        let conflict = ConflictPolicy::StopRecording;
        let policy = policy().on_conflict(conflict);
        let setup = Setup::new(&store).mode(mode).policy(policy);
        let asked =
            |position: usize| kept(Message::tool_calls([call("pay", ids[position], position + 1)]));
        let model = ScriptedModel::new([
            asked(0),
            asked(1),
            // This call needs no approval, and has the id of the payment that still waits.
            kept(Message::tool_calls([call("look", ids[1 - first], 3)])),
            kept(Message::assistant("ok")),
            kept(Message::assistant("done")),
        ]);
        let client = setup.stack(&model, executed.tools());
        let mut waiting = Vec::new();
        for text in ["buy 1", "buy 2"] {
            waiting.extend(requests(&send(&client, ask(text, streamed)).await.unwrap()));
        }
        send(&client, approving([&waiting[first]], streamed)).await.unwrap();
        assert_eq!(executed.take(), [(first + 1).to_string(), "3".into()], "{case}");
        let again = approving([&waiting[first]], streamed);
        let error = loop_error(send(&client, again).await);
        assert!(matches!(error, ToolLoopError::ApprovalAnswered { .. }), "{error:?}");
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, approving([&waiting[1 - first]], streamed)).await.unwrap();
        assert_eq!(executed.take(), [(2 - first).to_string()], "{case}");
        let rows: Vec<_> = recorded(&store).await;
        let paid = [row(1, "pay 1", ToolStatus::Ok), row(2, "pay 2", ToolStatus::Ok)];
        assert_eq!(rows, paid, "{case}");
    }
}

#[tokio::test]
async fn without_a_store_an_approval_runs_the_call_that_it_names() {
    for (streamed, ids, keeps_message_ids, [first, second]) in
        cases!(BOTH_WAYS, IDS, [true, false], [[0, 1], [1, 0]])
    {
        let case = format!("{ids:?} {first} {keeps_message_ids} {streamed}");
        let executed = Executed::default();
        let model = ScriptedModel::new([
            asking("pay", ids[0], 1),
            asking("pay", ids[1], 2),
            Step::text("ok"),
            Step::text("done"),
        ]);
        let tool_loop = ToolLoopLayer::new(executed.tools());
        let client = boxed(tower::Layer::layer(&tool_loop, model.clone()));
        let mut transcript: Vec<Message> = Vec::new();
        let continue_with = async |transcript: &mut Vec<Message>, own: Message| {
            transcript.push(own);
            let messages: tower_chat::message::Messages = transcript.iter().cloned().collect();
            let request = ChatRequest::new(messages);
            let request = if streamed { request.streamed() } else { request };
            let answer = send(&client, request).await?;
            transcript.extend(answer.messages.iter().map(|message| {
                let mut message = (**message).clone();
                message.id = message.id.filter(|_| keeps_message_ids);
                message
            }));
            Ok::<_, BoxError>(answer)
        };
        let mut asked = Vec::new();
        for text in ["buy 1", "buy 2"] {
            let answer = continue_with(&mut transcript, Message::user(text)).await.unwrap();
            asked.extend(requests(&answer));
        }
        let yes =
            |position: usize| Message::new(Role::User, vec![Part::from(asked[position].approve())]);
        let paid = |position: usize| pair(position + 1, &format!("pay {}", position + 1));
        continue_with(&mut transcript, yes(first)).await.unwrap();
        assert_eq!(executed.take(), [(first + 1).to_string()], "{case}");
        assert_eq!(shown(&model, 2), [paid(first)], "{case}");
        let again = continue_with(&mut transcript.clone(), yes(first)).await;
        let error = loop_error(again);
        assert!(matches!(error, ToolLoopError::ApprovalAnswered { .. }), "{error:?}");
        continue_with(&mut transcript, yes(second)).await.unwrap();
        assert_eq!(executed.take(), [(second + 1).to_string()], "{case}");
        assert_eq!(shown(&model, 3), [paid(first), paid(second)], "{case}");
    }
}

#[tokio::test]
async fn a_run_that_continues_after_a_lost_round_keeps_its_new_results() {
    for (streamed, ids) in cases!(BOTH_WAYS, IDS) {
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(PersistenceMode::PerServiceCall);
        let model = ScriptedModel::new([
            asking("look", ids[0], 1),
            asking("look", ids[1], 2),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let request = ask("where?", streamed);
        let gate = tower_chat_testkit::Gate::closed();
        let blocked = gate.clone();
        let look = tool_fn(definition("look"), move |_| {
            let gate = blocked.clone();
            async move {
                gate.pass().await;
                Ok::<_, BoxError>(ToolOutput::from("never"))
            }
        });
        let client = setup.stack(&model, Tools::new().with(look));
        drop_when(&client, request.clone(), gate.reached(1)).await;
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, request).await.unwrap();
        assert!(shown(&model, 2).contains(&pair(2, "look 2")));
        send(&client, ask("and?", streamed)).await.unwrap();
        assert!(shown(&model, 3).contains(&pair(2, "look 2")));
        let rows = recorded(&store).await;
        assert_eq!(rows[1], row(2, "look 2", ToolStatus::Ok));
        assert_ne!(rows[0].1, "look 2");
    }
}

#[tokio::test]
async fn an_approval_of_a_call_whose_result_only_the_record_holds_is_refused() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = two_payments(&setup, IDS[0], streamed).await;
        store.inner().flush().await.unwrap();
        let head = store.inner().head(&key()).await.unwrap();
        let position = SequencePosition { sequence: head.revision.sequence, index: 0 };
        let mut done = ToolRecord::pending(position, 0, "c", "pay");
        done.status = ToolStatus::Ok;
        done.result = RecordedResult::Apart(Box::new(ToolResult::new("c", "pay 2")));
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key(), id, head.revision, Vec::new()).with_tools(vec![done]);
        let slot = store.inner().reserve().await.unwrap();
        store.inner().append(slot, vec![write]).await.unwrap();
        let model = ScriptedModel::new([Step::text("ok")]);
        let client = setup.stack(&model, executed.tools());
        let error = loop_error(send(&client, approving([&asked[1]], streamed)).await);
        let ToolLoopError::ApprovalAnswered { id, .. } = error else { panic!("{error:?}") };
        assert_eq!((id, executed.take().len()), (asked[1].id.clone(), 0));
        assert_eq!(model.requests().len(), 0);
        send(&client, approving([&asked[0]], streamed)).await.unwrap();
        assert_eq!(executed.take(), ["1"]);
    }
}

#[tokio::test]
async fn an_approving_run_that_is_sent_again_continues_where_the_service_keeps_the_history() {
    let kept = |message: Message| Step::answer([message], Finish::stop().with_service_id("s1"));
    for (streamed, mode, conflict) in cases!(
        BOTH_WAYS,
        [PerRun, PerServiceCall],
        [ConflictPolicy::StopRecording, ConflictPolicy::Record]
    ) {
        let case = format!("{mode:?} {conflict:?} {streamed}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode).policy(policy().on_conflict(conflict));
        let model = ScriptedModel::new([
            kept(Message::tool_calls([call("pay", Some("c"), 1)])),
            kept(Message::tool_calls([call("pay", Some("c"), 2)])),
            Step::error("overloaded"),
            kept(Message::assistant("done")),
        ]);
        let client = setup.stack(&model, executed.tools());
        let mut waiting = Vec::new();
        for text in ["buy 1", "buy 2"] {
            waiting.extend(requests(&send(&client, ask(text, streamed)).await.unwrap()));
        }
        let request = approving([&waiting[0]], streamed);
        send(&client, request.clone()).await.unwrap_err();
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, request).await.unwrap();
        assert_eq!(executed.take(), ["1"], "the call runs once: {case}");
        assert_eq!(sent_texts(&model, 3), ["tool c=pay 1"], "{case}");
        let rows = [row(1, "pay 1", ToolStatus::Ok), row(2, "", ToolStatus::PendingApproval)];
        assert_eq!(recorded(&store).await, rows, "{case}");
    }
}
