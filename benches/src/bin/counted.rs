//! Does once what the instructions are counted of: `counted CASE MODE STORED`.
//!
//! `benches/instructions.py` runs it in callgrind, which counts inside of [`measured`] alone.

use std::{env, hint::black_box};

use tower_chat::{BoxError, PersistenceMode};
use tower_chat_benches::counted::{AllSteps, CALLS, DeepClone, Run};

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["rounds", mode, stored] => run(mode, stored, CALLS),
        ["single", mode, stored] => run(mode, stored, 1),
        ["replay"] => {
            let steps = AllSteps::prepare();
            drop(measured(|| steps.show()));
            Ok(())
        }
        ["clone"] => {
            let messages = DeepClone::prepare();
            drop(measured(|| messages.make()));
            Ok(())
        }
        _ => Err("usage: counted rounds|single MODE STORED, counted replay, counted clone".into()),
    }
}

fn run(mode: &str, stored: &str, calls: usize) -> Result<(), BoxError> {
    let mode = match mode {
        "per_run" => PersistenceMode::PerRun,
        "per_service_call" => PersistenceMode::PerServiceCall,
        "journaled" => PersistenceMode::Journaled,
        _ => return Err(format!("no such mode: {mode}").into()),
    };
    let mut run = Run::prepare(mode, stored.parse()?, calls)?;
    measured(|| run.make())
}

/// What is done in here is counted.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}
