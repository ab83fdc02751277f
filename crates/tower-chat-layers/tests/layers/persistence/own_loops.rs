//! Tests tool loops of an application whose message types have no ids. If such a loop sends a
//! message twice, the persister (`PerServiceCallPersistence`) stores it once, in every mode, after
//! restarts, and whatever fields the message types lose.

use std::{collections::HashSet, sync::Arc};

use tower::{Layer, service_fn};
use tower_chat::{
    Answer, BoxError, ChatOptions, ChatPipeline, ChatRequest, ChatResponse, Finish, HistoryStore,
    Message, Part, PersistenceError, PersistenceMode, Role, ToolDefinition, ToolResult,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::Reasoning,
    policy::{ConflictPolicy, MissingPersister, Summarize},
    replay::{OldMedia, ReplayPolicy},
    request::HistoryOwner,
    run::{Conversation, RunId},
    store::{InvocationQuery, Journal, Keep, Maintenance, ToolCallQueries},
    transcript::{DifferenceKind, RepeatedTranscript},
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::old_media::{asking, pictures};
use crate::common::*;

/// Which messages the loop sends in a service call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sends {
    /// All messages of the conversation.
    All,
    /// All messages of the run.
    Run,
    /// The messages that the model has not received yet.
    New,
    /// All messages of the last two turns.
    Trimmed,
}

const SENDS: [Sends; 4] = [Sends::All, Sends::Run, Sends::New, Sends::Trimmed];

/// How the loop identifies the run of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// The types of the loop have the run id.
    Carried,
    /// Each request has a new run id.
    Lost,
}

/// Returns a message without the fields that the message types of the loop do not have.
fn plain(message: &Message) -> Message {
    let mut plain = Message::new(message.role, Vec::new());
    let text = message.text();
    if !text.is_empty() || message.calls().next().is_none() && message.role == Role::Assistant {
        plain.parts.push(Part::text(text));
    }
    let others = message
        .parts
        .iter()
        .filter(|part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_) | Part::Media(_)));
    plain.parts.extend(others.cloned());
    plain
}

fn results(asking: &Message) -> Vec<Message> {
    let result = |call: &tower_chat::ToolCall| {
        let text = format!("{}ed {}", call.name, label(&call.arguments).unwrap_or_default());
        let mut result = ToolResult::new("", text);
        result.call_id = call.id.clone();
        Message::tool_results([result])
    };
    asking.calls().map(result).collect()
}

#[derive(Debug, Clone)]
struct OwnLoop {
    sends: Sends,
    runs: Runs,
    system: Option<&'static str>,
    list: Vec<Message>,
}

impl OwnLoop {
    fn new(sends: Sends, runs: Runs) -> Self {
        Self { sends, runs, system: None, list: Vec::new() }
    }

    fn outgoing(&self) -> Vec<Message> {
        let is_user = |message: &Message| message.role == Role::User;
        let turn = self.list.iter().rposition(is_user).unwrap_or_default();
        let from = match self.sends {
            Sends::All => 0,
            Sends::Run => turn,
            Sends::New => {
                let answer = self.list.iter().rposition(|it| it.role == Role::Assistant);
                answer.map_or(0, |answer| answer + 1)
            }
            Sends::Trimmed => {
                self.list.get(..turn).unwrap_or_default().iter().rposition(is_user).unwrap_or(turn)
            }
        };
        let system = self.system.map(Message::system);
        system.into_iter().chain(self.list.iter().skip(from).cloned()).collect()
    }

    /// Executes a turn. Each service call uses a new client, as after a restart.
    async fn turn(
        &mut self,
        client: impl Fn() -> Client,
        text: Option<&str>,
        template: &ChatRequest,
    ) -> Result<String, BoxError> {
        self.list.extend(text.map(Message::user));
        let run = RunId::new();
        loop {
            let mut request = template.clone();
            request.set_messages(self.outgoing(), 0);
            let run = if self.runs == Runs::Carried { run } else { RunId::new() };
            if template.extensions.get::<tower_chat::run::Run>().is_none() {
                request = request.in_run(Conversation { key: key(), run });
            }
            let answer = send(&client(), request).await?;
            let answered: Vec<Message> = answer.messages.iter().map(|it| plain(it)).collect();
            self.list.extend(answered.iter().cloned());
            let results: Vec<Message> = answered.iter().flat_map(results).collect();
            if results.is_empty() {
                return Ok(answer.text());
            }
            self.list.extend(results);
        }
    }
}

fn persister(model: &ScriptedModel, store: &Store) -> Client {
    boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()))
}

fn request(streamed: bool) -> ChatRequest {
    let request = ChatRequest::user("");
    if streamed { request.streamed() } else { request }
}

fn last_word(shown: &str) -> &str {
    let word = shown.rsplit(' ').next().unwrap_or_default();
    word.rsplit('=').next().unwrap_or_default()
}

/// Returns an answer with reasoning and two calls, an answer with another call, and a final answer.
fn two_rounds(case: Case) -> [Step; 3] {
    let mut first = case.call_message([("look", "c1"), ("look", "c2")]);
    first.parts.insert(0, Reasoning::new("hm").into());
    first.parts.insert(1, Part::text("Let me look."));
    [Step::message(first), case.calls([("look", "c3")]), Step::text("there")]
}

async fn runs(store: &Store) -> usize {
    let messages = store.inner().load(&key()).await.unwrap().messages;
    let runs: HashSet<RunId> = messages.iter().filter_map(|it| Some(it.id?.run)).collect();
    runs.len()
}

#[tokio::test]
async fn a_lone_persister_stores_what_a_loop_of_other_types_adds_once() {
    let cases = Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "a persister alone stores in this mode");
    let scenario = async |case: Case| {
        for (sends, runs_of, restarts) in cases!(SENDS, [Runs::Carried, Runs::Lost], [false, true])
        {
            let store = case.store().await;
            let model = ScriptedModel::new(two_rounds(case).into_iter().chain(two_rounds(case)));
            let first = persister(&model, &store);
            let client = || if restarts { persister(&model, &store) } else { first.clone() };
            let mut own = OwnLoop::new(sends, runs_of);
            for _ in 0..2 {
                let answered =
                    own.turn(client, Some("where?"), &request(case.streamed)).await.unwrap();
                assert_eq!(answered, "there");
            }
            let found = stored(&store).await;
            let what = format!("{sends:?} {runs_of:?} {restarts}");
            assert_eq!(found.len(), 14, "{what}: {found:?}");
            let ends: Vec<&str> = found[..7].iter().map(|it| last_word(it)).collect();
            assert_eq!(ends, ["where?", "look#c2", "c1", "c2", "look#c3", "c3", "there"], "{what}");
            assert_eq!(found[..7], found[7..], "{what}");
            assert_eq!(runs(&store).await, 2, "{what}");
            // Each service call sends the first `stored` messages of the history. One message of a
            // request may contain several results.
            for (call, stored) in [1, 4, 6, 8, 11, 13].into_iter().enumerate() {
                let words = |shown: &[String]| shown.join(" ").replace(" tool ", " ");
                assert_eq!(
                    words(&sent_texts(&model, call)),
                    words(&found[..stored]),
                    "{what} {call}"
                );
            }
        }
    };
    cases.check(scenario).await;
}

#[tokio::test]
async fn a_loop_of_other_types_sends_the_pictures_of_its_question_in_every_round() {
    let cases = Cases::all().modes([PerServiceCall], "a persister alone stores in this mode");
    let scenario = async |case: Case| {
        for (sends, runs_of) in cases!([Sends::All, Sends::New], [Runs::Carried, Runs::Lost]) {
            let round = || [case.calls([("look", "c1")]), Step::text("there")];
            let model = ScriptedModel::new(round().into_iter().chain(round()));
            let replay = ReplayPolicy::default().with_old_media(OldMedia::keep_last(0));
            let layer = PerServiceCallPersistence::new(case.store().await)
                .policy(policy().with_replay(replay));
            let client = boxed(layer.layer(model.clone()));
            let mut own = OwnLoop::new(sends, runs_of);
            for picture in ["b25l", "dHdv"] {
                own.list.push(asking("where?", [picture]));
                own.turn(|| client.clone(), None, &request(case.streamed)).await.unwrap();
            }
            let sent: Vec<String> =
                model.requests().iter().map(|request| pictures(request).join(" ")).collect();
            assert_eq!(sent, ["b25l", "b25l", "- dHdv", "- dHdv"], "{sends:?} {runs_of:?}");
        }
    };
    cases.check(scenario).await;
}

#[tokio::test]
async fn a_loop_may_put_its_own_system_message_first() {
    for (streamed, sends, runs_of) in
        cases!(BOTH_WAYS, [Sends::All, Sends::New], [Runs::Carried, Runs::Lost])
    {
        let store = store();
        let round = || [calls([("look", "c1")]), Step::text("there")];
        let model = ScriptedModel::new(round().into_iter().chain(round()));
        let client = persister(&model, &store);
        let mut own = OwnLoop::new(sends, runs_of);
        own.system = Some("Be brief.");
        for _ in 0..2 {
            own.turn(|| client.clone(), Some("where?"), &request(streamed)).await.unwrap();
        }
        let turn = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        let all = [&["system Be brief."][..], &turn, &turn].concat();
        assert_eq!(stored(&store).await, all, "{sends:?} {runs_of:?}");
        assert_eq!(sent_texts(&model, 3), all[..8], "{sends:?} {runs_of:?}");
    }
}

#[tokio::test]
async fn a_request_with_an_edited_message_is_refused_and_the_error_names_the_message() {
    for (streamed, runs_of) in cases!(BOTH_WAYS, [Runs::Carried, Runs::Lost]) {
        let (store, model) = (store(), ScriptedModel::new([calls([("look", "c1")])]));
        let client = persister(&model, &store);
        let run = RunId::new();
        let ask = |messages: Vec<Message>| {
            let run = if runs_of == Runs::Carried { run } else { RunId::new() };
            let request =
                ChatRequest::new(messages.into_iter().collect::<tower_chat::message::Messages>());
            let request = request.in_run(Conversation { key: key(), run });
            if streamed { request.streamed() } else { request }
        };
        send(&client, ask(vec![Message::user("where?")])).await.unwrap();
        let asking = call_message([("look", "c1")]);
        let sent = [vec![Message::user("who?"), asking.clone()], results(&asking)].concat();
        let error = refused(send(&client, ask(sent)).await);
        let text = error.to_string();
        let PersistenceError::HistorySentAgain { difference, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((difference.position, difference.kind), (0, DifferenceKind::Text));
        assert!(text.contains("message 0 of the request has another text"), "{text}");
        assert_eq!(model.requests().len(), 1, "the model is not called again");
        assert_eq!(stored(&store).await, ["user where?", "assistant look#c1"]);
    }
}

fn call(run: RunId, messages: impl IntoIterator<Item = Message>, streamed: bool) -> ChatRequest {
    let request = ChatRequest::new(messages.into_iter().collect::<tower_chat::message::Messages>());
    let request = request.in_run(Conversation { key: key(), run });
    if streamed { request.streamed() } else { request }
}

#[tokio::test]
async fn a_service_call_that_is_sent_again_alone_stores_its_input_once() {
    for (streamed, runs_of) in cases!(BOTH_WAYS, [Runs::Carried, Runs::Lost]) {
        let steps = [calls([("look", "c1")]), Step::text("there"), Step::text("not this")];
        let (store, model) = (store(), ScriptedModel::new(steps));
        let first = RunId::new();
        let run = || if runs_of == Runs::Carried { first } else { RunId::new() };
        let again = || persister(&model, &store);
        let ask = || [Message::user("where?")];
        send(&again(), call(run(), ask(), streamed)).await.unwrap();
        // The loop has lost the answer, and sends the same request again. The persister cannot know
        // whether the tool has run.
        send(&again(), call(run(), ask(), streamed)).await.unwrap();
        let all = ["user where?", "assistant look#c1", "assistant there"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1).len(), 3, "{:?}", sent_texts(&model, 1));
        assert!(sent_texts(&model, 1)[2].contains(INTERRUPTED));
        // The run is complete. A request with its run id receives the stored answer.
        if runs_of == Runs::Carried {
            let answer = send(&again(), call(run(), ask(), streamed)).await.unwrap();
            assert_eq!((answer.text().as_str(), answer.tool_calls().count()), ("there", 0));
            assert_eq!(stored(&store).await, all);
            assert_eq!(model.requests().len(), 2);
        }
    }
}

#[tokio::test]
async fn another_question_in_the_same_run_of_a_persister_alone_is_asked() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), ScriptedModel::new([Step::text("a1"), Step::text("a2")]));
        let run = RunId::new();
        let ask = async |text: &str| {
            let request = call(run, [Message::user(text)], streamed);
            send(&persister(&model, &store), request).await.unwrap().text()
        };
        assert_eq!([ask("q1").await, ask("q1").await, ask("q2").await], ["a1", "a1", "a2"]);
        let all = ["user q1", "assistant a1", "user q2", "assistant a2"];
        assert_eq!(stored(&store).await, all);
    }
}

#[tokio::test]
async fn a_complete_run_that_is_sent_again_alone_runs_no_tool_again() {
    for (streamed, runs_of, sent) in cases!(BOTH_WAYS, [Runs::Carried, Runs::Lost], [1_usize, 3]) {
        let steps = [calls([("look", "c1")]), Step::text("there"), Step::text("not this")];
        let (store, model) = (store(), ScriptedModel::new(steps));
        let client = persister(&model, &store);
        let first = RunId::new();
        let run = || if runs_of == Runs::Carried { first } else { RunId::new() };
        let asking = call_message([("look", "c1")]);
        let all = [vec![Message::user("where?"), asking.clone()], results(&asking)].concat();
        send(&client, call(run(), all[..1].to_vec(), streamed)).await.unwrap();
        send(&client, call(run(), all.clone(), streamed)).await.unwrap();
        if sent == 1 && runs_of == Runs::Lost {
            // Without the run id, the request looks like a new message with the same text.
            continue;
        }
        let answer = send(&client, call(run(), all[..sent].to_vec(), streamed)).await.unwrap();
        let answered: Vec<String> = answer.messages.iter().map(|it| it.text()).collect();
        assert_eq!(answered, ["there"], "{runs_of:?} {sent}");
        assert_eq!(answer.messages.iter().flat_map(|it| it.calls()).count(), 0);
        assert_eq!(model.requests().len(), 2);
        assert_eq!(stored(&store).await.len(), 4);
    }
}

#[tokio::test]
async fn a_decision_that_is_sent_again_to_a_service_with_the_history_gets_the_stored_answer() {
    for streamed in BOTH_WAYS {
        let steps = [kept_call("s1"), kept("there", "s2"), kept("not this", "s3")];
        let (store, model) = (store(), ScriptedModel::new(steps));
        let policy = policy().on_conflict(ConflictPolicy::Record);
        let client = PerServiceCallPersistence::new(store.clone()).policy(policy);
        let client = boxed(client.layer(model.clone()));
        let look = ToolDefinition::new("look", "", serde_json::json!({})).needs_approval();
        let ask = |run, message: Message| {
            let options = ChatOptions::default().with_tools([look.clone()]);
            call(run, [message], streamed).with_options(options)
        };
        let asked = send(&client, ask(RunId::new(), Message::user("where?"))).await.unwrap();
        let request = asked.messages[0].approval_request(0).expect("the call waits for approval");
        let (run, decision) = (RunId::new(), Message::approvals([request.approve()]));
        for _ in 0..2 {
            let answer = send(&client, ask(run, decision.clone())).await.unwrap();
            assert_eq!(answer.text(), "there");
            assert_eq!(model.requests().len(), 2);
            assert_eq!(stored(&store).await.len(), 4);
        }
    }
}

#[tokio::test]
async fn a_loop_that_does_not_remember_its_rounds_is_recognised_by_policy() {
    for streamed in BOTH_WAYS {
        let steps = [calls([("look", "c1")]), Step::text("there"), Step::text("and there")];
        let (store, model) = (store(), ScriptedModel::new(steps));
        let client = persister(&model, &store);
        let mut own = OwnLoop::new(Sends::All, Runs::Lost);
        own.turn(|| client.clone(), Some("where?"), &request(streamed)).await.unwrap();
        let sent = [Message::user("where?"), Message::assistant("there"), Message::user("and?")];
        let by_policy = call(RunId::new(), sent.clone(), streamed)
            .with_extension(RepeatedTranscript::Recognise);
        let error = refused(send(&client, call(RunId::new(), sent, streamed)).await);
        assert!(matches!(error, PersistenceError::HistorySentAgain { .. }), "{error:?}");
        send(&client, by_policy).await.unwrap();
        assert_eq!(stored(&store).await[4..], ["user and?", "assistant and there"]);
    }
}

/// Returns a client with its own tool loop. It returns only the last answer of a run.
fn own_client(below: Client, sends: Sends) -> Client {
    boxed(service_fn(move |request: ChatRequest| {
        let below = below.clone();
        async move {
            let mut own = OwnLoop::new(sends, Runs::Carried);
            own.list = request.messages().iter().map(|it| plain(it)).collect();
            let asked = own.list.pop().map(|asked| asked.text());
            let text = own.turn(|| below.clone(), asked.as_deref(), &request).await?;
            let answer = Answer::new(vec![Message::assistant(text).into()], Finish::stop());
            Ok::<_, BoxError>(ChatResponse::from(answer))
        }
    }))
}

fn as_is(client: Client, store: &Store, mode: PersistenceMode) -> Client {
    let builder = ChatPipeline::builder(client).use_client_as_is(true);
    boxed(builder.history(store.clone()).persistence(mode).build().unwrap())
}

#[tokio::test]
async fn a_client_with_a_loop_of_its_own_is_stored_the_same_in_every_mode() {
    Cases::all()
        .with_all_ids()
        .check(async |case| {
            for sends in [Sends::All, Sends::Run, Sends::New] {
                let store = case.store().await;
                let round = || [case.calls([("look", "c1")]), Step::text("there")];
                let model = ScriptedModel::new(round().into_iter().chain(round()));
                let below = persister(&model, &store);
                let client = as_is(own_client(below, sends), &store, case.mode);
                let logged = logged();
                for _ in 0..2 {
                    let answer = send(&client, case.ask("where?")).await.unwrap();
                    assert_eq!(answer.text(), "there");
                    assert_eq!(answer.messages.len(), 1);
                }
                let turn =
                    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
                assert_eq!(stored(&store).await, turn.repeat(2), "{sends:?}");
                assert_eq!(sent_texts(&model, 3), turn.repeat(2)[..7], "{sends:?}");
                let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
                assert_eq!(found.found.len(), 2, "{sends:?}");
                assert_eq!(logged.lines("WARN"), 0, "{sends:?}");
                assert!(store.inner().open_run(&key()).await.unwrap().is_none());
            }
        })
        .await;
}

#[tokio::test]
async fn a_client_with_a_loop_of_its_own_sends_the_summary_in_every_mode() {
    every_case(async |case| {
        for sends in [Sends::All, Sends::Run, Sends::New] {
            let store = case.store().await;
            let round = || [case.calls([("look", "c1")]), Step::text("there")];
            let model = ScriptedModel::new((0..3).flat_map(|_| round()));
            let below = persister(&model, &store);
            let client = as_is(own_client(below, sends), &store, case.mode);
            for _ in 0..2 {
                send(&client, case.ask("where?")).await.unwrap();
            }
            let writer = ScriptedModel::new([Step::text("in short")]);
            let summarize = Summarize::above(1000, writer).with_kept_turns(1);
            summarize.now(store.inner(), &key()).await.unwrap().unwrap();
            send(&client, case.ask("where?")).await.unwrap();
            let turn = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
            assert_eq!(stored(&store).await, turn.repeat(3), "{sends:?}");
            let sent = sent_texts(&model, 5);
            assert!(sent[0].ends_with("in short"), "{sends:?}: {sent:?}");
            assert_eq!(sent[1..], turn.repeat(2)[..7], "{sends:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_warning_is_logged_once_for_rounds_that_no_layer_sees() {
    for streamed in BOTH_WAYS {
        let round = || [calls([("look", "c1")]), Step::text("there")];
        let (store, model) = (store(), ScriptedModel::new(round().into_iter().chain(round())));
        let client = as_is(own_client(boxed(model), Sends::All), &store, PerRun);
        let logged = logged();
        for _ in 0..2 {
            send(&client, ask("where?", streamed)).await.unwrap();
        }
        assert_eq!(stored(&store).await, ["user where?", "assistant there"].repeat(2));
        assert_eq!(logged.lines("the final answer of the client's own tool loop"), 1);
    }
}

#[tokio::test]
async fn without_a_persister_each_service_call_of_our_loop_has_the_whole_history() {
    Cases::all()
        .with_all_ids()
        .modes(
            [PerServiceCall],
            "a journaled run fails without the layer, and per-run mode does not need it",
        )
        .check(async |case| {
            let store = case.store().await;
            let round = || [case.calls([("look", "c1")]), Step::text("there")];
            let model = ScriptedModel::new(round().into_iter().chain(round()));
            let own = ToolLoopLayer::new(tools(&ToolLog::default())).layer(model.clone());
            let client = as_is(boxed(own), &store, case.mode);
            let turn = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
            send(&client, case.ask("where?").with_extension(PerRun)).await.unwrap();
            assert_eq!(stored(&store).await, turn);
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(stored(&store).await, turn, "no message of the run is stored");
            assert_eq!(sent_texts(&model, 2), [&turn[..], &turn[..1]].concat());
            assert_eq!(sent_texts(&model, 3), [&turn[..], &turn[..3]].concat());
        })
        .await;
}

#[tokio::test]
async fn a_persister_that_our_loop_could_not_find_gets_the_history_once() {
    for streamed in BOTH_WAYS {
        let round = || [calls([("look", "c1")]), Step::text("there")];
        let (store, model) = (store(), ScriptedModel::new(round().into_iter().chain(round())));
        let below = persister(&model, &store);
        let hidden = boxed(service_fn(move |request: ChatRequest| {
            let below = below.clone();
            async move { head(&below, request).await }
        }));
        let own = boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(hidden));
        let policy = policy().on_missing_persister(MissingPersister::Warn);
        let above = PerRunPersistence::new(store.clone()).mode(PerServiceCall).policy(policy);
        let client = boxed(above.layer(own));
        let logged = logged();
        let turn = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        for _ in 0..2 {
            send(&client, ask("where?", streamed)).await.unwrap();
        }
        assert_eq!(stored(&store).await, turn.repeat(2));
        assert_eq!(sent_texts(&model, 2), turn.repeat(2)[..5]);
        assert_eq!(sent_texts(&model, 3), turn.repeat(2)[..7]);
        assert_eq!(logged.lines("WARN"), 0);
    }
}

/// Returns a service that keeps only the messages of each answer, and loses all other fields.
fn rebuilding(below: Client) -> Client {
    boxed(service_fn(move |request: ChatRequest| {
        let below = below.clone();
        async move {
            let answer = send(&below, request).await?;
            Ok::<_, BoxError>(ChatResponse::from(Answer::new(answer.messages, Finish::stop())))
        }
    }))
}

#[tokio::test]
async fn a_loop_stores_messages_once_although_a_layer_drops_the_history_owner() {
    for (streamed, is_own, with_run) in cases!(BOTH_WAYS, [false, true], [false, true]) {
        let round = || [calls([("look", "c1")]), Step::text("there")];
        let (store, model) = (store(), ScriptedModel::new(round().into_iter().chain(round())));
        let rebuilt = rebuilding(persister(&model, &store));
        let looping = match is_own {
            true => {
                let own =
                    ToolLoopLayer::new(tools(&ToolLog::default())).assume_persister_below(true);
                boxed(own.layer(rebuilt))
            }
            // This loop sends all messages again, unless the answer reports that a layer below
            // stores the history.
            false => boxed(service_fn(move |request: ChatRequest| {
                let below = rebuilt.clone();
                async move {
                    let mut next = request.clone();
                    loop {
                        let answer = send(&below, next.clone()).await?;
                        let results: Vec<Message> =
                            answer.messages.iter().flat_map(|it| results(it)).collect();
                        if results.is_empty() {
                            return Ok::<_, BoxError>(ChatResponse::from(answer));
                        }
                        if answer.finish.history_owner == Some(HistoryOwner::Local) {
                            next.set_new_messages(tower_chat::message::Messages::new());
                        } else {
                            answer.messages.iter().for_each(|it| next.push(plain(it)));
                        }
                        results.into_iter().for_each(|message| next.push(message));
                    }
                }
            })),
        };
        let client = match with_run {
            true => {
                boxed(PerRunPersistence::new(store.clone()).mode(PerServiceCall).layer(looping))
            }
            false => looping,
        };
        for _ in 0..2 {
            send(&client, ask("where?", streamed)).await.unwrap();
        }
        let turn = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        assert_eq!(stored(&store).await, turn.repeat(2), "own {is_own}, with run {with_run}");
        assert_eq!(sent_texts(&model, 3), turn.repeat(2)[..7], "own {is_own}, with run {with_run}");
    }
}

#[tokio::test]
async fn a_run_behind_an_own_loop_that_failed_has_no_empty_message_when_it_is_resumed() {
    Cases::all()
        .with_all_ids()
        .check(async |case| {
            for sends in [Sends::All, Sends::New] {
                let store = case.store().await;
                let fails = || Step::error("overloaded");
                let steps = [case.calls([("look", "c1")]), fails(), Step::text("there")];
                let model = ScriptedModel::new(steps);
                let below = persister(&model, &store);
                let client = as_is(own_client(below, sends), &store, case.mode);
                let request = case.ask("where?");
                send(&client, request.clone()).await.unwrap_err();
                let results_stay = case.is(PerServiceCall);
                let answer = send(&client, request.clone()).await;
                let stored = stored(&store).await;
                match case.mode {
                    PerRun => assert_eq!(stored, ["user where?", "assistant there"]),
                    _ => {
                        let last = stored.last().unwrap();
                        assert_eq!(last, "assistant there", "{stored:?}");
                        assert_eq!(stored.len(), 3 + usize::from(results_stay), "{stored:?}");
                    }
                }
                assert_eq!(answer.unwrap().text().matches("there").count(), 1);
                let again = send(&client, request).await.unwrap();
                assert!(again.text().contains("there"));
                assert_eq!(model.requests().len(), 3);
            }
        })
        .await;
}

#[tokio::test]
async fn a_transcript_from_before_a_prune_is_recognised_by_its_end() {
    every_case(async |case| {
        let store = case.store().await;
        let texts = ["a1", "a2", "a3", "a4"].map(Step::text);
        let model = ScriptedModel::new(texts);
        let client = case.agent(&model, &store);
        let mut sent = Vec::new();
        for turn in 1..=3 {
            let question = format!("q{turn}");
            send(&client, case.ask(&question)).await.unwrap();
            sent.extend([Message::user(question), Message::assistant(format!("a{turn}"))]);
        }
        store.inner().flush().await.unwrap();
        store.inner().prune(&key(), Keep::Messages(4)).await.unwrap();
        assert_eq!(stored(&store).await.len(), 4);
        let ask_all = |sent: &[Message]| {
            let mut request = case.ask("q4");
            let question = request.messages().last().cloned().unwrap();
            let sent = sent.iter().cloned().map(Arc::new).chain([question]);
            request.set_new_messages(sent.collect::<Vec<_>>());
            request.with_extension(RepeatedTranscript::Recognise)
        };
        let mut edited = sent.clone();
        edited[3] = Message::assistant("edited");
        let error = refused(send(&client, ask_all(&edited)).await);
        assert!(matches!(error, PersistenceError::TranscriptDiverged { .. }), "{error:?}");
        send(&client, ask_all(&sent)).await.unwrap();
        let all = ["user q2", "assistant a2", "user q3", "assistant a3", "user q4", "assistant a4"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 3), all[..5]);
    })
    .await;
}
