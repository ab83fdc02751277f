//! Tests chats on a terminal.

use super::*;

#[test]
fn ctrl_c_interrupts_an_answer_and_ends_the_chat_at_the_prompt() {
    for mode in MODES {
        let store = TestStore::new(Kind::Sqlite);
        let server = ModelServer::start([
            Reply::beginning(&["Once upon ", "a tide"]),
            Reply::text(&["Another story."]),
        ]);
        let mut terminal = OnTerminal::start(chat(&store, &server, &["story", "--mode", mode]));
        terminal.shows("> ");
        terminal.types("Tell me a story.\n");
        terminal.shows("Once upon a tide");
        terminal.types("\u{3}");
        terminal.shows("interrupted; stored of this run: your message and the partial answer");
        terminal.shows("> ");
        terminal.types("Another one.\n");
        terminal.shows("Another story.");
        terminal.shows("> ");
        terminal.types("\u{3}");
        let (code, printed) = terminal.finish();
        assert_eq!(code, Some(130), "{mode}: {printed}");
        let messages = [
            "user: Tell me a story.",
            "assistant: Once upon a tide",
            "user: Another one.",
            "assistant: Another story.",
        ];
        assert_eq!(server.messages()[1], messages[..3], "{mode}");
        assert_eq!(stored(&store, "story"), messages, "{mode}");
        assert_intact(&store);
    }
}

#[test]
fn after_a_failed_message_the_user_can_send_it_again_or_send_another_message() {
    for mode in MODES {
        let store = TestStore::new(Kind::Sqlite);
        let gone = || Reply::refusal(400, "no wind");
        let server = ModelServer::start([
            gone(),
            Reply::text(&["A breeze."]),
            gone(),
            Reply::text(&["A gale."]),
        ]);
        let mut terminal = OnTerminal::start(chat(&store, &server, &["wind", "--mode", mode]));
        terminal.shows("> ");
        terminal.types("/retry\n");
        terminal.shows("no message has failed");
        terminal.types("What blows?\n");
        terminal.shows("no wind");
        terminal.types("/retry\n");
        terminal.shows("A breeze.");
        terminal.types("What blows harder?\n");
        terminal.shows("no wind");
        terminal.types("What blows hardest?\n");
        terminal.shows("A gale.");
        terminal.types("/exit\n");
        let (code, printed) = terminal.finish();
        assert_eq!(code, Some(0), "{mode}: {printed}");
        let mut messages = vec![
            "user: What blows?",
            "assistant: A breeze.",
            "user: What blows harder?",
            "user: What blows hardest?",
            "assistant: A gale.",
        ];
        if mode == "per-run" {
            messages.remove(2);
        }
        assert_eq!(stored(&store, "wind"), messages, "{mode}");
        assert_intact(&store);
    }
}

#[test]
fn notes_are_dim_on_a_terminal_unless_no_color_is_set() {
    for (no_colour, dim) in [("", true), ("1", false)] {
        let store = TestStore::new(Kind::Sqlite);
        let server = ModelServer::start([]);
        let mut command = chat(&store, &server, &["dim"]);
        command.env("NO_COLOR", no_colour);
        let mut terminal = OnTerminal::start(command);
        terminal.shows("> ");
        terminal.types("/help\n");
        terminal.shows("/exit ends");
        terminal.types("\u{4}");
        let (code, printed) = terminal.finish();
        assert_eq!((code, printed.contains("\u{1b}[2mconversation")), (Some(0), dim), "{printed}");
    }
}
