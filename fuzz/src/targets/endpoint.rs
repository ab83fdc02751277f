//! Fuzz targets for requests to the HTTP endpoint.

use std::cell::RefCell;

use axum::{Router, body::Body};
use http::Request;
use tower::{ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, MemoryStore, Message,
    PersistenceMode, Tools,
};
use tower_chat_http::ChatEndpoint;
use tower_chat_testkit::Rng;
use tower_chat_wire::body::BodyWire;

use super::Entry;
use crate::seeds;

/// The number of requests after which the router is replaced by one with an empty store.
const REQUESTS_OF_STORE: usize = 64;

pub(crate) fn targets() -> [Entry; 2] {
    [
        Entry::new("endpoint-bodies", "the bodies of POST /v1/chat/completions", || {
            let router = Routers::new();
            let run = move |bytes: &[u8], _: &mut Rng| {
                let request =
                    Request::post("/v1/chat/completions").header("x-conversation-id", "fuzz");
                router.answers(request.body(Body::from(bytes.to_vec())).expect("a request"))
            };
            (seeds::of_wire(BodyWire::OpenAiChat).requests, Box::new(run))
        }),
        Entry::new("endpoint-heads", "paths and headers of the endpoint", || {
            let router = Routers::new();
            let run = move |bytes: &[u8], _: &mut Rng| {
                head(bytes).is_some_and(|request| router.answers(request))
            };
            (HEADS.map(Vec::from).to_vec(), Box::new(run))
        }),
    ]
}

const HEADS: [&str; 3] = [
    "POST /v1/chat/completions\nx-conversation-id: c1\ncontent-type: application/json\n\n\
     {\"conversation\": {\"id\": \"c1\"}, \"messages\": [{\"role\": \"user\", \"content\": \"Tide?\"}]}",
    "GET /v1/models/small%2Fquick\naccept: */*\n\n",
    "GET /v1/models\n\n",
];

/// Parses a request: a line with method and path, header lines, an empty line, and a body.
pub(crate) fn head(bytes: &[u8]) -> Option<Request<Body>> {
    let end = bytes.windows(2).position(|two| two == b"\n\n")?;
    let (head, body) = bytes.split_at(end);
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
    let mut request = Request::builder().method(first.next()?).uri(first.next()?);
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        request = request.header(name, value.strip_prefix(b": ").unwrap_or(value));
    }
    let body = body.get(2..).unwrap_or_default().to_vec();
    request.body(Body::from(body)).ok()
}

/// A router that is replaced after a number of requests, because its store would grow without
/// limit.
struct Routers {
    runtime: tokio::runtime::Runtime,
    current: RefCell<(usize, Router)>,
}

impl Routers {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        Self { runtime: runtime.expect("a runtime"), current: RefCell::new((0, router())) }
    }

    /// Returns whether the endpoint answers with success. Panics on a server error.
    fn answers(&self, request: Request<Body>) -> bool {
        let (used, current) = &mut *self.current.borrow_mut();
        *used += 1;
        if used.is_multiple_of(REQUESTS_OF_STORE) {
            *current = router();
        }
        let status = self.runtime.block_on(async {
            let response = current.clone().oneshot(request).await.expect("a response");
            let status = response.status();
            axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            status
        });
        assert!(!status.is_server_error(), "{status}");
        status.is_success()
    }
}

fn router() -> Router {
    let model = service_fn(|_: ChatRequest| async {
        Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("Done.")], Finish::stop()))
    });
    let store = MemoryStore::new();
    let stack = ChatPipeline::builder(model)
        .tools(Tools::new())
        .history(store.clone())
        .persistence(PersistenceMode::PerServiceCall)
        .build()
        .expect("a stack");
    ChatEndpoint::new(stack, store).with_models(["small/quick"]).in_one_scope("fuzz").into_router()
}
