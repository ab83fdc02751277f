//! Tests requests with late results if the last answer of the history has a call without a result
//! (an open round). Every mode sends the same messages, even if this call has the id of an earlier
//! interrupted call.

use tower_chat::{
    ChatRequest, HistoryStore, Message, PersistenceMode, ToolResult, Tools,
    replay::effective_call_ids,
    tool::{CallPosition, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::{booking_tools::*, call_identity::*};
use crate::{case::Ids, common::*};

/// How a late result identifies its call.
#[derive(Debug, Clone, Copy)]
enum Names {
    /// By the id that the model gave the call. It may be missing or empty.
    GivenId,
    /// By the id that replay gives the call in requests to the model.
    ShownId,
    Position,
}

/// Creates a history of two runs that were interrupted while their tools ran. Returns the
/// configuration of the stack, and the message with the call of each run.
async fn interrupted_twice(case: Case) -> (Setup, [Message; 2]) {
    let store = case.store().await;
    let setup = Setup::new(&store).mode(PersistenceMode::PerServiceCall);
    let gate = Gate::closed();
    let blocked = gate.clone();
    let look = tool_fn(definition("look"), move |_| {
        let gate = blocked.clone();
        async move {
            gate.pass().await;
            Ok("never")
        }
    });
    let tools = Tools::new().with(look);
    for number in [1, 2] {
        let id = case.ids.of(&format!("c{number}"));
        let model = ScriptedModel::new([asking("look", id.as_deref(), number)]);
        let client = setup.elsewhere().stack(&model, tools.clone());
        drop_when(&client, case.ask(&format!("question {number}")), gate.reached(number)).await;
    }
    store.inner().flush().await.unwrap();
    let stored = store.inner().load(&key()).await.unwrap().messages;
    let asking = stored.iter().filter(|message| message.calls().next().is_some());
    let asking: Vec<Message> = asking.map(|message| (**message).clone()).collect();
    (setup.mode(case.mode), asking.try_into().unwrap())
}

/// Returns a result with this text for the call in a message.
fn late(asking: &Message, names: Names, text: &str) -> ToolResult {
    let mut result = ToolResult::new("", text);
    match names {
        Names::GivenId => result.call_id = asking.calls().next().unwrap().id.clone(),
        Names::ShownId => result.call_id = effective_call_ids(asking).pop(),
        Names::Position => {
            result = result.answering(CallPosition { message: asking.id.unwrap(), index: 0 });
        }
    }
    result
}

/// Sends results after the history, with or without a user message before them. Asserts that each
/// call has the expected result in three places: in the service call of this run, in the service
/// call of a later run in another process, and in the stored row of the call.
async fn check(
    case: Case,
    follows_question: bool,
    results: &[(usize, Names, &str)],
    expected: &[(usize, &str)],
) {
    let about = format!("{results:?}, after a user message: {follows_question}");
    let (setup, asking) = interrupted_twice(case).await;
    let results = results.iter().map(|(call, names, text)| late(&asking[call - 1], *names, text));
    let mut input = Vec::new();
    input.extend(follows_question.then(|| Message::user("question 3")));
    input.push(Message::tool_results(results));
    let model = ScriptedModel::new([Step::text("thanks"), Step::text("bye")]);
    let request = ChatRequest::new(input).in_conversation(key());
    let client = setup.elsewhere().stack(&model, Executed::default().tools());
    send(&client, case.way(request)).await.unwrap();
    let pairs: Vec<_> = expected.iter().map(|(call, text)| pair(*call, text)).collect();
    assert_eq!(shown(&model, 0), pairs, "live: {about}");
    let client = setup.elsewhere().stack(&model, Executed::default().tools());
    send(&client, case.ask("question 4")).await.unwrap();
    assert_eq!(shown(&model, 1), pairs, "later: {about}");
    let is_ok = |row: &(String, String, ToolStatus)| row.2 == ToolStatus::Ok;
    let rows = recorded(&setup.store).await.into_iter().filter(is_ok);
    // The rows are in the order of the messages.
    let mut answered: Vec<_> = pairs.into_iter().filter(|pair| pair.1 != INTERRUPTED).collect();
    answered.sort();
    let rows: Vec<_> = rows.map(|(call, text, _)| (call, text)).collect();
    assert_eq!(rows, answered, "record: {about}");
}

const IN_MEMORY: &str = "results are paired with calls before anything is stored";

#[tokio::test]
async fn a_late_result_answers_the_same_call_in_every_mode_and_the_other_stays_interrupted() {
    use Names::*;
    let [first, second] = [[(2, INTERRUPTED), (1, "by hand")], [(1, INTERRUPTED), (2, "by hand")]];
    let neither = [(1, INTERRUPTED), (2, INTERRUPTED)];
    Cases::all()
        .with_all_ids()
        .in_memory(IN_MEMORY)
        .check(async |case| {
            let is_missing = matches!(case.ids, Ids::Missing | Ids::Empty);
            for (follows_question, names) in cases!([false, true], [GivenId, ShownId, Position]) {
                let [of_first, of_second] = match names {
                    // A result without an id is paired only with a call of the open round. The user
                    // message has ended this round.
                    GivenId if is_missing && follows_question => [&neither, &neither],
                    GivenId if is_missing => [&second, &second],
                    // If the ids are equal, the result is paired with the later call.
                    GivenId | ShownId if case.ids == Ids::Equal => [&second, &second],
                    GivenId | ShownId | Position => [&first, &second],
                };
                for (call, expected) in [(1, of_first), (2, of_second)] {
                    let results = [(call, names, "by hand")];
                    check(case, follows_question, &results, expected).await;
                }
            }
        })
        .await;
}

#[tokio::test]
async fn late_results_of_both_calls_are_sent_the_same_in_every_mode() {
    use Names::*;
    Cases::all()
        .with_all_ids()
        .in_memory(IN_MEMORY)
        .check(async |case| {
            for (follows_question, names) in cases!([false, true], [ShownId, Position]) {
                let results = [(1, names, "result 1"), (2, names, "result 2")];
                let is_shared = case.ids == Ids::Equal && matches!(names, ShownId);
                let expected = match (is_shared, follows_question) {
                    (false, false) => [(2, "result 2"), (1, "result 1")],
                    (false, true) => [(1, "result 1"), (2, "result 2")],
                    // The first result is paired with the call of the open round. The second one
                    // repeats the first.
                    (true, false) => [(1, INTERRUPTED), (2, "result 1")],
                    (true, true) => [(2, "result 1"), (1, "result 2")],
                };
                check(case, follows_question, &results, &expected).await;
            }
        })
        .await;
}
