//! `tower-chat completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::{arguments::Arguments, error::CliError, output::Lines};

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints a script with which a shell completes the arguments of the command.
pub(crate) fn completions(arguments: CompletionsArguments) -> Result<ExitCode, CliError> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut Arguments::command(), "tower-chat", &mut script);
    let mut lines = Lines::default();
    // The script is not escaped, because it contains no stored content.
    lines.write_exactly(String::from_utf8_lossy(&script).trim_end());
    lines.finish().map_err(CliError::Output)?;
    Ok(ExitCode::SUCCESS)
}
