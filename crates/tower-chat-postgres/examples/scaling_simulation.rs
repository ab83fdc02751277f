//! Simulates many conversations that are distributed over many shards. Measures the sizes of the
//! tables, the distribution of the conversations, and the throughput of writes and reads.
//! `docs/scaling.md` compares the results with its calculation.
//!
//! `cargo run --release -p tower-chat-postgres --example scaling_simulation [CONVERSATIONS [SHARDS]]`
//!
//! The shards are hash partitions on one temporary server, which does not sync its files.

use std::{env, error::Error, sync::Arc, time::Instant};

use tokio_postgres::NoTls;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId, ToolCall, ToolResult, ToolStatus, format,
    store::{
        HistoryStore, Revision, SequencePosition,
        author::{RecordedResult, ToolRecord, Write},
    },
};
use tower_chat_postgres::PostgresStore;
use tower_chat_testkit::server::{PostgresServer, required};

/// The number of appends per conversation, as in `docs/scaling.md`.
const APPENDS: u64 = 10;
const MESSAGES_OF_APPEND: u64 = 4;
/// The average number of bytes of a message's JSON.
const MESSAGE_BYTES: usize = 392;

/// The number of conversations that are written concurrently.
const WRITERS: usize = 8;
const SCHEMA: &str = "simulation";
const TABLES: [&str; 4] = ["conversations", "messages", "tool_invocations", "run_usage"];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut number = |default: u32| arguments.next().map_or(Ok(default), |text| text.parse());
    let conversations = number(6_000)?;
    let shards = u16::try_from(number(16)?)?;

    let server = required(PostgresServer::start(), "the simulation");
    let address = server.address("postgres");
    let store = PostgresStore::options()
        .with_schema(SCHEMA)
        .with_partitions(shards)
        .with_max_connections(WRITERS)
        .connect(&address)
        .await?;

    let start = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (0..conversations).skip(writer).step_by(WRITERS) {
                    fill(&store, &key(number)).await?;
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await?.map_err(|error| error.to_string())?;
    }
    let appends = f64::from(conversations) * APPENDS as f64;
    let rate = appends / start.elapsed().as_secs_f64();
    println!("{conversations} conversations over {shards} shards, {WRITERS} writers");
    println!("appends a second: {rate:.0}, a shard: {:.0}", rate / f64::from(shards));

    let sample = (0..conversations).step_by((conversations as usize / 1000).max(1));
    let (start, mut loads) = (Instant::now(), 0.0);
    for number in sample {
        let history = store.load(&key(number)).await?;
        assert_eq!(history.messages.len() as u64, APPENDS * MESSAGES_OF_APPEND);
        loads += 1.0;
    }
    println!("loads a second, one after the other: {:.0}", loads / start.elapsed().as_secs_f64());

    let (client, connection) = tokio_postgres::connect(&address, NoTls).await?;
    tokio::spawn(connection);
    let sizes = Sizes::read(&client, shards).await?;
    sizes.print(conversations);
    let scopes = by_scope(&client, shards).await?;
    println!("skew of messages if divided by scope alone: {:.2}", skew(&scopes));
    Ok(())
}

/// Returns the key of a conversation. The number of conversations of the n-th scope is proportional
/// to 1/n.
fn key(number: u32) -> ConversationKey {
    // Multiplicative hashing distributes the numbers evenly, and equally in every run.
    let spread = f64::from(number.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
    let scope = 1000_f64.powf(spread) as u32;
    let scope = format!("customer-{scope:08}");
    ConversationKey::new(scope, RunId::from_bytes(id(number)).to_string())
}

/// Returns the bytes of an id that looks random. The text of the id has 36 characters.
fn id(number: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (part, salt) in bytes.chunks_mut(4).zip(1_u32..) {
        let mixed = number.wrapping_mul(2_246_822_519).wrapping_add(salt).rotate_left(13);
        part.copy_from_slice(&mixed.wrapping_mul(3_266_489_917).to_be_bytes());
    }
    bytes
}

/// Writes a conversation with one run. Each append contains the result of the previous call and the
/// next call.
async fn fill(
    store: &PostgresStore,
    key: &ConversationKey,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let run = RunId::new();
    let mut revision = Revision::ABSENT;
    for append in 0..APPENDS {
        let first = revision.sequence;
        let id = MessageId { run, index: u32::try_from(first)? };
        let messages: Vec<Arc<Message>> =
            (0..MESSAGES_OF_APPEND).map(|position| Arc::new(message(first + position))).collect();
        let call = SequencePosition { sequence: first + 2, index: 0 };
        let mut record =
            ToolRecord::pending(call, u32::try_from(append)?, "call_00000000", "search_orders");
        record.status = ToolStatus::Ok;
        record.result =
            RecordedResult::InMessage(SequencePosition { sequence: first + 3, index: 0 });
        record.started_at = Some(std::time::SystemTime::now());
        record.finished_at = record.started_at;
        let write = Write::new(key.clone(), id, revision, messages).with_tools(vec![record]);
        revision = store.append(store.reserve().await?, vec![write]).await?;
    }
    Ok(())
}

/// Returns a user message, a call, a result or an answer, depending on the sequence number. Each
/// message has the average length.
fn message(sequence: u64) -> Message {
    let shape = |text: &str| match sequence % MESSAGES_OF_APPEND {
        0 => Message::user(text),
        1 => {
            let arguments = format!("\"{text}\"");
            Message::tool_calls([ToolCall::new("call_00000000", "search_orders", arguments)])
        }
        2 => Message::tool_results([ToolResult::new("call_00000000", text)]),
        _ => Message::assistant(text),
    };
    let around = format::encode(&shape("")).len();
    shape(&"x".repeat(MESSAGE_BYTES.saturating_sub(around)))
}

/// The sizes of the tables in bytes, by shard.
struct Sizes(Vec<(&'static str, Vec<i64>, i64)>);

impl Sizes {
    async fn read(
        client: &tokio_postgres::Client,
        shards: u16,
    ) -> Result<Self, tokio_postgres::Error> {
        let mut tables = Vec::new();
        for table in TABLES {
            let (mut heaps, mut indexes) = (Vec::new(), 0);
            for shard in 0..shards {
                let sql = format!(
                    "SELECT pg_table_size(t), pg_indexes_size(t)
                     FROM to_regclass('{SCHEMA}.{table}_{shard}') AS t"
                );
                let row = client.query_one(&sql, &[]).await?;
                let (heap, index): (i64, i64) = (row.get(0), row.get(1));
                heaps.push(heap + index);
                indexes += index;
            }
            tables.push((table, heaps, indexes));
        }
        Ok(Self(tables))
    }

    fn print(&self, conversations: u32) {
        let mut all = 0.0;
        for (table, shards, indexes) in &self.0 {
            let bytes = shards.iter().sum::<i64>() as f64 / f64::from(conversations);
            let indexes = *indexes as f64 / f64::from(conversations);
            println!(
                "{table}: {bytes:.0} bytes a conversation, {indexes:.0} of them indexes; skew {:.3}",
                skew(shards)
            );
            all += bytes;
        }
        println!("together: {all:.0} bytes a conversation");
    }
}

/// Returns the number of messages that each shard would contain if only the scope determined the
/// shard of a conversation.
async fn by_scope(
    client: &tokio_postgres::Client,
    shards: u16,
) -> Result<Vec<i64>, tokio_postgres::Error> {
    let sql = format!(
        "SELECT sum(last_sequence)::bigint FROM {SCHEMA}.conversations
         GROUP BY abs(hashtext(encode(scope, 'hex'))) % {shards}"
    );
    let rows = client.query(&sql, &[]).await?;
    let mut shares: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    shares.resize(usize::from(shards), 0);
    Ok(shares)
}

/// Returns the size of the largest shard divided by the mean size.
fn skew(shards: &[i64]) -> f64 {
    let mean = shards.iter().sum::<i64>() as f64 / shards.len() as f64;
    shards.iter().copied().max().unwrap_or_default() as f64 / mean
}
