//! `tower-chat-fuzz`: calls parsers with damaged inputs, and prints figures and findings.

use std::process::ExitCode;

use clap::Parser as _;
use tower_chat_fuzz::{Arguments, run};

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
