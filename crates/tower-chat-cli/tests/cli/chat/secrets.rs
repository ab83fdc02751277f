//! Tests that a chat does not reveal secrets in the environment and in addresses.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

use super::*;

/// The secrets, which no output may contain.
const SECRETS: [&str; 3] = ["S3CRET-KEY", "S3CRET-USER", "S3CRET-PASSWORD"];

#[track_caller]
fn assert_no_secret(text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

/// Returns the exit code, the errors, and the environment of the chat's MCP server.
#[cfg(unix)]
fn environment_of_server(options: &[&str]) -> (Option<i32>, String, BTreeMap<String, String>) {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([Reply::text(&["Well."])]);
    let file = store.folder().join("environment");
    let mcp = format!("sh -c \"env > '{}'; exec {}\"", file.display(), harbour(&store));
    let mut command = chat(&store, &server, &[&["env", "--mcp", &mcp], options].concat());
    for name in ["OPENAI_API_KEY", "TOWER_CHAT_STORE", "WANTED", "OTHER"] {
        command.env(name, SECRETS[0]);
    }
    command.env("HOME", "/home/harbour").env("LANG", "C.UTF-8").env("LC_TIME", "C");
    let ended = run_with_input(command, "Hello.\n");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    // The shell itself sets these variables.
    let pairs = pairs.filter(|(name, _)| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    (ended.code, ended.stderr, pairs.collect())
}

#[cfg(unix)]
#[test]
fn an_mcp_server_gets_only_listed_environment_variables_and_those_of_mcp_env() {
    let (code, printed, environment) = environment_of_server(&[]);
    assert_eq!(code, Some(0), "{printed}");
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    let locale = |name: &&str| name.starts_with("LC_") || *name == "LANGUAGE";
    let besides: Vec<&str> = names.into_iter().filter(|name| !locale(name)).collect();
    assert_eq!(besides, ["HOME", "LANG", "PATH"]);
    assert_eq!(environment["LC_TIME"], "C");

    let (code, printed, environment) =
        environment_of_server(&["--mcp-env", "WANTED", "--mcp-env", "HOME"]);
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(environment["WANTED"], SECRETS[0]);
    for name in ["OTHER", "OPENAI_API_KEY", "TOWER_CHAT_STORE"] {
        assert_eq!(environment.get(name), None);
    }
}

#[cfg(unix)]
#[test]
fn the_error_of_an_invalid_mcp_env_option_contains_no_value() {
    for (variable, named) in [("MISSING", "MISSING"), ("OTHER=S3CRET-KEY", "OTHER"), ("", "``")] {
        let (code, printed, environment) = environment_of_server(&["--mcp-env", variable]);
        assert_eq!(code, Some(2), "{printed}");
        assert!(printed.contains(named), "{printed}");
        assert_no_secret(&printed);
        assert!(environment.is_empty(), "no server was started");
    }
}

/// Starts an MCP server over HTTP that closes its connections when its tool is called.
fn leaving_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming() {
            if !answer(&connection.unwrap()) {
                return;
            }
        }
    });
    format!("http://{}:{}@{address}/mcp?api_key={}", SECRETS[1], SECRETS[2], SECRETS[0])
}

/// Answers a request that is not a tool call. Returns `false` for a tool call.
fn answer(mut connection: &TcpStream) -> bool {
    let mut reader = BufReader::new(connection);
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if reader.read_line(&mut head).unwrap() == 0 {
            return true;
        }
        if let Some(value) = head[before..].to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let result = match request["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "leaving", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{
            "name": "leave", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true},
        }]}),
        Some("tools/call") => return false,
        _ => Value::Null,
    };
    let (status, body) = match result {
        Value::Null if request["id"].is_null() && !request.is_null() => {
            ("202 Accepted", String::new())
        }
        Value::Null => ("405 Method Not Allowed", String::new()),
        result => {
            let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            ("200 OK", answer.to_string())
        }
    };
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .unwrap();
    true
}

#[test]
fn the_secrets_in_the_address_of_a_failed_mcp_server_are_not_shown() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([
        Reply::calls(&[("c1", "leave", "{}")]),
        Reply::text(&["It has left."]),
    ]);
    let options = ["left", "--mcp-url", &leaving_server(), "--verbose"];
    let ended = run_with_input(chat(&store, &server, &options), "Call it.\n");
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "It has left.\n"),
        "{}",
        ended.stderr
    );
    assert_no_secret(&ended.stderr);
    let received = server.received();
    assert_eq!(received.len(), 2);
    assert_no_secret(&received[1].body.to_string());
    let listed = store.run(&["tools", "--list", "--json"]);
    assert_no_secret(&format!("{}{}", stdout(&listed), stderr(&listed)));
    let record = store.run(&["export", "--record"]);
    assert!(stdout(&record).contains("leave"), "{}", stderr(&record));
    assert_no_secret(&stdout(&record));
}

#[test]
fn the_secrets_in_the_address_of_an_unreachable_mcp_server_are_not_shown() {
    let store = TestStore::new(Kind::Sqlite);
    let server = ModelServer::start([]);
    let [key, user, password] = SECRETS;
    for address in [
        format!("http://{user}:{password}@127.0.0.1:9/mcp?api_key={key}"),
        format!("http://{user}:{password}@no host/mcp?api_key={key}"),
        format!("ftp://{user}:{password}@127.0.0.1/mcp?api_key={key}"),
    ] {
        let options = ["none", "--mcp-url", &address];
        let ended = run_with_input(chat(&store, &server, &options), "Hello.\n");
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert_no_secret(&ended.stderr);
    }
}

#[test]
fn the_secrets_in_the_address_of_an_unusable_store_are_not_printed() {
    let [key, user, password] = SECRETS;
    for store in [
        format!("mysql://{user}:{password}@h/d"),
        format!("postgres://{user}:{password}@h/d?schema=%ff&password={key}"),
        format!("postgres://{user}:{password}@h/d?prepared_statements={key}"),
        format!("{user} {password}"),
        format!("postgres://{user}:{password}@127.0.0.1:9/d?passwrod={key}"),
        format!("postgres://{user}:{password}@127.0.0.1:9/d?connect_timeout={key}"),
        format!("postgres://{user}:{password}@127.0.0.1:9/d?password={key}"),
        format!("redis://{user}:{password}@127.0.0.1:9/none?password={key}"),
        format!("redis://{user}:{password}@127.0.0.1:9/0"),
        format!("redis://{user}:{password}@[h/0"),
    ] {
        for arguments in [
            &["list", "--store", &store][..],
            &["list", &store],
            &["copy", "--store", "memory:", "--to", &store],
        ] {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(2), "{store}");
            // An argument in a wrong position is not parsed as a store. The command nevertheless
            // recognises an address, and removes the password from its output.
            if arguments.len() > 2 || store.contains("://") {
                assert_no_secret(&format!("{}{}", stdout(&output), stderr(&output)));
            }
        }
        let output = tower_chat(&["list"]).env("TOWER_CHAT_STORE", &store).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{store}");
        assert_no_secret(&stderr(&output));
    }
}
