//! Tests that a run which the service refuses permanently does not block its conversation, and that
//! an answer reports the cost of a run that was recovered before it.

use tower_chat::{
    BoxError, Finish, Message, PersistencePolicy,
    error::Retryability,
    recovery::{JournalPolicy, OnRefusal, RecoveryPolicy, recover},
    request::Usage,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

#[derive(Debug, thiserror::Error)]
#[error("the service refused the request with status {status}")]
struct Refused {
    status: u16,
    source: Retryability,
}

/// The error of a foreign layer, which wraps an error and does not report whether it is retryable.
#[derive(Debug, thiserror::Error)]
#[error("a layer failed")]
struct Wrapped(#[source] BoxError);

fn status(status: u16) -> Step {
    let source = Retryability::of_status(status);
    Step::error(Wrapped(Refused { status, source }.into()))
}

fn on_refusal(choice: OnRefusal) -> PersistencePolicy {
    policy().with_journal(JournalPolicy::default().on_refusal(choice))
}

/// Returns two steps in which the service refuses a request permanently: by an error of the service
/// call, and by an error in the stream of its response.
fn refusals() -> [Step; 2] {
    let source = Retryability::of_status(400);
    [status(400), Step::text("no").fails_after(1, Refused { status: 400, source })]
}

#[tokio::test]
async fn a_run_that_is_refused_before_any_answer_does_not_stay_open() {
    for streamed in BOTH_WAYS {
        for (choice, kept) in
            [(OnRefusal::KeepAnswers, 0), (OnRefusal::Discard, 0), (OnRefusal::Commit, 1)]
        {
            for refusal in refusals() {
                let store = store();
                let setup = Setup::new(&store).policy(on_refusal(choice));
                let model = booking_model_with(0, [refusal]);
                let client = setup.stack(&model, BookingTools::default().tools());
                send(&client, ask("bad", streamed)).await.unwrap_err();
                assert!(open(&store).await.is_none(), "{choice:?}");
                assert_eq!(stored(&store).await, ["user bad"][..kept], "{choice:?}");
                let answer = send(&client, ask("good", streamed)).await.unwrap();
                assert_eq!((answer.text(), model.requests().len()), ("hello".into(), 2));
            }
        }
    }
}

#[tokio::test]
async fn a_run_stays_open_after_a_retryable_failure() {
    let steps: [fn() -> Step; 3] =
        [|| status(429), || status(503), || Step::text("x").cut_off_after(1)];
    for (streamed, step) in cases!(BOTH_WAYS, steps) {
        let store = store();
        let model = booking_model_with(0, [step()]);
        let client = Setup::new(&store).stack(&model, BookingTools::default().tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        assert_eq!(staged(&store).await, ["user trip"]);
        let answer = send(&client, ask("and then?", streamed)).await.unwrap();
        assert_eq!(answer.finish.recovered.unwrap().answer.text(), "booked");
    }
}

#[tokio::test]
async fn a_recovery_that_is_refused_ends_the_run_and_the_new_message_is_answered() {
    for streamed in BOTH_WAYS {
        for (choice, kept) in
            [(OnRefusal::KeepAnswers, 3), (OnRefusal::Commit, 3), (OnRefusal::Discard, 0)]
        {
            let store = store();
            let setup = Setup::new(&store).policy(on_refusal(choice));
            let model = booking_model_with(1, [status(400), status(400)]);
            let booking_tools = BookingTools::default();
            let client = setup.stack(&model, booking_tools.tools());
            send(&client, ask("trip", streamed)).await.unwrap_err();
            assert_eq!(staged(&store).await, WHOLE_RUN[..2], "the caller can still resume the run");
            let answer = send(&client, ask("and then?", streamed)).await.unwrap();
            assert_eq!((answer.text(), answer.finish.recovered), ("hello".into(), None));
            assert_eq!((model.requests().len(), booking_tools.ran().len()), (4, 2));
            let mut expected: Vec<_> = WHOLE_RUN[..kept].iter().map(|it| (*it).into()).collect();
            expected.extend(["user and then?".to_owned(), "assistant hello".to_owned()]);
            assert_eq!(stored(&store).await, expected, "{choice:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_run_stays_open_under_the_policy_leave_open() {
    Cases::all()
        .modes([Journaled], "only journaled mode has open runs")
        .check(async |case| {
            let store = case.store().await;
            let setup = Setup::new(&store).policy(on_refusal(OnRefusal::LeaveOpen));
            let model = booking_model_with(0, [status(400), status(400), status(400)]);
            let client = setup.stack(&model, BookingTools::default().tools());
            for text in ["one", "two", "three"] {
                send(&client, case.ask(text)).await.unwrap_err();
                assert_eq!(staged(&store).await, ["user one"]);
            }
        })
        .await;
}

#[tokio::test]
async fn an_error_without_retryability_counts_as_a_refusal_at_the_last_attempt() {
    for (streamed, attempts) in cases!(BOTH_WAYS, [1, 3]) {
        let store = store();
        let journal = JournalPolicy::default().with_max_unclear_attempts(attempts);
        let setup = Setup::new(&store).policy(policy().with_journal(journal));
        let model = ScriptedModel::new((0..40).map(|_| {
            Step::respond(|request| match seen_last(request).as_str() {
                "user odd" => Step::error("odd"),
                _ => Step::text("hello"),
            })
        }));
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, ask("odd", streamed)).await.unwrap_err();
        for attempt in 2..attempts {
            assert_eq!(open(&store).await.unwrap().open.lease.attempt, attempt - 1);
            send(&client, ask("fine", streamed)).await.unwrap_err();
        }
        let answer = send(&client, ask("fine", streamed)).await.unwrap();
        assert_eq!(answer.text(), "hello");
        assert_eq!(model.requests().len(), attempts as usize + 1);
        assert_eq!(stored(&store).await, ["user odd", "user fine", "assistant hello"]);
    }
}

fn seen_last(request: &tower_chat::ChatRequest) -> String {
    short(request.messages().last().unwrap())
}

#[tokio::test]
async fn an_explicit_recovery_that_is_refused_returns_the_error_and_the_run_stays_open() {
    Cases::all()
        .modes([Journaled], "only journaled mode has open runs")
        .check(async |case| {
            let store = case.store().await;
            let setup = Setup::new(&store);
            let model = booking_model_with(1, [status(400), status(400)]);
            let mut client = setup.stack(&model, BookingTools::default().tools());
            send(&client, case.ask("trip")).await.unwrap_err();
            let error =
                recover(&mut client, &store, &key(), RecoveryPolicy::resume()).await.unwrap_err();
            assert!(error.is::<Wrapped>(), "{error:?}");
            assert_eq!(staged(&store).await, WHOLE_RUN[..2]);
        })
        .await;
}

#[tokio::test]
async fn the_usage_of_a_recovered_run_is_reported_with_the_next_answer() {
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let paid = |text: &str, input, output| {
            let finish = Finish::stop().with_usage(Usage::new(input, output));
            Step::answer([Message::assistant(text)], finish)
        };
        let steps = [status(503), paid("first", 30, 4), paid("second", 50, 6)];
        let model = ScriptedModel::new(steps);
        let client = setup.stack(&model, BookingTools::default().tools());
        let first = ask("one", streamed);
        let run = first.conversation().unwrap().run;
        send(&client, first).await.unwrap_err();
        let answer = send(&client, ask("two", streamed)).await.unwrap();
        assert_eq!((answer.text(), answer.finish.usage), ("second".into(), Usage::new(50, 6)));
        let recovered = answer.finish.recovered.unwrap();
        assert_eq!(recovered.run, run);
        assert_eq!(shorts(&recovered.answer.messages), ["assistant first"]);
        assert_eq!(recovered.answer.finish.usage, Usage::new(30, 4));
        assert_eq!(recovered.answer.finish.saved.unwrap().messages, 2);
    }
}

#[tokio::test]
async fn a_recovery_that_fails_is_reported_to_the_request_before_which_it_runs() {
    use tower_chat::policy::ConcurrentRuns;
    for (streamed, queues) in cases!(BOTH_WAYS, BOTH_WAYS) {
        let store = store();
        let concurrent =
            if queues { ConcurrentRuns::Queue { max_waiting: 3 } } else { ConcurrentRuns::Reject };
        let setup = Setup::new(&store).policy(policy().with_concurrent_runs(concurrent));
        let model = booking_model_with(0, [status(503), status(429)]);
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        let error = send(&client, ask("and then?", streamed)).await.unwrap_err();
        assert!(error.is::<Wrapped>(), "queues {queues}: {error:?}");
        assert_eq!(staged(&store).await, ["user trip"]);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_refused_recovery_stores_the_input_of_a_run_without_answers_only_if_configured() {
    for (streamed, (choice, kept)) in cases!(
        BOTH_WAYS,
        [(OnRefusal::KeepAnswers, 0), (OnRefusal::Discard, 0), (OnRefusal::Commit, 1)]
    ) {
        let store = store();
        let setup = Setup::new(&store).policy(on_refusal(choice));
        let model = booking_model_with(0, [status(503), status(400)]);
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, ask("trip", streamed)).await.unwrap_err();
        let answer = send(&client, ask("and then?", streamed)).await.unwrap();
        assert_eq!((answer.text(), answer.finish.recovered), ("hello".into(), None));
        let all = ["user trip", "user and then?", "assistant hello"];
        assert_eq!(stored(&store).await, all[1 - kept..], "{choice:?}");
    }
}
