//! The pages over a store.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
};

use tower_chat::{
    ConversationKey, Message, MessageId, RunId,
    store::{Revision, author::Write},
};

use crate::support::*;

/// The pages, and where they are.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn start(store: &TestStore, arguments: &[&str], token: &str) -> Self {
        let all = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut command = store.command(&all);
        command.env("TOWER_CHAT_INSPECTOR_TOKEN", token).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().split(',').next().unwrap();
        Self { process, address: address.to_owned() }
    }

    fn get(&self, page: &str) -> String {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let request =
            format!("GET {page} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        connection.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    fn interrupt(mut self) -> Option<i32> {
        let id = self.process.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Served {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        // It has ended already in a test that has not.
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
fn the_pages_show_every_store_until_they_are_interrupted() {
    each_store(|store| {
        fill(store);
        let served = Served::start(store, &[], "");
        assert!(served.get("/").contains("scope=alice"), "{}", served.get("/"));
        let page = served.get("/conversation?scope=alice&id=errands");
        assert!(page.contains("Where are my keys?") && page.contains("On the table."), "{page}");
        assert_eq!(served.interrupt(), Some(0));

        let served = Served::start(store, &["--scope", "bob"], "open-sesame");
        assert!(served.get("/").starts_with("HTTP/1.1 401"), "{}", served.get("/"));
        assert!(served.get("/?token=open-sesame").starts_with("HTTP/1.1 303"));
        assert_eq!(served.interrupt(), Some(0));
    });
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
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
fn what_is_sent_next_is_shown_for_each_policy() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let policies = ["--policy", "all={}", "--policy", r#"last={"window":{"turns":1}}"#];
    let served = Served::start(&store, &policies, "");
    let page = served.get("/next?scope=alice&id=errands");
    assert!(page.contains("Of 4 messages 4 are sent as they are stored"), "{page}");
    let page = served.get("/next?scope=alice&id=errands&policy=last");
    assert!(page.contains("Of 4 messages 2 are sent as they are stored"), "{page}");
    assert_eq!(served.interrupt(), Some(0));
    for (policy, reason) in [
        ("last", "no name with settings"),
        ("={}", "no name with settings"),
        ("last={", "not JSON"),
        (r#"last={"windows":{}}"#, "unknown field `windows`"),
    ] {
        let output = store.run(&["serve", "--policy", policy]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
}
