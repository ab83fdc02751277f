//! Tests that readers see no message of a journaled run before its commit, and then all of them.

use tower_chat::store::{Directory, InvocationQuery, ToolCallQueries};
use tower_chat_testkit::{Gate, cases};

use super::booking_tools::*;
use crate::common::*;

/// Returns what readers see: the history, the number of listed conversations, the number of stored
/// calls, and the number of tools in their totals.
async fn seen_by_readers(store: &Store) -> (Vec<String>, usize, usize, usize) {
    let store = store.in_another_process();
    let inner = store.inner();
    let calls = inner.invocations(&InvocationQuery::in_scope("alice")).await.unwrap().found;
    let totals = inner.tool_totals(&InvocationQuery::in_scope("alice")).await.unwrap();
    let listed = inner.list("alice", None, 10).await.unwrap();
    (stored(&store).await, listed.len(), calls.len(), totals.len())
}

#[tokio::test]
async fn readers_do_not_see_a_run_before_it_is_complete() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, [false, true]) {
        let (store, model, gate) = (store(), booking_model(), Gate::closed());
        let booking_tools = BookingTools::default().with_gate_before("c3", &gate);
        let client = Setup::new(&store).concurrent(concurrent).stack(&model, booking_tools.tools());
        let looking = async {
            gate.reached(1).await;
            assert_eq!(staged(&store).await.len(), 4);
            assert_eq!(seen_by_readers(&store).await, (vec![], 0, 0, 0));
            gate.open();
        };
        let (answer, ()) = tokio::join!(send(&client, ask("trip", streamed)), looking);
        answer.unwrap();
        let whole: Vec<_> = WHOLE_RUN.map(str::to_owned).into();
        assert_eq!(seen_by_readers(&store).await, (whole, 1, 3, 2));
    }
}

#[tokio::test]
async fn readers_do_not_see_a_failed_run() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let client = setup.stack(&booking_model(), BookingTools::default().tools());
        send(&client, ask("hi", streamed)).await.unwrap();
        let before = seen_by_readers(&store).await;
        let model = booking_model_with(2, [tower_chat_testkit::Step::error("overloaded")]);
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        assert_eq!(staged(&store).await, WHOLE_RUN[..4]);
        assert_eq!(seen_by_readers(&store).await, before);
    }
}

#[tokio::test]
async fn all_modes_store_the_same_messages_and_the_same_record() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, [false, true]) {
        let mut all = Vec::new();
        for mode in ALL_MODES {
            let store = store();
            let setup = Setup::new(&store).mode(mode).concurrent(concurrent);
            let client = setup.stack(&booking_model(), BookingTools::default().tools());
            let answer = send(&client, ask("trip", streamed)).await.unwrap();
            let query = InvocationQuery::of(&key());
            let calls = store.inner().invocations(&query).await.unwrap().found;
            let calls: Vec<_> = calls
                .into_iter()
                .map(|(_, call)| {
                    assert!(call.started_at.is_some() && call.finished_at.is_some());
                    (call.sequence, call.round_index, call.sequence_index, call.status, call.result)
                })
                .collect();
            let saved = answer.finish.saved;
            all.push((stored(&store).await, calls, shorts(&answer.messages), saved));
        }
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], all[2]);
    }
}
