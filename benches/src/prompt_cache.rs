//! `prompt_cache`: the share of the prompt tokens that a provider reads from its prompt cache, for
//! several replay policies.
//!
//! The recordings of each source are joined to one long conversation, in which every sixth question
//! has a picture. A turn begins every minute. Each service call sends the earlier turns as the
//! policy edits them, followed by the messages of its own turn. The repository contains only short
//! recordings; the variable `TOWER_CHAT_DATA` names a folder with more.
//!
//! The simulated cache follows the rules of OpenAI. The common beginning of a request and the
//! previous request is read from the cache if it has at least 1024 tokens. Its length is rounded
//! down to a multiple of 128 tokens. Tokens are estimated, and cache entries do not expire.
//!
//! `cost` is the cost of all prompts in proportion to the cost without a policy. A token from the
//! cache costs a tenth of another token. The cost includes the requests that create summaries.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use tower_chat::{
    BoxError, Message, Part, Role,
    message::{Media, MediaSource, MessageId, Messages},
    replay::{
        DanglingCalls, EstimatedTokens, FinishTimes, Freshness, OldMedia, Replay, ReplayContext,
        ReplayPolicy, TokenCounter, ToolHistory, Window, effective_call_ids,
    },
    run::RunId,
};
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::openai_chat::parse_message;

use crate::{Effort, report::rounded};

const TURN: Duration = Duration::from_secs(60);
/// The shortest prefix that a provider caches, in tokens.
const MIN_CACHED: usize = 1024;
/// The length of a cached prefix is a multiple of this number of tokens.
const CACHED_STEP: usize = 128;
const CACHED_COST: f64 = 0.1;
/// The maximum length of the replay for the policies that have one, in tokens.
const LIMIT: usize = 16_000;
/// The number of most recent turns that a summary does not cover.
const UNCOVERED_TURNS: usize = 4;

/// A line of the output.
#[derive(Serialize)]
struct Figure {
    case: &'static str,
    mode: &'static str,
    requests: usize,
    /// The mean number of prompt tokens of a request.
    tokens: f64,
    /// The share of the prompt tokens that were read from the cache.
    cached: f64,
    cost: f64,
}

pub(crate) fn measure(effort: Effort) -> Result<(), BoxError> {
    let conversations = conversations(effort)?;
    let policies = [
        ("none", ReplayPolicy::default()),
        ("window", ReplayPolicy::default().with_window(Window::tokens(LIMIT))),
        ("freshness", ReplayPolicy::default().with_freshness(Freshness::within(20 * TURN))),
        ("old_media", ReplayPolicy::default().with_old_media(OldMedia::keep_last(3))),
        ("no_tools", ReplayPolicy::default().with_tool_history(ToolHistory::Omit)),
    ];
    let mut cost_without_policy = None;
    let unlimited = policies.map(|(mode, policy)| (mode, policy, false));
    for (mode, policy, summarizes) in
        unlimited.into_iter().chain([("summaries", ReplayPolicy::default(), true)])
    {
        let mut total = Prompts::default();
        for turns in &conversations {
            Conversation::new(policy.clone(), summarizes).play(turns, &mut total);
        }
        let cost = total.cost();
        let base = *cost_without_policy.get_or_insert(cost);
        let figure = Figure {
            case: "prompt_cache",
            mode,
            requests: total.requests,
            tokens: rounded(total.tokens as f64 / total.requests as f64),
            cached: rounded(total.cached as f64 / total.tokens as f64),
            cost: rounded(cost / base),
        };
        println!("{}", serde_json::to_string(&figure)?);
    }
    Ok(())
}

/// A question and everything up to the next question.
type Turn = Vec<Arc<Message>>;

/// Returns one long conversation for each source of recordings.
fn conversations(effort: Effort) -> Result<Vec<Vec<Turn>>, BoxError> {
    let mut messages: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for recorded in Recordings::all().conversations()? {
        let joined = messages.entry(recorded.folder).or_default();
        for json in &recorded.messages {
            let message = parse_message(&json.to_string())?;
            // Only the instructions of the first recording are used.
            if message.role != Role::System || joined.iter().all(|it| it.role == Role::System) {
                joined.push(message);
            }
        }
    }
    let most = effort.repetitions(1000);
    Ok(messages.into_values().map(|messages| turns(messages, most)).collect())
}

/// Divides messages into turns, and sets their ids. Every sixth question gets a picture.
fn turns(messages: Vec<Message>, most: usize) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut last = None;
    for mut message in messages {
        let begins = message.role == Role::User && last.is_some_and(|role| role != Role::User);
        if begins && turns.len().is_multiple_of(6) {
            let source = MediaSource::File(format!("file-{}", turns.len()));
            message.parts.push(Part::Media(Media::new("image/png", source)));
        }
        last = Some(message.role);
        if begins || turns.is_empty() {
            turns.push(Turn::new());
        }
        let run = turns.len();
        let Some(turn) = turns.last_mut() else { continue };
        message.id = Some(MessageId { run: run_id(run), index: turn.len() as u32 });
        turn.push(message.into());
    }
    turns.truncate(most);
    turns
}

fn run_id(turn: usize) -> RunId {
    RunId::at(time(turn))
}

fn time(turn: usize) -> SystemTime {
    SystemTime::UNIX_EPOCH + TURN * (turn as u32 + 1)
}

/// The prompts of all requests.
#[derive(Default)]
struct Prompts {
    requests: usize,
    tokens: usize,
    cached: usize,
}

impl Prompts {
    fn cost(&self) -> f64 {
        (self.tokens - self.cached) as f64 + self.cached as f64 * CACHED_COST
    }

    /// Adds a request to the counts, and returns the request. `previous` is the previous request of
    /// the conversation.
    fn send(&mut self, request: Vec<Arc<Message>>, previous: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let is_same = |(a, b): &(&Arc<Message>, &Arc<Message>)| {
            Arc::ptr_eq(a, b) || (a.role == b.role && a.parts == b.parts)
        };
        let common = request.iter().zip(previous).take_while(is_same).map(|(message, _)| message);
        let common: usize = common.map(tokens).sum();
        self.requests += 1;
        self.tokens += request.iter().map(tokens).sum::<usize>();
        if common >= MIN_CACHED {
            self.cached += common / CACHED_STEP * CACHED_STEP;
        }
        request
    }
}

fn tokens(message: &Arc<Message>) -> usize {
    EstimatedTokens.tokens(message)
}

/// A stored conversation.
struct Conversation {
    policy: ReplayPolicy,
    summarizes: bool,
    /// The instructions and the summary, if there is a summary.
    head: Vec<Arc<Message>>,
    replay: Replay,
    finished: FinishTimes,
}

impl Conversation {
    fn new(policy: ReplayPolicy, summarizes: bool) -> Self {
        let replay = Replay::new(DanglingCalls::default());
        Self { policy, summarizes, head: Vec::new(), replay, finished: FinishTimes::new() }
    }

    fn play(mut self, turns: &[Turn], prompts: &mut Prompts) {
        let mut previous = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            let mut history = self.history(number);
            if self.summarizes && history.iter().map(tokens).sum::<usize>() > LIMIT {
                prompts.send(history, &[]);
                self.summarize(turns, number);
                history = self.history(number);
            }
            for (position, message) in turn.iter().enumerate() {
                if message.role == Role::Assistant {
                    let added = turn.iter().take(position).cloned();
                    let request = history.iter().cloned().chain(added).collect();
                    previous = prompts.send(request, &previous);
                }
            }
            for message in turn {
                self.store(message, number);
            }
        }
    }

    fn history(&self, turn: usize) -> Vec<Arc<Message>> {
        let mut replay = self.replay.clone();
        let context = ReplayContext::at(time(turn)).with_finish_times(&self.finished);
        self.policy.edit(&mut replay, &context);
        self.head.iter().chain(replay.view().iter()).cloned().collect()
    }

    fn store(&mut self, message: &Arc<Message>, turn: usize) {
        self.replay.push(message);
        if let Some(id) = message.id {
            for (index, call_id) in (0..).zip(effective_call_ids(message)) {
                self.finished.insert(id, index, &*call_id, Some(time(turn)));
            }
        }
    }

    /// Creates a summary of the turns before a turn, except the last [`UNCOVERED_TURNS`] of them.
    fn summarize(&mut self, turns: &[Turn], before: usize) {
        let uncovered = before.saturating_sub(UNCOVERED_TURNS);
        let first = turns.iter().flatten();
        let instructions = first.take_while(|message| message.role == Role::System).cloned();
        let summary = Message::user(format!("Summary {before}: {}", "What was said. ".repeat(105)));
        self.head = instructions.chain([summary.into()]).collect();
        self.replay = Replay::new(DanglingCalls::default());
        let later: Messages =
            turns.iter().take(before).skip(uncovered).flatten().cloned().collect();
        self.replay.push_from(&later, 0);
    }
}
