//! Tests with two processes that execute runs of the same conversation at the same time.

use tokio::task::yield_now;
use tower_chat::{
    HistoryStore, MemoryStore,
    PersistenceMode::{Journaled, PerRun, PerServiceCall},
};

use tower_chat_testkit::Rng;

use crate::faults::{
    SEED,
    case::{Caller, Case},
    killed::{self, ChildTask},
    model,
    process::{Process, key, request, serial_of},
    rules::{self, require},
    scenario::{readers_of, turns},
    script::{Input, RunScript},
    trace::{Event, Outcome, in_lines},
    trace_index::TraceIndex,
    world::{FaultPlan, World},
};
use crate::search::{Search, variable};

const SCHEDULES: u64 = 1_000;

/// Parts of the errors that a run may return if another process changes its conversation.
const STATED: [&str; 6] = [
    "is in progress in this process",
    "has the lease of run",
    "was changed by another run",
    "belongs to run",
    "has an open run",
    "another run was stored after it",
];

#[test]
fn two_simulated_processes_on_one_conversation_have_only_the_documented_outcomes() {
    let seed = variable("TOWER_CHAT_SEED").unwrap_or(SEED);
    let alone: Option<u64> = variable("TOWER_CHAT_CASE");
    let schedules = match alone {
        Some(case) => case..case + 1,
        None => 0..SCHEDULES,
    };
    let mut met = 0;
    for number in schedules {
        let case = random(seed, number);
        let world = World::new(case.seed, case.runs.len());
        let played = killed::runtime().block_on(play(&case, &world, MemoryStore::new()));
        match played {
            Ok(in_each_others_way) => met += u64::from(in_each_others_way),
            Err(failure) => {
                let command = Search::command(seed, number, "faults::two");
                panic!("{command}\n{failure}\n{}\n{case:#?}", in_lines(&world.trace()))
            }
        }
    }
    assert!(alone.is_some() || met > SCHEDULES / 10, "they met in {met} schedules only");
}

fn random(seed: u64, number: u64) -> Case {
    let mut rng = Rng::of(seed, number);
    let script = |rng: &mut Rng| RunScript {
        input: Input::Text,
        rounds: (0..rng.below(3))
            .map(|_| (0..1 + rng.below(2)).map(|_| ["look", "again"][rng.below(2)]).collect())
            .collect(),
    };
    let (seed, mode) = (rng.next(), [PerRun, PerServiceCall, Journaled][rng.below(3)]);
    let [streamed, concurrent, fail_call] = std::array::from_fn(|_| rng.one_in(2));
    let runs = vec![script(&mut rng), script(&mut rng)];
    Case { concurrent, fail_call, ..Case::plain(seed, mode, streamed, runs) }
}

/// Executes two runs at the same time, and repeats those that failed. Returns whether a run failed
/// because of the other run.
async fn play(
    case: &Case,
    world: &World,
    store: impl HistoryStore + Clone,
) -> Result<bool, String> {
    let mut readers = readers_of(store.clone(), case);
    let mut rng = Rng::of(case.seed, 1);
    let is_ahead = rng.one_in(2);
    // By the fast clock of this process, the lease of the other process has expired. The process
    // may therefore take over, and end, a run that the other process is still executing.
    readers.all_or_nothing &= !is_ahead;
    let left = Process::new(store.clone(), readers.clone(), world, case);
    let right = match is_ahead {
        true => Process::ahead(store.clone(), readers, world, case),
        false => Process::new(store.clone(), readers, world, case),
    };
    let processes = [left, right];
    let is_same_run = case.mode == Journaled && rng.one_in(4);
    world.begin(FaultPlan { delays: rng.next() | 1, ..FaultPlan::default() });
    let head_starts = [rng.below(12), rng.below(12)];
    let run = async |process: usize| {
        for _ in 0..head_starts[process] {
            yield_now().await;
        }
        let run = if is_same_run { 0 } else { process };
        let request = request(world, run, Input::Text, &[], case);
        processes[process].send(run, request, Caller::Patient).await
    };
    let (left, right) = futures_util::join!(run(0), run(1));
    world.begin(FaultPlan::default());
    for process in &processes {
        process.store.flush().await.map_err(|error| error.to_string())?;
    }
    check(case, world, &store, &[&left, &right], is_ahead).await?;
    let failed = [&left, &right].map(|outcome| !matches!(outcome, Outcome::Answer { .. }));
    require(failed != [true, true] || case.mode != PerRun, || {
        format!("both failed: {left:?} {right:?}")
    })?;
    for process in 0..2 {
        if failed[process] {
            let run = if is_same_run { 0 } else { process };
            // Each restart advances the clock by one hour. After two restarts, the leases of the
            // process with the fast clock have expired as well.
            world.advance_an_hour();
            world.advance_an_hour();
            let request = request(world, run, Input::Text, &[], case);
            let outcome = processes[process].send(run, request, Caller::Patient).await;
            check(case, world, &store, &[&outcome], is_ahead).await?;
            let may_fail = case.mode == PerServiceCall && says_overtaken(&outcome);
            let is_answer = matches!(outcome, Outcome::Answer { .. });
            require(is_answer || may_fail, || format!("run {run}, again: {outcome:?}"))?;
        }
    }
    let head = store.head(&key()).await.expect("no fault is injected");
    require(head.open_run.is_none(), || "a run is open at the end".to_owned())?;
    Ok(failed.contains(&true))
}

fn says_overtaken(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(error) if error.contains("another run was stored after it"))
}

/// Checks that every outcome is allowed, that the messages of the two runs are not mixed, and that
/// each run follows the rules of its mode.
async fn check(
    case: &Case,
    world: &World,
    store: &impl HistoryStore,
    outcomes: &[&Outcome],
    takes_over: bool,
) -> Result<(), String> {
    for outcome in outcomes {
        match outcome {
            Outcome::Answer { unsaved: 0, .. } => {}
            Outcome::Error(error) if STATED.iter().any(|stated| error.contains(stated)) => {}
            other => return Err(format!("no stated outcome: {other:?}")),
        }
    }
    if let Some(failure) = world.failures().first() {
        return Err(failure.clone());
    }
    let trace = world.trace();
    rules::check_calls(case, &TraceIndex::of(&trace))?;
    if !takes_over {
        rules::answers_are_paid_once(case, &TraceIndex::of(&trace))?;
    }
    let history = store.load(&key()).await.expect("no fault is injected");
    let seen = turns(world, history.messages.iter())?;
    let all = TraceIndex::of(&trace);
    for run in 0..case.runs.len() {
        let trace = of_run(&trace, run);
        rules::one_answer_is_lost_at_most(case, run, &all)?;
        let expected = model::history(case.mode, &TraceIndex::of(&trace), case.runs.len())?;
        let expected = expected.into_iter().find(|turn| turn.run == run);
        let seen = seen.iter().find(|turn| turn.run == run);
        require(seen == expected.as_ref(), || {
            format!("of run {run} readers see {seen:?}, not {expected:?}")
        })?;
        let answered = trace
            .iter()
            .any(|event| matches!(event, Event::Ended { outcome: Outcome::Answer { .. }, .. }));
        require(!answered || seen.is_some(), || format!("run {run} has disappeared"))?;
        let is_whole = seen.is_some_and(|turn| {
            let last = turn.labels.last().map(String::as_str).unwrap_or_default();
            last.starts_with("assistant:") && !last.contains('[')
        });
        let may_be_cut = case.mode == PerServiceCall && !answered;
        require(seen.is_none() || is_whole || may_be_cut, || {
            format!("run {run} is not whole: {seen:?}")
        })?;
    }
    Ok(())
}

fn of_run(trace: &[Event], of: usize) -> Vec<Event> {
    let serials: Vec<u32> = trace
        .iter()
        .filter_map(|event| match event {
            Event::Asked { run, serial, .. } if *run == of => Some(*serial),
            _ => None,
        })
        .collect();
    let is_of_run = |event: &&Event| match event {
        Event::Began { run, .. }
        | Event::Asked { run, .. }
        | Event::Answered { run, .. }
        | Event::Submitted { run, .. }
        | Event::Stored { run, .. }
        | Event::Closing { run }
        | Event::Ended { run, .. } => *run == of,
        Event::Unanswered { serial } => serials.contains(serial),
        Event::Started { call, .. } => serials.contains(&serial_of(call)),
        Event::Finished { token } => serials.contains(&serial_of(token)),
        Event::Summarized { .. }
        | Event::Compacted { .. }
        | Event::Branched { .. }
        | Event::Fault { .. }
        | Event::Restarted => true,
    };
    trace.iter().filter(is_of_run).cloned().collect()
}

#[test]
fn two_real_processes_on_one_file_have_only_the_documented_outcomes() {
    for number in 0..24_u32 {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let task = ChildTask {
            mode: [PerRun, PerServiceCall, Journaled][number as usize % 3],
            streamed: number % 2 == 1,
            run: 0,
            kill_at: None,
            first_serial: 0,
        };
        let other = ChildTask { run: 1, first_serial: 1_000, ..task.clone() };
        let children = [task.begin(folder), other.begin(folder)];
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let case = task.case();
        // Each trace contains only the events of its own process. The order of the two traces does
        // not matter.
        let (world, right) = (killed::world(folder, 0, 0), killed::world(folder, 1, 1_000));
        right.trace().into_iter().for_each(|event| world.note(event));
        let outcomes: Vec<Outcome> = world
            .trace()
            .into_iter()
            .filter_map(|event| match event {
                Event::Ended { outcome, .. } => Some(outcome),
                _ => None,
            })
            .collect();
        let checked = killed::runtime().block_on(async {
            let store = killed::open(folder).await;
            check(&case, &world, &store, &outcomes.iter().collect::<Vec<_>>(), false).await
        });
        if let Err(failure) = checked {
            panic!("{task:?}: {failure}\n{}", in_lines(&world.trace()));
        }
    }
}
