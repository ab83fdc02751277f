//! Tests that a conversation remains usable after the service has refused content of a message.

use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, Message, Part, PersistenceError, Role, Tools,
    error::{ContentRefused, Retryability},
    message::{ContentKind, Media, MediaSource, RefusalMark, RefusalMarks, lift_refusals},
    policy::{RefusedContent, UnansweredInputs},
    store::Maintenance,
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

const ISSUER: &str = "openai";

#[derive(Debug, thiserror::Error)]
#[error("status 400")]
struct Refused(#[source] ContentRefused);

/// Returns a step that refuses the request with the status 400, and names the kind of the content
/// if it is given.
fn refusal(named: Option<ContentKind>) -> Step {
    let refused = ContentRefused::by(ISSUER);
    Step::error(Refused(match named {
        Some(kind) => refused.naming(kind),
        None => refused,
    }))
}

fn wrong_model() -> Step {
    #[derive(Debug, thiserror::Error)]
    #[error("model_not_found")]
    struct Wrong(#[source] Retryability);
    Step::error(Wrong(Retryability::of_status(400)))
}

fn image() -> Part {
    Part::Media(Media::new("image/png", MediaSource::Base64("AAAA".to_owned())))
}

fn drawing() -> Tools {
    tools(&ToolLog::default())
        .with(tool_fn(definition("draw"), |_| async { Ok(ToolOutput::new(vec![image()])) }))
}

fn client(case: Case, model: &ScriptedModel, store: &Store, policy: RefusedContent) -> Client {
    let policy = policy_of(policy);
    case.stack(model.clone(), store, policy, drawing())
}

fn policy_of(refused: RefusedContent) -> tower_chat::PersistencePolicy {
    policy().on_refused_content(refused)
}

/// Returns the short form of each marked message of a request, with the kind of the refused
/// content.
fn left_out(request: &ChatRequest) -> Vec<(String, ContentKind)> {
    let Some(marks) = request.extensions.get::<RefusalMarks>() else { return Vec::new() };
    let marks: Vec<&RefusalMark> = marks.of_issuer(ISSUER).collect();
    let of = |message: &Message| {
        let marks = marks.iter().filter(|mark| Some(mark.message) == message.id);
        marks.map(|mark| (short(message), mark.content)).collect::<Vec<_>>()
    };
    let found: Vec<_> = request.messages().iter().flat_map(|message| of(message)).collect();
    assert_eq!(found.len(), marks.len(), "the request contains the message of each mark");
    found
}

async fn marks(store: &Store, key: &ConversationKey) -> Vec<RefusalMark> {
    store.inner().flush().await.unwrap();
    let history = store.inner().load(key).await.unwrap();
    history.messages.iter().flat_map(|message| RefusalMark::stored_in(message)).collect()
}

#[tokio::test]
async fn a_result_that_is_refused_is_left_out_of_later_requests_and_the_run_continues() {
    every_case(async |case| {
        for named in [None, Some(ContentKind::Image)] {
            let store = case.store().await;
            let model = ScriptedModel::new([
                case.calls([("draw", "c1")]),
                refusal(named),
                Step::text("there"),
                Step::text("yes"),
            ]);
            let agent = client(case, &model, &store, RefusedContent::default());
            assert_eq!(send(&agent, case.ask("where?")).await.unwrap().text(), "there");
            let requests = model.requests();
            assert_eq!(left_out(&requests[1]), []);
            let marked = vec![(short(requests[2].messages().last().unwrap()), ContentKind::Image)];
            assert_eq!(left_out(&requests[2]), marked);
            assert_eq!(
                requests[1].messages(),
                requests[2].messages(),
                "the model client replaces the content"
            );

            // A new stack loads the marks from the store.
            let agent = client(case, &model, &store, RefusedContent::default());
            send(&agent, case.ask("sure?")).await.unwrap();
            assert_eq!(left_out(&model.requests()[3]), marked);
            let all = sent_texts(&model, 3);
            assert_eq!((all[0].as_str(), all.len()), ("user where?", 5), "{all:?}");
            assert_eq!(stored(&store).await.len(), 6);
            assert_eq!(marks(&store, &key()).await.len(), 1);
        }
    })
    .await;
}

#[tokio::test]
async fn refused_content_of_the_user_is_marked_if_the_error_names_it_and_the_run_fails() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([
            refusal(Some(ContentKind::Image)),
            Step::text("hello"),
            Step::text("again"),
        ]);
        let agent = client(case, &model, &store, RefusedContent::default());
        let question = Message::new(Role::User, vec![Part::text("see?"), image()]);
        let error = refused(send(&agent, case.request_with([question])).await);
        let PersistenceError::ContentRefused { mark, is_marked, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((&*mark.issuer, mark.content, *is_marked), (ISSUER, ContentKind::Image, true));
        let text = error.to_string();
        assert!(
            text.contains("the image in message") && text.contains("probably because of"),
            "{text}"
        );
        assert_eq!(model.requests().len(), 1, "content of the user in the request is not removed");

        send(&agent, case.ask("well?")).await.unwrap();
        send(&agent, case.ask("and?")).await.unwrap();
        for request in &model.requests()[1..] {
            let left_out = left_out(request);
            assert_eq!(left_out.len(), usize::from(!case.is(PerRun)));
            for (message, kind) in left_out {
                assert!(
                    message.starts_with("user see?") && kind == ContentKind::Image,
                    "{message}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn content_refused_in_the_middle_of_an_answer_is_marked_if_the_error_names_it() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing")
        .check(async |case| {
            let store = case.store().await;
            let refused = Refused(ContentRefused::by(ISSUER).naming(ContentKind::Image));
            let steps = [Step::text("half").fails_after(1, refused), Step::text("hello")];
            let model = ScriptedModel::new(steps);
            let agent = client(case, &model, &store, RefusedContent::default());
            let question = Message::new(Role::User, vec![Part::text("see?"), image()]);
            send(&agent, case.request_with([question])).await.unwrap_err();
            assert_eq!(send(&agent, case.ask("well?")).await.unwrap().text(), "hello");
            let requests = model.requests();
            assert_eq!((requests.len(), left_out(&requests[1]).len()), (2, 1));
        })
        .await;
}

#[tokio::test]
async fn a_question_that_is_refused_without_a_reason_is_left_out_of_the_next_request() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing")
        .check(async |case| {
            let store = case.store().await;
            let steps = [refusal(None), refusal(None), Step::text("hello"), Step::text("yes")];
            let model = ScriptedModel::new(steps);
            let agent = client(case, &model, &store, RefusedContent::default());
            send(&agent, case.ask("bad")).await.unwrap_err();
            assert_eq!(stored(&store).await, ["user bad"]);
            assert_eq!(marks(&store, &key()).await, []);
            assert_eq!(send(&agent, case.ask("good")).await.unwrap().text(), "hello");
            let expected = [("user bad".to_owned(), ContentKind::Text)];
            assert_eq!(left_out(&model.requests()[1]), []);
            assert_eq!(left_out(&model.requests()[2]), expected);
            send(&agent, case.ask("sure?")).await.unwrap();
            assert_eq!(left_out(&model.requests()[3]), expected);
            let all = ["user bad", "user good", "assistant hello", "user sure?", "assistant yes"];
            assert_eq!(stored(&store).await, all);
        })
        .await;
}

#[tokio::test]
async fn content_is_not_marked_if_the_model_is_wrong_or_the_request_without_it_is_refused_too() {
    every_case(async |case| {
        for (refused, again) in [(wrong_model(), None), (refusal(None), Some(refusal(None)))] {
            let store = case.store().await;
            let calls = 2 + usize::from(again.is_some());
            let steps = [case.calls([("draw", "c1")]), refused].into_iter().chain(again);
            let model = ScriptedModel::new(steps);
            let agent = client(case, &model, &store, RefusedContent::default());
            let error = send(&agent, case.ask("where?")).await.unwrap_err();
            assert!(!error.is::<PersistenceError>(), "{error:?}");
            assert_eq!(model.requests().len(), calls);
            assert_eq!(marks(&store, &key()).await, []);
            model.push(Step::text("there"));
            model.push(Step::text("there"));
            send(&agent, case.ask("well?")).await.unwrap();
            assert_eq!(left_out(&model.requests()[calls]), []);
        }
    })
    .await;
}

#[tokio::test]
async fn the_error_names_the_content_if_the_request_without_it_is_refused_too() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([
            case.calls([("draw", "c1")]),
            refusal(Some(ContentKind::Image)),
            refusal(None),
        ]);
        let agent = client(case, &model, &store, RefusedContent::default());
        let error = refused(send(&agent, case.ask("where?")).await);
        assert!(
            matches!(&error, PersistenceError::ContentRefused { is_marked: true, .. }),
            "{error:?}"
        );
        assert_eq!(model.requests().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn content_is_not_marked_if_the_request_without_it_fails_for_another_reason() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([
            case.calls([("draw", "c1")]),
            refusal(None),
            Step::error("overloaded"),
        ]);
        let agent = client(case, &model, &store, RefusedContent::default());
        let error = send(&agent, case.ask("where?")).await.unwrap_err();
        assert_eq!(error.to_string(), "overloaded");
        assert_eq!(marks(&store, &key()).await, []);
    })
    .await;
}

#[tokio::test]
async fn the_policy_says_whether_content_is_marked_and_a_request_is_made_again() {
    Cases::all()
        .modes([PerServiceCall], "results are stored although the run fails")
        .check(async |case| {
            use RefusedContent::{Fail, MarkNamed};
            let image = Some(ContentKind::Image);
            for (policy, named, count, is_told) in
                [(MarkNamed, image, 1, true), (MarkNamed, None, 0, true), (Fail, image, 0, false)]
            {
                let store = case.store().await;
                let model = ScriptedModel::new([case.calls([("draw", "c1")]), refusal(named)]);
                let agent = client(case, &model, &store, policy);
                let error = send(&agent, case.ask("where?")).await.unwrap_err();
                assert_eq!(error.is::<PersistenceError>(), is_told, "{error:?}");
                assert_eq!(model.requests().len(), 2);
                assert_eq!(marks(&store, &key()).await.len(), count, "{policy:?}");
                assert_eq!(stored(&store).await.len(), 3, "the tool has run");
                model.push(Step::text("there"));
                send(&agent, case.ask("well?")).await.unwrap();
                assert_eq!(left_out(&model.requests()[2]).len(), count);
            }
        })
        .await;
}

#[tokio::test]
async fn marks_are_copied_with_the_conversation_and_can_be_removed() {
    every_case(async |case| {
        let store = case.store().await;
        let steps = [case.calls([("draw", "c1")]), refusal(None)];
        let texts = ["there", "copied", "again"].map(Step::text);
        let model = ScriptedModel::new(steps.into_iter().chain(texts));
        let agent = client(case, &model, &store, RefusedContent::default());
        send(&agent, case.ask("where?")).await.unwrap();
        store.inner().flush().await.unwrap();
        let copy = ConversationKey::new("alice", "copy");
        store.inner().fork_at(&key(), None, &copy).await.unwrap();
        send(&agent, case.way(ChatRequest::user("and?").in_conversation(copy.clone())))
            .await
            .unwrap();
        assert_eq!(left_out(&model.requests()[3]).len(), 1);

        let history = &**store.inner();
        assert_eq!(lift_refusals(history, &key(), Some("anthropic")).await.unwrap(), 0);
        assert_eq!(lift_refusals(history, &key(), Some(ISSUER)).await.unwrap(), 1);
        assert_eq!(lift_refusals(history, &key(), None).await.unwrap(), 0);
        assert_eq!((marks(&store, &key()).await.len(), marks(&store, &copy).await.len()), (0, 1));
        send(&agent, case.ask("well?")).await.unwrap();
        assert_eq!(left_out(&model.requests()[4]), []);
    })
    .await;
}

#[tokio::test]
async fn a_stored_run_is_answered_without_its_marks() {
    every_case(async |case| {
        let store = case.store().await;
        let steps = [case.calls([("draw", "c1")]), refusal(None), Step::text("there")];
        let model = ScriptedModel::new(steps);
        let agent = client(case, &model, &store, RefusedContent::default());
        let request = case.ask("where?");
        let first = send(&agent, request.clone()).await.unwrap();
        let again = send(&agent, request).await.unwrap();
        assert_eq!(model.requests().len(), 3);
        assert_eq!(again.messages, first.messages);
    })
    .await;
}

#[tokio::test]
async fn a_question_whose_first_call_fails_is_stored_as_after_a_disconnect() {
    every_case(async |case| {
        for keeps in [true, false] {
            let store = case.store().await;
            let model = ScriptedModel::new([wrong_model(), Step::text("hello")]);
            let inputs = if keeps { UnansweredInputs::All } else { UnansweredInputs::Results };
            let policy = policy().with_inputs_of_failed_call(inputs);
            let agent = case.stack(model.clone(), &store, policy, drawing());
            let request = case.ask("hi");
            send(&agent, request.clone()).await.unwrap_err();
            let expected: &[&str] = match case.mode {
                PerServiceCall if keeps => &["user hi"],
                Journaled => &["user hi"],
                _ => &[],
            };
            assert_eq!(stored(&store).await, expected);
            assert_eq!(send(&agent, request).await.unwrap().text(), "hello");
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        }
    })
    .await;
}
