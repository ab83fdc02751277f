//! `tower-chat verify`.

mod finding;

use std::process::ExitCode;

use serde::Serialize;
use tower_chat_repair::{Verified, verify as verify_store};

pub(crate) use self::finding::{Kind, write};
use crate::{
    arguments::VerifyArguments,
    error::CliError,
    output::{count_of, counted},
    report::Report,
};

pub(crate) async fn verify(arguments: VerifyArguments) -> Result<ExitCode, CliError> {
    let target = arguments.store.open_to_read("verify").await?.target();
    let mut output = Report::new(arguments.json);
    let mut report = |finding| write(&finding, Kind::Problem, &mut output);
    let verified = verify_store(&target, &mut report).await?;
    let summary = Summary::new(&verified, target.has_file());
    output.write(&summary.to_line(), &summary);
    output.finish()?;
    Ok(ExitCode::from(u8::from(verified.problems > 0)))
}

/// The numbers of checked items and of problems.
#[derive(Debug, Serialize)]
struct Summary {
    kind: &'static str,
    problems: usize,
    conversations: usize,
    messages: usize,
    tool_calls: usize,
    /// Whether the file of the store was checked. A store on a server has no file.
    file: bool,
}

impl Summary {
    fn new(verified: &Verified, file: bool) -> Self {
        let Verified { problems, conversations, messages, tool_calls, .. } = *verified;
        Self { kind: "summary", problems, conversations, messages, tool_calls, file }
    }

    fn to_line(&self) -> String {
        let Self { problems, conversations, messages, tool_calls, file, .. } = self;
        let found = match problems {
            0 => "no problems".to_owned(),
            problems => counted(count_of(*problems), "problem"),
        };
        let of_file = match file {
            true => ", and the file of the store",
            false => ", but not the files of the server",
        };
        format!(
            "{found}; checked: {}, {}, {}{of_file}",
            counted(count_of(*conversations), "conversation"),
            counted(count_of(*messages), "message"),
            counted(count_of(*tool_calls), "tool call")
        )
    }
}
