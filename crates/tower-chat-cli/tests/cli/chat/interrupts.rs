//! Tests Ctrl-C during a run.

use super::*;

#[test]
fn the_partial_text_of_an_interrupted_answer_is_stored_and_the_conversation_continues() {
    each_store(|store| {
        for mode in MODES {
            let server = ModelServer::start([
                Reply::text(&["A tug."]),
                Reply::beginning(&["Half of ", "the fleet"]),
                Reply::text(&["The other half."]),
            ]);
            let mut command = Piped::start(chat(store, &server, &[mode, "--mode", mode]));
            command.give("What pulls?\nWhat sails?\nIs this ever sent?\n");
            command.wait_for_stdout("Half of the fleet");
            command.interrupt();
            let ended = command.finish();
            assert_eq!(ended.code, Some(130), "{mode}: {}", ended.stderr);
            assert_eq!(ended.stdout, "A tug.\nHalf of the fleet\n", "{mode}");
            let expected = "interrupted; stored of this run: your message and the partial answer";
            assert_eq!(ended.stderr.lines().last(), Some(expected), "{mode}");
            assert_intact(store);

            let ended = run_with_input(chat(store, &server, &[mode, "--mode", mode]), "Go on.\n");
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "The other half.\n"));
            let messages = [
                "user: What pulls?",
                "assistant: A tug.",
                "user: What sails?",
                "assistant: Half of the fleet",
                "user: Go on.",
                "assistant: The other half.",
            ];
            assert_eq!(server.messages()[2], messages[..5], "{mode}");
            assert_eq!(stored(store, mode), messages, "{mode}");
            assert_intact(store);
        }
    });
}

#[test]
fn an_interrupted_tool_is_cancelled_and_the_model_receives_an_error() {
    each_store(|store| {
        for (index, mode) in MODES.into_iter().enumerate() {
            let server = ModelServer::start([
                Reply::calls(&[("c1", "fog", r#"{"port":"Wick"}"#), ("c2", "hold", "{}")]),
                Reply::text(&["As you like."]),
            ]);
            let mcp = harbour(store);
            let options = [mode, "--mode", mode, "--mcp", &mcp, "--approve", "always"];
            let mut command = Piped::start(chat(store, &server, &options));
            command.give("Hold on.\n");
            wait_for_log(store, 3 * index + 2);
            command.wait_for_stderr("* hold {}");
            command.interrupt();
            let ended = command.finish();
            assert_eq!(ended.code, Some(130), "{mode}: {}", ended.stderr);
            let printed = without_times(&ended.stderr);
            let expected = [
                "* hold {}",
                "  hold: interrupted after N ms",
                "interrupted; stored of this run: your message, 2 tool calls and 2 results",
            ];
            let printed: Vec<&str> = printed.lines().collect();
            assert_eq!(printed[printed.len() - 3..], expected, "{mode}");
            wait_for_log(store, 3 * index + 3);
            assert_eq!(log(store)[3 * index..], ["fog Wick", "hold nowhere", "cancelled"]);
            assert_intact(store);

            let ended = run_with_input(chat(store, &server, &options), "Never mind.\n");
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "As you like.\n"));
            let asked = &server.messages()[1];
            assert_eq!(
                asked[..3],
                [
                    "user: Hold on.",
                    r#"assistant: fog({"port":"Wick"})hold({})"#,
                    "tool: Fog over Wick.",
                ]
            );
            assert!(asked[3].contains("may or may not have taken effect"), "{mode}: {asked:?}");
            assert_eq!(asked[4..], ["user: Never mind."]);
            assert_intact(store);
        }
    });
}

#[test]
fn a_service_call_without_any_answer_yet_can_be_interrupted() {
    for mode in MODES {
        let store = TestStore::new(Kind::Sqlite);
        let server = ModelServer::start([Reply::beginning(&[]), Reply::text(&["Here."])]);
        let mut command = Piped::start(chat(&store, &server, &["silence", "--mode", mode]));
        command.give("Anybody there?\n");
        while server.received().is_empty() {
            std::thread::yield_now();
        }
        command.interrupt();
        let ended = command.finish();
        let expected = "interrupted; stored of this run: your message";
        assert_eq!(
            (ended.code, ended.stderr.lines().last()),
            (Some(130), Some(expected)),
            "{mode}"
        );
        run_with_input(chat(&store, &server, &["silence", "--mode", mode]), "Hello again.\n");
        let asked = ["user: Anybody there?", "user: Hello again."];
        assert_eq!(server.messages()[1], asked, "{mode}");
        assert_intact(&store);
    }
}
