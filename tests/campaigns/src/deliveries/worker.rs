//! A process that executes runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::io::{AsyncBufReadExt, BufReader};
use tower::{Layer, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ChatUpdate, ConversationKey, Finish,
    PersistencePolicy, Role, ToolDefinition, Tools,
    policy::ConcurrentRuns,
    recovery::JournalPolicy,
    request::{FinishReason, ToolCallDelta},
    run::{Conversation, RunId},
    tool_fn,
};
use tower_chat_delivery::{DetachedRunsLayer, RunKey, SqliteUpdateLog};
use tower_chat_sqlite::SqliteStore;
use tower_chat_testkit::Rng;

use super::{LEASE, Mode, histories, updates};
use crate::Failure;

/// One of the processes of the campaign `deliveries`
#[derive(Debug, Clone, clap::Args)]
pub struct WorkerArguments {
    /// The folder of the files
    #[arg(long)]
    folder: PathBuf,
    /// The id of the run
    #[arg(long)]
    run: RunId,
    /// The seed of the answers
    #[arg(long)]
    seed: u64,
    #[arg(long, value_enum)]
    mode: Mode,
    /// Whether updates are stored before they are delivered
    #[arg(long)]
    durable: bool,
}

pub(super) fn run_key(run: RunId) -> RunKey {
    RunKey::new(ConversationKey::new("campaign", "deliveries"), run)
}

/// Executes commands until standard input ends: `send`, `stop`, and `drain`, which is answered with
/// `idle`. Prints `asked` for each request to the model.
///
/// # Errors
///
/// [`Failure::CannotRun`] if a file cannot be used.
pub fn work(arguments: &WorkerArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = runtime.map_err(Failure::cannot_run)?.block_on(serve(arguments));
    served.map_err(|error| Failure::CannotRun { what: "serve".to_owned(), source: Some(error) })
}

async fn serve(arguments: &WorkerArguments) -> Result<(), BoxError> {
    let store = SqliteStore::open(histories(&arguments.folder)).await?;
    let runs = DetachedRunsLayer::new(SqliteUpdateLog::open(updates(&arguments.folder)).await?);
    let runs = runs.with_lease(LEASE).with_batches(Duration::from_millis(50), 4096);
    let runs = if arguments.durable { runs.durable_delivery() } else { runs };
    let stack = runs.layer(pipeline(arguments, store)?);
    let run = run_key(arguments.run);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    while let Some(command) = commands.next_line().await? {
        match command.as_str() {
            "send" => {
                let conversation = Conversation { key: run.conversation.clone(), run: run.run };
                let request = ChatRequest::user("Go on.").in_run(conversation).streamed();
                // The caller disconnects after the beginning of the response.
                tokio::spawn(stack.clone().oneshot(request));
            }
            "stop" => {
                runs.stop(&run).await?;
            }
            "drain" => {
                let runs = runs.clone();
                tokio::spawn(async move {
                    runs.drained().await;
                    println!("idle");
                });
            }
            other => return Err(format!("there is no command {other}").into()),
        }
    }
    Ok(())
}

fn pipeline(arguments: &WorkerArguments, store: SqliteStore) -> Result<ChatPipeline, BoxError> {
    let seed = arguments.seed;
    let model = service_fn(move |request: ChatRequest| async move {
        println!("asked");
        Ok::<_, BoxError>(answer(seed, &request))
    });
    let lookup = ToolDefinition::new("lookup", "Looks up.", serde_json::json!({}));
    // A repeated request waits in this queue until the lease of the killed process has expired.
    // Before that time, this process may not take over the run.
    let queue = ConcurrentRuns::Queue { max_waiting: 8 };
    let journal = JournalPolicy::default().with_lease(LEASE).with_max_lease_wait(30 * LEASE);
    let pipeline = ChatPipeline::builder(model)
        .tools(Tools::new().with(tool_fn(lookup, |_| async { Ok("Rain.") })))
        .history(store)
        .persistence(arguments.mode.into())
        .policy(
            PersistencePolicy::default()
                .with_partial_text(true)
                .with_journal(journal)
                .with_concurrent_runs(queue),
        )
        .build()?;
    Ok(pipeline)
}

/// Returns an answer whose deltas are numbers, with pauses between them. Every answer except the
/// last one calls a tool.
fn answer(seed: u64, request: &ChatRequest) -> ChatResponse {
    let answers =
        request.messages().iter().filter(|message| message.role == Role::Assistant).count();
    let rounds = Rng::of(seed, 0).below(4);
    let mut rng = Rng::of(seed, 1 + answers as u64);
    let size = rng.one_of(&[3, 40, 600]).copied().unwrap_or(3);
    let count = 1 + rng.below(40);
    let rng = Arc::new(std::sync::Mutex::new(rng));
    let texts = stream::iter(0..count).then(move |index| {
        let pause = rng.lock().map_or(0, |mut rng| rng.below(15) as u64);
        async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            Ok(ChatUpdate::TextDelta(format!("{index:>size$} ")))
        }
    });
    let end = if answers < rounds {
        let call = ToolCallDelta::new(0, "{}").with_id(format!("c{answers}")).with_name("lookup");
        let finish = Finish::new(FinishReason::ToolCalls);
        vec![Ok(ChatUpdate::ToolCallDelta(call)), Ok(ChatUpdate::Finish(finish.into()))]
    } else {
        vec![Ok(ChatUpdate::Finish(Finish::stop().into()))]
    };
    ChatResponse::stream(texts.chain(stream::iter(end)))
}
