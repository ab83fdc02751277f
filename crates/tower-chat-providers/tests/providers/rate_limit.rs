//! Tests of the rate limit layer: which calls it sends, and when.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_chat_core::BoxError;
use tower_chat_providers::rate_limit::{
    RateLimit, RateLimitExceeded, RateLimitLayer, RateLimitedBody,
};

type Reply = (u16, Vec<(&'static str, String)>);

fn header(name: &'static str, value: impl ToString) -> (&'static str, String) {
    (name, value.to_string())
}

/// A service that returns the status and the headers of each reply in turn. After the last reply,
/// the service returns the status 200 without headers.
#[derive(Clone, Default)]
struct Upstream {
    replies: Arc<Mutex<Vec<Reply>>>,
    received: Arc<Mutex<Vec<Instant>>>,
    /// The time until the service returns a response.
    latency: Duration,
}

impl Upstream {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let mut replies: Vec<Reply> = replies.into_iter().collect();
        replies.reverse();
        Self { replies: Arc::new(Mutex::new(replies)), ..Self::default() }
    }

    fn received(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// Returns the time of each received request, relative to the first request.
    fn times(&self) -> Vec<Duration> {
        let received = self.received.lock().unwrap();
        received.iter().map(|at| *at - received[0]).collect()
    }

    fn service(
        &self,
    ) -> impl Service<
        Request<Bytes>,
        Response = Response<Full<Bytes>>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static {
        let upstream = self.clone();
        service_fn(move |_request: Request<Bytes>| {
            let upstream = upstream.clone();
            async move {
                upstream.received.lock().unwrap().push(Instant::now());
                let reply = upstream.replies.lock().unwrap().pop();
                tokio::time::sleep(upstream.latency).await;
                let (status, headers) = reply.unwrap_or((200, Vec::new()));
                let mut response = Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                Ok(response.body(Full::from("the body")).unwrap())
            }
        })
    }
}

type Answer = Result<Response<RateLimitedBody<Full<Bytes>>>, BoxError>;

async fn call<T>(service: &RateLimit<T>) -> Answer
where
    RateLimit<T>: Service<Request<Bytes>, Response = Response<RateLimitedBody<Full<Bytes>>>, Error = BoxError>
        + Clone,
{
    service.clone().oneshot(Request::new(Bytes::new())).await
}

/// Returns a reply with the remaining number of requests, and the time until the limit is reset.
fn requests(remaining: usize, reset: &str) -> Reply {
    (
        200,
        vec![
            header("x-ratelimit-remaining-requests", remaining),
            header("x-ratelimit-reset-requests", reset),
        ],
    )
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_held_until_the_body_has_ended_or_was_dropped() {
    let upstream = Upstream::default();
    let service = RateLimitLayer::new(2).layer(upstream.service());
    let (one, two) = (call(&service).await.unwrap(), call(&service).await.unwrap());
    let mut third = std::pin::pin!(call(&service));
    assert!(third.as_mut().now_or_never().is_none());
    assert_eq!(upstream.received(), 2);
    drop(one);
    let three = third.await.unwrap();
    let mut fourth = std::pin::pin!(call(&service));
    assert!(fourth.as_mut().now_or_never().is_none());
    assert_eq!(two.into_body().collect().await.unwrap().to_bytes(), "the body");
    let four = fourth.await.unwrap();
    assert_eq!(upstream.received(), 4);
    // A body that was read to its end releases its permit, even if the body has not been dropped.
    let (mut three, mut four) = (three.into_body(), four.into_body());
    for body in [&mut three, &mut four] {
        while body.frame().await.is_some() {}
    }
    call(&service).await.unwrap();
    call(&service).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_returns_its_permit() {
    let upstream = Upstream::new([requests(0, "5s")]);
    let service = RateLimitLayer::new(1).layer(upstream.service());
    drop(call(&service).await.unwrap());
    let given_up = tokio::time::timeout(Duration::from_secs(2), call(&service)).await;
    assert!(given_up.is_err());
    drop(call(&service).await.unwrap());
    assert_eq!(upstream.times(), [Duration::ZERO, Duration::from_secs(5)]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_all_clones_wait_for_the_reset_of_a_limit_that_is_exhausted() {
    for (reset, wait) in [("1s", 1_000), ("6m0s", 360_000), ("20ms", 20), ("7.5", 7_500)] {
        for limit in
            ["x-ratelimit-{}-requests", "x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}"]
        {
            let name = |part| -> &'static str { limit.replace("{}", part).leak() };
            let reply = (200, vec![header(name("remaining"), 0), header(name("reset"), reset)]);
            let upstream = Upstream::new([reply]);
            let layer = RateLimitLayer::new(8).max_wait(Duration::from_secs(400));
            call(&layer.layer(upstream.service())).await.unwrap();
            let other = layer.clone().layer(upstream.service());
            call(&other).await.unwrap();
            let expected = [Duration::ZERO, Duration::from_millis(wait)];
            assert_eq!(upstream.times(), expected, "{limit} {reset}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn remaining_requests_are_counted_down_between_responses() {
    let mut upstream = Upstream::new([requests(2, "10s")]);
    let layer = RateLimitLayer::new(8);
    call(&layer.layer(upstream.service())).await.unwrap();
    upstream.latency = Duration::from_secs(60);
    let slow = layer.layer(upstream.service());
    let calls = (0..4).map(|_| call(&slow));
    let _answers = futures_util::future::join_all(calls).await;
    let times: Vec<u64> = upstream.times().iter().map(Duration::as_secs).collect();
    assert_eq!(times, [0, 0, 0, 10, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_reports_more_remaining_requests_releases_waiting_calls() {
    let mut upstream = Upstream::new([requests(1, "50s"), requests(7, "50s")]);
    upstream.latency = Duration::from_secs(3);
    let service = RateLimitLayer::new(8).layer(upstream.service());
    call(&service).await.unwrap();
    let calls = (0..3).map(|_| call(&service));
    let _answers = futures_util::future::join_all(calls).await;
    let times: Vec<u64> = upstream.times().iter().map(Duration::as_secs).collect();
    assert_eq!(times, [0, 3, 6, 6]);
}

#[tokio::test(start_paused = true)]
async fn after_429_503_or_529_a_service_is_not_called_before_its_retry_after_time() {
    for (status, name, value, wait) in [
        (429, "retry-after", "12", 12_000),
        (529, "retry-after-ms", "350", 350),
        (503, "retry-after", "2", 2_000),
        (200, "retry-after", "9", 0),
        (500, "retry-after", "8", 0),
    ] {
        let upstream = Upstream::new([(status, vec![header(name, value)])]);
        let service = RateLimitLayer::new(3).layer(upstream.service());
        assert_eq!(call(&service).await.unwrap().status(), status);
        call(&service).await.unwrap();
        assert_eq!(upstream.times()[1], Duration::from_millis(wait), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_longer_than_the_maximum_is_a_typed_error_at_once() {
    let upstream = Upstream::new([requests(0, "23h")]);
    let max_wait = Duration::from_secs(20);
    let service = RateLimitLayer::new(3).max_wait(max_wait).layer(upstream.service());
    call(&service).await.unwrap();
    let began = Instant::now();
    let error = call(&service).await.unwrap_err();
    assert_eq!(tower_chat_core::is_retryable(&*error), Some(true));
    let found = error.downcast_ref::<RateLimitExceeded>().unwrap();
    let expected = RateLimitExceeded::new("requests", Duration::from_secs(23 * 60 * 60), max_wait);
    assert_eq!(*found, expected);
    assert!(error.to_string().contains("RateLimitLayer::max_wait"), "{error}");
    assert_eq!((began.elapsed(), upstream.received()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn without_rate_limit_headers_only_concurrent_calls_are_limited() {
    let replies = [
        (200, Vec::new()),
        // No requests remain, and no header contains a reset time.
        (200, vec![header("x-ratelimit-remaining-requests", 0)]),
        (429, Vec::new()),
        (200, vec![header("x-ratelimit-reset-tokens", "5m")]),
        (
            200,
            vec![
                header("x-ratelimit-remaining-tokens", "few"),
                header("x-ratelimit-reset-tokens", "soon"),
            ],
        ),
    ];
    let upstream = Upstream::new(replies);
    let service = RateLimitLayer::new(1).layer(upstream.service());
    for _ in 0..6 {
        call(&service).await.unwrap();
    }
    assert_eq!(upstream.times(), [Duration::ZERO; 6]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_transport_call_returns_its_permit() {
    let service = service_fn(|_request: Request<Bytes>| async {
        Err::<Response<Full<Bytes>>, BoxError>("the cable is cut".into())
    });
    let service = RateLimitLayer::new(1).layer(service);
    for _ in 0..3 {
        assert_eq!(call(&service).await.unwrap_err().to_string(), "the cable is cut");
    }
}
