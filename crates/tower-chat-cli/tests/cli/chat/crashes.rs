//! Tests chats whose process is killed.

use std::time::{Duration, SystemTime};

use tower_chat::{
    ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};

use super::*;

/// The beginning of the line that the chat prints about an open run.
const GOES_ON: &str = "a run was interrupted after";

#[test]
fn the_next_process_requests_the_answer_of_a_killed_journaled_run_again() {
    each_store(|store| {
        let server = ModelServer::start([
            Reply::text(&["Two masts."]),
            Reply::beginning(&["Three, and"]),
            Reply::text(&["Three masts."]),
            Reply::text(&["Four masts."]),
        ]);
        let mut command = Piped::start(chat(store, &server, &["masts"]));
        command.give("What has a ketch?\nA barque?\n");
        command.wait_for_stdout("Three, and");
        command.kill();
        let killed = command.finish();
        assert_eq!(killed.code, None);

        let ended = run_with_input(chat(store, &server, &["masts"]), "A jigger?\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Three masts.\nFour masts.\n"));
        let shown: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(
            shown[3..5],
            ["a run was interrupted after 1 message; it continues:", "> A barque?"]
        );
        let messages = [
            "user: What has a ketch?",
            "assistant: Two masts.",
            "user: A barque?",
            "assistant: Three masts.",
            "user: A jigger?",
            "assistant: Four masts.",
        ];
        assert_eq!(server.messages()[2..], [&messages[..3], &messages[..5]]);
        assert_eq!(stored(store, "masts"), messages);
        assert_intact(store);
    });
}

#[test]
fn a_killed_tool_of_a_journaled_run_does_not_run_again() {
    each_store(|store| {
        let server = ModelServer::start([
            Reply::calls(&[("c1", "book_berth", r#"{"port":"Leith"}"#), ("c2", "hold", "{}")]),
            Reply::text(&["Booked, and no longer held."]),
        ]);
        let mcp = harbour(store);
        let options = ["berths", "--mcp", &mcp, "--approve", "always"];
        let mut command = Piped::start(chat(store, &server, &options));
        command.give("Book one and hold it.\n");
        wait_for_log(store, 2);
        command.kill();
        command.finish();

        let ended = run_with_input(chat(store, &server, &options), "");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Booked, and no longer held.\n"));
        assert!(ended.stderr.contains(GOES_ON), "{}", ended.stderr);
        let asked = &server.messages()[1];
        assert_eq!(
            asked[..3],
            [
                "user: Book one and hold it.",
                r#"assistant: book_berth({"port":"Leith"})hold({})"#,
                "tool: A berth in Leith is booked.",
            ]
        );
        assert!(asked[3].contains("may or may not have taken effect"), "{asked:?}");
        assert_eq!(asked.len(), 4);
        // The MCP server may have logged the cancellation of its call before it exited.
        let called: Vec<String> = log(store).into_iter().filter(|it| it != "cancelled").collect();
        assert_eq!(called, ["book_berth Leith", "hold nowhere"]);
        assert_intact(store);
    });
}

#[test]
fn after_a_kill_per_run_mode_has_stored_nothing_and_per_service_call_mode_a_part() {
    each_store(|store| {
        for (mode, left) in [("per-run", 0), ("per-service-call", 2)] {
            let server = ModelServer::start([
                Reply::calls(&[("c1", "fog", r#"{"port":"Tain"}"#)]),
                Reply::beginning(&["Fog, I"]),
                Reply::text(&["It has lifted."]),
            ]);
            let mcp = harbour(store);
            let options = [mode, "--mode", mode, "--mcp", &mcp];
            let mut command = Piped::start(chat(store, &server, &options));
            command.give("Is there fog?\n");
            command.wait_for_stdout("Fog, I");
            command.kill();
            command.finish();
            assert_eq!(stored(store, mode).len(), left, "{mode}");

            let ended = run_with_input(chat(store, &server, &options), "Is there now?\n");
            assert_eq!(
                (ended.code, ended.stdout.as_str()),
                (Some(0), "It has lifted.\n"),
                "{mode}"
            );
            let asked = &server.messages()[2];
            assert_eq!(asked.last().map(String::as_str), Some("user: Is there now?"));
            assert_eq!(stored(store, mode).len(), left + 2, "{mode}");
        }
    });
}

/// The lease of the run expires in a day. `recover --force` ends the run nevertheless.
#[test]
fn recover_with_force_ends_a_run_of_a_dead_process_whose_clock_was_ahead() {
    each_store(|store| {
        let key = ConversationKey::new("harbour", "masts");
        store.with(async |history| {
            let ahead = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
            let until = LeaseEnd::At(ahead + Duration::from_secs(15));
            let lease = Lease { attempt: 1, holder: 7, renewed_at: ahead, until };
            let staged = Staged { lease, close: None, service_id: None, partial_text: None };
            let id = MessageId { run: RunId::new(), index: 0 };
            let question = Message::user("What has a ketch?").into();
            let write = Write::new(key.clone(), id, Revision::ABSENT, [question]);
            let write = write.staged(staged).beginning_attempt();
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        });
        let server = ModelServer::start([Reply::text(&["Two masts."])]);
        let mut waiting = Piped::start(chat(store, &server, &["masts"]));
        let command = "recover --end commit --force --scope harbour --conversation masts";
        waiting.wait_for_stderr(command);
        waiting.kill();
        waiting.finish();
        let refused = store.run(&["recover", "--end", "commit"]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(stdout(&refused).contains("a process may still write to it: see --force"));
        store.prints(&command.split(' ').collect::<Vec<_>>());
        let ended = run_with_input(chat(store, &server, &["masts"]), "Well?\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Two masts.\n"));
        let messages = ["user: What has a ketch?", "user: Well?", "assistant: Two masts."];
        assert_eq!(stored(store, "masts"), messages);
    });
}
