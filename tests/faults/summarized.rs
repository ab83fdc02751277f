//! Summaries of earlier runs. The service that writes summaries returns a list of the texts in its
//! request. The text of a summary therefore shows which messages it covers.

use tokio::task::yield_now;
use tower::service_fn;
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, Finish, Message,
    PersistenceMode::{Journaled, PerRun, PerServiceCall},
    Role,
    policy::Summarize,
    request::FinishReason,
    run::RunId,
    store::{History, HistorySummary},
};

use crate::faults::{
    SEED,
    case::{Attempt, Case},
    pictures,
    rules::require,
    scenario::play,
    script::{Input, RunScript},
    trace::{Event, in_lines},
    world::{FaultPlan, Step, World},
};

const HEADING: &str =
    "[Summary of the earlier conversation, whose messages are not sent again:]\n\n";
/// The name of the service in the trace.
pub(crate) const SUMMARIZER: &str = "the service that writes summaries";
const PROMPT: &str = "Summarise.";

/// Creates the policy that makes a summary of a conversation with more than 5 messages.
pub(crate) fn policy(world: &World) -> Summarize {
    let world = world.clone();
    let service = service_fn(move |request| write_summary(world.clone(), request));
    Summarize::above(5, service)
        .with_kept_turns(1)
        .with_token_counter(|_: &Message| 1)
        .with_prompt(PROMPT)
}

async fn write_summary(world: World, request: ChatRequest) -> Result<ChatResponse, BoxError> {
    for _ in 0..world.delay() {
        yield_now().await;
    }
    let mut finish = Finish::stop();
    match world.step(SUMMARIZER) {
        Step::Fine => {}
        Step::Dead => return std::future::pending().await,
        Step::Wrong(mut rng) => match rng.below(4) {
            0 => return Err("overloaded".into()),
            1 => return std::future::pending().await,
            2 => return Ok(ChatResponse::whole([Message::assistant("")], finish)),
            _ => finish = Finish::new(FinishReason::Length),
        },
    }
    let text = texts(request.messages().iter().map(|message| &**message)).join("\n");
    world.note(Event::Summarized { text: text.clone() });
    Ok(ChatResponse::whole([Message::assistant(text)], finish))
}

/// Returns the texts of the inputs and answers in these messages. A summary counts as the texts
/// that it lists.
fn texts<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<String> {
    let mut texts = Vec::new();
    for message in messages {
        let text = message.text();
        let text = text.strip_suffix(pictures::SENTENCE).unwrap_or(&text);
        match text.strip_prefix(HEADING) {
            Some(listed) => texts.extend(listed.lines().map(str::to_owned)),
            None if message.role == Role::Tool || text.is_empty() || text == PROMPT => {}
            None => texts.push(text.to_owned()),
        }
    }
    texts
}

/// Checks that a request of a run contains every visible text of the other runs once and in order,
/// either as a message or in a summary.
pub(crate) fn check_sent(
    request: &ChatRequest,
    run: RunId,
    history: &History,
) -> Result<(), String> {
    let is_of_other = |message: &&Message| message.id.is_none_or(|id| id.run != run);
    let stored = texts(history.messages.iter().map(|message| &**message).filter(is_of_other));
    let mut sent = texts(request.messages().iter().map(|message| &**message));
    sent.retain(|text| stored.contains(text));
    require(sent == stored, || format!("the model receives {sent:?} of the stored {stored:?}"))
}

/// Checks that the service has returned the text of each stored summary, and that the text lists
/// exactly the covered messages.
pub(crate) fn check_stored(
    summaries: &[HistorySummary],
    history: &History,
    trace: &[Event],
) -> Result<(), String> {
    for summary in summaries {
        let covered = history.messages.iter().take(summary.covers_to as usize);
        let covered = texts(covered.map(|message| &**message)).join("\n");
        require(*summary.text == *covered, || {
            format!("{summary:?} covers {covered:?}, and has another text")
        })?;
        let is_written = Event::Summarized { text: covered };
        require(trace.contains(&is_written), || format!("the service did not return {summary:?}"))?;
    }
    Ok(())
}

/// Creates a conversation whose last run makes a summary and has this fault.
fn case(mode: tower_chat::PersistenceMode, streamed: bool, fault_plan: FaultPlan) -> Case {
    let script = |rounds| RunScript { input: Input::Text, rounds };
    let runs = vec![
        script(vec![vec!["look", "again"]]),
        script(vec![vec!["fail"]]),
        script(vec![vec!["look"], vec!["again"]]),
    ];
    Case {
        summarizes: true,
        faulty_run: 2,
        attempts: vec![Attempt { fault_plan, restarts: true, ..Attempt::default() }],
        ..Case::plain(SEED, mode, streamed, runs)
    }
}

/// Executes a case with a fault at each step of its last run. Returns the numbers of the steps for
/// which the trace matches.
fn at_every_step(plan: impl Fn(u64) -> FaultPlan, matches: impl Fn(&[Event]) -> bool) -> Vec<u64> {
    let mut matching = Vec::new();
    for mode in [PerRun, PerServiceCall, Journaled] {
        for streamed in [false, true] {
            for step in 1..=STEPS {
                let case = case(mode, streamed, plan(step));
                let (trace, played) = play(&case);
                if let Err(failure) = played {
                    let context = format!("{mode:?}, streamed: {streamed}, step {step}");
                    panic!("{context}: {failure}\n{}", in_lines(&trace));
                }
                matching.extend(matches(&trace).then_some(step));
            }
        }
    }
    matching
}

/// More than the number of steps of the run in every mode.
const STEPS: u64 = 70;

#[test]
fn after_a_death_at_any_step_no_message_is_hidden_without_a_summary() {
    let kill_at = |step| FaultPlan { kill_at: Some(step), ..FaultPlan::default() };
    let count = |trace: &[Event]| {
        trace.iter().filter(|event| matches!(event, Event::Summarized { .. })).count()
    };
    // If a process dies between the answer of the service and the addition of the summary, the next
    // process makes the summary again.
    let again = at_every_step(kill_at, |trace| count(trace) > 2);
    assert!(!again.is_empty());
}

#[test]
fn after_a_failure_at_any_step_no_message_is_hidden_without_a_summary() {
    for how in 0..3 {
        let fails = |step| FaultPlan { faults: vec![(step, how)], ..FaultPlan::default() };
        let of_summary =
            |event: &Event| matches!(event, Event::Fault { what } if is_of_summary(what));
        let met = at_every_step(fails, |trace| trace.iter().any(of_summary));
        assert!(met.len() >= 12, "{met:?}");
    }
}

/// Returns whether a fault is in an operation that makes a summary.
fn is_of_summary(what: &str) -> bool {
    what == SUMMARIZER || what == "AddSummary"
}
