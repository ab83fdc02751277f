//! Tests `tower-chat chat --attach`. The test process executes a run, and the command follows this
//! run.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Runtime, sync::mpsc};
use tower::{Layer, ServiceExt as _, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, Finish,
    HistoryStore, MemoryStore, Message, PersistenceMode, ToolCall, ToolDefinition, Tools,
    run::{Conversation, RunId},
    tool_fn,
};
use tower_chat_delivery::{DetachedRunsLayer, RunEnd, RunKey, RunState, UpdateLog, UpdatePosition};

use super::*;
use crate::serve::Served;

type Part = Result<ChatUpdate, BoxError>;

/// An application that executes one run. The test sends the parts of the model's answer.
struct Application {
    runtime: Runtime,
    runs: DetachedRunsLayer,
    log: Arc<dyn UpdateLog>,
    run: RunKey,
    model: mpsc::UnboundedSender<Part>,
}

impl Application {
    fn start(store: &TestStore) -> Self {
        Self::start_as(store, new_run(), MemoryStore::new())
    }

    fn start_as(store: &TestStore, run: RunKey, history: impl HistoryStore) -> Self {
        let runtime = Runtime::new().unwrap();
        let (model, parts) = mpsc::unbounded_channel::<Part>();
        let parts = Arc::new(tokio::sync::Mutex::new(parts));
        let service = service_fn(move |_: ChatRequest| {
            let parts = parts.clone();
            async move { Ok::<_, BoxError>(response(parts)) }
        });
        let definition = ToolDefinition::new("fog", "", serde_json::json!({"type": "object"}));
        let fog = tool_fn(definition, |_| async { Ok("Fog over Oban.".to_owned()) });
        let pipeline = ChatPipeline::builder(service).tools(Tools::new().with(fog));
        let pipeline = pipeline.history(history).persistence(PersistenceMode::Journaled);
        let pipeline = pipeline.build().unwrap();
        let (runs, log) = runtime.block_on(async {
            let log = store.open_updates().await;
            let runs = DetachedRunsLayer::new(log.clone());
            let runs = runs.with_batches(Duration::from_millis(10), 1);
            let request = ChatRequest::user("Which weather?")
                .in_run(Conversation { key: run.conversation.clone(), run: run.run })
                .streamed();
            tokio::spawn(runs.layer(pipeline).oneshot(request));
            (runs, log)
        });
        Self { runtime, runs, log, run, model }
    }

    fn sends(&self, text: &str) {
        self.model.send(Ok(ChatUpdate::TextDelta(text.to_owned()))).unwrap();
    }

    fn sends_message(&self, message: Message) {
        self.model.send(Ok(ChatUpdate::Message(message.into()))).unwrap();
        self.finishes();
    }

    fn finishes(&self) {
        self.model.send(Ok(ChatUpdate::Finish(Finish::stop().into()))).unwrap();
    }

    /// Waits until the run has ended, and returns how it has ended.
    fn end(&self) -> RunEnd {
        self.runtime.block_on(async {
            loop {
                if let RunState::Closed { end, .. } = self.runs.state(&self.run).await.unwrap() {
                    return end;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    /// Waits until the update log contains an update of the run.
    fn wait_until_logged(&self) {
        self.runtime.block_on(async {
            while self
                .log
                .read(&self.run, UpdatePosition::START, 1)
                .await
                .unwrap()
                .updates
                .is_empty()
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
}

/// Returns one answer of the model, which consists of the parts up to the next finish or error.
fn response(parts: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Part>>>) -> ChatResponse {
    let updates = futures_util::stream::unfold(Some(parts), |parts| async move {
        let parts = parts?;
        let part = parts.lock().await.recv().await?;
        let is_last = matches!(part, Err(_) | Ok(ChatUpdate::Finish(_)));
        Some((part, (!is_last).then_some(parts)))
    });
    ChatResponse::stream(updates)
}

fn new_run() -> RunKey {
    RunKey::new(ConversationKey::new("harbour", "weather"), RunId::new())
}

fn updates(store: &TestStore) -> PathBuf {
    store.folder().join("chat.db-updates")
}

fn attach(store: &TestStore, run: &RunKey, more: &[&str]) -> Command {
    let id = run.run.to_string();
    let arguments = ["chat", "weather", "--scope", "harbour", "--attach", &id];
    let mut command = store.command(&[&arguments, more].concat());
    command.env("NO_COLOR", "1");
    command
}

#[test]
fn attach_prints_a_run_of_another_process_from_its_beginning_and_then_live() {
    each_store(|store| {
        let kind = store.kind;
        let application = Application::start(store);
        application.sends("Let me ");
        application.wait_until_logged();
        let command = Piped::start(attach(store, &application.run, &["--verbose"]));
        command.wait_for_stdout("Let me ");
        application.sends("look.");
        command.wait_for_stdout("Let me look.");
        let call = ToolCall::new("c1", "fog", r#"{"port":"Oban"}"#);
        let parts = vec![tower_chat::Part::text("Let me look."), call.into()];
        application.sends_message(Message::new(tower_chat::Role::Assistant, parts));
        application.sends("Fog, \u{1b}[2J");
        command.wait_for_stdout("Fog, ");
        application.sends("all day.");
        application.finishes();
        let ended = command.finish();
        assert_eq!(ended.code, Some(0), "{kind:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "Let me look.\nFog, \\u{1b}[2Jall day.\n", "{kind:?}");
        let calls = "* fog {\"port\":\"Oban\"}\n  fog: Fog over Oban.\n";
        assert_eq!(ended.stderr, format!("{calls}0 tokens read, 0 written\n"), "{kind:?}");

        // A command that is started after the end of the run prints the same output.
        let again = run_with_input(attach(store, &application.run, &[]), "");
        assert_eq!((again.code, again.stdout, again.stderr), (Some(0), ended.stdout, calls.into()));
    });
}

#[test]
fn an_interrupt_ends_attach_but_not_the_run() {
    let store = TestStore::new(Kind::Sqlite);
    let application = Application::start(&store);
    application.sends("Half ");
    application.wait_until_logged();
    let command = Piped::start(attach(&store, &application.run, &[]));
    command.wait_for_stdout("Half ");
    command.interrupt();
    let ended = command.finish();
    assert_eq!((ended.code, &*ended.stdout), (Some(130), "Half \n"), "{}", ended.stderr);
    assert_eq!(ended.stderr, "the command no longer follows the run, which continues\n");
    application.sends("and half.");
    application.finishes();
    assert_eq!(application.end(), RunEnd::Completed);
    let ended = run_with_input(attach(&store, &application.run, &[]), "");
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "Half and half.\n"), "{}", ended.stderr);
}

#[test]
fn attach_reports_a_failed_run_and_an_interrupted_run() {
    let store = TestStore::new(Kind::Sqlite);
    let application = Application::start(&store);
    application.sends("Half ");
    application.model.send(Err("the mast is \u{1b}broken".into())).unwrap();
    let ended = run_with_input(attach(&store, &application.run, &[]), "");
    assert_eq!((ended.code, &*ended.stdout), (Some(1), "Half \n"), "{}", ended.stderr);
    assert_eq!(ended.stderr, "the run has failed: the mast is \\u{1b}broken\n");

    let run = new_run();
    application.runtime.block_on(async {
        application.log.begin(&run, 1, Duration::from_millis(1)).await.unwrap();
    });
    let ended = run_with_input(attach(&store, &run, &[]), "");
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("the run was interrupted, because "), "{}", ended.stderr);
}

#[test]
fn updates_are_erased_with_their_conversation() {
    for erases_scope in [false, true] {
        let store = TestStore::new(Kind::Sqlite);
        let application = Application::start(&store);
        application.sends("All.");
        application.finishes();
        application.end();
        let state = || {
            let read = application.log.read(&application.run, UpdatePosition::START, 0);
            application.runtime.block_on(read).unwrap().state
        };
        let key = &application.run.conversation;
        crate::transfer::add(&store, key.scope(), key.id(), "Which weather?");
        assert!(matches!(state(), RunState::Closed { .. }));
        let what = match erases_scope {
            false => ["delete", key.scope(), key.id()].to_vec(),
            true => ["delete", "--scope", key.scope(), "--all"].to_vec(),
        };
        let ended = run_with_input(store.command(&what), "");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(state(), RunState::Unknown);
    }
}

/// The conversation does not exist, as if an earlier command had deleted it, and then failed to
/// erase its updates.
#[test]
fn updates_of_a_conversation_that_is_already_deleted_are_erased() {
    let store = TestStore::new(Kind::Sqlite);
    let application = Application::start(&store);
    application.sends("All.");
    application.finishes();
    application.end();
    let key = &application.run.conversation;
    crate::transfer::add(&store, key.scope(), "another conversation", "Which weather?");
    let deletes = || run_with_input(store.command(&["delete", key.scope(), key.id()]), "");
    let erased = deletes();
    assert_eq!(erased.code, Some(0), "{}", erased.stderr);
    let read = application.log.read(&application.run, UpdatePosition::START, 0);
    assert_eq!(application.runtime.block_on(read).unwrap().state, RunState::Unknown);
    let again = deletes();
    assert_eq!(again.code, Some(2), "{}", again.stderr);
}

#[test]
fn the_next_attempt_of_a_run_restarts_the_unfinished_message() {
    let store = TestStore::new(Kind::Sqlite);
    let first = Application::start(&store);
    first.sends("Half of");
    first.wait_until_logged();
    let (run, log) = (first.run.clone(), updates(&store));
    first.runtime.shutdown_background();
    // Changes the log so that the lease of the attempt has expired.
    execute(&log, "UPDATE runs SET record = json_set(record, '$.lease_until', 1)");
    let second = Application::start_as(&store, run, MemoryStore::new());
    second.sends("The whole.");
    second.finishes();
    assert_eq!(second.end(), RunEnd::Completed);
    let ended = run_with_input(attach(&store, &second.run, &[]), "");
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "Half of\nThe whole.\n"));
    let note = "attempt 2 continues the run; the text of the unfinished message begins anew\n";
    assert_eq!(ended.stderr, note);
}

/// Asserts that the command exits with code 2 and prints only an error that contains these parts.
#[track_caller]
fn assert_refused(command: Command, parts: &[&str]) {
    let ended = run_with_input(command, "");
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{}", ended.stderr);
    for part in parts {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
}

#[test]
fn attach_refuses_a_run_without_updates() {
    let store = TestStore::new(Kind::Sqlite);
    let run = new_run();
    let path = updates(&store);
    let missing = format!("there is no update log at sqlite:{}", path.display());
    assert_refused(attach(&store, &run, &[]), &[&missing, "--updates"]);
    std::fs::write(&path, "").unwrap();
    assert_refused(attach(&store, &run, &[]), &[&missing]);
    assert_eq!(std::fs::read(&path).unwrap(), b"", "nothing is written");
    std::fs::remove_file(&path).unwrap();

    let application = Application::start(&store);
    application.sends("All.");
    application.finishes();
    application.end();
    let unknown = [&*format!("there are no updates of {run}"), "--scope", "tower-chat show"];
    assert_refused(attach(&store, &run, &[]), &unknown);
    execute(&path, "UPDATE runs SET last_at = 1");
    let expired = format!("there are no updates of {}", application.run);
    assert_refused(attach(&store, &application.run, &[]), &[&expired, "expired"]);

    let other = ["--updates", "memory:"];
    assert_refused(attach(&store, &run, &other), &["there is no update log at memory:"]);
    let not_log = format!("sqlite:{}", store.path().display());
    std::fs::write(store.path(), "no database").unwrap();
    let other = ["--updates", &*not_log];
    assert_refused(attach(&store, &run, &other), &["the update log cannot be used"]);
}

#[test]
fn attach_refuses_updates_that_its_keys_cannot_decrypt() {
    let store = TestStore::new(Kind::Encrypted);
    let application = Application::start(&store);
    application.sends("All.");
    application.finishes();
    application.end();
    let mut command = attach(&store, &application.run, &[]);
    command.env_remove("TOWER_CHAT_KEYS");
    assert_refused(
        command,
        &["cannot be read: if the update log is encrypted, set the environment"],
    );
}

#[test]
fn a_chat_without_a_model_and_attach_without_a_conversation_are_refused() {
    let store = TestStore::new(Kind::Sqlite);
    let run = new_run().run.to_string();
    assert_refused(store.command(&["chat", "a"]), &["give --provider and --model, or"]);
    assert_refused(store.command(&["chat", "--attach", &run]), &["--attach needs the NAME"]);
    let both = ["chat", "a", "--attach", &run, "--model", "m"];
    assert_refused(store.command(&both), &["'--attach <RUN>' cannot be used with '--model"]);
}

#[test]
fn a_server_without_an_update_log_is_not_changed() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    let store = TestStore::new(Kind::Postgres);
    assert_refused(attach(&store, &new_run(), &[]), &["there is no update log at postgres"]);
}

#[test]
fn the_served_pages_show_an_answer_in_progress() {
    let store = TestStore::new(Kind::Sqlite);
    let open = tower_chat_sqlite::SqliteStore::open(store.path());
    let history = Runtime::new().unwrap().block_on(open).unwrap();
    let application = Application::start_as(&store, new_run(), history);
    application.sends("<b>Half ");
    application.wait_until_logged();
    let served = Served::start(&store, &["--no-token"], "");
    let mut connection = served.connect();
    let head = "GET /changes?scope=harbour&id=weather HTTP/1.1\r\nHost: ";
    connection.write_all(format!("{head}{}\r\n\r\n", served.address).as_bytes()).unwrap();
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "event: text"), "the text is sent");
    assert_eq!(lines.next().as_deref(), Some(r#"data: "<b>Half ""#));

    let missing = format!("sqlite:{}", store.folder().join("other-updates").display());
    let serve = store.command(&["serve", "--no-token", "--updates", &missing]);
    assert_refused(serve, &[&format!("there is no update log at {missing}")]);
}
