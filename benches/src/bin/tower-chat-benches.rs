//! Measures the cost of the layers for each service call, together with a floor.

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::main()
}
