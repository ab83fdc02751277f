//! A fuzz target for the replies of a Redis server. The server of the target sends damaged replies.
//! The undamaged replies were recorded from a real server.

mod reply;
mod server;

use std::{fs, path::Path, time::Duration};

use tokio::runtime::Runtime;
use tower_chat::{
    HistoryStore,
    run::RunId,
    store::{
        ConversationQuery, Directory, InvocationQuery, Journal, StoreError, ToolCallQueries,
        UsageGrouping, UsageQuery,
    },
};
use tower_chat_redis::RedisStore;
use tower_chat_testkit::Rng;

use self::server::Server;
use super::{
    Entry, Made,
    filled::{conversation, fill},
};

/// The separator between two replies of an operation.
const BETWEEN: &[u8] = b"\n--\n";

/// The names of the store operations that the target executes.
const OPERATIONS: [&str; 12] = [
    "head",
    "load",
    "open-run",
    "open-runs",
    "list",
    "invocations",
    "tool-totals",
    "summary",
    "conversations",
    "usage",
    "runs",
    "messages-before",
];

/// The folder with the recorded replies, one file for each operation. A seed input consists of the
/// name of the operation, a line feed, and the replies.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds/redis");

pub(crate) fn target() -> Entry {
    Entry::new("redis-replies", "the replies of a Redis server: RedisStore", make).slow()
}

fn make() -> Made {
    let seeds = OPERATIONS.map(|operation| {
        let file = Path::new(RECORDED).join(operation);
        let replies = fs::read(file).expect("the recorded replies can be read");
        [operation.as_bytes(), b"\n", &replies].concat()
    });
    let runtime = runtime();
    let (server, address) = runtime.block_on(Server::start(None));
    let store = runtime.block_on(open(&address));
    let run = move |bytes: &[u8], _: &mut Rng| {
        let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
        let (operation, replies) = (lines.next(), lines.next().unwrap_or_default());
        let named = OPERATIONS.iter().find(|it| Some(it.as_bytes()) == operation);
        server.answer_with(split(replies));
        runtime.block_on(async {
            let outcome = ask(&store, named.unwrap_or(&"head")).await;
            if server.has_closed() {
                // The closed connection makes the next operation of the client fail. `head` is called
                // here, so that the operation of the next input does not fail for this reason.
                server.answer_with(Vec::new());
                drop(store.head(&conversation()).await);
                server.answer_with(Vec::new());
            }
            outcome.is_ok()
        })
    };
    (seeds.to_vec(), Box::new(run))
}

fn split(mut replies: &[u8]) -> Vec<Vec<u8>> {
    let mut split = Vec::new();
    while let Some(at) = replies.windows(BETWEEN.len()).position(|some| some == BETWEEN) {
        let (reply, rest) = replies.split_at(at);
        split.push(reply.to_vec());
        replies = rest.get(BETWEEN.len()..).unwrap_or_default();
    }
    split.push(replies.to_vec());
    split
}

async fn open(address: &str) -> RedisStore {
    let options = RedisStore::options()
        .with_prefix("fuzz")
        .with_max_connections(1)
        .with_retry_timeout(Duration::ZERO)
        .with_response_timeout(Duration::from_secs(20));
    options.connect(address).await.expect("a connection to the server of this target")
}

async fn ask(store: &RedisStore, operation: &str) -> Result<(), StoreError> {
    let key = conversation();
    let calls = InvocationQuery::in_scope(key.scope());
    match operation {
        "head" => store.head(&key).await.map(drop),
        "load" => store.load(&key).await.map(drop),
        "open-run" => store.open_run(&key).await.map(drop),
        "open-runs" => store.open_runs(key.scope(), None, 9).await.map(drop),
        "list" => store.list(key.scope(), None, 9).await.map(drop),
        "invocations" => store.invocations(&calls).await.map(drop),
        "tool-totals" => store.tool_totals(&calls).await.map(drop),
        "summary" => store.summary(&key).await.map(drop),
        "conversations" => {
            let query = ConversationQuery::in_scope(key.scope());
            store.conversations(&query).await.map(drop)
        }
        "usage" => {
            let query = UsageQuery::of(&key, UsageGrouping::Run);
            store.usage(&query).await.map(drop)
        }
        "runs" => store.runs(&key, Some(RunId::from_bytes([255; 16])), 9).await.map(drop),
        _ => store.messages_before(&key, Some(9), 9).await.map(drop),
    }
}

/// Records the replies of a real server, which must be empty, and writes them to [`RECORDED`].
///
/// # Errors
///
/// If the replies cannot be written.
pub(crate) fn record(address: &str) -> std::io::Result<()> {
    let runtime = runtime();
    fs::create_dir_all(RECORDED)?;
    for operation in OPERATIONS {
        let replies = runtime.block_on(async {
            let (server, through) = Server::start(Some(address.to_owned())).await;
            let store = open(&through).await;
            if store.head(&conversation()).await.expect("a head").revision.sequence == 0 {
                fill(&store).await;
            }
            server.recorded();
            ask(&store, operation).await.expect("the operation succeeds");
            server.recorded()
        });
        fs::write(Path::new(RECORDED).join(operation), replies.join(BETWEEN))?;
    }
    Ok(())
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
