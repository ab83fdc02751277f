//! Tests streamed answers, and conversations that are continued by their name.

use super::*;
use tower_chat_core::store::Directory;

#[test]
fn each_line_is_answered_and_another_process_continues_the_named_conversation() {
    each_store(|store| {
        let server = ModelServer::start([
            Reply::text(&["Wood ", "floats", ".\nSo does cork."]),
            Reply::text(&["Iron sinks."]),
            Reply::text(&["Iron ", "rusts."]),
        ]);
        let first = chat(store, &server, &["lagoon", "--system", "Be brief."]);
        let ended = run_with_input(first, "What floats?\n\nAnd what sinks?\n");
        assert_eq!(ended.stdout, "Wood floats.\nSo does cork.\nIron sinks.\n");
        assert_eq!(ended.stderr, "conversation harbour/lagoon is new\n");
        assert_eq!(ended.code, Some(0));

        let second = chat(store, &server, &["lagoon"]);
        let ended = run_with_input(second, "Which of them rusts?");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "Iron rusts.\n"));
        let shown = "conversation harbour/lagoon has 4 messages:\n> What floats?\nWood floats. So \
                     does cork.\n> And what sinks?\nIron sinks.\n";
        assert_eq!(ended.stderr, shown);

        let messages = [
            "system: Be brief.",
            "user: What floats?",
            "assistant: Wood floats.\nSo does cork.",
            "user: And what sinks?",
            "assistant: Iron sinks.",
            "user: Which of them rusts?",
            "assistant: Iron rusts.",
        ];
        assert_eq!(server.messages(), [&messages[..2], &messages[..4], &messages[1..6]]);
        assert_eq!(stored(store, "lagoon"), messages[1..]);
        assert_eq!(title(store, "lagoon").as_deref(), Some("What floats?"));
        assert_intact(store);
    });
}

#[test]
fn every_mode_stores_the_same_messages_of_successful_runs() {
    each_store(|store| {
        for mode in MODES {
            let server = ModelServer::start([Reply::text(&["A quay."]), Reply::text(&["A pier."])]);
            let command = chat(store, &server, &[mode, "--mode", mode]);
            let ended = run_with_input(command, "Where to moor?\nOr else?\n");
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "A quay.\nA pier.\n"));
            let messages = [
                "user: Where to moor?",
                "assistant: A quay.",
                "user: Or else?",
                "assistant: A pier.",
            ];
            assert_eq!(stored(store, mode), messages, "{mode}");
        }
        assert_intact(store);
    });
}

#[test]
fn a_chat_without_a_name_prints_the_command_that_continues_it() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["At noon."]), Reply::text(&["At six."])]);
    let ended = run_with_input(chat(&store, &server, &[]), "When is high water?\n");
    let (_, name) = ended.stderr.split_once("tower-chat chat ").unwrap();
    let (name, _) = name.split_once(',').unwrap();
    let form: String = name.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
    assert_eq!(form, "0000-00-00-000000", "{}", ended.stderr);
    let ended = run_with_input(chat(&store, &server, &[name]), "And low water?\n");
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "At six.\n"));
    assert_eq!(stored(&store, name).len(), 4);
}

#[test]
fn usage_is_printed_with_the_option_verbose() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["Nine fathoms."])]);
    let ended = run_with_input(chat(&store, &server, &["depth", "--verbose"]), "How deep?\n");
    let usage = "gpt-test: 31 tokens read, 7 written\n";
    assert_eq!(ended.stderr, format!("conversation harbour/depth is new\n{usage}"));
}

#[test]
fn the_options_of_the_chat_are_sent_with_every_message() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["Aye."])]);
    let options = ["ship", "--max-tokens", "77", "--system", "You are a boatswain."];
    let ended = run_with_input(chat(&store, &server, &options), "All aboard?\n");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let request = &server.received()[0];
    assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
    assert_eq!(request.body["max_tokens"], 77);
    assert_eq!(request.body["stream"], true);
    assert_eq!(request.messages(), ["system: You are a boatswain.", "user: All aboard?"]);
}

#[test]
fn the_title_is_the_shortened_first_message_unless_a_title_was_set() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["Yes."]), Reply::text(&["Again: yes."])]);
    let question = format!("Is it{} true?", " very".repeat(20));
    run_with_input(chat(&store, &server, &["doubt"]), &question);
    let cut = format!("Is it{}…", " very".repeat(11));
    assert_eq!(title(&store, "doubt"), Some(cut));

    let key = tower_chat::ConversationKey::new("harbour", "doubt");
    let patch = tower_chat::store::DescriptionPatch::new().with_title("Doubts");
    store.with(|opened| async move { opened.change_description(&key, &patch).await.unwrap() });
    run_with_input(chat(&store, &server, &["doubt"]), "Once more, is it?\n");
    assert_eq!(title(&store, "doubt").as_deref(), Some("Doubts"));
}

#[test]
fn the_printed_texts_of_models_contain_no_terminal_commands() {
    let store = TestStore::new(Kind::Sqlite);
    let answer = "red\u{1b}[31m\tnow\r\u{9b}2J\u{202e}\nnext line\u{7}";
    let server = ModelServer::start([Reply::text(&[answer]), Reply::text(&["Calm."])]);
    let ended =
        run_with_input(chat(&store, &server, &["evil\u{1b}[2J"]), "Say\u{1b}[5m something.\n");
    let printed = "red\\u{1b}[31m\tnow\\r\\u{9b}2J\\u{202e}\nnext line\\u{7}\n";
    assert_eq!(ended.stdout, printed);
    let ended = run_with_input(chat(&store, &server, &["evil\u{1b}[2J"]), "And now?\n");
    let obeyed = |it: &char| it.is_control() && *it != '\n';
    assert_eq!(ended.stderr.chars().find(obeyed), None, "{:?}", ended.stderr);
    assert_eq!(stored(&store, "evil\u{1b}[2J")[1], format!("assistant: {answer}"));
}

#[test]
fn a_joiner_between_two_pieces_of_an_answer_is_printed_as_within_one_piece() {
    let store = TestStore::new(Kind::Sqlite);
    let pieces = ["👩", "\u{200d}", "🚀 and tea\u{200d}", "pot\u{200d}"];
    let server = ModelServer::start([Reply::text(&pieces)]);
    let ended = run_with_input(chat(&store, &server, &["pieces"]), "Who flies?\n");
    assert_eq!(ended.stdout, "👩\u{200d}🚀 and tea\\u{200d}pot\\u{200d}\n");
}
