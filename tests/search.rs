//! Searches for a generated case that fails, in several threads.

use std::{
    env,
    ops::Range,
    str::FromStr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The cases that a test tries. Environment variables set the seed (`TOWER_CHAT_SEED`), the number
/// of cases (`TOWER_CHAT_CASES`) or the duration of the search (`TOWER_CHAT_SECONDS`), and the
/// number of threads (`TOWER_CHAT_THREADS`). `TOWER_CHAT_CASE` selects one case.
pub(crate) struct Search {
    pub(crate) seed: u64,
    pub(crate) cases: Range<u64>,
    until: Option<Instant>,
}

impl Search {
    pub(crate) fn new(seed: u64, count: u64) -> Self {
        let seconds = variable("TOWER_CHAT_SECONDS");
        let count = if seconds.is_some() { u64::MAX } else { count };
        Self {
            seed: variable("TOWER_CHAT_SEED").unwrap_or(seed),
            cases: match variable("TOWER_CHAT_CASE") {
                Some(case) => case..case + 1,
                None => 0..variable("TOWER_CHAT_CASES").unwrap_or(count),
            },
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        }
    }

    /// Returns the number of the first failing case, if any, and the number of tried cases.
    pub(crate) fn first(&self, fails: impl Fn(u64) -> bool + Sync) -> (Option<u64>, u64) {
        let end = self.cases.end;
        let next = AtomicU64::new(self.cases.start);
        let failed: Mutex<Option<u64>> = Mutex::new(None);
        let work = || {
            while self.until.is_none_or(|until| Instant::now() < until)
                && let Some(case) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&n| n < end)
            {
                if fails(case) {
                    next.store(end, Ordering::Relaxed);
                    let mut failed = failed.lock().expect("nothing panics");
                    *failed = Some(failed.map_or(case, |other| other.min(case)));
                }
            }
        };
        let threads = variable("TOWER_CHAT_THREADS")
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        let begun = next.load(Ordering::Relaxed).min(end) - self.cases.start;
        (failed.into_inner().expect("nothing panics"), begun)
    }

    /// Returns the command that repeats a case.
    pub(crate) fn command(seed: u64, case: u64, test: &str) -> String {
        format!(
            "TOWER_CHAT_SEED={seed} TOWER_CHAT_CASE={case} \
             cargo test -p tower-chat-tests --test tests {test}"
        )
    }
}

/// Returns the smallest case found that still fails.
pub(crate) fn shrunk<Case>(
    mut case: Case,
    simpler: impl Fn(&Case) -> Vec<Case>,
    fails: impl Fn(&Case) -> bool,
) -> Case {
    while let Some(found) = simpler(&case).into_iter().find(&fails) {
        case = found;
    }
    case
}

pub(crate) fn variable<T: FromStr>(name: &str) -> Option<T> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value:?}")))
}
