//! Tests chats with the tools of an MCP server.

use super::*;

#[test]
fn tool_calls_run_and_are_printed_with_their_results() {
    each_store(|store| {
        let server = ModelServer::start([
            Reply::calls(&[
                ("c1", "fog", r#"{"port":"Oban"}"#),
                ("c2", "sink", r#"{"port":"Ayr"}"#),
                ("c3", "teleport", "{}"),
            ]),
            Reply::text(&["There is fog over Oban."]),
        ]);
        let command = chat(store, &server, &["fogs", "--mcp", &harbour(store)]);
        let ended = run_with_input(command, "Can I sail?\n");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "There is fog over Oban.\n"));
        let shown = [
            "conversation harbour/fogs is new",
            r#"* fog {"port":"Oban"}"#,
            "  fog: Fog over Oban. (N ms)",
            r#"* sink {"port":"Ayr"}"#,
            "  sink: failed after N ms: Nothing sinks in Ayr.",
        ];
        let printed = without_times(&ended.stderr);
        let printed: Vec<&str> = printed.lines().collect();
        assert_eq!(printed[..5], shown);
        assert!(printed[5].starts_with("  teleport did not run: "), "{printed:?}");
        assert_eq!(log(store), ["fog Oban", "sink Ayr"]);
        let tools = &server.received()[0].body["tools"];
        let names: Vec<&str> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["function"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["fog", "book_berth", "hold", "sink"]);
        let asked = &server.messages()[1];
        assert_eq!(
            asked[..3],
            [
                "user: Can I sail?",
                r#"assistant: fog({"port":"Oban"})sink({"port":"Ayr"})teleport({})"#,
                "tool: Fog over Oban.",
            ]
        );
        assert_eq!((asked.len(), stored(store, "fogs").len()), (5, 4));
        assert_intact(store);
    });
}

#[test]
fn the_standard_error_of_an_mcp_server_is_printed_only_with_the_option_verbose() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["Quiet."]), Reply::text(&["Loud."])]);
    let mcp = harbour(&store);
    let quiet = run_with_input(chat(&store, &server, &["noise", "--mcp", &mcp]), "Hear that?\n");
    assert!(!quiet.stderr.contains("is open"), "{}", quiet.stderr);
    let options = ["noise", "--mcp", &mcp, "--verbose"];
    let loud = run_with_input(chat(&store, &server, &options), "And now?\n");
    assert!(loud.stderr.contains(r"the harbour\u{1b}[2J is open"), "{}", loud.stderr);
}

#[test]
fn an_unusable_mcp_server_is_named_and_nothing_is_stored() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([]);
    let twice = harbour(&store);
    for (mcp, expected) in [
        (&["/nowhere/to/be found"][..], "the MCP server `/nowhere/to/be found` cannot be started"),
        (&["sh -c 'echo no tools today >&2'"], "it wrote: no tools today"),
        (&["it's"], "`it's` of --mcp cannot be split into words: close its quotes"),
        (&[" "], "cannot be split into words"),
        (&[&twice, &twice], "two MCP servers have a tool with the same name"),
    ] {
        let mut arguments = vec!["nothing"];
        mcp.iter().for_each(|mcp| arguments.extend(["--mcp", *mcp]));
        let ended = run_with_input(chat(&store, &server, &arguments), "Hello?\n");
        assert_eq!(ended.code, Some(2), "{mcp:?}");
        assert!(ended.stderr.contains(expected), "{mcp:?}: {}", ended.stderr);
    }
    assert_eq!(server.messages(), [[""; 0]; 0]);
    assert!(!store.folder().join("chat.db").exists());
}
