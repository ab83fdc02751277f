//! Tests that the session in the guide is the output of the command.

use std::path::Path;

use super::*;

const BEGIN: &str = "<!-- session: begin -->\n\n```console\n";
const END: &str = "```\n\n<!-- session: end -->";

/// The command line that the guide shows.
const SHOWN: &str =
    "$ tower-chat chat trip --provider openai --model gpt-5-mini --mcp harbour-server\n";

/// The escape sequences that enable and disable bracketed paste mode.
const PASTE_ON: &str = "\u{1b}[?2004h";
const PASTE_OFF: &str = "\u{1b}[?2004l";

/// Executes a session with these prompts and inputs, in this order, and returns its output.
fn session(store: &TestStore, server: &ModelServer, talk: &[(&str, &str)]) -> String {
    let url = format!("{}/v1", server.url);
    let mcp = harbour(store);
    let mut command = store.command(&[
        "chat",
        "trip",
        "--provider",
        "openai",
        "--base-url",
        &url,
        "--model",
        "gpt-5-mini",
        "--mcp",
        &mcp,
        "--scope",
        "alice",
    ]);
    command.env("NO_COLOR", "1").env_remove("OPENAI_API_KEY");
    let mut terminal = OnTerminal::start(command);
    for (shows, types) in talk {
        terminal.shows(shows);
        terminal.types(types);
    }
    let printed = terminal.finish().1.replace("\r\n", "\n");
    format!("{SHOWN}{}", printed.replace(PASTE_ON, "").replace(PASTE_OFF, ""))
}

#[test]
fn the_session_in_the_guide_is_the_actual_output_of_the_command() {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/chat.md");
    let chapter = std::fs::read_to_string(chapter).unwrap();
    let (_, shown) = chapter.split_once(BEGIN).unwrap();
    let (shown, _) = shown.split_once(END).unwrap();

    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([
        Reply::calls(&[("c1", "fog", r#"{"port":"Oban"}"#)]),
        Reply::text(&["There is fog over Oban; ", "I would wait until noon."]),
        Reply::calls(&[("c2", "book_berth", r#"{"port":"Oban"}"#)]),
        Reply::text(&["A berth in Oban is booked for you."]),
        Reply::beginning(&["The harbour of Oban lies behind an island, which"]),
        Reply::text(&["Kerrera."]),
    ]);
    let first = session(
        &store,
        &server,
        &[
            ("> ", "Can I sail to Oban this morning?\n"),
            ("> ", "Then book a berth there for tonight.\n"),
            ("may it run? [y/n] ", "y\n"),
            ("> ", "Tell me about the harbour.\n"),
            ("which", "\u{3}"),
            ("> ", "\u{4}"),
        ],
    );
    let second = session(
        &store,
        &server,
        &[("which\r\n\u{1b}[?2004h> ", "Which island is that?\n"), ("> ", "/exit\n")],
    );
    let printed = format!("{first}{second}");
    assert_eq!(
        without_times(&printed),
        without_times(shown.trim_end()),
        "the session is now:\n{printed}"
    );
    assert_intact(&store);
}
