//! Tests of the retry policy: which failures are retried, how often, and after which wait.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower::{
    Service, ServiceExt,
    retry::{RetryLayer, budget::TpsBudget},
    service_fn,
};
use tower_chat_core::{BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message};
use tower_chat_providers::{
    ProviderError, ProviderErrorKind, Refusal, rate_limit::RateLimitExceeded, retry::RetryPolicy,
};
use tower_layer::Layer;

fn refusal(status: u16, retry_after: Option<Duration>) -> ProviderError {
    let mut refusal = Refusal::default();
    refusal.status = Some(status);
    refusal.retry_after = retry_after;
    ProviderError::new("provider", ProviderErrorKind::Refused(refusal))
}

fn answer() -> ChatResponse {
    ChatResponse::whole([Message::assistant("at last")], Finish::default())
}

/// The times at which attempts began.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<Instant>>>);

impl Attempts {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns the times between attempts.
    fn waits(&self) -> Vec<Duration> {
        self.0.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

/// Returns a client that fails with each of these errors in turn, and then returns an answer.
fn client<E: Send + 'static>(
    attempts: &Attempts,
    errors: Vec<E>,
) -> impl Service<ChatRequest, Response = ChatResponse, Error = E, Future: Send> + Clone {
    let attempts = attempts.clone();
    let errors = Arc::new(Mutex::new(errors.into_iter()));
    service_fn(move |_request: ChatRequest| {
        attempts.0.lock().unwrap().push(Instant::now());
        let error = errors.lock().unwrap().next();
        async move { error.map_or_else(|| Ok(answer()), Err) }
    })
}

async fn ask<S>(service: S) -> Result<String, S::Error>
where
    S: Service<ChatRequest, Response = ChatResponse>,
{
    let response = service.oneshot(ChatRequest::user("now?")).await?;
    Ok(response.collect().await.unwrap().text())
}

fn overloaded(count: usize) -> Vec<ProviderError> {
    (0..count).map(|_| refusal(529, None)).collect()
}

#[tokio::test(start_paused = true)]
async fn waits_between_attempts_are_random_and_grow_up_to_a_limit() {
    let policy = RetryPolicy::new()
        .with_max_attempts(6)
        .with_backoff(Duration::from_secs(1), Duration::from_secs(4));
    let max = [1, 2, 4, 4, 4].map(Duration::from_secs);
    let mut sums = [Duration::ZERO; 5];
    for _ in 0..40 {
        let attempts = Attempts::default();
        let service = RetryLayer::new(policy.clone().with_budget(large_budget()));
        assert_eq!(ask(service.layer(client(&attempts, overloaded(5)))).await.unwrap(), "at last");
        let waits = attempts.waits();
        assert_eq!(waits.len(), 5);
        for ((wait, max), sum) in waits.into_iter().zip(max).zip(&mut sums) {
            // The resolution of tokio's clock is one millisecond.
            assert!(wait <= max + Duration::from_millis(1), "{wait:?} of {max:?}");
            *sum += wait;
        }
    }
    for (sum, max) in sums.into_iter().zip(max) {
        let mean = sum / 40;
        assert!(mean > max / 4 && mean < max * 3 / 4, "{mean:?} of {max:?}");
    }
}

fn large_budget() -> Arc<TpsBudget> {
    Arc::new(TpsBudget::new(Duration::from_secs(10), 1_000, 1.0))
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_service_requests_is_respected_up_to_a_limit() {
    let max_wait = Duration::from_secs(30);
    let policy = RetryPolicy::new().with_max_retry_after(max_wait);
    let attempts = Attempts::default();
    let errors = vec![refusal(429, Some(max_wait))];
    ask(RetryLayer::new(policy.clone()).layer(client(&attempts, errors))).await.unwrap();
    let wait = attempts.waits()[0];
    assert!(wait >= max_wait && wait <= max_wait + Duration::from_millis(501), "{wait:?}");

    let attempts = Attempts::default();
    let longer = max_wait + Duration::from_millis(1);
    let errors = vec![refusal(429, Some(longer))];
    let began = Instant::now();
    let error = ask(RetryLayer::new(policy).layer(client(&attempts, errors))).await.unwrap_err();
    assert_eq!((error.retry_after(), attempts.count()), (Some(longer), 1));
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_last_error_is_returned_after_the_last_attempt() {
    let attempts = Attempts::default();
    let errors = vec![refusal(500, None), refusal(502, None), refusal(503, None)];
    let policy = RetryPolicy::new().with_max_attempts(3);
    let error = ask(RetryLayer::new(policy).layer(client(&attempts, errors))).await.unwrap_err();
    assert_eq!((error.status(), attempts.count()), (Some(503), 3));
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_not_retryable_is_returned_at_once() {
    let attempts = Attempts::default();
    let service =
        RetryLayer::new(RetryPolicy::new()).layer(client(&attempts, vec![refusal(400, None)]));
    assert_eq!(ask(service).await.unwrap_err().status(), Some(400));
    assert_eq!(attempts.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_each_service_call_are_counted_separately() {
    let attempts = Attempts::default();
    let policy = RetryPolicy::new().with_max_attempts(2);
    let mut service = RetryLayer::new(policy).layer(client(&attempts, overloaded(3)));
    let mut call = async || {
        let response = service.ready().await.unwrap().call(ChatRequest::user("again")).await;
        response.map(drop).map_err(|error| error.status())
    };
    assert_eq!(call().await, Err(Some(529)));
    assert_eq!(call().await, Ok(()));
    assert_eq!(attempts.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_deadline() {
    let attempts = Attempts::default();
    let wait = Duration::from_secs(4);
    let errors = (0..9).map(|_| refusal(429, Some(wait))).collect();
    let policy = RetryPolicy::new()
        .with_max_attempts(10)
        .with_backoff(Duration::ZERO, Duration::ZERO)
        .with_deadline(Duration::from_secs(10));
    let mut service = RetryLayer::new(policy).layer(client(&attempts, errors));
    // The deadline applies from the beginning of the call, so the time before the call has no
    // effect.
    tokio::time::advance(Duration::from_secs(60)).await;
    let response = service.ready().await.unwrap().call(ChatRequest::user("soon?")).await;
    assert_eq!(response.map(drop).unwrap_err().status(), Some(429));
    assert_eq!(attempts.waits(), [wait, wait]);
}

#[tokio::test(start_paused = true)]
async fn one_budget_limits_the_attempts_of_all_clones() {
    // The budget allows 2 retries (1 per second, in a window of 2 seconds). Successful calls
    // deposit nothing.
    let budget = Arc::new(TpsBudget::new(Duration::from_secs(2), 1, 0.0));
    let policy = RetryPolicy::new().with_max_attempts(9).with_budget(budget);
    let layer = RetryLayer::new(policy);
    let attempts = Attempts::default();
    let service = layer.layer(client(&attempts, overloaded(5)));
    assert_eq!(ask(service.clone()).await.unwrap_err().status(), Some(529));
    assert_eq!(attempts.count(), 3);
    assert_eq!(ask(service.clone()).await.unwrap_err().status(), Some(529));
    assert_eq!(attempts.count(), 4);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(ask(service).await.unwrap(), "at last");
    assert_eq!(attempts.count(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_fails_after_its_beginning_is_not_repeated() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let client = service_fn(move |_request: ChatRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        let truncated = ProviderErrorKind::Truncated {
            text: "half".to_owned(),
            reason: "the connection broke".to_owned(),
        };
        let error = BoxError::from(ProviderError::new("provider", truncated));
        let updates = [Ok(ChatUpdate::TextDelta("half".to_owned())), Err(error)];
        let response = ChatResponse::stream(futures_util::stream::iter(updates));
        std::future::ready(Ok::<_, ProviderError>(response))
    });
    let service = RetryLayer::new(RetryPolicy::new()).layer(client);
    let response = service.oneshot(ChatRequest::user("go on").streamed()).await.unwrap();
    let error = response.collect().await.unwrap_err();
    assert!(error.downcast_ref::<ProviderError>().unwrap().is_retryable());
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_boxed_error_is_retried_as_the_error_in_its_source_chain_requires() {
    #[derive(Debug, thiserror::Error)]
    #[error("wrapped")]
    struct Wrapped(#[source] ProviderError);

    let after = Duration::from_secs(7);
    let limit = RateLimitExceeded::new("requests", after, Duration::from_secs(1));
    let beneath_the_client = ProviderErrorKind::Transport { source: limit.clone().into() };
    let cases: Vec<(BoxError, usize, Option<Duration>)> = vec![
        (Wrapped(refusal(503, Some(after))).into(), 2, Some(after)),
        (Wrapped(refusal(401, None)).into(), 1, None),
        (limit.clone().into(), 2, Some(after)),
        (ProviderError::new("provider", beneath_the_client).into(), 2, Some(after)),
        ("an error of another type".into(), 1, None),
    ];
    for (error, expected, wait) in cases {
        let name = error.to_string();
        let attempts = Attempts::default();
        let policy = RetryPolicy::new().with_backoff(Duration::ZERO, Duration::ZERO);
        let service = RetryLayer::new(policy).layer(client(&attempts, vec![error]));
        let _outcome = ask(service).await;
        assert_eq!(attempts.count(), expected, "{name}");
        assert_eq!(attempts.waits().first().copied(), wait, "{name}");
    }
}
