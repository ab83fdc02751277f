//! Executes a target with damaged inputs, and checks the rules.

use std::{
    ops::Range,
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use tower_chat_testkit::Rng;

use crate::{
    Figures, Plant, Rule, damage,
    figures::{LONG, approximate},
    memory,
    targets::Target,
};

/// The memory of an execution may be at most a fixed number of bytes plus a number of bytes for
/// each byte of the input. The measured maximum is 320 bytes for each byte: the parser of Gemini
/// answers allocates a part of the message for each number in a list of one-digit numbers.
const FIXED_BYTES: usize = 1024 * 1024;
const BYTES_PER_BYTE: usize = 512;
/// The processor time of an execution may be at most a fixed time plus a time for each byte of the
/// input. For long inputs, quadratic work takes a thousand times as long as linear work.
const FIXED_TIME: Duration = Duration::from_millis(20);
const TIME_PER_BYTE: Duration = Duration::from_micros(5);
/// The factor by which the time limit is longer in a debug build.
const SLOWDOWN: u32 = if cfg!(debug_assertions) { 2 } else { 1 };
/// The number of repetitions of an execution that exceeds the time limit. The first execution may
/// initialise the process, and the load of the machine may slow any execution.
const REPETITIONS: usize = 2;

/// The text of the first panic of the current execution, on any thread.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

pub(crate) struct Search<'a> {
    pub(crate) target: &'a Target,
    pub(crate) seed: u64,
    pub(crate) plant: Option<Plant>,
}

/// The case of a search that breaks a rule, and its input.
pub(crate) struct Broken {
    pub(crate) case: u64,
    pub(crate) rule: Rule,
    pub(crate) input: Vec<u8>,
}

/// The result of an execution.
struct Execution {
    is_accepted: bool,
    /// The processor time of all threads.
    time: Duration,
    /// The peak memory, in bytes.
    bytes: usize,
}

impl Search<'_> {
    /// Executes the cases until a case breaks a rule. Before each execution, calls `begins` with
    /// the case and its input.
    pub(crate) fn run(
        &self,
        cases: Range<u64>,
        figures: &mut Figures,
        mut begins: impl FnMut(u64, &[u8]),
    ) -> Result<(), Broken> {
        let start = Instant::now();
        let before = figures.seconds;
        for case in cases {
            let mut rng = Rng::of(self.seed, case);
            let input = damage::damaged(&self.target.seeds, &mut rng);
            begins(case, &input);
            let outcome = self.check_rules(&input, &rng);
            figures.seconds = before + start.elapsed().as_secs_f64();
            figures.executions += 1;
            let execution = outcome.map_err(|rule| Broken { case, rule, input: input.clone() })?;
            add(figures, &execution, input.len());
        }
        Ok(())
    }

    /// Executes the target with one undamaged input, and with the random numbers of this case.
    /// Returns whether the parser accepts the input.
    pub(crate) fn input(&self, input: &[u8], case: u64) -> Result<bool, Rule> {
        let mut rng = Rng::of(self.seed, case);
        drop(damage::damaged(&self.target.seeds, &mut rng));
        self.check_rules(input, &rng).map(|execution| execution.is_accepted)
    }

    fn check_rules(&self, input: &[u8], rng: &Rng) -> Result<Execution, Rule> {
        let execution = self.execute(input, rng)?;
        let length = input.len();
        let most_bytes = FIXED_BYTES + BYTES_PER_BYTE * length;
        if execution.bytes > most_bytes {
            // The first execution may allocate memory to initialise the process. A repetition does
            // not.
            let bytes = self.execute(input, rng)?.bytes;
            if bytes > most_bytes {
                return Err(Rule::Memory { bytes, length });
            }
        }
        let max_time = FIXED_TIME + TIME_PER_BYTE * u32::try_from(length).unwrap_or(u32::MAX);
        if execution.time > max_time * SLOWDOWN {
            let mut least = execution.time;
            for _ in 0..REPETITIONS {
                least = least.min(self.execute(input, rng)?.time);
                if least <= max_time * SLOWDOWN {
                    return Ok(execution);
                }
            }
            let milliseconds = u64::try_from(least.as_millis()).unwrap_or(u64::MAX);
            return Err(Rule::Time { milliseconds, length });
        }
        Ok(execution)
    }

    fn execute(&self, input: &[u8], rng: &Rng) -> Result<Execution, Rule> {
        let mut rng = rng.clone();
        let run = || {
            if let Some(plant) = self.plant {
                plant.apply(input);
            }
            (self.target.run)(input, &mut rng)
        };
        let start = processor_time();
        let (outcome, bytes) = memory::measured(|| catch_unwind(AssertUnwindSafe(run)));
        let time = processor_time().saturating_sub(start);
        let panicked = PANIC.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (outcome, panicked) {
            (Ok(is_accepted), None) => Ok(Execution { is_accepted, time, bytes }),
            (_, Some(text)) => Err(Rule::Panic(text)),
            (Err(_), None) => Err(Rule::Panic(String::new())),
        }
    }
}

/// Returns the processor time that all threads of the process have used.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = Duration::from_secs(time.tv_sec.try_into().unwrap_or_default());
    seconds + Duration::from_nanos(time.tv_nsec.try_into().unwrap_or_default())
}

fn add(figures: &mut Figures, execution: &Execution, length: usize) {
    figures.accepted += u64::from(execution.is_accepted);
    if length >= LONG {
        let bytes = approximate(execution.bytes as u64) / approximate(length as u64);
        figures.bytes_per_byte = figures.bytes_per_byte.max(bytes);
    }
    let ms = execution.time.as_secs_f64() * 1e3;
    if ms > figures.slowest_ms {
        (figures.slowest_ms, figures.slowest_length) = (ms, length);
    }
}

pub(crate) fn record_panics() {
    panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        let mut recorded = PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        // Later panics may be consequences of the first one.
        recorded.get_or_insert(text);
    }));
}
