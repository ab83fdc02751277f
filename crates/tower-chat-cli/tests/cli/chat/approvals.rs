//! Tests chats in which tool calls wait for approval.

use super::*;

const BOOK: &str = r#"{"port":"Mallaig"}"#;

fn booking_server() -> ModelServer {
    ModelServer::start([
        Reply::calls(&[("c1", "book_berth", BOOK), ("c2", "fog", r#"{"port":"Skye"}"#)]),
        Reply::text(&["That is settled."]),
    ])
}

#[test]
fn the_user_is_asked_about_a_call_and_the_call_runs_when_it_is_approved() {
    each_store(|store| {
        for mode in MODES {
            let server = booking_server();
            let mcp = harbour(store);
            let before = log(store).len();
            let options = [mode, "--mode", mode, "--mcp", &mcp];
            let mut terminal = OnTerminal::start(chat(store, &server, &options));
            terminal.shows("> ");
            terminal.types("Book a berth.\n");
            terminal.shows(r#"* book_berth {"port":"Mallaig"}"#);
            terminal.shows("may it run? [y/n] ");
            terminal.types("perhaps\n");
            terminal.shows("may it run? [y/n] ");
            terminal.types("y\n");
            terminal.shows("That is settled.");
            terminal.shows("> ");
            terminal.types("\u{4}");
            let (code, printed) = terminal.finish();
            assert_eq!(code, Some(0), "{printed}");
            assert_eq!(log(store)[before..], ["book_berth Mallaig", "fog Skye"]);
            assert_eq!(
                stored(store, mode),
                [
                    "user: Book a berth.",
                    "assistant: ?book_berth?fog",
                    "user: !true!true",
                    "tool: =A berth in Mallaig is booked.=Fog over Skye.",
                    "assistant: That is settled.",
                ]
            );
            assert_intact(store);
        }
    });
}

#[test]
fn a_refused_call_does_not_run_and_the_model_receives_the_refusal() {
    let store = TestStore::new(Kind::Sqlite);
    let server = booking_server();
    let mut terminal = OnTerminal::start(chat(&store, &server, &["no", "--mcp", &harbour(&store)]));
    terminal.shows("> ");
    terminal.types("Book one, if I let you.\n");
    terminal.shows("may it run? [y/n] ");
    terminal.types("n\n");
    terminal.shows("That is settled.");
    terminal.types("/exit\n");
    assert_eq!(terminal.finish().0, Some(0));
    assert_eq!(log(&store), ["fog Skye"]);
    let results: Vec<String> = server.messages()[1][2..].to_vec();
    assert_eq!(
        results,
        [
            "tool: The call was rejected, and not run: The user has refused this call.",
            "tool: Fog over Skye."
        ]
    );
    assert_intact(&store);
}

#[test]
fn the_next_process_asks_again_about_a_call_that_waits_for_approval() {
    each_store(|store| {
        let server = booking_server();
        let mcp = harbour(store);
        let mut terminal = OnTerminal::start(chat(store, &server, &["later", "--mcp", &mcp]));
        terminal.shows("> ");
        terminal.types("Book it later.\n");
        terminal.shows("may it run? [y/n] ");
        terminal.types("\u{3}");
        terminal.shows("the call still waits");
        terminal.shows("> ");
        terminal.types("\u{3}");
        let (code, printed) = terminal.finish();
        assert_eq!(code, Some(130), "{printed}");
        assert_eq!(log(store), [""; 0]);
        assert_intact(store);

        // Without the MCP server of the tool, the chat does not ask about the call.
        let ended = run_with_input(chat(store, &server, &["later"]), "");
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("a call of the tool book_berth waits for approval"));
        // Without a terminal, the chat does not ask about the call either.
        let ended = run_with_input(chat(store, &server, &["later", "--mcp", &mcp]), "");
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no terminal for the question"), "{}", ended.stderr);

        let mut terminal = OnTerminal::start(chat(store, &server, &["later", "--mcp", &mcp]));
        terminal.shows("may it run? [y/n] ");
        terminal.types("yes\n");
        terminal.shows("That is settled.");
        terminal.types("\u{4}");
        assert_eq!(terminal.finish().0, Some(0));
        assert_eq!(log(store), ["book_berth Mallaig", "fog Skye"]);
        assert_intact(store);
    });
}

#[test]
fn input_that_was_typed_before_the_question_is_not_read_as_an_answer() {
    let store = TestStore::new(Kind::Sqlite);
    let server = booking_server();
    let mut terminal =
        OnTerminal::start(chat(&store, &server, &["hasty", "--mcp", &harbour(&store)]));
    terminal.shows("> ");
    terminal.types("Book one now.\ny\ny\n");
    terminal.shows("may it run? [y/n] ");
    terminal.types("n\n");
    terminal.shows("That is settled.");
    terminal.types("\u{4}");
    terminal.finish();
    assert_eq!(log(&store), ["fog Skye"]);
}

#[test]
fn an_option_of_the_chat_approves_or_rejects_all_calls() {
    for (approve, done) in
        [("always", &["book_berth Mallaig", "fog Skye"][..]), ("never", &["fog Skye"])]
    {
        let store = TestStore::new(Kind::Sqlite);
        let server = booking_server();
        let mcp = harbour(&store);
        let options = [approve, "--mcp", &mcp, "--approve", approve];
        let ended = run_with_input(chat(&store, &server, &options), "Book as you may.\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "That is settled.\n"));
        assert_eq!(log(&store), done, "{approve}");
        assert_intact(&store);
    }
}

#[test]
fn the_complete_arguments_are_shown_before_a_call_is_approved() {
    let store = TestStore::new(Kind::Sqlite);
    let arguments = format!(r#"{{"port":"{}end"}}"#, "far ".repeat(200));
    let server = ModelServer::start([Reply::calls(&[("c1", "book_berth", &arguments)])]);
    let ended = run_with_input(
        chat(&store, &server, &["long", "--mcp", &harbour(&store)]),
        "Book far away.\n",
    );
    assert!(ended.stderr.contains(&arguments), "{}", ended.stderr);
    assert_eq!(ended.code, Some(1));
}

#[test]
fn a_paste_that_continues_while_the_model_answers_approves_no_call() {
    // There are more lines than the chat reads ahead, and more bytes than the terminal buffers.
    let long = "y".repeat(60);
    let lines =
        (0..200).map(|line| if line % 3 == 0 { "y\n".to_owned() } else { format!("{long}\n") });
    let paste: String = lines.collect();
    for paste in [paste.clone(), format!("Book one.\n{paste}"), "y\n".repeat(1_000)] {
        let store = TestStore::new(Kind::Sqlite);
        let server = booking_server();
        let options = ["pasted", "--mcp", &harbour(&store)];
        let mut terminal = OnTerminal::start(chat(&store, &server, &options));
        terminal.shows("> ");
        terminal.types(&paste);
        terminal.shows("may it run? [y/n] ");
        terminal.types("n\n");
        terminal.shows("That is settled.");
        terminal.shows("> ");
        terminal.types("\u{4}");
        let (code, printed) = terminal.finish();
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(log(&store), ["fog Skye"]);
        assert_intact(&store);
    }
}

#[test]
fn text_that_is_pasted_at_the_question_is_not_read_as_an_answer() {
    // A paste with markers, a paste without markers, and a line that was partly pasted.
    for paste in [
        "\u{1b}[200~y\u{1b}[201~\n",
        "\u{1b}[200~one\ny\ny\u{1b}[201~\n",
        "y\ny\nmore\n",
        "y\u{1b}[201~\n",
    ] {
        let store = TestStore::new(Kind::Sqlite);
        let server = booking_server();
        let options = ["late", "--mcp", &harbour(&store)];
        let mut terminal = OnTerminal::start(chat(&store, &server, &options));
        terminal.shows("> ");
        terminal.types("Book one.\n");
        terminal.shows("may it run? [y/n] ");
        terminal.types(paste);
        terminal.shows("pasted text is not an answer: type y or n");
        terminal.shows("may it run? [y/n] ");
        terminal.types("n\n");
        terminal.shows("That is settled.");
        terminal.types("\u{4}");
        let (_, printed) = terminal.finish();
        assert_eq!(log(&store), ["fog Skye"], "{paste:?}: {printed}");
        assert!(printed.contains("\u{1b}[?2004h"), "{printed:?}");
        assert!(printed.contains("\u{1b}[?2004l"), "{printed:?}");
    }
}

#[test]
fn a_pasted_message_of_several_lines_is_one_message() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["A poem."])]);
    let options = ["poem", "--mcp", &harbour(&store)];
    let mut terminal = OnTerminal::start(chat(&store, &server, &options));
    terminal.shows("> ");
    terminal.types("What is this? \u{1b}[200~The sea,\nthe sea\u{1b}[201~\n");
    terminal.shows("A poem.");
    terminal.types("\u{4}");
    terminal.finish();
    assert_eq!(server.messages(), [["user: What is this? The sea,\nthe sea"]]);
}

#[test]
fn the_user_can_be_asked_about_calls_that_the_server_declares_read_only() {
    for (answer, done) in [("y", &["fog Skye"][..]), ("n", &[])] {
        let store = TestStore::new(Kind::Sqlite);
        let server = ModelServer::start([
            Reply::calls(&[("c1", "fog", r#"{"port":"Skye"}"#)]),
            Reply::text(&["I see."]),
        ]);
        let options = ["distrust", "--mcp", &harbour(&store), "--approve", "ask-all"];
        let mut terminal = OnTerminal::start(chat(&store, &server, &options));
        terminal.shows("> ");
        terminal.types("Is there fog?\n");
        terminal.shows(r#"* fog {"port":"Skye"}"#);
        terminal.shows("may it run? [y/n] ");
        terminal.types(&format!("{answer}\n"));
        terminal.shows("I see.");
        terminal.types("\u{4}");
        terminal.finish();
        assert_eq!(log(&store), done);
    }
}
