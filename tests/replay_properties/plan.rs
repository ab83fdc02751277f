//! A combination of policies, and the other inputs of a replay.

use std::{
    collections::HashSet,
    fmt,
    time::{Duration, SystemTime},
};

use tower_chat::{
    Message,
    message::MessageId,
    replay::{
        Channel, Citations, CompactionTime, DanglingCalls, EstimatedTokens, FinishTimes, Freshness,
        OutdatedCalls, ReplayPolicy, ToolHistory, Uncited, Window, effective_call_ids,
    },
    run::RunId,
};
use tower_chat_testkit::Rng;

pub(crate) const UNCITED: &str = "Nothing of this was cited.";

/// The number of seconds within which all tool calls end.
const SPAN: u64 = 1000;

#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) policy: ReplayPolicy,
    pub(crate) now: SystemTime,
    pub(crate) channel: Option<Channel>,
    /// The registered tools, if known.
    pub(crate) tools: Option<Vec<String>>,
    /// The seed from which the end times of tool calls are generated.
    times: u64,
}

impl Plan {
    pub(crate) fn random(rng: &mut Rng, messages: &[Message]) -> Self {
        let names = tool_names(messages);
        let dangling = [
            DanglingCalls::Drop,
            DanglingCalls::FromRecord,
            DanglingCalls::Interrupted,
            DanglingCalls::Fail,
        ];
        let mut policy = ReplayPolicy::default()
            .with_dangling_calls(*rng.one_of(&dangling).expect("one"))
            .with_outdated_calls(outdated(rng));
        if rng.one_in(8) {
            policy = policy.with_tool_history(ToolHistory::Omit);
        }
        if !rng.one_in(3) {
            policy = policy.with_freshness(freshness(rng, &names));
        }
        if !rng.one_in(3) {
            policy = policy.with_citations(citations(rng));
        }
        if !rng.one_in(3) {
            policy = policy.with_window(window(rng, messages.len()));
        }
        let channels = [None, Some("voice"), Some("web"), Some("sms")];
        let channel = rng.one_of(&channels).copied().flatten().map(Channel::new);
        let registered = names.iter().filter(|_| !rng.one_in(3)).cloned().collect();
        Self {
            policy,
            now: at(rng.next() % (2 * SPAN)),
            channel,
            tools: (!rng.one_in(4)).then_some(registered),
            times: rng.next(),
        }
    }

    /// Returns the end times of the tool calls in these messages. Some calls have none.
    pub(crate) fn finish_times(&self, messages: &[Message]) -> FinishTimes {
        let mut times = FinishTimes::new();
        let stored = messages.iter().enumerate();
        for (position, message) in stored {
            let run = RunId::from_bytes([0xff; 16]);
            let index = u32::try_from(position).expect("few messages");
            let id = message.id.unwrap_or(MessageId { run, index });
            for (call, call_id) in (0..).zip(effective_call_ids(message)) {
                let position = (u64::from(id.index) << 32) | u64::from(call);
                let mut rng = Rng::of(self.times, position);
                let finished = at(rng.next() % SPAN);
                match rng.below(8) {
                    0 => {}
                    1 => times.insert(id, call, call_id, None),
                    _ => times.insert(id, call, call_id, Some(finished)),
                }
            }
        }
        times
    }

    /// Returns variants of this plan, each without one of the enabled policies.
    pub(crate) fn simpler(&self) -> Vec<Self> {
        let with = |change: &dyn Fn(&mut Self)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            simpler
        };
        let mut plans = Vec::new();
        if self.policy.dangling_calls != DanglingCalls::Drop {
            plans.push(with(&|plan| plan.policy.dangling_calls = DanglingCalls::Drop));
        }
        if self.policy.tool_history != ToolHistory::Replay {
            plans.push(with(&|plan| plan.policy.tool_history = ToolHistory::Replay));
        }
        if self.policy.freshness.is_some() {
            plans.push(with(&|plan| plan.policy.freshness = None));
        }
        if !self.policy.outdated_calls.is_off() {
            plans.push(with(&|plan| plan.policy.outdated_calls = OutdatedCalls::keep()));
        }
        if self.policy.citations.is_some() {
            plans.push(with(&|plan| plan.policy.citations = None));
        }
        if self.policy.window.is_some() {
            plans.push(with(&|plan| plan.policy.window = None));
        }
        plans
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, channel {:?}, ", self.policy, self.channel)?;
        write!(f, "tools {:?}, now {:?}, times {}", self.tools, self.now, self.times)
    }
}

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn tool_names(messages: &[Message]) -> Vec<String> {
    let names: HashSet<&str> =
        messages.iter().flat_map(Message::asked_calls).map(|call| call.name.as_str()).collect();
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    names.sort();
    names
}

fn outdated(rng: &mut Rng) -> OutdatedCalls {
    let mut policy = OutdatedCalls::keep();
    if rng.one_in(2) {
        policy = policy.drop_unregistered();
    }
    if rng.one_in(2) {
        policy = policy.drop_unreadable_arguments();
    }
    policy
}

fn freshness(rng: &mut Rng, names: &[String]) -> Freshness {
    let mut policy = Freshness::within(any_window(rng));
    for channel in ["voice", "web"] {
        if rng.one_in(2) {
            policy = policy.with_channel(channel, any_window(rng));
        }
    }
    for name in names {
        if rng.one_in(4) {
            policy = policy.with_tool(name, any_window(rng));
        }
    }
    policy
}

fn any_window(rng: &mut Rng) -> Duration {
    match rng.below(6) {
        0 => Duration::ZERO,
        1 => Duration::MAX,
        _ => Duration::from_secs(rng.next() % (2 * SPAN)),
    }
}

fn citations(rng: &mut Rng) -> Citations {
    let policy = match rng.one_in(6) {
        true => Citations::when(CompactionTime::AtSave),
        false => Citations::default(),
    };
    match rng.one_in(2) {
        true => policy.on_uncited(Uncited::Replace(UNCITED.to_owned())),
        false => policy,
    }
}

fn window(rng: &mut Rng, messages: usize) -> Window {
    let window = match rng.below(4) {
        0 => Window::messages(rng.below(messages + 2)),
        1 => Window::turns(rng.below(8)),
        2 => Window::tokens(rng.below(400 * (messages + 1))),
        _ => Window::tokens_counted_by(rng.below(4000), EstimatedTokens),
    };
    match rng.one_in(3) {
        true => window.with_low_water(rng.below(messages + 2)),
        false => window,
    }
}
