//! Measures the cost of the layers for each service call, and compares it with a floor; see
//! [`tower_chat_benches`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::main()
}
