//! Tests with killed processes. For each step of a run, a child process aborts at this step, and
//! another child process continues the run. The store is a file.

use std::{
    env,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
};

use tower_chat::PersistenceMode::{self, Journaled, PerRun, PerServiceCall};
use tower_chat_sqlite::{Durability, SqliteStore};

use crate::faults::{
    case::{Caller, Case},
    process::{Process, request},
    scenario::{Scenario, readers_of},
    script::{Input, RunScript},
    trace::{Event, Outcome, in_lines},
    world::{FaultPlan, World},
};

const SEED: u64 = 5;
const MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, Journaled];

#[derive(Debug, Clone)]
pub(crate) struct ChildTask {
    pub(crate) mode: PersistenceMode,
    pub(crate) streamed: bool,
    pub(crate) run: usize,
    pub(crate) kill_at: Option<u64>,
    pub(crate) first_serial: u32,
}

impl ChildTask {
    pub(crate) fn begin(&self, folder: &Path) -> std::process::Child {
        let mode = MODES.iter().position(|mode| *mode == self.mode).unwrap();
        let kill_at = self.kill_at.unwrap_or(0);
        let Self { streamed, run, first_serial, .. } = self;
        Command::new(env::current_exe().unwrap())
            .args(["--exact", "faults::killed::a_child", "--ignored", "--nocapture"])
            .env("TOWER_CHAT_FAULTS_FOLDER", folder)
            .env(
                "TOWER_CHAT_FAULTS_CHILD_TASK",
                format!("{mode} {} {run} {kill_at} {first_serial}", u8::from(*streamed)),
            )
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn of(text: &str) -> Self {
        let numbers: Vec<u64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        Self {
            mode: MODES[usize::try_from(numbers[0]).unwrap()],
            streamed: numbers[1] == 1,
            run: usize::try_from(numbers[2]).unwrap(),
            kill_at: Some(numbers[3]).filter(|at| *at > 0),
            first_serial: u32::try_from(numbers[4]).unwrap(),
        }
    }

    /// Returns the conversation. It has two runs, one of which the child process executes.
    pub(crate) fn case(&self) -> Case {
        let script = |rounds| RunScript { input: Input::Text, rounds };
        let runs =
            vec![script(vec![vec!["look", "again"], vec!["fail"]]), script(vec![vec!["look"]])];
        Case { on_disk: true, ..Case::plain(SEED, self.mode, self.streamed, runs) }
    }
}

/// Creates the world of a case with the trace that the child processes have written.
pub(crate) fn world(folder: &Path, run: usize, first_serial: u32) -> World {
    World::of_file(SEED, 2, &folder.join(format!("trace{run}")), first_serial)
}

pub(crate) async fn open(folder: &Path) -> SqliteStore {
    let options = SqliteStore::options().with_durability(Durability::Normal);
    options.open(folder.join("chat.db")).await.unwrap()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

#[test]
#[ignore = "the child of other tests"]
fn a_child() {
    let Some(folder) = env::var_os("TOWER_CHAT_FAULTS_FOLDER") else { return };
    let folder = Path::new(&folder);
    let task = ChildTask::of(&env::var("TOWER_CHAT_FAULTS_CHILD_TASK").unwrap());
    let case = task.case();
    let world = world(folder, task.run, task.first_serial);
    runtime().block_on(async {
        let store = open(folder).await;
        let process = Process::new(store.clone(), readers_of(store, &case), &world, &case);
        let fault_plan = FaultPlan { kill_at: task.kill_at, aborts: true, ..FaultPlan::default() };
        world.begin(fault_plan);
        let request = request(&world, task.run, Input::Text, &[], &case);
        process.send(task.run, request, Caller::Patient).await;
    });
}

fn killed_at_every_step(mode: PersistenceMode, streamed: bool) {
    let task = ChildTask { mode, streamed, run: 0, kill_at: None, first_serial: 0 };
    for step in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let first = ChildTask { kill_at: Some(step), ..task.clone() };
        let status = first.begin(folder).wait().unwrap();
        let complete = status.success();
        let context = format!("{mode:?}, streamed: {streamed}, killed at step {step}");
        if !complete {
            append_kill(folder, &status);
            check(&task, folder, false, &context);
            if step % 3 == 0 {
                // A second child process continues the run, and is killed too.
                let again = ChildTask { kill_at: Some(step / 2 + 1), ..task.clone() };
                let status = again.begin(folder).wait().unwrap();
                if !status.success() {
                    append_kill(folder, &status);
                }
                check(&task, folder, false, &context);
            }
            let last = task.begin(folder).wait().unwrap();
            assert!(last.success(), "{context}: the child that goes on failed");
        }
        check(&task, folder, true, &context);
        assert_eq!(last_outcome(folder), Some(true), "{context}");
        if complete {
            assert!(step > 10, "the run has more steps than {step}");
            return;
        }
    }
}

fn append_kill(folder: &Path, status: &ExitStatus) {
    use std::os::unix::process::ExitStatusExt;
    assert!(status.signal().is_some(), "the child was not killed, it failed");
    let world = world(folder, 0, 0);
    world.note(Event::Ended { run: 0, outcome: Outcome::Killed });
    world.note(Event::Restarted);
}

fn check(task: &ChildTask, folder: &Path, is_end: bool, context: &str) {
    let case = task.case();
    let world = world(folder, 0, 0);
    let checked = runtime()
        .block_on(async { Scenario::begin(&case, &world, open(folder).await).check(is_end).await });
    if let Err(failure) = checked {
        panic!("{context}: {failure}\n{}", in_lines(&world.trace()));
    }
}

/// Returns whether the last finished run returned an answer.
fn last_outcome(folder: &Path) -> Option<bool> {
    world(folder, 0, 0).trace().iter().rev().find_map(|event| match event {
        Event::Ended { outcome, .. } => Some(matches!(outcome, Outcome::Answer { .. })),
        _ => None,
    })
}

#[test]
fn after_a_kill_at_any_step_the_history_is_as_the_contract_states() {
    let of_modes = |modes: [PersistenceMode; 3], streamed| {
        modes.into_iter().for_each(|mode| killed_at_every_step(mode, streamed));
    };
    thread::scope(|scope| {
        let whole = scope.spawn(move || of_modes(MODES, false));
        let streamed = scope.spawn(move || of_modes([Journaled, PerServiceCall, PerRun], true));
        for result in [whole.join(), streamed.join()] {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
