//! Tests the number of the round in a tool's context, in a run that was interrupted and resumed.

use std::sync::{Arc, Mutex};

use tower_chat::{BoxError, Tools, tool::ToolOutput, tool_fn};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::{booking_tools::*, resuming::interrupted_at_c2};
use crate::common::*;

type Rounds = Arc<Mutex<Vec<(String, usize)>>>;

/// Returns tools that are safe to retry, and log the number of the round.
fn noting<const N: usize>(rounds: &Rounds, names: [&str; N]) -> Tools {
    names.into_iter().fold(Tools::new(), |tools, name| {
        let rounds = rounds.clone();
        let mut definition = definition(name);
        definition.safe_to_retry = true;
        tools.with(tool_fn(definition, move |context| {
            let label = label_of(&context);
            let answer = format!("{} {label}", context.call().name);
            rounds.lock().unwrap().push((label, context.round_index()));
            async { Ok::<_, BoxError>(ToolOutput::from(answer)) }
        }))
    })
}

fn take_rounds(rounds: &Rounds) -> Vec<(String, usize)> {
    std::mem::take(&mut rounds.lock().unwrap())
}

#[tokio::test]
async fn a_resumed_run_continues_to_count_rounds_after_those_of_earlier_attempts() {
    for (streamed, failing) in cases!(BOTH_WAYS, 0..4) {
        let (store, rounds) = (store(), Rounds::default());
        let ask_for = |id| calls([("look", id)]);
        let mut script = vec![ask_for("c1"), ask_for("c2"), ask_for("c3"), Step::text("done")];
        script.insert(failing, Step::error("overloaded"));
        let model = ScriptedModel::new(script);
        let client = Setup::new(&store).stack(&model, noting(&rounds, ["look"]));
        let request = ask("where?", streamed);
        send(&client, request.clone()).await.unwrap_err();
        send(&client, request).await.unwrap();
        let expected = [("c1", 0), ("c2", 1), ("c3", 2)].map(|(id, at)| (id.to_owned(), at));
        assert_eq!(take_rounds(&rounds), expected, "streamed {streamed}, failing {failing}");
    }
}

#[tokio::test]
async fn a_call_that_was_interrupted_is_run_again_in_its_own_round() {
    for streamed in BOTH_WAYS {
        let (store, rounds) = (store(), Rounds::default());
        let setup = Setup::new(&store);
        let (model, booking_tools) = (booking_model(), BookingTools::safe());
        let request = interrupted_at_c2(&setup, &model, &booking_tools, streamed).await;
        send(&setup.stack(&model, noting(&rounds, ["book", "seat"])), request).await.unwrap();
        let expected = [("c2", 0), ("c3", 1)].map(|(id, at)| (id.to_owned(), at));
        assert_eq!(take_rounds(&rounds), expected, "streamed {streamed}");
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}
