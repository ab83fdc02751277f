//! A fuzz target for requests to the inspector: query strings, forms and headers.

use http::{HeaderValue, header::HOST};
use tower::ServiceExt;
use tower_chat::MemoryStore;
use tower_chat_inspector::Inspector;
use tower_chat_testkit::Rng;

use super::{Entry, endpoint::head, filled::fill};

const REQUESTS: [&str; 12] = [
    "GET /?scope=fuzz&state=waiting&q=tide&after=3.harbour\nhost: localhost\n\n",
    "GET /conversation?scope=fuzz&id=rows&before=2\nhost: localhost\n\n",
    "GET /message?scope=fuzz&id=rows&number=1\nhost: 127.0.0.1:80\n\n",
    "GET /next?scope=fuzz&id=rows&policy=default\nhost: [::1]\n\n",
    "GET /tools?scope=fuzz\nhost: localhost\n\n",
    "GET /usage?scope=fuzz&by=day\nhost: localhost\n\n",
    "GET /runs?scope=fuzz&after=a%20b\nhost: localhost\n\n",
    "GET /conversation?token=t%2B1&scope=fuzz&id=rows\nhost: localhost\n\n",
    "GET /usage?scope=fuzz\nhost: localhost\ncookie: a=b; tower_chat_inspector=t\n\n",
    "POST /runs/end?scope=fuzz&id=rows\nhost: localhost\norigin: http://localhost\n\
     content-type: application/x-www-form-urlencoded\n\nrun=00000000-0000-0000-0000-000000000001&end=discard",
    "POST /runs/decide?scope=fuzz&id=rows\nhost: localhost\nsec-fetch-site: same-origin\n\
     content-type: application/x-www-form-urlencoded\n\n617070726f7665=approve&reason=Yes%21",
    "GET /changes?scope=fuzz&id=rows\nhost: localhost\n\n",
];

pub(crate) fn target() -> Entry {
    Entry::new("inspector-requests", "query strings, forms and headers of the inspector", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let store = MemoryStore::new();
        runtime.block_on(fill(&store));
        let open = Inspector::new(store.clone()).with_all_scopes().with_writes(true).into_router();
        let closed = Inspector::new(store).in_one_scope("fuzz").with_token("t+1").into_router();
        let run = move |bytes: &[u8], rng: &mut Rng| {
            let Some(mut request) = head(bytes) else { return false };
            let is_known = rng.one_in(2);
            if is_known {
                request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
            }
            let follows = request.uri().path() == "/changes";
            let router = if rng.one_in(8) { closed.clone() } else { open.clone() };
            let status = runtime.block_on(async {
                let response = router.oneshot(request).await.expect("a response");
                let status = response.status();
                // The response of `/changes` never ends.
                if !follows {
                    axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
                }
                status
            });
            assert!(!status.is_server_error(), "{status}");
            status.is_success()
        };
        (REQUESTS.map(Vec::from).to_vec(), Box::new(run))
    })
}
