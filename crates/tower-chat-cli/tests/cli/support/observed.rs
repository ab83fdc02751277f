//! Conversations with fixed times and ids, for which tests can compare the exact output.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::json;
use tower_chat::{
    ConversationKey, HistoryStore, Message, Part, PersistenceMode, Role, ToolCall, ToolResult,
    message::{ErrorPart, Media, MediaSource, MessageId, Native, Reasoning},
    request::Usage,
    run::RunId,
    store::{
        DescriptionPatch, Directory, Lease, LeaseEnd, ModelUsage, Revision, RunActivity, UsageSum,
        author::{RecordedResult, Staged, ToolRecord, Write},
    },
    tool::ApprovalRequest,
};
use tower_chat_repair::extract;

use super::TestStore;

/// Returns the time that is this number of milliseconds after 2026-11-23 08:00 UTC.
pub(crate) fn at(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH
        + Duration::from_secs(1_795_420_800)
        + Duration::from_millis(milliseconds)
}

/// Returns a run id that was created at the time that [`at`] returns.
pub(crate) fn run_id(milliseconds: u64) -> RunId {
    let since = at(milliseconds).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let made = u64::try_from(since.as_millis()).unwrap().to_be_bytes();
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&made[2..]);
    bytes[6..9].copy_from_slice(&[0x70, 0, 0x80]);
    RunId::from_bytes(bytes)
}

/// Sets the time at which the message was added to the time that [`at`] returns.
pub(crate) fn added(milliseconds: u64, mut message: Message) -> Message {
    message.added_at = Some(at(milliseconds));
    message
}

/// The writes of one conversation, in the order in which they are stored.
pub(crate) struct Writes {
    key: ConversationKey,
    expected: Revision,
    pub(crate) writes: Vec<Write>,
}

impl Writes {
    pub(crate) fn of(scope: &str, id: &str) -> Self {
        let key = ConversationKey::new(scope, id);
        Self { key, expected: Revision::ABSENT, writes: Vec::new() }
    }

    /// Adds a write of a run at this time. `index` is the index of its first message.
    pub(crate) fn add(
        &mut self,
        run: RunId,
        first: u32,
        messages: Vec<Message>,
        tools: Vec<ToolRecord>,
        activity: RunActivity,
    ) -> &mut Write {
        // The time at which the request arrived is the time of creation of the run id.
        let activity = match run.made_at() {
            Some(made) => activity.with_start(made),
            None => activity,
        };
        let id = MessageId { run, index: first };
        let messages = messages.into_iter().map(Arc::new);
        let write = Write::new(self.key.clone(), id, self.expected, messages);
        let write = write.with_tools(tools).with_activity(activity);
        self.expected = write.result();
        self.writes.push(write);
        self.writes.last_mut().unwrap()
    }

    pub(crate) fn next(&self) -> u64 {
        self.expected.sequence + 1
    }
}

pub(crate) fn activity(
    milliseconds: u64,
    mode: PersistenceMode,
    usage: impl IntoIterator<Item = (Option<&'static str>, UsageSum)>,
) -> RunActivity {
    let usage = usage.into_iter();
    let usage = usage.map(|(model, sum)| ModelUsage::new(model.map(Into::into), sum));
    RunActivity::new(at(milliseconds)).with_mode(mode).with_usage(usage)
}

fn used(calls: u64, tools: u64, tokens: [u64; 4], cost: Option<u64>) -> UsageSum {
    let mut usage = Usage::new(tokens[0], tokens[2]);
    (usage.cached_input_tokens, usage.reasoning_tokens) = (tokens[1], tokens[3]);
    UsageSum::of_calls(calls, tools).with_tokens(usage).with_cost_nanos(cost)
}

/// Returns the record of the calls in messages, with the start and the end of each call.
pub(crate) fn timed(messages: &[Message], first: u64, times: &[(u64, u64)]) -> Vec<ToolRecord> {
    let mut records = extract(&messages.iter().cloned().collect(), first, 0);
    for (record, (started, finished)) in records.iter_mut().zip(times) {
        (record.started_at, record.finished_at) = (Some(at(*started)), Some(at(*finished)));
    }
    records
}

/// Returns a conversation with two parallel calls, of which one fails, and a waiting call.
pub(crate) fn wardrobe() -> Writes {
    let mut writes = Writes::of("alice", "wardrobe");
    let (first, second) = (run_id(0), run_id(60_000));
    let asks = Message::new(
        Role::Assistant,
        vec![
            Reasoning::new("Weather first, then what the shops have.").into(),
            Part::text("Let me look."),
            ToolCall::new("call_1", "weather", r#"{"city":"Paris"}"#).into(),
            ToolCall::new("call_2", "stock", r#"{"item":"coat"}"#).into(),
        ],
    );
    let messages = vec![
        added(0, Message::user("What should I wear in Paris?")),
        added(900, asks),
        added(
            1_450,
            Message::tool_results([
                ToolResult::new("call_1", "Rain, 7 degrees."),
                ToolResult::error("call_2", "The shop does not answer."),
            ]),
        ),
        added(2_104, Message::assistant("A rain coat. I could not see what the shops have.")),
    ];
    let mut tools = timed(&messages, 1, &[(910, 1_120), (910, 1_440)]);
    tools[1].error = Some("connection refused".to_owned());
    let sum = used(2, 2, [1_250, 400, 61, 24], Some(452_500));
    let reported = activity(0, PersistenceMode::PerServiceCall, []);
    writes.add(first, 0, messages[..1].to_vec(), Vec::new(), reported);
    let reported = activity(2_104, PersistenceMode::PerServiceCall, [(Some("gpt-5-mini"), sum)]);
    writes.add(first, 1, messages[1..].to_vec(), tools, reported);

    let order = ToolCall::new("call_3", "order", r#"{"item":"rain coat","price":"129 EUR"}"#);
    let asks = Message::new(
        Role::Assistant,
        vec![
            Part::text("I can order one."),
            ApprovalRequest::new("approval_1", order, true).into(),
        ],
    );
    let messages = vec![added(60_000, Message::user("Order one.")), added(61_300, asks)];
    let tools = timed(&messages, writes.next(), &[]);
    let sum = used(1, 1, [1_400, 1_250, 38, 0], Some(194_750));
    let reported = activity(61_300, PersistenceMode::PerServiceCall, [(Some("gpt-5-mini"), sum)]);
    writes.add(second, 0, messages, tools, reported);
    writes
}

/// Returns a conversation that consists of a question and an answer.
pub(crate) fn hats() -> Writes {
    let mut writes = Writes::of("alice", "hats");
    let messages = vec![
        added(20_000, Message::user("And a hat?")),
        added(20_750, Message::assistant("A felt hat: straw gets soft in the rain.")),
    ];
    let sum = used(1, 0, [310, 0, 17, 0], Some(111_500));
    let reported = activity(20_750, PersistenceMode::PerRun, [(Some("gpt-5-mini"), sum)]);
    writes.add(run_id(20_000), 0, messages, Vec::new(), reported);
    writes
}

/// Returns a conversation with four kinds of calls: approved, rejected, run by the provider, and
/// with a result that is only in the record.
pub(crate) fn decided() -> Writes {
    let mut writes = Writes::of("carol", "decisions");
    let run = run_id(7_200_000);
    let request = |id: &str, tool: &str| {
        let call = ToolCall::new(format!("call_{id}"), tool, format!("{{\"of\":\"{id}\"}}"));
        ApprovalRequest::new(format!("approval_{id}"), call, true)
    };
    let (one, two) = (request("one", "send"), request("two", "erase"));
    let mut search = ToolCall::new("search_1", "web_search", r#"{"query":"coats"}"#);
    search.provider_executed = true;
    let mut record_alone = ToolResult::new("call_end", "The ticket is closed.");
    record_alone.ends_run = true;
    let cut = format!("the beginning{}", tower_chat::replay::Truncation::MARKER);
    let messages = vec![
        added(7_200_000, Message::user("Send it, and erase the rest.")),
        added(
            7_201_000,
            Message::new(Role::Assistant, vec![one.clone().into(), two.clone().into()]),
        ),
        added(7_202_000, Message::approvals([one.approve(), two.reject("not now")])),
        added(
            7_203_000,
            Message::tool_results([
                ToolResult::new("call_one", cut),
                ToolResult::error("call_two", "The caller has rejected the call: not now"),
            ]),
        ),
        added(
            7_204_000,
            Message::new(
                Role::Assistant,
                vec![
                    search.into(),
                    ToolResult::new("search_1", "42 coats").into(),
                    ToolCall::new("call_end", "close_ticket", "{}").into(),
                ],
            ),
        ),
    ];
    let mut tools = timed(&messages, 1, &[(7_202_100, 7_202_400)]);
    let ending = tools.last_mut().unwrap();
    ending.status = tower_chat::tool::ToolStatus::Ok;
    ending.result = RecordedResult::Apart(Box::new(record_alone));
    let reported = activity(7_204_000, PersistenceMode::Journaled, []);
    writes.add(run, 0, messages, tools, reported);
    writes
}

/// Returns a conversation with this number of messages. Each turn has two messages.
pub(crate) fn long(messages: u64) -> Writes {
    let mut writes = Writes::of("dave", "long");
    let text = |number| match number % 2 {
        1 => Message::user(format!("question {number}")),
        _ => Message::assistant(format!("answer {number}")),
    };
    let messages = (1..=messages).map(|number| added(number, text(number))).collect();
    let reported = activity(1, PersistenceMode::PerRun, []);
    writes.add(run_id(1), 0, messages, Vec::new(), reported);
    writes
}

/// Returns a conversation with parts of every kind, an open run, and omitted messages.
pub(crate) fn odd() -> Writes {
    let mut writes = Writes::of("bob", "漢字 \u{1b}[2J");
    let run = run_id(3_600_000);
    let native = Native::new("anthropic", json!({"type": "citation"}).to_string().parse().unwrap());
    let every_part = Message::new(
        Role::User,
        vec![
            Part::text("See these:\n\u{1b}[31mred\u{202e}"),
            Media::new("image/png", MediaSource::Base64("aGVsbG8=".to_owned())).into(),
            Media::new("application/pdf", MediaSource::Url("https://host/file.pdf".to_owned()))
                .into(),
            Media::new("text/plain", MediaSource::File("file_9".to_owned())).into(),
            ErrorPart::new("the upload broke").into(),
            native.into(),
        ],
    );
    let mut early = added(3_600_000, every_part);
    early.author = Some("Bob \u{9b}1m".to_owned());
    let messages = vec![
        early,
        added(
            3_601_000,
            Message::tool_calls([
                ToolCall::new("c7", "lost", "{}"),
                ToolCall::new("c8", "long", json!({"text": "x".repeat(600)}).to_string()),
            ]),
        ),
        added(3_602_000, Message::tool_results([ToolResult::new("c8", "line\n".repeat(40))])),
        added(3_603_000, Message::tool_results([ToolResult::new("c9", "of no call")])),
    ];
    let tools = timed(&messages, 1, &[]);
    let reported =
        activity(3_603_000, PersistenceMode::PerRun, [(None, used(1, 2, [9, 0, 1, 0], None))]);
    writes.add(run, 0, messages, tools, reported);
    let staged_run = run_id(3_700_000);
    let lease =
        Lease { attempt: 2, holder: 7, renewed_at: at(3_700_000), until: LeaseEnd::NotHeld };
    let partial_text = Some("I have".into());
    let staged = Staged { lease, close: None, service_id: None, partial_text };
    let messages = vec![
        added(3_700_000, Message::user("go on")),
        added(3_701_000, Message::tool_calls([ToolCall::new("c10", "slow", r#"{"n":1}"#)])),
    ];
    let tools = timed(&messages, writes.next(), &[]);
    let reported = activity(
        3_701_000,
        PersistenceMode::Journaled,
        [
            (Some("model b"), used(1, 1, [5, 0, 2, 0], Some(3))),
            (Some("model a"), used(1, 0, [4, 0, 1, 0], None)),
        ],
    );
    let write = writes.add(staged_run, 0, messages, tools, reported);
    *write = write.clone().staged(staged);
    writes
}

/// Stores these conversations, and sets two titles and the metadata of one conversation.
pub(crate) fn fill_observed(store: &TestStore, conversations: Vec<Writes>) {
    store.with(async |history| {
        for of_one in conversations {
            for write in of_one.writes {
                history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
            }
            let members =
                [("topic".to_owned(), json!("clothes")), ("year".to_owned(), json!(2026))];
            let patch = match of_one.key.id() {
                "wardrobe" => DescriptionPatch::new()
                    .with_title("A coat for Paris")
                    .with_metadata(members.into_iter().collect()),
                _ if of_one.key.scope() == "bob" => {
                    DescriptionPatch::new().with_title("Hats for 巴黎 in winter")
                }
                _ => continue,
            };
            history.change_description(&of_one.key, &patch).await.unwrap();
        }
    });
}
