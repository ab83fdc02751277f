//! Tests how a run continues, depending on the reason for which an answer ended.

use tower_chat::{
    ChatRequest, Finish, HistoryStore, Message, Part, ToolCall, request::FinishReason,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn paused(text: &str) -> Step {
    let finish = Finish::new(FinishReason::Other("pause_turn".to_owned()));
    Step::answer([Message::assistant(text)], finish)
}

/// Returns an answer that a token limit has cut off. It contains a complete call, and a second call
/// with these arguments.
fn cut_off(tool: &str, arguments: &str) -> Step {
    let calls = [ToolCall::new("c1", "look", labelled("c1")), ToolCall::new("c2", tool, arguments)];
    Step::answer([Message::tool_calls(calls)], Finish::new(FinishReason::Length))
}

/// Returns the text and the error flag of each result in the last message of a request.
fn results(request: &ChatRequest) -> Vec<(String, bool)> {
    let last = request.messages().last().unwrap();
    last.results().map(|result| (result.text(), result.is_error)).collect()
}

async fn reasons(store: &Store) -> Vec<Option<FinishReason>> {
    store.inner().flush().await.unwrap();
    let history = store.inner().load(&key()).await.unwrap();
    let of_model = history.messages.iter().filter(|it| it.role == tower_chat::Role::Assistant);
    of_model.map(|message| message.finish_reason.clone()).collect()
}

#[tokio::test]
async fn a_call_that_the_token_limit_has_cut_off_never_runs_and_the_model_receives_the_reason() {
    every_case(async |case| {
        for tool in ["look", "pay", "ask", "none"] {
            for arguments in ["", " ", r#"{"label":"#, r#"{"label":"c2""#] {
                let steps = [cut_off(tool, arguments), Step::text("there")];
                let (store, tool_log, model, client) = case.begin_with_log(steps).await;
                let answer = send(&client, case.ask("where?")).await.unwrap();
                assert_eq!(answer.text(), "there", "{tool} {arguments:?}");
                assert_eq!(tool_log.names(), ["look"], "{tool} {arguments:?}");
                let received = results(&model.requests()[1]);
                assert_eq!(received[0], ("looked c1".to_owned(), false), "{tool} {arguments:?}");
                assert!(received[1].0.contains("token limit") && received[1].1, "{received:?}");
                let stored = reasons(&store).await;
                assert_eq!(stored, [Some(FinishReason::Length), Some(FinishReason::Stop)]);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_without_arguments_runs_if_its_answer_reached_no_limit() {
    every_case(async |case| {
        let call = Message::tool_calls([ToolCall::new("c1", "look", "")]);
        let steps = [Step::message(call), Step::text("there")];
        let (_, tool_log, _, client) = case.begin_with_log(steps).await;
        send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(tool_log.names(), ["look"]);
    })
    .await;
}

#[tokio::test]
async fn complete_calls_wait_for_approval_although_another_call_of_their_answer_was_cut_off() {
    every_case(async |case| {
        let calls = [
            ToolCall::new("c1", "pay", labelled("c1")),
            ToolCall::new("c2", "pay", r#"{"label":"#),
        ];
        let asking = Step::answer([Message::tool_calls(calls)], Finish::new(FinishReason::Length));
        let (_, tool_log, model, client) = case.begin_with_log([asking, Step::text("paid")]).await;
        let answer = send(&client, case.ask("pay")).await.unwrap();
        let approvals: Vec<_> = answer.approval_requests().map(|it| it.approve()).collect();
        assert!(tool_log.names().is_empty() && !approvals.is_empty());
        send(&client, case.request_with([Message::approvals(approvals)])).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"], "once");
        let sent = model.requests()[1].messages().clone();
        let received: Vec<_> = sent.iter().flat_map(|message| message.results()).collect();
        assert!(
            received.iter().any(|result| result.text().contains("token limit")),
            "{received:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_paused_answer_continues_in_the_same_run_without_a_message_of_the_user() {
    every_case(async |case| {
        let compacted = Finish::new(FinishReason::Other("compaction".to_owned()));
        let steps = [
            paused("first"),
            Step::answer([Message::assistant("second")], compacted),
            case.calls([("look", "c1")]),
            Step::text("last"),
        ];
        let (store, model, client) = case.begin(steps).await;
        let request = case.ask("search");
        let answer = send(&client, request.clone()).await.unwrap();
        let all = [
            "user search",
            "assistant first",
            "assistant second",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant last",
        ];
        assert_eq!(shorts(&answer.messages), all[1..]);
        for call in 0..3 {
            assert_eq!(
                sent_texts(&model, call),
                all[..=call],
                "the paused answer is the last message"
            );
        }
        assert_eq!(stored(&store).await, all);
        let again = send(&client, request).await.unwrap();
        assert_eq!(
            (shorts(&again.messages), model.requests().len()),
            (shorts(&answer.messages), 4)
        );
        assert_eq!(again.finish.reason, Some(FinishReason::Stop));
    })
    .await;
}

#[tokio::test]
async fn a_run_whose_answer_is_paused_for_ever_ends() {
    every_case(async |case| {
        let (store, model, client) = case.begin((0..40).map(|_| paused("more"))).await;
        let request = case.ask("search");
        let answer = send(&client, request.clone()).await.unwrap();
        let calls = model.requests().len();
        assert!((2..40).contains(&calls), "{calls}");
        assert_eq!(answer.finish.reason, Some(FinishReason::Other("pause_turn".to_owned())));
        assert_eq!(stored(&store).await.len(), calls + 1);
        let again = send(&client, request).await.unwrap();
        assert_eq!(shorts(&again.messages), shorts(&answer.messages));
        assert_eq!(model.requests().len(), calls, "a run that has ended is not continued");
    })
    .await;
}

#[tokio::test]
async fn a_run_that_was_interrupted_in_a_pause_continues_from_there() {
    every_case(async |case| {
        let steps = [paused("first"), Step::error("down"), Step::text("last")];
        let (store, model, client) = case.begin(steps).await;
        let request = case.ask("search");
        send(&client, request.clone()).await.unwrap_err();
        let answer = send(&client, request).await.unwrap();
        assert_eq!(answer.text(), "last");
        // In per-run mode, the first attempt has stored nothing. The second one starts again.
        let all = ["user search", "assistant first", "assistant last"];
        let (sent, kept) = match case.is(PerRun) {
            true => (&all[..1], vec![all[0], all[2]]),
            false => (&all[..2], all.to_vec()),
        };
        assert_eq!(sent_texts(&model, 2), sent);
        assert_eq!(stored(&store).await, kept);
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_sent_again_gets_the_reason_of_its_answer() {
    every_case(async |case| {
        let reasons = [
            FinishReason::Stop,
            FinishReason::Length,
            FinishReason::ContentFilter,
            FinishReason::Other("odd".to_owned()),
        ];
        for reason in reasons {
            let text = Message::assistant("there");
            let (_, model, client) =
                case.begin([Step::answer([text], Finish::new(reason.clone()))]).await;
            let request = case.ask("where?");
            let first = send(&client, request.clone()).await.unwrap();
            let again = send(&client, request).await.unwrap();
            assert_eq!(first.finish.reason, Some(reason.clone()));
            assert_eq!((again.finish.reason, model.requests().len()), (Some(reason), 1));
        }
    })
    .await;
}

#[tokio::test]
async fn a_loop_without_a_store_continues_with_a_paused_answer_too() {
    for streamed in BOTH_WAYS {
        let model = ScriptedModel::new([paused("first"), Step::text("last")]);
        let tool_loop = tower_chat::layer::ToolLoopLayer::new(tools(&ToolLog::default()));
        let client = boxed(tower::Layer::layer(&tool_loop, model.clone()));
        let request = ChatRequest::user("search");
        let request = if streamed { request.streamed() } else { request };
        let answer = send(&client, request).await.unwrap();
        assert_eq!(shorts(&answer.messages), ["assistant first", "assistant last"]);
        assert_eq!(sent_texts(&model, 1), ["user search", "assistant first"]);
        let is_text = |part: &Part| part.as_text().is_some();
        assert!(model.requests()[1].messages().iter().all(|it| it.parts.iter().all(is_text)));
    }
}
