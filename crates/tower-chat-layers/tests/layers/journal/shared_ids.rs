//! Tests calls in several messages of one answer that have the same id or no id. The answer, the
//! store and the next request contain the correct result for each call.

use tower_chat::{
    Answer, ChatRequest, Finish, Message, PersistenceMode, ToolResult, adapt::as_one_message,
    tool::ToolStatus, transcript::RepeatedTranscript,
};
use tower_chat_testkit::{ScriptedModel, Step};

use super::{booking_tools::*, call_identity::*};
use crate::common::*;

const SHARED: [Option<&str>; 3] = [Some("c"), Some(""), None];

fn all_cases() -> impl Iterator<Item = (PersistenceMode, bool, Option<&'static str>)> + Clone {
    let modes = BOTH_WAYS.into_iter().flat_map(|streamed| ALL_MODES.map(|mode| (mode, streamed)));
    modes.flat_map(|(mode, streamed)| SHARED.map(|id| (mode, streamed, id)))
}

/// Returns an answer of two messages with one call each, and a result for one of the calls.
fn answered_inside(name: &str, id: Option<&str>) -> Vec<Message> {
    let mut inside = ToolResult::new("", "inside");
    inside.call_id = id.map(str::to_owned);
    let [first, second] = [1, 2].map(|number| Message::tool_calls([call(name, id, number)]));
    vec![first, second, Message::tool_results([inside])]
}

#[tokio::test]
async fn a_result_inside_an_answer_answers_the_same_call_for_the_tools_the_store_and_the_model() {
    for (mode, streamed, id) in all_cases() {
        let case = format!("{mode:?} {streamed} {id:?}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let answer = Step::answer(answered_inside("look", id), Finish::stop());
        let model = ScriptedModel::new([answer, Step::text("done"), Step::text("bye")]);
        let client = setup.stack(&model, executed.tools());
        send(&client, ask("where?", streamed)).await.unwrap();
        assert_eq!(executed.take(), ["1"], "{case}");
        let pairs = [pair(1, "look 1"), pair(2, "inside")];
        assert_eq!(shown(&model, 1), pairs, "live: {case}");
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, ask("and?", streamed)).await.unwrap();
        assert_eq!(shown(&model, 2), pairs, "later: {case}");
        let rows = [row(1, "look 1", ToolStatus::Ok), row(2, "inside", ToolStatus::Ok)];
        assert_eq!(recorded(&store).await, rows, "{case}");
    }
}

#[tokio::test]
async fn a_call_waits_for_approval_although_the_answer_contains_the_result_of_another_call() {
    for (mode, streamed, id) in all_cases() {
        let case = format!("{mode:?} {streamed} {id:?}");
        let (store, executed) = (store(), Executed::default());
        let setup = Setup::new(&store).mode(mode);
        let mut answer = answered_inside("pay", id);
        answer.push(Message::assistant("One is done."));
        let answer = Step::answer(answer, Finish::stop());
        let model = ScriptedModel::new([answer, Step::text("paid")]);
        let client = setup.stack(&model, executed.tools());
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        let arguments: Vec<_> = asked.iter().map(|it| it.call.arguments.as_str()).collect();
        assert_eq!(arguments, ["1"], "{case}");
        let client = setup.elsewhere().stack(&model, executed.tools());
        send(&client, approving(&asked, streamed)).await.unwrap();
        assert_eq!(executed.take(), ["1"], "{case}");
        // The replay moves a late result and its call to the position after the text.
        assert_eq!(shown(&model, 1), [pair(2, "inside"), pair(1, "pay 1")], "{case}");
        let rows = [row(1, "pay 1", ToolStatus::Ok), row(2, "inside", ToolStatus::Ok)];
        assert_eq!(recorded(&store).await, rows, "{case}");
    }
}

fn one_message(answer: &Answer) -> Message {
    let mut message = as_one_message(answer);
    message.id = None;
    message
}

fn whole(messages: &[Message], streamed: bool) -> ChatRequest {
    let mut request = request_with([], streamed);
    request.set_new_messages(messages.to_vec());
    request
}

#[tokio::test]
async fn a_client_that_receives_one_message_repeats_the_calls_of_all_messages_of_the_answer() {
    for (mode, streamed, id) in all_cases() {
        let case = format!("{mode:?} {streamed} {id:?}");
        let store = store();
        let policy = policy().with_repeated_transcript(RepeatedTranscript::Recognise);
        let setup = Setup::new(&store).mode(mode).policy(policy);
        let asking = [1, 2].map(|number| Message::tool_calls([call("ask", id, number)]));
        let model = ScriptedModel::new([
            Step::answer(asking, Finish::stop()),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let client = setup.stack(&model, Executed::default().tools());
        let answer: Answer = send(&client, ask("where?", streamed)).await.unwrap();
        let own = one_message(&answer);
        let results: Vec<_> = own
            .calls()
            .map(|call| {
                let text = format!("by hand {}", call.arguments);
                Message::tool_results([ToolResult::new(call.id.as_deref().unwrap(), text)])
            })
            .collect();
        assert_eq!(results.len(), 2, "{case}");
        let mut transcript = vec![Message::user("where?"), own];
        transcript.extend(results);
        let client = setup.elsewhere().stack(&model, Executed::default().tools());
        let answer = send(&client, whole(&transcript, streamed)).await.unwrap();
        let pairs = [pair(1, "by hand 1"), pair(2, "by hand 2")];
        assert_eq!(shown(&model, 1), pairs, "{case}");
        transcript.extend([one_message(&answer), Message::user("and?")]);
        send(&client, whole(&transcript, streamed)).await.unwrap();
        assert_eq!(shown(&model, 2), pairs, "{case}");
        let rows = [row(1, "by hand 1", ToolStatus::Ok), row(2, "by hand 2", ToolStatus::Ok)];
        assert_eq!(recorded(&store).await, rows, "{case}");
        let stored = stored(&store).await;
        assert_eq!(stored.iter().filter(|it| it.starts_with("user")).count(), 2, "{case}");
    }
}
