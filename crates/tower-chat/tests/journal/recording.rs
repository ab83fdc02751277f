//! What is staged is what may be stored: hooks and truncation come before the journal.

use tower_chat::{
    Tools,
    core::{BoxError, store::HistoryStore},
    replay::Truncation,
    tool::{Retention, ToolOutput, persist_with, tool_fn},
};
use tower_chat_testkit::{Gate, ScriptedLeaf, Step};

use crate::{common::*, desk::*};

/// `pin` answers a secret, which its hook redacts; `whisper` is kept out of the store altogether.
fn discreet(ran: &Ran, gate: &Gate) -> Tools {
    let (note, whispers, gate) = (ran.clone(), ran.clone(), gate.clone());
    let pin = tool_fn(definition("pin"), move |_| {
        note.note("pin");
        async { Ok::<_, BoxError>(ToolOutput::from("1234")) }
    });
    let whisper = tool_fn(definition("whisper"), move |_| {
        whispers.note("whisper");
        async { Ok::<_, BoxError>(ToolOutput::from("psst")) }
    });
    let wait = tool_fn(definition("wait"), move |_| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, BoxError>(ToolOutput::from("waited"))
        }
    });
    let pin = persist_with(pin, |call| {
        call.redact_result("****");
        Ok(Retention::Keep)
    });
    let whisper = persist_with(whisper, |_| Ok(Retention::Forget));
    Tools::new().with(pin).with(whisper).with(wait)
}

/// Everything that a store was ever given, as text.
fn given(store: &Store) -> String {
    let writes = store.writes();
    writes.iter().map(|write| format!("{:?} {:?}", write.messages(), write.tools())).collect()
}

#[tokio::test]
async fn nothing_that_a_hook_hides_is_ever_staged_and_the_run_goes_on_with_what_is_left() {
    for concurrent in [false, true] {
        let (store, ran, gate) = (store(), Ran::default(), Gate::closed());
        let setup = Setup::new(&store).concurrent(concurrent);
        let leaf = ScriptedLeaf::new([
            calls([("pin", "c1"), ("whisper", "c2"), ("wait", "c3")]),
            Step::text("done"),
        ]);
        let request = ask("go", false);
        let client = setup.stack(&leaf, discreet(&ran, &gate));
        drop_when(&client, request.clone(), async {
            gate.reached(1).await;
            while calls_known(&store).await != ["c1 Done", "c3 Unknown"] {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(staged(&store).await[1], "assistant pin#c1 wait#c3");
        gate.open();
        send(&setup.stack(&leaf, discreet(&ran, &gate)), request).await.unwrap();
        let all = given(&store);
        assert!(!all.contains("1234") && !all.contains("psst"), "{all}");
        assert_eq!(ran.names(), ["pin", "whisper"], "neither runs again");
        let history = stored(&store).await;
        assert!(history[2].starts_with("tool c1=**** c3!"), "{history:?}");
        assert!(store.inner().list("alice", None, 9).await.unwrap().len() == 1);
    }
}

#[tokio::test]
async fn a_long_result_is_staged_truncated_and_the_run_under_way_sees_all_of_it() {
    let (store, gate) = (store(), Gate::closed());
    let setup = Setup::new(&store).policy(policy().truncate_results(Truncation::to(200)));
    let leaf = ScriptedLeaf::new([calls([("long", "c1")]), Step::text("done").waits(&gate)]);
    let long = || {
        Tools::new().with(tool_fn(definition("long"), |_| async {
            Ok::<_, BoxError>(ToolOutput::from("x".repeat(10_000)))
        }))
    };
    let client = setup.stack(&leaf, long());
    let looking = async {
        leaf.called(2).await;
        let content = open(&store).await.unwrap();
        let text = format!("{:?}", content.tools);
        assert!(text.len() < 2_000, "{}", text.len());
        gate.open();
    };
    let (answer, ()) = tokio::join!(send(&client, ask("go", false)), looking);
    answer.unwrap();
    assert!(seen(&leaf, 1)[2].len() > 10_000);
    assert!(stored(&store).await[2].len() < 300);
}
