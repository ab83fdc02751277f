//! The process of tower-chat in the comparison with other frameworks; see
//! [`tower_chat_benches::peers`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tower_chat_benches::peers::main()
}
