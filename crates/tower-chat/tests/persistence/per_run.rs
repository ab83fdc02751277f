//! Per-run mode: one load, one append, or nothing at all.

use std::sync::{Arc, Mutex};

use tower_chat::{
    PersistenceError,
    core::RunId,
    core::{
        ChatRequest, ConversationKey, Finish, Message, MessageId, ToolCall, ToolResult, Usage,
        store::{HistoryStore, Revision, Write},
    },
    replay::DanglingCalls,
};
use tower_chat_testkit::{ScriptedLeaf, Step};

use crate::common::*;

#[tokio::test]
async fn a_run_is_loaded_once_and_appended_once_at_its_end() {
    for streamed in BOTH_WAYS {
        let (store, counts) = (store(), Arc::new(Mutex::new(Vec::new())));
        let leaf = ScriptedLeaf::new([
            Step::text("hello"),
            noting(&store, &counts, calls([("look", "c1")])),
            noting(&store, &counts, Step::text("there")),
        ]);
        let client = agent(&leaf, &store, PerRun);
        send(&client, ask("hi", streamed)).await.unwrap();
        let (heads, loads, appends) = (store.heads(), store.loads(), store.appends());
        send(&client, ask("where?", streamed)).await.unwrap();

        assert_eq!(*counts.lock().unwrap(), [2, 2], "nothing is stored before the end");
        assert_eq!(store.appends() - appends, 1);
        assert_eq!((store.heads() - heads, store.loads() - loads), (1, 1));
        let all = [
            "user hi",
            "assistant hello",
            "user where?",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant there",
        ];
        assert_eq!(stored(&store).await, all);
        assert_eq!(seen(&leaf, 1), all[..3]);
        assert_eq!(seen(&leaf, 2), all[..5]);
    }
}

#[tokio::test]
async fn a_new_conversation_needs_no_load() {
    let store = store();
    let leaf = ScriptedLeaf::new([Step::text("hello")]);
    send(&agent(&leaf, &store, PerRun), ask("hi", false)).await.unwrap();
    assert_eq!((store.heads(), store.loads()), (1, 0));
}

#[tokio::test]
async fn the_answer_carries_every_message_with_its_stored_id_and_what_was_saved() {
    for streamed in BOTH_WAYS {
        let store = store();
        let leaf = ScriptedLeaf::new([calls([("look", "c1")]), Step::text("there")]);
        let request = ask("where?", streamed);
        let run = request.conversation().unwrap().run;
        let answer = send(&agent(&leaf, &store, PerRun), request).await.unwrap();
        assert_eq!(
            shorts(&answer.messages),
            ["assistant look#c1", "tool c1=looked c1", "assistant there"]
        );
        let ids: Vec<_> = answer.messages.iter().map(|message| message.id.unwrap()).collect();
        assert_eq!(ids, [1, 2, 3].map(|index| MessageId { run, index }));
        let history = store.inner().load(&key()).await.unwrap();
        let of_answer = history.messages.iter_from(1);
        assert!(of_answer.zip(&answer.messages).all(|(stored, given)| stored == given));
        let saved = answer.finish.saved.unwrap();
        assert_eq!((saved.messages, saved.unsaved), (4, 0));
    }
}

#[tokio::test]
async fn usage_reason_and_metadata_pass_through_unchanged() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let mut finish = Finish::stop().with_usage(Usage::new(7, 3));
            finish.model = Some("m-1".into());
            finish.metadata.insert("trace".into(), "t".into());
            let answered = Step::answer([Message::assistant("hello")], finish.clone());
            let leaf = ScriptedLeaf::new([answered]);
            let answer = send(&agent(&leaf, &store(), mode), ask("hi", streamed)).await.unwrap();
            let mut given = answer.finish;
            assert!(given.saved.take().is_some());
            assert_eq!(*given, finish);
        }
    }
}

#[tokio::test]
async fn usage_is_that_of_all_service_calls() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let asked = Step::answer(
                [call_message([("look", "c1")])],
                Finish::stop().with_usage(Usage::new(10, 1)),
            );
            let leaf = ScriptedLeaf::new([asked, costly("there", 20, 2)]);
            let answer = send(&agent(&leaf, &store(), mode), ask("hi", streamed)).await.unwrap();
            assert_eq!(answer.finish.usage, Usage::new(30, 3));
        }
    }
}

#[tokio::test]
async fn a_run_that_fails_leaves_the_store_as_it_was() {
    for streamed in BOTH_WAYS {
        for failing in [
            Step::error("overloaded"),
            Step::text("half").fails_after(1, "reset"),
            Step::text("half").cut_off_after(1),
        ] {
            let store = store();
            let leaf = ScriptedLeaf::new([
                Step::text("hello"),
                calls([("look", "c1")]),
                failing,
                Step::text("again"),
            ]);
            let client = agent(&leaf, &store, PerRun);
            send(&client, ask("hi", streamed)).await.unwrap();
            let (before, appends) = (store.inner().head(&key()).await.unwrap(), store.appends());
            send(&client, ask("where?", streamed)).await.unwrap_err();
            assert_eq!(store.inner().head(&key()).await.unwrap(), before);
            assert_eq!(store.appends(), appends);
            assert!(store.handle().unsaved_conversations().is_empty());

            send(&client, ask("and now?", streamed)).await.unwrap();
            assert_eq!(seen(&leaf, 3), ["user hi", "assistant hello", "user and now?"]);
        }
    }
}

#[tokio::test]
async fn trailing_results_are_trimmed_and_earlier_rounds_kept() {
    for streamed in BOTH_WAYS {
        for keep in [false, true] {
            let store = store();
            let leaf = ScriptedLeaf::new([
                calls([("look", "c1")]),
                calls([("stop", "c2"), ("look", "c3")]),
            ]);
            let policy = policy().keep_trailing_results(keep);
            let client = stack(leaf.clone(), &store, PerRun, policy, tools(&Ran::default()));
            let answer = send(&client, ask("go", streamed)).await.unwrap();
            let all = [
                "user go",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant stop#c2 look#c3",
                "tool c2=stopped c2",
            ];
            assert_eq!(shorts(&answer.messages), all[1..], "the caller gets the results");
            let kept = if keep { 5 } else { 4 };
            assert_eq!(stored(&store).await, all[..kept]);
            assert_eq!(answer.finish.saved.unwrap().messages, kept);
        }
    }
}

#[tokio::test]
async fn both_modes_store_the_same_of_a_terminated_run_and_replay_it_validly() {
    for streamed in BOTH_WAYS {
        let mut histories = Vec::new();
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([
                calls([("look", "c1")]),
                calls([("stop", "c2")]),
                Step::text("what?"),
            ]);
            let client = agent(&leaf, &store, mode);
            send(&client, ask("go", streamed)).await.unwrap();
            let after_first = stored(&store).await;
            send(&client, ask("hm", streamed)).await.unwrap();
            assert_eq!(
                seen(&leaf, 2),
                ["user go", "assistant look#c1", "tool c1=looked c1", "user hm"],
                "the dangling call is not shown"
            );
            histories.push(after_first);
        }
        assert_eq!(histories[0], histories[1]);
    }
}

#[tokio::test]
async fn trailing_results_are_trimmed_although_a_text_follows_their_call() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let asking = [call_message([("stop", "c1")]), Message::assistant("one moment")];
            let leaf = ScriptedLeaf::new([Step::answer(asking, Finish::stop())]);
            send(&agent(&leaf, &store, mode), ask("go", streamed)).await.unwrap();
            let all = ["user go", "assistant stop#c1", "assistant one moment"];
            assert_eq!(stored(&store).await, all, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn results_that_the_caller_gives_stay_with_the_call_they_answer() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([calls([("ask", "c1")]), Step::text("thanks")]);
            let client = agent(&leaf, &store, mode);
            let answer = send(&client, ask("go", streamed)).await.unwrap();
            assert_eq!(answer.tool_calls().count(), 1, "a declared tool's call is returned");
            let result = Message::tool_results([ToolResult::new("c1", "blue")]);
            send(&client, ask_with([result], streamed)).await.unwrap();
            let all = ["user go", "assistant ask#c1", "tool c1=blue", "assistant thanks"];
            assert_eq!(seen(&leaf, 1), all[..3]);
            assert_eq!(stored(&store).await, all);
        }
    }
}

#[tokio::test]
async fn system_messages_are_stored_and_instructions_are_not() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([Step::text("hello")]);
            let mut request = ask_with([Message::system("be kind"), Message::user("hi")], streamed);
            Arc::make_mut(&mut request.options).instructions = Some("be brief".into());
            send(&agent(&leaf, &store, mode), request).await.unwrap();
            assert_eq!(stored(&store).await, ["system be kind", "user hi", "assistant hello"]);
            assert_eq!(leaf.requests()[0].options.instructions.as_deref(), Some("be brief"));
        }
    }
}

#[tokio::test]
async fn what_a_layer_above_puts_first_is_sent_each_time_and_never_stored() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([
                Step::text("hello"),
                calls([("look", "c1")]),
                Step::text("there"),
            ]);
            let client = agent(&leaf, &store, mode);
            send(&client, ask("hi", streamed)).await.unwrap();
            let mut request = ask("where?", streamed);
            request.prepend(&Message::system("today is Monday").into());
            send(&client, request).await.unwrap();
            let start = ["system today is Monday", "user hi", "assistant hello", "user where?"];
            assert_eq!(seen(&leaf, 1), start, "{mode:?}");
            assert_eq!(seen(&leaf, 2)[..4], start, "{mode:?}");
            assert_eq!(stored(&store).await[..3], ["user hi", "assistant hello", "user where?"]);
        }
    }
}

#[tokio::test]
async fn what_the_caller_does_to_its_request_later_changes_nothing() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([Step::text("hello")]);
            let mut request = ask("hi", streamed);
            let response = head(&agent(&leaf, &store, mode), request.clone()).await.unwrap();
            request.messages.push(Message::user("more"));
            let answer = response.collect().await.unwrap();
            drop(answer);
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
            assert_eq!(shorts(request.messages.iter()), ["user hi", "user more"]);
            assert!(request.messages.get(0).unwrap().id.is_none(), "the caller's own is as it was");
        }
    }
}

#[tokio::test]
async fn stored_messages_that_the_caller_sends_again_are_not_stored_again() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([Step::text("hello"), Step::text("there")]);
            let client = agent(&leaf, &store, mode);
            send(&client, ask("hi", streamed)).await.unwrap();
            let mut request = ChatRequest::new(store.inner().load(&key()).await.unwrap().messages)
                .in_conversation(key());
            request.messages.push(Message::user("where?"));
            let request = if streamed { request.streamed() } else { request };
            send(&client, request).await.unwrap();
            let all = ["user hi", "assistant hello", "user where?", "assistant there"];
            assert_eq!(stored(&store).await, all, "{mode:?}");
            assert_eq!(seen(&leaf, 1), all[..3]);
        }
    }
}

#[tokio::test]
async fn a_dangling_call_fails_the_run_before_the_model_is_paid_if_the_policy_says_so() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([calls([("ask", "c1")]), Step::text("thanks")]);
            let policy = policy().dangling_calls(DanglingCalls::Fail);
            let client = stack(leaf.clone(), &store, mode, policy, tools(&Ran::default()));
            send(&client, ask("go", streamed)).await.unwrap();
            let error = refused(send(&client, ask("well?", streamed)).await);
            assert!(matches!(error, PersistenceError::Dangling { .. }), "{mode:?}: {error:?}");
            assert_eq!(leaf.requests().len(), 1);
            assert_eq!(stored(&store).await.len(), 2);

            let result = Message::tool_results([ToolResult::new("c1", "blue")]);
            send(&client, ask_with([result], streamed)).await.unwrap();
            assert_eq!(stored(&store).await.len(), 4, "a call that the input answers is fine");
        }
    }
}

#[tokio::test]
async fn calls_without_ids_get_the_same_one_in_every_replay() {
    for mode in BOTH_MODES {
        let store = store();
        let calls = ["a", "b"].map(|arguments| ToolCall::without_id("look", arguments));
        let leaf = ScriptedLeaf::new([
            Step::message(Message::tool_calls(calls)),
            Step::text("there"),
            Step::text("bye"),
        ]);
        let client = agent(&leaf, &store, mode);
        send(&client, ask("go", false)).await.unwrap();
        send(&client, ask("ok", false)).await.unwrap();
        assert_eq!(seen(&leaf, 1)[1..3], seen(&leaf, 2)[1..3], "{mode:?}");
        let call = leaf.requests()[2].messages.get(1).unwrap().clone();
        let results = leaf.requests()[2].messages.get(2).unwrap().clone();
        let call_ids: Vec<_> = call.calls().map(|call| call.id.clone().unwrap()).collect();
        let result_ids: Vec<_> =
            results.results().map(|result| result.call_id.clone().unwrap()).collect();
        assert_eq!(call_ids, result_ids);
        assert_ne!(call_ids[0], call_ids[1]);
    }
}

#[tokio::test]
async fn conversations_do_not_see_each_other() {
    let store = store();
    let leaf = ScriptedLeaf::new([Step::text("1"), Step::text("2"), Step::text("3")]);
    let client = agent(&leaf, &store, PerRun);
    let other = ConversationKey::new("bob", "support");
    send(&client, ask("hi", false)).await.unwrap();
    send(&client, ChatRequest::user("ho").in_conversation(other.clone())).await.unwrap();
    send(&client, ask("again", false)).await.unwrap();
    assert_eq!(seen(&leaf, 1), ["user ho"]);
    assert_eq!(seen(&leaf, 2), ["user hi", "assistant 1", "user again"]);
    assert_eq!(stored_of(&store, &other).await, ["user ho", "assistant 2"]);
}

#[tokio::test]
async fn a_history_written_by_something_else_is_replayed() {
    let store = store();
    let id = MessageId { run: RunId::new(), index: 0 };
    let messages = [Message::user("hi").into(), Message::assistant("hello").into()];
    let write = Write::new(key(), id, Revision::ABSENT, messages);
    store.inner().append(store.inner().reserve().await.unwrap(), vec![write]).await.unwrap();
    let leaf = ScriptedLeaf::new([Step::text("there")]);
    send(&agent(&leaf, &store, PerRun), ask("where?", false)).await.unwrap();
    assert_eq!(seen(&leaf, 0), ["user hi", "assistant hello", "user where?"]);
}
