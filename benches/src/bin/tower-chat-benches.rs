//! Measures the cost of the layers for each service call; see [`tower_chat_benches`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::main()
}
