//! Tests `tower-chat serve`.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
    time::Duration,
};

use tower_chat::{
    ConversationKey, Message,
    message::MessageId,
    run::RunId,
    store::{Revision, author::Write},
};

use crate::support::*;

/// A running `tower-chat serve`, and its address.
pub(crate) struct Served {
    process: Child,
    /// The line that the server has printed.
    line: String,
    pub(crate) address: String,
}

impl Served {
    /// Starts the server with `token` in the environment, or with a generated token.
    pub(crate) fn start(store: &TestStore, arguments: &[&str], token: &str) -> Self {
        let all = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut command = store.command(&all);
        command.env("TOWER_CHAT_INSPECTOR_TOKEN", token);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line = line.trim().to_owned();
        let address = line.strip_prefix("http://").unwrap().split([',', '/']).next().unwrap();
        Self { process, address: address.to_owned(), line }
    }

    fn token(&self) -> Option<&str> {
        Some(self.line.split_once("/?token=")?.1)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    fn get_with(&self, page: &str, header: &str) -> String {
        let mut connection = self.connect();
        let head = format!("GET {page} HTTP/1.1\r\nHost: {}\r\n", self.address);
        connection
            .write_all(format!("{head}{header}Connection: close\r\n\r\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Requests a page with the printed token.
    fn get(&self, page: &str) -> String {
        let token = self.token().map(|token| format!("Authorization: Bearer {token}\r\n"));
        self.get_with(page, &token.unwrap_or_default())
    }

    /// Sends the signal of Ctrl-C. Returns the exit code if the server ends within a minute.
    fn interrupt(&mut self) -> Option<i32> {
        let id = self.process.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        for _ in 0..600 {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    }

    /// Waits until the server has ended, and returns its standard error.
    fn complaints(mut self) -> String {
        let mut complaints = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        complaints
    }
}

impl Drop for Served {
    /// Stops the server, so that a test that fails leaves no process behind.
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn fill(store: &TestStore) {
    let key = ConversationKey::new("alice", "errands");
    let messages = [
        Message::user("Where are my keys?"),
        Message::assistant("On the table."),
        Message::user("And my hat?"),
        Message::assistant("On your head."),
    ];
    let id = MessageId { run: RunId::new(), index: 0 };
    let write = Write::new(key, id, Revision::ABSENT, messages.map(Into::into));
    store.with(async |history| {
        history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
    });
}

#[test]
fn the_pages_of_a_store_of_any_kind_are_served_until_an_interrupt() {
    each_store(|store| {
        fill(store);
        let mut served = Served::start(store, &[], "");
        assert!(served.get("/").contains("scope=alice"), "{}", served.get("/"));
        let page = served.get("/conversation?scope=alice&id=errands");
        assert!(page.contains("Where are my keys?") && page.contains("On the table."), "{page}");
        assert_eq!(served.interrupt(), Some(0));

        let mut served = Served::start(store, &["--scope", "bob"], "open-sesame");
        assert!(served.get("/").starts_with("HTTP/1.1 401"), "{}", served.get("/"));
        assert!(served.get("/?token=open-sesame").starts_with("HTTP/1.1 303"));
        assert_eq!(served.token(), None, "the token of the environment is not printed");
        assert_eq!(served.interrupt(), Some(0));
    });
}

#[test]
fn only_the_link_that_is_printed_opens_the_pages() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let mut served = Served::start(&store, &[], "");
    let token = served.token().unwrap().to_owned();
    assert!(token.len() == 32 && token.bytes().all(|it| it.is_ascii_hexdigit()), "{token}");
    for header in ["", "Authorization: Bearer 0\r\n", "Cookie: tower_chat_inspector=0\r\n"] {
        for page in ["/", "/conversation?scope=alice&id=errands", "/style.css", "/?token=0"] {
            let answer = served.get_with(page, header);
            assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("alice"), "{answer}");
        }
    }
    let opened = served.get_with(&format!("/?token={token}"), "");
    assert!(opened.starts_with("HTTP/1.1 303"), "{opened}");
    let cookie = opened.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(!cookie.contains(&token), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().unwrap());
    let page = served.get_with("/conversation?scope=alice&id=errands", &cookie);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("On the table."), "{page}");

    let other = Served::start(&store, &[], "");
    assert_ne!(other.token(), Some(&*token));
    assert!(other.get_with("/", &cookie).starts_with("HTTP/1.1 401"));
    assert_eq!(served.interrupt(), Some(0));
    assert_eq!(served.complaints(), "");
}

#[test]
fn serving_without_a_token_prints_a_warning_and_is_refused_beyond_the_loopback() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let mut served = Served::start(&store, &["--no-token"], "");
    assert!(served.get_with("/", "").contains("scope=alice"));
    assert_eq!(served.interrupt(), Some(0));
    let complaints = served.complaints();
    assert!(complaints.contains("every user and every program of this machine"), "{complaints}");

    let beyond = store.run(&["serve", "--listen", "0.0.0.0:0", "--no-token"]);
    assert_eq!(beyond.status.code(), Some(2));
    let mut both = store.command(&["serve", "--listen", "127.0.0.1:0", "--no-token"]);
    let both = both.env("TOWER_CHAT_INSPECTOR_TOKEN", "open-sesame").output().unwrap();
    assert_eq!(both.status.code(), Some(2));
    assert!(stderr(&both).contains("leave out one of them"), "{}", stderr(&both));
}

#[test]
fn the_command_ends_although_clients_stall() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let mut served = Served::start(&store, &["--no-token", "--allow-writes"], "");
    let head = format!("HTTP/1.1\r\nHost: {}\r\n", served.address);
    let whole = format!("GET /style.css {head}\r\n");
    let half_body =
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\nend";
    let stalls = [
        String::new(),
        "GET / HT".to_owned(),
        format!("GET / {head}X-Half: "),
        format!("POST /runs/end?scope=alice&id=errands&run=1 {head}{half_body}"),
        format!("GET /changes?scope=alice&id=errands {head}\r\n"),
        whole.repeat(5_000),
    ];
    let mut connections = Vec::new();
    for stall in stalls {
        let mut connection = served.connect();
        // After the server has answered a request, it has accepted the connection.
        connection.write_all(whole.as_bytes()).unwrap();
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        // The client does not read the response to the last request. The server can therefore write
        // only the bytes that fit into the socket buffers.
        connection.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let _ = connection.write_all(stall.as_bytes());
        connections.push(connection);
    }
    assert!(served.get("/").contains("scope=alice"));
    assert_eq!(served.interrupt(), Some(0));
    drop(connections);
}

#[test]
fn serving_at_an_address_beyond_the_loopback_requires_a_token() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let output = store.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains("TOWER_CHAT_INSPECTOR_TOKEN"), "{printed}");
    assert_eq!(store.run(&["serve", "--listen", "nowhere"]).status.code(), Some(2));
    assert_eq!(store.run(&["serve", "--scope", "a", "--all-scopes"]).status.code(), Some(2));
}

#[test]
fn the_page_of_the_next_request_shows_the_messages_for_each_policy() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let policies = ["--policy", "all={}", "--policy", r#"last={"window":{"turns":1}}"#];
    let mut served = Served::start(&store, &policies, "");
    let page = served.get("/next?scope=alice&id=errands");
    assert!(page.contains("4 messages: 4 sent as stored"), "{page}");
    let page = served.get("/next?scope=alice&id=errands&policy=last");
    assert!(page.contains("4 messages: 2 sent as stored"), "{page}");
    assert_eq!(served.interrupt(), Some(0));
    for (policy, reason) in [
        ("last", "not a name with settings"),
        ("={}", "not a name with settings"),
        ("last={", "not JSON"),
        (r#"last={"windows":{}}"#, "unknown field `windows`"),
    ] {
        let output = store.run(&["serve", "--policy", policy]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}
