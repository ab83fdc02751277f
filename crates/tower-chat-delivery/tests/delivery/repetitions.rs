//! Tests of attempts that send messages of earlier attempts again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::stream;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish, Message, message::MessageId,
};
use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog, RunKey, UpdatePosition};

use crate::support::{request, rest, sketch};

/// One item of a scripted response.
#[derive(Clone, Copy)]
enum Sent {
    Delta(&'static str),
    Message(u32, &'static str),
    Finish,
    Failure,
}

impl Sent {
    fn update(self, run: &RunKey) -> Result<ChatUpdate, BoxError> {
        Ok(match self {
            Self::Delta(text) => ChatUpdate::TextDelta(text.to_owned()),
            Self::Message(index, text) => {
                let mut message = Message::assistant(text);
                message.id = Some(MessageId { run: run.run, index });
                ChatUpdate::Message(message.into())
            }
            Self::Finish => ChatUpdate::Finish(Finish::stop().into()),
            Self::Failure => return Err("overloaded".into()),
        })
    }
}

/// Sends the request once for each attempt. Returns the events that a reader of the run receives.
async fn events(attempts: &'static [&'static [Sent]]) -> Vec<String> {
    let (request, run) = request();
    let count = Arc::new(AtomicUsize::new(0));
    let name = run.clone();
    let model = service_fn(move |_: ChatRequest| {
        let attempt = attempts[count.fetch_add(1, Ordering::Relaxed)];
        let updates: Vec<_> = attempt.iter().map(|sent| sent.update(&name)).collect();
        async move { Ok::<_, BoxError>(ChatResponse::stream(stream::iter(updates))) }
    });
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let mut stack = runs.layer(model);
    for _ in attempts {
        let call = stack.ready().await.unwrap().call(request.clone());
        // All attempts except the last one fail.
        drop(call.await.unwrap().collect().await);
        runs.drained().await;
    }
    sketch(&rest(runs.attach(&run, UpdatePosition::START).await.unwrap()).await)
}

#[tokio::test(start_paused = true)]
async fn readers_discard_deltas_that_repeat_a_message() {
    use Sent::{Delta, Failure, Finish, Message};
    let events = events(&[
        &[Delta("Take a coat."), Message(1, "Take a coat."), Delta("And"), Failure],
        &[Delta("Take a coat."), Message(1, "Take a coat."), Message(2, "And boots."), Finish],
    ]);
    let expected = [
        "Take a coat.",
        "message: Take a coat.",
        "And",
        "restarted 2",
        "Take a coat.",
        "restarted 2",
        "message: And boots.",
        "finish",
        "completed",
    ];
    assert_eq!(events.await, expected);
}

/// The second attempt replaces both messages of the first attempt.
#[tokio::test(start_paused = true)]
async fn a_message_that_was_replaced_is_sent_again() {
    use Sent::{Delta, Failure, Finish, Message};
    let events = events(&[
        &[Delta("a"), Message(1, "a"), Message(2, "b"), Failure],
        &[Delta("c"), Message(1, "c"), Failure],
        &[Message(1, "c"), Message(2, "b"), Finish],
    ]);
    let events = events.await;
    let third = events.iter().position(|event| event == "restarted 3").unwrap();
    assert_eq!(events[third..], ["restarted 3", "message: b", "finish", "completed"]);
}
