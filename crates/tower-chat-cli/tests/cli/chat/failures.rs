//! Tests chats with providers that return errors, and chats that cannot begin.

use super::*;

#[test]
fn a_missing_key_of_a_provider_is_named_and_no_store_is_created() {
    for (provider, named) in [
        ("openai", "OPENAI_API_KEY"),
        ("openai-responses", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("vertex", "VERTEX_PROJECT_ID"),
        ("bedrock", "BEDROCK_API_KEY or AWS_BEARER_TOKEN_BEDROCK or AWS_ACCESS_KEY_ID"),
        ("cohere", "COHERE_API_KEY"),
        ("mistral", "MISTRAL_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
        ("groq", "GROQ_API_KEY"),
        ("openrouter", "OPEN_ROUTER_API_KEY"),
        ("xai", "XAI_API_KEY"),
    ] {
        let store = TestStore::new(Kind::Sqlite);
        let command = chat_with(&store, &["unasked", "--provider", provider]);
        let ended = run_with_input(command, "Is this sent?\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{provider}");
        assert!(ended.stderr.contains(named), "{provider}: {}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{provider}: {}", ended.stderr);
        assert!(!store.folder().join("chat.db").exists(), "{provider}");
    }
}

#[test]
fn the_error_of_a_refusal_has_advice_and_names_the_stored_messages() {
    each_store(|store| {
        for mode in MODES {
            let server = ModelServer::start([
                Reply::text(&["A lamp."]),
                Reply::refusal(401, "this key is no key"),
                Reply::text(&["A buoy."]),
            ]);
            let options = [mode, "--mode", mode];
            let ended = run_with_input(
                chat(store, &server, &options),
                "What shines?\nWhat rings?\nLost?\n",
            );
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), "A lamp.\n"), "{mode}");
            let keeps_question = mode != "per-run";
            let expected = [
                match keeps_question {
                    true => "stored of this run: your message",
                    false => "nothing of this run is stored",
                },
                "error: openai-compatible refused the request with status 401 (refused): this key is \
                 no key; check the key in OPENAI_API_KEY",
            ];
            let printed: Vec<&str> = ended.stderr.lines().collect();
            assert_eq!(printed[1..], expected, "{mode}");
            assert_intact(store);
            run_with_input(chat(store, &server, &options), "What swims?\n");
            let mut messages = vec![
                "user: What shines?",
                "assistant: A lamp.",
                "user: What rings?",
                "user: What swims?",
                "assistant: A buoy.",
            ];
            if !keeps_question {
                messages.remove(2);
            }
            assert_eq!(stored(store, mode), messages, "{mode}");
            assert_intact(store);
        }
    });
}

#[test]
fn after_an_overload_the_next_process_continues_the_journaled_run() {
    each_store(|store| {
        let overloaded = || Reply::refusal(503, "too many ships");
        let server = ModelServer::start([
            Reply::calls(&[("c1", "book_berth", r#"{"port":"Troon"}"#)]),
            overloaded(),
            overloaded(),
            overloaded(),
            Reply::text(&["Booked in Troon."]),
        ]);
        let mcp = harbour(store);
        let options = ["rush", "--mcp", &mcp, "--approve", "always"];
        let ended = run_with_input(chat(store, &server, &options), "A berth, quickly.\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        let printed: Vec<&str> = ended.stderr.lines().collect();
        let expected = "the messages before the failure are stored: start the same chat again to continue the run";
        assert_eq!(printed[printed.len() - 2], expected);
        assert!(
            printed[printed.len() - 1].ends_with("too many ships; try again later"),
            "{printed:?}"
        );

        let ended = run_with_input(chat(store, &server, &options), "");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Booked in Troon.\n"));
        assert_eq!(log(store), ["book_berth Troon"]);
        assert_eq!(stored(store, "rush").len(), 4);
        assert_intact(store);
    });
}

#[test]
fn an_answer_that_is_cut_off_is_an_error_and_the_conversation_continues() {
    let store = TestStore::new(Kind::Sqlite);
    let cut = "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
               \"choices\":[{\"index\":0,\"delta\":{\"content\":\"Half an\"},\"finish_reason\":null}]}\n\n";
    let server = ModelServer::start([
        Reply::recorded("text/event-stream", cut.into()),
        Reply::text(&["An anchor."]),
    ]);
    let ended = run_with_input(chat(&store, &server, &["cut"]), "What holds?\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), "Half an\n"));
    assert!(ended.stderr.contains("cut off after 7 bytes of text"), "{}", ended.stderr);
    let ended = run_with_input(chat(&store, &server, &["cut"]), "");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "An anchor.\n"));
    assert_eq!(stored(&store, "cut"), ["user: What holds?", "assistant: An anchor."]);
    assert_intact(&store);
}

#[test]
fn the_error_of_an_unreachable_address_advises_to_check_the_address() {
    let store = TestStore::new(Kind::Sqlite);
    let arguments = ["lost", "--provider", "ollama", "--base-url", "http://127.0.0.1:9"];
    let ended = run_with_input(chat_with(&store, &arguments), "Anybody?\n");
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.contains("check the network and the address (--base-url)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn input_that_is_not_utf_8_is_refused() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([]);
    let mut command = chat(&store, &server, &["bytes"]);
    let file = store.folder().join("input");
    std::fs::write(&file, b"\xff\xfe\n").unwrap();
    command.stdin(std::fs::File::open(&file).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("give lines of UTF-8"), "{}", stderr(&output));
}
