//! Tests which messages are staged, and when.

use tower_chat::{
    PersistenceError, Tools,
    store::{InvocationQuery, StoreError, ToolCallQueries, author::Close},
    tool::{ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

#[tokio::test]
async fn the_input_is_staged_before_the_first_service_call() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = booking_model_with(0, [Step::hang()]);
        let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
        drop_when(&client, ask("trip", streamed), async {
            model.called(1).await;
            assert_eq!(staged(&store).await, WHOLE_RUN[..1]);
        })
        .await;
    }
}

#[tokio::test]
async fn the_model_is_not_called_if_the_input_cannot_be_staged() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), booking_model());
        let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
        store.fail_next_append(disk_full());
        let error = refused(send(&client, ask("trip", streamed)).await);
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(model.requests().len(), 0);
    }
}

#[tokio::test]
async fn the_model_is_not_called_and_no_run_is_opened_if_the_history_cannot_be_loaded() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), booking_model());
        let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
        send(&client, ask("hi", streamed)).await.unwrap();
        for fail in [Store::fail_next_head as fn(&Store, StoreError), Store::fail_next_load] {
            fail(&store, disk_full());
            let error = refused(send(&client, ask("trip", streamed)).await);
            assert!(matches!(error, PersistenceError::NotLoaded { .. }), "{error:?}");
            assert_eq!(model.requests().len(), 1);
            assert!(open(&store).await.is_none());
        }
    }
}

#[tokio::test]
async fn serial_tools_are_staged_one_by_one() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), booking_model());
        let (before, between, after) = (Gate::closed(), Gate::closed(), Gate::closed());
        let booking_tools = BookingTools::default()
            .with_gate_before("c1", &before)
            .with_gate_before("c2", &between)
            .with_gate_before("c3", &after);
        let client = Setup::new(&store).stack(&model, booking_tools.tools());
        let looking = async {
            before.reached(1).await;
            assert_eq!(staged(&store).await, WHOLE_RUN[..2]);
            assert_eq!(calls_known(&store).await, ["c1 Unknown", "c2 NeverStarted"]);
            assert_eq!(
                store.appends(),
                2,
                "the write with the answer contains the start of the tool"
            );
            before.open();
            between.reached(1).await;
            assert_eq!(calls_known(&store).await, ["c1 Done", "c2 Unknown"]);
            assert_eq!(store.appends(), 3, "one write contains the outcome and the next start");
            between.open();
            after.reached(1).await;
            assert_eq!(staged(&store).await, WHOLE_RUN[..4]);
            assert_eq!(calls_known(&store).await, ["c1 Done", "c2 Done", "c3 Unknown"]);
            assert_eq!(store.appends(), 5);
            after.open();
        };
        let (answer, ()) = tokio::join!(send(&client, ask("trip", streamed)), looking);
        assert_eq!(answer.unwrap().text(), "booked");
        assert_eq!(store.appends(), 1 + SERVICE_CALLS + TOOL_CALLS);
        assert_eq!(stored(&store).await, WHOLE_RUN);
        assert!(open(&store).await.is_none());
    }
}

#[tokio::test]
async fn concurrent_siblings_are_staged_as_each_of_them_ends() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), booking_model());
        let (first, second) = (Gate::closed(), Gate::closed());
        let booking_tools =
            BookingTools::default().with_gate_before("c1", &first).with_gate_before("c2", &second);
        let client = Setup::new(&store).concurrent(true).stack(&model, booking_tools.tools());
        let looking = async {
            first.reached(1).await;
            second.reached(1).await;
            assert_eq!(calls_known(&store).await, ["c1 Unknown", "c2 Unknown"]);
            assert_eq!(store.appends(), 2);
            second.open();
            while calls_known(&store).await != ["c1 Unknown", "c2 Done"] {
                tokio::task::yield_now().await;
            }
            assert_eq!(store.appends(), 3);
            first.open();
        };
        let (answer, ()) = tokio::join!(send(&client, ask("trip", streamed)), looking);
        answer.unwrap();
        assert_eq!(store.appends(), 1 + SERVICE_CALLS + TOOL_CALLS);
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test]
async fn a_response_without_calls_and_the_commit_of_its_run_are_one_write() {
    for streamed in BOTH_WAYS {
        let store = store();
        let client = Setup::new(&store).stack(&booking_model(), BookingTools::default().tools());
        send(&client, ask("hi", streamed)).await.unwrap();
        assert_eq!(store.appends(), 2);
        let writes = store.writes();
        assert!(writes[1].close().is_some() && writes[1].messages().len() == 1);
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
    }
}

#[tokio::test]
async fn a_failed_call_is_staged_with_the_status_failed() {
    for concurrent in [false, true] {
        let store = store();
        let gate = Gate::closed();
        let model = booking_model_with(0, [calls([("fail", "c1"), ("wait", "c2")])]);
        let client = Setup::new(&store)
            .concurrent(concurrent)
            .stack(&model, tools_with_gate(&ToolLog::default(), &gate));
        drop_when(&client, ask("trip", false), async {
            gate.reached(1).await;
            while calls_known(&store).await != ["c1 Failed", "c2 Unknown"] {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// If the process died between two separate writes, a later attempt could not detect that the run
/// has ended.
#[tokio::test]
async fn the_outcome_of_a_tool_that_ends_its_run_and_the_commit_are_one_write() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, [false, true]) {
        let store = store();
        let model = ScriptedModel::new([calls([("look", "c1"), ("none", "c2"), ("stop", "c3")])]);
        let setup = Setup::new(&store).concurrent(concurrent);
        let client = setup.stack(&model, tools(&ToolLog::default()));
        send(&client, ask("stop", streamed)).await.unwrap();
        let writes = store.writes();
        let outcomes = writes.iter().position(|write| write.close() == Some(Close::Commit));
        assert_eq!(outcomes, Some(3), "input, answer, first outcome, then the end");
        assert_eq!(writes.len(), 4);
        assert_eq!(stored(&store).await.len(), 2, "only the record contains the results");
        let record = store.invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        let statuses: Vec<_> = record.iter().map(|(_, call)| call.status).collect();
        let expected = [ToolStatus::Ok, ToolStatus::UnknownTool, ToolStatus::Ok];
        assert_eq!(statuses, expected);
    }
}

#[tokio::test]
async fn a_run_that_a_tool_ends_is_committed_although_the_caller_disconnects_before_the_write() {
    for streamed in BOTH_WAYS {
        let (store, gate) = (store(), Gate::closed());
        let model = ScriptedModel::new([calls([("stop", "c1")])]);
        let hold = store.clone();
        let held = gate.clone();
        let stop = tool_fn(definition("stop"), move |_| {
            hold.hold_next_reserve(&held);
            async { Ok(ToolOutput::from("stopped").terminate()) }
        });
        let client = Setup::new(&store).stack(&model, Tools::new().with(stop));
        drop_when(&client, ask("stop", streamed), gate.reached(1)).await;
        assert_eq!(stored(&store).await, ["user stop", "assistant stop#c1"]);
        assert!(open(&store).await.is_none());
    }
}
