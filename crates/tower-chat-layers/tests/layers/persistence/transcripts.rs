//! Tests clients that send the whole transcript of the conversation in each request, without
//! message ids.

use std::sync::Arc;

use tower::{Layer, ServiceExt};
use tower_chat::{
    Answer, ChatRequest, Message, Part, PersistenceError, PersistenceMode, Role, ToolCall,
    ToolResult,
    layer::{PerServiceCallPersistence, ToolLoopLayer},
    message::MessageId,
    policy::ConflictPolicy,
    run::{Conversation, RunId},
    transcript::RepeatedTranscript,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

const MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, PersistenceMode::Journaled];

/// The ids of the two calls of the first run.
const IDS: [[Option<&str>; 2]; 4] =
    [[Some("a"), Some("b")], [Some("c"), Some("c")], [None, None], [Some(""), Some("")]];

fn two_calls(ids: [Option<&str>; 2]) -> Step {
    let calls = [1, 2].into_iter().zip(ids).map(|(at, id)| {
        let mut call = ToolCall::new("", "look", format!("{{\"at\":{at}}}"));
        call.id = id.map(ToOwned::to_owned);
        call
    });
    Step::message(Message::tool_calls(calls))
}

struct Talk {
    store: Store,
    model: ScriptedModel,
    tool_log: ToolLog,
    mode: PersistenceMode,
    choice: RepeatedTranscript,
    streamed: bool,
    transcript: Vec<Message>,
}

impl Talk {
    fn new(
        mode: PersistenceMode,
        choice: RepeatedTranscript,
        streamed: bool,
        steps: impl IntoIterator<Item = Step>,
    ) -> Self {
        let (store, model, tool_log) = (store(), ScriptedModel::new(steps), ToolLog::default());
        Self { store, model, tool_log, mode, choice, streamed, transcript: Vec::new() }
    }

    fn client(&self) -> Client {
        let policy = policy().with_repeated_transcript(self.choice);
        stack(self.model.clone(), &self.store, self.mode, policy, tools(&self.tool_log))
    }

    fn request(&self, messages: &[Message]) -> ChatRequest {
        let mut request = request_with([], self.streamed);
        request.set_new_messages(messages.to_vec());
        request
    }

    fn keep(&mut self, answer: &Answer) {
        self.transcript.extend(answer.messages.iter().map(|message| without_id(message)));
    }

    async fn say(&mut self, text: &str) {
        let answer = send(&self.client(), ask(text, self.streamed)).await.unwrap();
        self.transcript.push(Message::user(text));
        self.keep(&answer);
    }

    fn whole(&self, more: impl IntoIterator<Item = Message>) -> Vec<Message> {
        self.transcript.iter().cloned().chain(more).collect()
    }

    async fn send_whole(
        &self,
        more: impl IntoIterator<Item = Message>,
    ) -> Result<Answer, tower_chat::BoxError> {
        send(&self.client(), self.request(&self.whole(more))).await
    }
}

fn without_id(message: &Message) -> Message {
    let mut message = message.clone();
    message.id = None;
    message
}

fn all_cases() -> impl Iterator<Item = (PersistenceMode, bool)> + Clone {
    MODES.into_iter().flat_map(|mode| BOTH_WAYS.map(|streamed| (mode, streamed)))
}

#[tokio::test]
async fn a_transcript_with_stored_answers_is_refused_by_default() {
    for ((mode, streamed), ids) in cases!(all_cases(), IDS) {
        let steps = [two_calls(ids), Step::text("one"), Step::text("never")];
        let mut talk = Talk::new(mode, RepeatedTranscript::default(), streamed, steps);
        talk.say("first").await;
        let before = stored(&talk.store).await;
        let error = refused(talk.send_whole([Message::user("second")]).await);
        let what = format!("{mode:?} {streamed} {ids:?} {error:?}");
        let PersistenceError::TranscriptRepeated { key: of, position: 1 } = &error else {
            panic!("{what}")
        };
        assert_eq!(*of, key());
        assert_eq!(talk.model.requests().len(), 2, "{what}");
        assert_eq!(stored(&talk.store).await, before, "{what}");
    }
}

#[tokio::test]
async fn a_transcript_is_recognised_and_only_what_is_new_is_taken() {
    for ((mode, streamed), ids, system) in cases!(all_cases(), IDS, [None, Some("Be brief.")]) {
        let steps = [two_calls(ids), Step::text("one"), Step::text("two"), Step::text("three")];
        let mut talk = Talk::new(mode, RepeatedTranscript::Recognise, streamed, steps);
        let system: Vec<Message> = system.map(Message::system).into_iter().collect();
        let first = [system.clone(), vec![Message::user("first")]].concat();
        let answer = send(&talk.client(), talk.request(&first)).await.unwrap();
        talk.transcript = first;
        talk.keep(&answer);
        let what = format!("{mode:?} {streamed} {ids:?} {}", system.len());
        for (text, n) in [("second", 2), ("third", 3)] {
            let request = talk.request(&talk.whole([Message::user(text)]));
            let answer = send(&talk.client(), request.clone()).await.unwrap();
            let calls = talk.model.requests().len();
            assert_eq!(calls, n + 1, "{what}");
            let again = send(&talk.client(), request).await.unwrap();
            assert_eq!(shorts(&again.messages), shorts(&answer.messages), "{what}");
            assert_eq!(talk.model.requests().len(), calls, "{what}");
            talk.transcript.push(Message::user(text));
            talk.keep(&answer);
        }
        let kept: Vec<String> = talk.transcript.iter().map(short).collect();
        assert_eq!(stored(&talk.store).await.len(), kept.len(), "{what}: {kept:?}");
        let texts = |all: &[String]| -> Vec<String> {
            all.iter().filter(|it| !it.contains('#') && !it.starts_with("tool")).cloned().collect()
        };
        assert_eq!(texts(&stored(&talk.store).await), texts(&kept), "{what}");
        assert_eq!(sent_texts(&talk.model, 3).len(), kept.len() - 1, "{what}");
        assert_eq!(talk.tool_log.names(), ["look", "look"], "{what}");
    }
}

#[tokio::test]
async fn a_transcript_is_appended_where_that_is_chosen_for_one_request() {
    for ((mode, streamed), choice) in
        cases!(all_cases(), [RepeatedTranscript::Recognise, RepeatedTranscript::Refuse])
    {
        let mut talk = Talk::new(mode, choice, streamed, ["one", "two"].map(Step::text));
        talk.say("first").await;
        let request = talk.request(&talk.whole([Message::user("second")]));
        let request = request.with_extension(RepeatedTranscript::Append);
        send(&talk.client(), request).await.unwrap();
        let all = [
            "user first",
            "assistant one",
            "user first",
            "assistant one",
            "user second",
            "assistant two",
        ];
        assert_eq!(stored(&talk.store).await, all);
    }
}

#[tokio::test]
async fn a_transcript_that_differs_from_the_history_is_an_error_with_the_position() {
    for (mode, streamed) in all_cases() {
        let mut talk = Talk::new(
            mode,
            RepeatedTranscript::Recognise,
            streamed,
            ["one", "two"].map(Step::text),
        );
        talk.say("first").await;
        talk.say("second").await;
        let before = stored(&talk.store).await;
        let (user, model) = (Message::user, |text: &str| Message::assistant(text));
        let others = [
            (vec![user("first"), model("one"), user("another")], 2),
            (vec![user("first"), model("uno"), user("second"), model("two"), user("third")], 1),
            (vec![model("nine"), user("third")], 0),
        ];
        for (other, expected) in others {
            let error = refused(send(&talk.client(), talk.request(&other)).await);
            let PersistenceError::TranscriptDiverged { key: of, position } = &error else {
                panic!("{mode:?} {streamed} {error:?}")
            };
            assert_eq!((of, *position), (&key(), expected), "{mode:?} {streamed} {other:?}");
            assert!(!error.is_retryable());
        }
        let error = refused(talk.send_whole([]).await);
        assert!(matches!(error, PersistenceError::NothingNew { .. }), "{error:?}");
        assert_eq!(talk.model.requests().len(), 2);
        assert_eq!(stored(&talk.store).await, before);
    }
}

#[tokio::test]
async fn a_transcript_without_the_last_answer_is_given_that_answer() {
    for (mode, streamed) in all_cases() {
        let steps = [Step::text("one"), calls([("look", "c1")]), Step::text("two")];
        let mut talk = Talk::new(mode, RepeatedTranscript::Recognise, streamed, steps);
        talk.say("first").await;
        let asked = talk.whole([Message::user("second")]);
        talk.say("second").await;
        let answer = send(&talk.client(), talk.request(&asked)).await.unwrap();
        let expected = ["assistant look#c1", "tool c1=looked c1", "assistant two"];
        assert_eq!(shorts(&answer.messages), expected, "{mode:?} {streamed}");
        assert_eq!(talk.model.requests().len(), 3, "the model is not called");
        assert_eq!(stored(&talk.store).await.len(), 6);
    }
}

#[tokio::test]
async fn late_results_and_approvals_are_new_under_every_choice() {
    for (mode, streamed) in all_cases() {
        for choice in
            [RepeatedTranscript::Append, RepeatedTranscript::Recognise, RepeatedTranscript::Refuse]
        {
            let what = format!("{mode:?} {streamed} {choice:?}");
            let steps = [calls([("ask", "c1")]), Step::text("blue then")];
            let mut talk = Talk::new(mode, choice, streamed, steps);
            talk.say("paint").await;
            let result = Message::tool_results([ToolResult::new("c1", "blue")]);
            let messages = match choice {
                RepeatedTranscript::Recognise => talk.whole([result]),
                _ => vec![result],
            };
            send(&talk.client(), talk.request(&messages)).await.unwrap();
            let all = ["user paint", "assistant ask#c1", "tool c1=blue", "assistant blue then"];
            assert_eq!(stored(&talk.store).await, all, "{what}");

            let steps = [calls([("pay", "p1")]), Step::text("paid")];
            let mut talk = Talk::new(mode, choice, streamed, steps);
            talk.say("buy").await;
            let request = talk.transcript[1].approval_request(0).unwrap();
            let yes = Message::new(Role::User, vec![Part::from(request.approve())]);
            let messages = match choice {
                RepeatedTranscript::Recognise => talk.whole([yes]),
                _ => vec![yes],
            };
            send(&talk.client(), talk.request(&messages)).await.unwrap();
            let all =
                ["user buy", "assistant pay#p1?", "user yes", "tool p1=payed p1", "assistant paid"];
            assert_eq!(stored(&talk.store).await, all, "{what}");
            assert_eq!(talk.tool_log.names(), ["pay"], "{what}");
        }
    }
}

#[tokio::test]
async fn messages_with_stored_ids_are_left_out_and_other_ids_do_not_hide_a_repetition() {
    for (mode, streamed) in all_cases() {
        for choice in
            [RepeatedTranscript::Append, RepeatedTranscript::Recognise, RepeatedTranscript::Refuse]
        {
            let mut talk = Talk::new(mode, choice, streamed, ["one", "two"].map(Step::text));
            talk.say("first").await;
            let history: Vec<Arc<Message>> = {
                use tower_chat::HistoryStore;
                talk.store.inner().load(&key()).await.unwrap().messages.iter().cloned().collect()
            };
            let mut with_ids: Vec<Message> =
                history.iter().map(|message| Message::clone(message)).collect();
            let foreign = RunId::new();
            let mut other_ids = with_ids.clone();
            for (index, message) in (0..).zip(&mut other_ids) {
                message.id = Some(MessageId { run: foreign, index });
            }
            with_ids.push(Message::user("second"));
            send(&talk.client(), talk.request(&with_ids)).await.unwrap();
            let all = ["user first", "assistant one", "user second", "assistant two"];
            assert_eq!(stored(&talk.store).await, all, "{mode:?} {streamed} {choice:?}");
            if choice == RepeatedTranscript::Refuse {
                let error = refused(send(&talk.client(), talk.request(&other_ids)).await);
                let is_repeated =
                    matches!(error, PersistenceError::TranscriptRepeated { position: 1, .. });
                assert!(is_repeated, "{mode:?} {streamed} {error:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_repeated_question_text_and_the_callers_own_examples_are_new_messages() {
    for ((mode, streamed), choice) in
        cases!(all_cases(), [RepeatedTranscript::Recognise, RepeatedTranscript::Refuse])
    {
        let what = format!("{mode:?} {streamed} {choice:?}");
        let steps = ["fine", "still fine"].map(Step::text);
        let mut talk = Talk::new(mode, choice, streamed, steps);
        let examples =
            [Message::user("1+1"), Message::assistant("2"), Message::user("how are you?")];
        send(&talk.client(), talk.request(&examples)).await.unwrap();
        talk.say("how are you?").await;
        assert_eq!(stored(&talk.store).await.len(), 6, "{what}");
    }
}

/// Two turns. The second one contains a call of `look`.
const TWO_TURNS: [&str; 6] = [
    "user first",
    "assistant one",
    "user second",
    "assistant look#c2",
    "tool c2=looked c2",
    "assistant two",
];

#[tokio::test]
async fn a_lone_persister_compares_the_first_service_call_of_a_run() {
    for (streamed, recognises) in cases!(BOTH_WAYS, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let steps = [Step::text("one"), calls([("look", "c2")]), Step::text("two")];
        let model = ScriptedModel::new(steps);
        let persister = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(ToolLoopLayer::new(tools(&tool_log)).layer(persister));
        send(&client, ask("first", streamed)).await.unwrap();
        let whole = [Message::user("first"), Message::assistant("one"), Message::user("second")];
        let request = request_with(whole, streamed);
        if recognises {
            let request = request.with_extension(RepeatedTranscript::Recognise);
            send(&client, request).await.unwrap();
            assert_eq!(stored(&store).await, TWO_TURNS);
        } else {
            let error = refused(send(&client, request).await);
            let is_repeated =
                matches!(error, PersistenceError::TranscriptRepeated { position: 1, .. });
            assert!(is_repeated, "{error:?}");
            assert_eq!(model.requests().len(), 1);
        }
    }
}

/// Without a layer above the tool loop, the layer that compares the transcript receives each
/// service call.
#[tokio::test]
async fn the_results_of_a_later_service_call_are_not_taken_for_a_transcript() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let steps = [Step::text("one"), calls([("look", "c2")]), Step::text("two")];
        let model = ScriptedModel::new(steps);
        let persister = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        send(&persister, ask("first", streamed)).await.unwrap();
        let conversation = Conversation { key: key(), run: RunId::new() };
        let below = persister.map_request(move |request: ChatRequest| {
            request
                .with_extension(conversation.clone())
                .with_extension(RepeatedTranscript::Recognise)
        });
        let client = boxed(ToolLoopLayer::new(tools(&tool_log)).layer(below));
        let request = ChatRequest::user("second");
        send(&client, if streamed { request.streamed() } else { request }).await.unwrap();
        assert_eq!(stored(&store).await, TWO_TURNS);
    }
}

#[tokio::test]
async fn nothing_is_compared_in_the_background_where_the_service_keeps_the_history() {
    for (mode, streamed) in all_cases() {
        let (store, model) = (store(), ScriptedModel::new([kept("one", "s1"), kept("two", "s1")]));
        let policy = policy()
            .on_conflict(ConflictPolicy::StopRecording)
            .with_repeated_transcript(RepeatedTranscript::Refuse);
        let client = stack(model.clone(), &store, mode, policy, tools(&ToolLog::default()));
        send(&client, ask("first", streamed)).await.unwrap();
        let whole = [Message::user("first"), Message::assistant("one"), Message::user("second")];
        let mut request = request_with(whole, streamed);
        Arc::make_mut(&mut request.options).background = true;
        let loads = store.loads();
        send(&client, request).await.unwrap();
        assert_eq!(store.loads(), loads, "{mode:?} {streamed}");
        let all = ["user first", "assistant one", "user second"];
        assert_eq!(sent_texts(&model, 1), all, "{mode:?} {streamed}");
    }
}

#[tokio::test]
async fn an_answer_in_the_background_is_compared_too_and_goes_without_the_history() {
    for (mode, streamed) in all_cases() {
        let choices = [RepeatedTranscript::Refuse, RepeatedTranscript::Recognise];
        for choice in choices {
            let mut talk = Talk::new(mode, choice, streamed, ["one", "two"].map(Step::text));
            talk.say("first").await;
            let mut request = talk.request(&talk.whole([Message::user("second")]));
            Arc::make_mut(&mut request.options).background = true;
            let result = send(&talk.client(), request.clone()).await;
            if choice == RepeatedTranscript::Refuse {
                let error = refused(result);
                let is_repeated =
                    matches!(error, PersistenceError::TranscriptRepeated { position: 1, .. });
                assert!(is_repeated, "{mode:?} {streamed} {error:?}");
            } else {
                result.unwrap();
                let all = ["user first", "assistant one", "user second", "assistant two"];
                assert_eq!(stored(&talk.store).await, all, "{mode:?} {streamed}");
                assert_eq!(sent_texts(&talk.model, 1), ["user second"], "{mode:?} {streamed}");
                let loads = talk.store.loads();
                let again = send(&talk.client(), request).await.unwrap();
                assert_eq!(shorts(&again.messages), all[3..], "{mode:?} {streamed}");
                assert_eq!(talk.model.requests().len(), 2, "{mode:?} {streamed}");
                assert_eq!(talk.store.loads(), loads + 1, "{mode:?} {streamed}");
            }
        }
    }
}

#[tokio::test]
async fn a_question_that_was_not_answered_is_asked_again_and_not_stored_again() {
    for (mode, streamed) in all_cases() {
        if mode == PerRun {
            continue; // A failed run stores nothing in per-run mode.
        }
        let steps = [
            Step::text("one"),
            calls([("look", "c1")]),
            Step::error("overloaded"),
            Step::text("two"),
        ];
        let mut talk = Talk::new(mode, RepeatedTranscript::Recognise, streamed, steps);
        talk.say("first").await;
        let asked = talk.whole([Message::user("second")]);
        send(&talk.client(), talk.request(&asked)).await.unwrap_err();
        if mode == PersistenceMode::Journaled {
            continue; // The open run is resumed first, and receives the next answer.
        }
        assert_eq!(send(&talk.client(), talk.request(&asked)).await.unwrap().text(), "two");
        let stored = stored(&talk.store).await;
        let questions = stored.iter().filter(|it| *it == "user second").count();
        assert_eq!(questions, 1, "{mode:?} {streamed} {stored:?}");
        assert_eq!(talk.tool_log.names(), ["look"], "{mode:?} {streamed}");
    }
}
