//! Calls that wait for consent: stored, answered by a later run, and run exactly once.

use tower_chat::{
    ConflictPolicy, PersistenceMode, ToolLoopError,
    core::{Answer, ApprovalRequest, ApprovalResponse, ChatRequest, Finish, Message, Part, Role},
};
use tower_chat_testkit::{FaultyStore, ScriptedLeaf, Step};

use crate::common::*;

fn requests(answer: &Answer) -> Vec<ApprovalRequest> {
    answer.approval_requests().cloned().collect()
}

fn replying(parts: impl IntoIterator<Item = ApprovalResponse>, streamed: bool) -> ChatRequest {
    let parts = parts.into_iter().map(Part::from).collect();
    ask_with([Message::new(Role::User, parts)], streamed)
}

fn agent_with(leaf: &ScriptedLeaf, store: &Store, mode: PersistenceMode, ran: &Ran) -> Client {
    stack(leaf.clone(), store, mode, policy(), tools(ran))
}

#[tokio::test]
async fn a_request_is_stored_survives_a_restart_and_is_approved_by_a_later_run() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (disk, ran) = (memory(), Ran::default());
            let leaf = ScriptedLeaf::new([calls([("pay", "c1"), ("look", "c2")])]);
            let before = FaultyStore::new(disk.clone());
            let client = agent_with(&leaf, &before, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            assert_eq!(asked.iter().map(|r| r.required).collect::<Vec<_>>(), [true, false]);
            assert_eq!(stored(&before).await, ["user buy", "assistant pay#c1? look#c2?"]);
            drop(client);

            let after = FaultyStore::new(disk);
            let leaf = ScriptedLeaf::new([Step::text("done"), Step::text("bye")]);
            let client = agent_with(&leaf, &after, mode, &ran);
            let yes = replying(asked.iter().map(ApprovalRequest::approve), streamed);
            let answer = send(&client, yes).await.unwrap();
            assert_eq!(ran.names(), ["pay", "look"]);
            let shown = ["user buy", "assistant pay#c1 look#c2", "tool c1=payed c1 c2=looked c2"];
            assert_eq!(seen(&leaf, 0), shown, "{mode:?}");
            let all = [
                "user buy",
                "assistant pay#c1? look#c2?",
                "user yes yes",
                "tool c1=payed c1 c2=looked c2",
                "assistant done",
            ];
            assert_eq!(stored(&after).await, all, "{mode:?}");
            assert_eq!(shorts(&answer.messages), all[3..]);
            send(&client, ask("ok", streamed)).await.unwrap();
            assert_eq!(seen(&leaf, 1)[..3], shown);
            assert_eq!(seen(&leaf, 1)[3..], ["assistant done", "user ok"]);
        }
    }
}

#[tokio::test]
async fn a_rejected_call_is_not_run_and_the_model_and_the_store_hear_why() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, ran) = (store(), Ran::default());
            let leaf = ScriptedLeaf::new([calls([("pay", "c1")]), Step::text("fine")]);
            let client = agent_with(&leaf, &store, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            send(&client, replying([asked[0].reject("too dear")], streamed)).await.unwrap();
            assert_eq!(ran.names(), [""; 0]);
            let messages = stored(&store).await;
            assert_eq!(messages[..3], ["user buy", "assistant pay#c1?", "user no"]);
            assert!(messages[3].starts_with("tool c1") && messages[3].contains("too dear"));
            assert_eq!(seen(&leaf, 1), ["user buy", "assistant pay#c1", messages[3].as_str()]);
        }
    }
}

#[tokio::test]
async fn pending_calls_leave_the_replay_and_stay_answerable_across_other_runs() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, ran) = (store(), Ran::default());
            let leaf = ScriptedLeaf::new([
                calls([("pay", "c1")]),
                Step::text("as you like"),
                Step::text("done"),
            ]);
            let client = agent_with(&leaf, &store, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            send(&client, ask("wait", streamed)).await.unwrap();
            assert_eq!(seen(&leaf, 1), ["user buy", "user wait"], "{mode:?}");
            send(&client, replying([asked[0].approve()], streamed)).await.unwrap();
            assert_eq!(ran.names(), ["pay"], "{mode:?}");
            let shown = [
                "user buy",
                "user wait",
                "assistant as you like",
                "assistant pay#c1",
                "tool c1=payed c1",
            ];
            assert_eq!(seen(&leaf, 2), shown, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn forged_and_repeated_answers_are_refused() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, ran) = (store(), Ran::default());
            let leaf = ScriptedLeaf::new([calls([("pay", "c1")]), Step::text("done")]);
            let client = agent_with(&leaf, &store, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            let mut forged = asked[0].approve();
            forged.request_id = "approval_0_0_0".into();
            let error = send(&client, replying([forged], streamed)).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>();
            assert!(matches!(error, Some(ToolLoopError::ApprovalUnknown { .. })), "{error:?}");
            assert_eq!(ran.names(), [""; 0], "{mode:?}");
            let twice = [asked[0].approve(), asked[0].approve()];
            send(&client, replying(twice, streamed)).await.unwrap();
            assert_eq!(ran.names(), ["pay"], "one answer counts");
            let error = send(&client, replying([asked[0].approve()], streamed)).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>();
            assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{error:?}");
            assert_eq!((ran.names(), leaf.requests().len()), (vec!["pay".to_owned()], 2));
            let results = stored(&store).await;
            assert_eq!(results.iter().filter(|m| m.starts_with("tool")).count(), 1);
        }
    }
}

#[tokio::test]
async fn a_batch_answered_in_part_fails_before_anything_runs_and_consumes_nothing() {
    for streamed in BOTH_WAYS {
        for mode in [PerRun, PerServiceCall, PersistenceMode::Journaled] {
            let (store, ran) = (store(), Ran::default());
            let leaf =
                ScriptedLeaf::new([calls([("pay", "c1"), ("pay", "c2")]), Step::text("done")]);
            let client = agent_with(&leaf, &store, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            let error = send(&client, replying([asked[0].approve()], streamed)).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
            assert!(matches!(error, ToolLoopError::ApprovalMissing { .. }), "{error:?}");
            assert_eq!(stored(&store).await.len(), 2);
            let all = replying(asked.iter().map(ApprovalRequest::approve), streamed);
            send(&client, all).await.unwrap();
            assert_eq!(ran.names(), ["pay", "pay"]);
        }
    }
}

#[tokio::test]
async fn approvals_are_not_used_up_by_a_run_that_then_fails() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, ran) = (store(), Ran::default());
            let leaf = ScriptedLeaf::new([
                calls([("pay", "c1")]),
                Step::error("overloaded"),
                Step::text("done"),
            ]);
            let client = agent_with(&leaf, &store, mode, &ran);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            let mut request = replying([asked[0].approve()], streamed);
            request.messages.push(Message::user("quick"));
            send(&client, request.clone()).await.unwrap_err();
            if mode == PerRun {
                assert_eq!(stored(&store).await.len(), 2, "a failed run leaves no trace");
            }
            send(&client, request).await.unwrap();
            assert_eq!(ran.names(), ["pay"], "what has run is known, whatever became of its run");
            let all = [
                "user buy",
                "assistant pay#c1?",
                "user yes",
                "user quick",
                "tool c1=payed c1",
                "assistant done",
            ];
            assert_eq!(stored(&store).await, all, "{mode:?}");
            let shown = ["user buy", "user quick", "assistant pay#c1", "tool c1=payed c1"];
            assert_eq!(seen(&leaf, 2), shown, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn what_stands_beside_an_answer_is_shown_after_the_results() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([calls([("pay", "c1")]), Step::text("done")]);
            let client = agent(&leaf, &store, mode);
            let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
            let parts = vec![asked[0].approve().into(), Part::text("gladly")];
            send(&client, ask_with([Message::new(Role::User, parts)], streamed)).await.unwrap();
            let shown = ["user buy", "assistant pay#c1", "tool c1=payed c1", "user gladly"];
            assert_eq!(seen(&leaf, 1), shown, "{mode:?}");
            let history = stored(&store).await;
            assert_eq!(history[2], "user yes gladly");
        }
    }
}

#[tokio::test]
async fn a_service_that_keeps_the_history_gets_the_results_of_approved_calls() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            for clear in [true, false] {
                let (store, ran) = (store(), Ran::default());
                let asking = call_message([("pay", "c1")]);
                let leaf = ScriptedLeaf::new([
                    Step::answer([asking], Finish::stop().with_service_id("s1")),
                    kept("done", "s1"),
                ]);
                let conflict = ConflictPolicy { warn: false, throw: false, clear };
                let policy = policy().on_conflict(conflict);
                let client = stack(leaf.clone(), &store, mode, policy, tools(&ran));
                let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
                assert_eq!(asked.len(), 1);
                send(&client, replying([asked[0].approve()], streamed)).await.unwrap();
                assert_eq!(ran.names(), ["pay"]);
                let place = (mode, clear, streamed);
                assert_eq!(
                    seen(&leaf, 1),
                    ["tool c1=payed c1"],
                    "the call is there already {place:?}"
                );
                assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
                let again = replying([asked[0].approve()], streamed);
                let error = send(&client, again).await.unwrap_err();
                let error = error.downcast_ref::<ToolLoopError>();
                assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{place:?}");
                assert_eq!((ran.names(), leaf.requests().len()), (vec!["pay".to_owned()], 2));
            }
        }
    }
}
