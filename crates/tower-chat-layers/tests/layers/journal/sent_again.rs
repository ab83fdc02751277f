//! Tests the stored calls, the limits and the tools of a resumed run, and of a run that receives
//! results of another run's calls. The property test of the contract found these cases.

use tower_chat::{
    Answer, ChatRequest, Finish, HistoryStore, Message, Part, Role, ToolResult,
    layer::ToolLoopLayer,
    message::Messages,
    policy::UnansweredInputs,
    run::RunId,
    store::{InvocationQuery, ToolCallQueries},
    tool::{Retention, SharedTools, ToolStatus, pending_results, persist_with},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::{booking_tools::*, call_identity::*};
use crate::common::*;

const STORED_BIT_BY_BIT: [tower_chat::PersistenceMode; 2] = [PerServiceCall, JOURNALED];

fn both_ways_in<const N: usize>(
    modes: [tower_chat::PersistenceMode; N],
) -> impl Iterator<Item = (bool, tower_chat::PersistenceMode)> {
    BOTH_WAYS.into_iter().flat_map(move |streamed| modes.map(|mode| (streamed, mode)))
}

fn overloaded() -> Step {
    Step::error("overloaded")
}

fn texts(model: &ScriptedModel, service_call: usize) -> Vec<String> {
    let request = &model.requests()[service_call];
    let parts = request.messages().iter().flat_map(|message| message.parts.clone());
    let text = |part| match part {
        Part::Text(text) => Some(text.text),
        Part::ToolResult(result) => Some(result.text()),
        _ => None,
    };
    parts.filter_map(text).collect()
}

fn answer_text(answer: &Answer) -> String {
    answer.text()
}

#[tokio::test]
async fn the_row_of_a_late_result_says_so_after_its_run_was_recovered() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let model = ScriptedModel::new([
            asking("ask", Some("c"), 1),
            Step::text("something else"),
            overloaded(),
            Step::text("thanks"),
            Step::text("bye"),
        ]);
        let client = setup.stack(&model, Executed::default().tools());
        send(&client, ask("one", streamed)).await.unwrap();
        send(&client, ask("two", streamed)).await.unwrap();
        let late = Message::tool_results([ToolResult::new("c", "by hand")]);
        send(&client, request_with([late], streamed)).await.unwrap_err();
        send(&client, ask("three", streamed)).await.unwrap();
        assert_eq!(shown(&model, 4), [pair(1, "by hand")], "{streamed}");
        assert_eq!(recorded(&store).await, [row(1, "by hand", ToolStatus::Ok)], "{streamed}");
    }
}

#[tokio::test]
async fn an_approved_call_of_no_tool_stays_unknown_when_its_run_is_recovered() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let calls = [call("pay", Some("c1"), 1), call("nowhere", Some("c2"), 2)];
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            asking("look", Some("c3"), 3),
            overloaded(),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let client = setup.stack(&model, Executed::default().tools());
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        send(&client, approving(&asked, streamed)).await.unwrap_err();
        send(&client, ask("and?", streamed)).await.unwrap();
        let expected = [
            row(1, "pay 1", ToolStatus::Ok),
            row(2, "There is no tool named \"nowhere\".", ToolStatus::UnknownTool),
            row(3, "look 3", ToolStatus::Ok),
        ];
        assert_eq!(recorded(&store).await, expected, "{streamed}");
    }
}

#[tokio::test]
async fn a_call_of_no_tool_is_not_run_by_the_attempt_that_continues() {
    for ((streamed, mode), needs_approval) in cases!(both_ways_in(STORED_BIT_BY_BIT), [false, true])
    {
        let case = format!("{mode:?} {streamed} {needs_approval}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let model =
            ScriptedModel::new([asking("late", Some("c"), 1), overloaded(), Step::text("done")]);
        let request = ask("one", streamed).with_extension(run_of_test());
        let client = setup.stack(&model, executed.tools());
        send(&client, request.clone()).await.unwrap_err();
        let mut late = definition("late");
        late.needs_approval = needs_approval;
        let late = tool_fn(late, |_| async { Ok("it ran") });
        let client = setup.stack(&model, executed.tools().with(late));
        let answer = send(&client, request).await.unwrap();
        assert_eq!(answer_text(&answer), "done", "{case}");
        let text = "There is no tool named \"late\".";
        assert_eq!(shown(&model, 2), [pair(1, text)], "{case}");
        let expected = [row(1, text, ToolStatus::UnknownTool)];
        assert_eq!(recorded(&store).await, expected, "{case}");
    }
}

fn run_of_test() -> tower_chat::run::Conversation {
    tower_chat::run::Conversation { key: key(), run: RunId::new() }
}

#[tokio::test]
async fn rounds_of_an_earlier_attempt_count_in_every_mode() {
    for ((streamed, mode), second) in cases!(both_ways_in(STORED_BIT_BY_BIT), ALL_MODES) {
        let case = format!("{mode:?} then {second:?} {streamed}");
        let (store, executed) = (store(), Executed::default());
        let model = ScriptedModel::new([
            asking("look", Some("c1"), 1),
            overloaded(),
            asking("look", Some("c2"), 2),
            Step::text("too much"),
        ]);
        let request = ask("one", streamed).with_extension(run_of_test());
        let stack = |mode| {
            let tool_loop = ToolLoopLayer::new(executed.tools()).max_rounds(1).unwrap();
            Setup::new(&store).mode(mode).looped(&model, tool_loop)
        };
        send(&stack(mode), request.clone()).await.unwrap_err();
        let answer = send(&stack(second), request).await.unwrap();
        assert_eq!(executed.take(), ["1"], "{case}");
        let last = answer.messages.last().unwrap().calls().next().unwrap();
        assert_eq!(last.arguments, "2", "{case}");
        assert_eq!(model.requests().len(), 3, "{case}");
    }
}

#[tokio::test]
async fn a_payment_of_a_dropped_run_is_reported_when_the_run_is_committed_as_it_is() {
    for streamed in BOTH_WAYS {
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store);
        let calls = [1, 2].map(|number| call("pay", None, number));
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            Step::hang(),
            Step::text("hello"),
        ]);
        let client = setup.stack(&model, executed.tools());
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        let decisions: Vec<Part> =
            vec![asked[0].approve().into(), asked[1].reject("too dear").into()];
        let decided = request_with([Message::new(Role::User, decisions)], streamed);
        drop_when(&client, decided, model.called(2)).await;
        send(&client, ask("and?", streamed)).await.unwrap();
        let rejected = "The call was rejected, and not run: too dear";
        assert_eq!(shown(&model, 2), [pair(1, "pay 1"), pair(2, rejected)], "{streamed}");
        let expected =
            [row(1, "pay 1", ToolStatus::Ok), row(2, rejected, ToolStatus::RejectedByApproval)];
        assert_eq!(recorded(&store).await, expected, "{streamed}");
        assert_eq!(executed.take(), ["1"], "{streamed}");
    }
}

#[tokio::test]
async fn results_given_from_the_record_keep_its_times_and_the_end_of_their_run() {
    for ((streamed, first), second) in cases!(both_ways_in(ALL_MODES), ALL_MODES) {
        let case = format!("{first:?} then {second:?} {streamed}");
        let store = store();
        let calls = [call("stop", None, 1), call("look", None, 2)];
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            Step::text("something else"),
            Step::text("thanks"),
            Step::text("bye"),
        ]);
        let stack = |mode| Setup::new(&store).mode(mode).stack(&model, Executed::default().tools());
        send(&stack(first), ask("one", streamed)).await.unwrap();
        send(&stack(first), ask("two", streamed)).await.unwrap();
        store.inner().flush().await.unwrap();
        let found = pending_results(store.inner(), &key()).await.unwrap().unwrap();
        send(&stack(second), request_with([found], streamed)).await.unwrap();
        send(&stack(first), ask("three", streamed)).await.unwrap();
        assert_eq!(shown(&model, 3), [pair(1, "stop 1")], "{case}");
        let rows = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
        let (_, stop) = &rows.found[0];
        assert!(stop.started_at.is_some() && stop.finished_at.is_some(), "{case}: {stop:?}");
        assert_eq!(stop.status, ToolStatus::Ok, "{case}");
    }
}

#[tokio::test]
async fn a_stopped_call_stays_stopped_when_its_recorded_result_is_staged() {
    for (streamed, first) in both_ways_in(ALL_MODES) {
        let case = format!("{first:?} {streamed}");
        let (store, mut request) = (store(), ask("one", streamed));
        let handle = request.run_handle();
        let halt = tool_fn(definition("halt"), move |_| {
            handle.stop();
            async { Ok("halted") }
        });
        let tools = Executed::default().tools().with(halt);
        let calls = [call("stop", None, 1), call("halt", None, 2), call("look", None, 3)];
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            Step::hang(),
            Step::text("thanks"),
        ]);
        let setup = Setup::new(&store).concurrent(true);
        let stack = |mode| setup.clone().mode(mode).stack(&model, tools.clone());
        send(&stack(first), request).await.unwrap();
        let statuses = async || {
            store.inner().flush().await.unwrap();
            let rows = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
            rows.found.iter().map(|(_, call)| call.status).collect::<Vec<_>>()
        };
        let expected = [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::Stopped];
        assert_eq!(statuses().await, expected, "{case}");
        let found = pending_results(store.inner(), &key()).await.unwrap().unwrap();
        drop_when(&stack(JOURNALED), request_with([found], streamed), model.called(2)).await;
        send(&stack(first), ask("two", streamed)).await.unwrap();
        assert_eq!(statuses().await, expected, "{case}");
    }
}

#[tokio::test]
async fn a_call_of_a_tool_that_is_registered_later_is_stored_with_its_refusal() {
    for (streamed, mode) in both_ways_in(ALL_MODES) {
        let case = format!("{mode:?} {streamed}");
        let store = store();
        let tools = SharedTools::default();
        tools.set(Executed::default().tools());
        let whisper = || {
            let whisper = tool_fn(definition("whisper"), |_| async { Ok("whispered") });
            persist_with(whisper, |_| Ok(Retention::Forget))
        };
        let shared = tools.clone();
        let then = move |_: &ChatRequest| {
            shared.set(Executed::default().tools().with(whisper()));
            Step::message(Message::tool_calls([call("look", None, 2)]))
        };
        let model = ScriptedModel::new([
            asking("whisper", None, 1),
            Step::respond(then),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let client = Setup::new(&store).mode(mode).looped(&model, ToolLoopLayer::new(tools));
        send(&client, ask("one", streamed)).await.unwrap();
        send(&client, ask("two", streamed)).await.unwrap();
        let refusal = "There is no tool named \"whisper\".";
        assert_eq!(shown(&model, 3), [pair(1, refusal), pair(2, "look 2")], "{case}");
        let expected = [row(1, refusal, ToolStatus::UnknownTool), row(2, "look 2", ToolStatus::Ok)];
        assert_eq!(recorded(&store).await, expected, "{case}");
    }
}

#[tokio::test]
async fn text_with_an_approval_is_ordered_the_same_after_a_round_of_one_or_of_two_messages() {
    for streamed in BOTH_WAYS {
        let mut orders = Vec::new();
        for count in [1, 2] {
            let setup = Setup::new(&store()).mode(PerServiceCall);
            let looks = (0..count).map(|number| Message::tool_calls([call("look", None, number)]));
            let model = ScriptedModel::new([
                asking("pay", None, 7),
                Step::answer(looks, Finish::stop()),
                overloaded(),
                Step::text("done"),
            ]);
            let client = setup.stack(&model, Executed::default().tools());
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            send(&client, ask("look", streamed)).await.unwrap_err();
            let decisions = vec![asked[0].approve().into(), Part::text("do it")];
            let decided = request_with([Message::new(Role::User, decisions)], streamed);
            send(&client, decided).await.unwrap();
            let order = texts(&model, 3).split_off(2 + count);
            orders.push(order);
        }
        assert_eq!(orders[0], orders[1]);
        assert_eq!(orders[0], ["do it", "pay 7"]);
    }
}

#[tokio::test]
async fn a_late_result_answers_the_call_of_its_id_in_an_earlier_message_of_the_answer() {
    for (streamed, mode) in both_ways_in(ALL_MODES) {
        let case = format!("{mode:?} {streamed}");
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let answer = [
            Message::tool_calls([call("ask", Some("c1"), 1)]),
            Message::tool_calls([call("pay", None, 2)]),
        ];
        let model =
            ScriptedModel::new([Step::answer(answer, Finish::stop()), Step::text("thanks")]);
        let client = setup.stack(&model, Executed::default().tools());
        send(&client, ask("one", streamed)).await.unwrap();
        let late = Message::tool_results([ToolResult::new("c1", "by hand")]);
        send(&client, request_with([late], streamed)).await.unwrap();
        assert_eq!(shown(&model, 1), [pair(1, "by hand")], "{case}");
        let expected = [row(1, "by hand", ToolStatus::Ok), row(2, "", ToolStatus::PendingApproval)];
        assert_eq!(recorded(&store).await, expected, "{case}");
    }
}

#[tokio::test]
async fn every_attempt_sends_the_input_after_results_that_another_mode_has_stored() {
    for (streamed, results) in cases!(BOTH_WAYS, [0, 1, 2]) {
        let case = format!("{results} results, {streamed}");
        let store = store();
        let setup = Setup::new(&store);
        let calls = [1, 2].map(|number| call("ask", Some(&format!("c{number}")), number));
        let model = ScriptedModel::new([
            Step::message(Message::tool_calls(calls)),
            overloaded(),
            overloaded(),
            Step::text("thanks"),
        ]);
        let tools = Executed::default().tools();
        send(&setup.stack(&model, tools.clone()), ask("one", streamed)).await.unwrap();
        let result = |number| ToolResult::new(format!("c{number}"), format!("by hand {number}"));
        let mut request = ask("and go on", streamed);
        let asked = request.new_messages();
        let messages = (1..=results).map(|number| Message::tool_results([result(number)]));
        let mut messages: Messages = messages.collect();
        messages.append(&asked);
        request.set_new_messages(messages);
        // With this policy, a failed service call stores the results, but not the user message
        // after them.
        let results_alone = policy().with_inputs_of_failed_call(UnansweredInputs::Results);
        let first = setup.elsewhere().policy(results_alone).mode(PerServiceCall);
        let first = first.stack(&model, tools.clone());
        send(&first, request.clone()).await.unwrap_err();
        assert_eq!(stored(&store).await.len(), 2 + results, "{case}");
        let second = setup.elsewhere().stack(&model, tools.clone());
        send(&second, request.clone()).await.unwrap_err();
        assert_eq!(staged(&store).await, ["user and go on"], "{case}");
        let third = setup.elsewhere().stack(&model, tools.clone());
        send(&third, request).await.unwrap();
        let sent = |call: usize| {
            let request = &model.requests()[call];
            (texts(&model, call), request.new_messages().len())
        };
        assert_eq!(sent(3).0.last().map(String::as_str), Some("and go on"), "{case}");
        assert_eq!(sent(3), sent(2), "both attempts send the same new messages: {case}");
    }
}

#[tokio::test]
async fn a_final_answer_that_is_staged_after_calls_of_another_mode_is_not_requested_again() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store);
        let blocked = gate.clone();
        let wait = tool_fn(definition("wait"), move |_| {
            let gate = blocked.clone();
            async move {
                gate.pass().await;
                Ok("never")
            }
        });
        let tools = Executed::default().tools().with(wait);
        let mut request = ask("where?", streamed);
        let handle = request.run_handle();
        let queueing = handle.clone();
        let answer = move |_: &ChatRequest| {
            queueing.queue(Message::user("and hurry"));
            Step::text("there")
        };
        let script = [asking("wait", Some("c1"), 1), Step::respond(answer), overloaded()];
        let model = ScriptedModel::new(script);
        let first = setup.clone().mode(PerServiceCall).stack(&model, tools.clone());
        drop_when(&first, request.clone(), gate.reached(1)).await;
        // The queued message makes the run continue after the answer.
        let second = setup.elsewhere().stack(&model, tools.clone());
        send(&second, request.clone()).await.unwrap_err();
        assert_eq!(staged(&store).await, ["assistant there"], "{streamed}");
        assert_eq!(handle.take_queued().len(), 1, "the message is in the handle again");
        let third = setup.elsewhere().stack(&model, tools.clone());
        let answer = send(&third, request).await.unwrap();
        assert_eq!((model.requests().len(), answer_text(&answer)), (3, "there".to_owned()));
        assert!(open(&store).await.is_none(), "{streamed}");
        // One of its calls has no result. The empty message marks that the run has ended
        // nevertheless.
        let all = ["user where?", "assistant wait#c1", "assistant there", "assistant"];
        assert_eq!(stored(&store).await, all, "{streamed}");
    }
}
