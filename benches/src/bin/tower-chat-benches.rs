//! Measures what the layers cost per service call, each figure beside its floor in the same run.

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::main()
}
