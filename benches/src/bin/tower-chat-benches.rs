//! Measures the cost of the layers for each service call, and compares the cost with a floor, which
//! is the time of a simpler operation; see [`tower_chat_benches`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::main()
}
